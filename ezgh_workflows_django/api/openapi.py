"""The OpenAPI 3.1 document of this API: the same whatever the host project includes, and whatever it has set for drf-spectacular."""

from __future__ import annotations

import json
from typing import Any, Final

from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import patched_settings

from .. import __version__
from ..definitions.wire import RETRY_SCHEMA, SPEC_SCHEMA
from .samples import SAMPLES

SETTINGS: Final[dict[str, Any]] = {
    "TITLE": "EZGH Workflows",
    "DESCRIPTION": "Durable workflows for Django: the worker protocol, runs, tenancy. Times are RFC 3339 UTC, durations milliseconds. "
    "Unknown fields are ignored, unknown enum values refused.",
    "VERSION": __version__,
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/v1",
    "COMPONENT_SPLIT_REQUEST": False,
    "ENUM_NAME_OVERRIDES": {},
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "PREPROCESSING_HOOKS": [],
    "POSTPROCESSING_HOOKS": [],
    "SORT_OPERATIONS": True,
    "SORT_OPERATION_PARAMETERS": True,
    "SERVERS": [],
    "TAGS": [
        {"name": "worker", "description": "The worker protocol."},
        {"name": "runs", "description": "Starting runs, looking at them, steering them."},
        {"name": "tenancy", "description": "Apps, keys, the trail."},
        {"name": "server", "description": "The server itself."},
    ],
}


class _Key(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the document names an API key."""

    target_class = "ezgh_workflows_django.api.callers.KeyAuthentication"
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        """`Authorization: Bearer ezw_…`."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "ezw_<prefix>_<secret>"}


class _Staff(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the document names a session of the Django site."""

    target_class = "ezgh_workflows_django.api.callers.StaffAuthentication"
    name = "staff"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        """The session's cookie; writing needs the CSRF token too."""
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}


class _Definition(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """The schema of a definition, from the one place that has it."""

    target_class = "ezgh_workflows_django.api.worker_shapes.Definition"

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Without what the document says for all its schemas."""
        return {key: value for key, value in SPEC_SCHEMA.items() if key != "$schema"}


class _RetryPolicy(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """The schema of a retry policy, likewise."""

    target_class = "ezgh_workflows_django.api.worker_shapes.RetryPolicy"

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """It has nothing to leave out."""
        return dict(RETRY_SCHEMA)


def document() -> dict[str, Any]:
    """The document, paths relative to where the project includes `ezgh_workflows_django.urls`."""
    from .routes import urlpatterns  # these routes serve the document

    with patched_settings(SETTINGS):
        generator: Any = SchemaGenerator(patterns=urlpatterns)  # type: ignore[no-untyped-call]
        told: dict[str, Any] = generator.get_schema(request=None, public=True)
    for name, sample in SAMPLES.items():
        told["components"]["schemas"][name]["examples"] = [sample]
    return told


def as_text() -> str:
    """The document as the file that is committed."""
    return json.dumps(document(), indent=1, ensure_ascii=False, default=str) + "\n"
