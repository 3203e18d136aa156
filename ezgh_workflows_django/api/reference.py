"""The document, served: as JSON to every caller, as a page to staff. The page asks no other host for anything, and runs no script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request

from . import openapi
from .base import ApiView, RunView
from .callers import StaffAuthentication
from .docs import SERVER, call, unlisted
from .plain_json import to_response


class DocumentView(RunView):
    """The OpenAPI document."""

    @call(SERVER, "Get the OpenAPI document", None, OpenApiTypes.OBJECT)
    def get(self, request: Request) -> HttpResponse:
        """Every call, field and code, for any key."""
        return to_response(_document())


class PageView(ApiView):
    """The document as a page."""

    authentication_classes = (StaffAuthentication,)

    @unlisted
    def get(self, request: Request) -> HttpResponse:
        """For staff of the Django site."""
        told = _document()
        context = {
            "title": told["info"]["title"],
            "description": told["info"]["description"],
            "json_url": reverse("ezgh_workflows:openapi"),
            "tags": [{**tag, "calls": list(_calls(told, tag["name"]))} for tag in told["tags"]],
        }
        return HttpResponse(render_to_string("ezgh_workflows/api.html", context, request._request))


@cache
def _document() -> dict[str, Any]:
    return openapi.document()


def _calls(told: Mapping[str, Any], tag: str) -> Iterator[dict[str, Any]]:
    for path, methods in told["paths"].items():
        for method, each in methods.items():
            if tag in each["tags"]:
                yield {
                    "id": each["operationId"],
                    "method": method.upper(),
                    "path": path,
                    "summary": each["summary"],
                    "description": each["description"],
                    "fields": list(_fields(told, each)),
                    "sample": _sample(told, each),
                    "answers": [(status, answer["description"]) for status, answer in sorted(each["responses"].items())],
                }


def _fields(told: Mapping[str, Any], each: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The parameters and the body's fields of one call."""
    for parameter in each.get("parameters", ()):
        yield {
            "name": parameter["name"],
            "type": f"{parameter['in']} {_type(parameter['schema'])}",
            "needed": parameter.get("required", False),
            "what": parameter.get("description", ""),
        }
    yield from properties(_body(told, each))


def _sample(told: Mapping[str, Any], each: Mapping[str, Any]) -> str:
    """The sample of one call's body, or nothing."""
    return "".join(json.dumps(sample, indent=1, ensure_ascii=False) for sample in _body(told, each).get("examples", ()))


def _body(told: Mapping[str, Any], each: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of one call's body; empty where it has none."""
    content = each.get("requestBody", {"content": {"application/json": {"schema": {}}}})["content"]
    name = content["application/json"]["schema"].get("$ref", "").rsplit("/", 1)[-1]
    found: Mapping[str, Any] = told["components"]["schemas"].get(name, {})
    return found


def properties(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The fields of one shape, each with its type in a few words."""
    for name, field in schema.get("properties", {}).items():
        yield {"name": name, "type": _type(field), "needed": name in schema.get("required", ()), "what": field.get("description", "")}


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[-1])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "oneOf" in schema or "allOf" in schema:
        return " | ".join(_type(each) for each in schema.get("oneOf") or schema["allOf"])
    kinds = schema.get("type", "any")
    return " or ".join(_kind(kind, schema) for kind in (kinds if isinstance(kinds, list) else [kinds]))


def _kind(kind: str, schema: Mapping[str, Any]) -> str:
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    return f"{kind} {schema.get('format', '')}".strip() if kind != "null" else kind
