"""Every call of the API, found in the routes themselves, so that a new one is in each matrix of the tests (case B94)."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.urls import URLPattern, URLResolver

from ezgh_workflows_django.api.base import RunView, WorkerView
from ezgh_workflows_django.api.routes import urlpatterns
from ezgh_workflows_django.models import App
from tests.api.conftest import Caller, Reply
from tests.conftest import ROOT

METHODS: Final = ("get", "post", "patch", "put", "delete")

NO_PERMISSION: Final = {"api/health", "api/openapi.json", "api/docs"}
"""What needs none: the first no key either, the others one of any kind."""

NOWHERE: Final[Mapping[str, str]] = {
    "organization": "default",
    "project": "default",
    "app": "default",
    "run_id": str(uuid.UUID(int=1)),
    "lease_id": str(uuid.UUID(int=2)),
    "worker_id": str(uuid.UUID(int=3)),
}
"""What stands in a path where nothing else is said: the default app, and ids of things that are nowhere."""


@dataclass(frozen=True)
class Call:
    """One method of one path below `v1/`. `needs` are its permissions."""

    method: str
    route: str
    needs: tuple[str, ...]
    view: Any

    def __str__(self) -> str:
        return f"{self.method} {self.route}"

    @property
    def parameters(self) -> list[str]:
        """The names of what stands in its path."""
        return re.findall(r"<\w+:(\w+)>", self.route)

    @property
    def documented(self) -> str:
        """Its path in the OpenAPI document."""
        return "/v1/" + re.sub(r"<\w+:(\w+)>", r"{\1}", self.route)

    @property
    def is_for_workers(self) -> bool:
        """Whether it is a call of the worker protocol."""
        return issubclass(self.view, WorkerView)

    @property
    def is_for_staff(self) -> bool:
        """Whether people of the Django site may use it too."""
        return issubclass(self.view, RunView)

    def path(self, **values: str) -> str:
        """The path with these values in it."""
        told = {**NOWHERE, **values}
        return re.sub(r"<(\w+):(\w+)>", lambda found: told.get(found[2], "0" if found[1] == "int" else "thing"), self.route)

    def by(self, caller: Caller, body: Any = None, **values: str) -> Reply:
        """Make the call; without a body, with an empty object."""
        return caller.call(self.method, self.path(**values), {} if body is None else body)


def _walk(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for each in patterns:
        path = prefix + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from _walk(each.url_patterns, path)
        elif isinstance(each, URLPattern):
            yield path, each.callback


VIEWS: Final = tuple(_walk(list(urlpatterns)))
"""Every route with the function that Django calls for it."""


def calls() -> list[Call]:
    """Every call there is."""
    return [
        Call(method.upper(), route.removeprefix("v1/"), tuple(vars(function)["view_class"].needs.get(method.upper(), ())), vars(function)["view_class"])
        for route, function in VIEWS
        for method in METHODS
        if hasattr(vars(function)["view_class"], method)
    ]


GUARDED: Final = tuple(call for call in calls() if call.route not in NO_PERMISSION)
"""Every call that needs a permission."""


def call_of(method: str, route: str) -> Call:
    """One of them."""
    [found] = [call for call in calls() if (call.method, call.route) == (method, route)]
    return found


def document() -> Any:
    """The OpenAPI document as it is committed."""
    return json.loads((ROOT / "docs" / "openapi.json").read_text())


def another_app(of: Any, name: str = "other") -> App:
    """One more app of a project."""
    return App.objects.create(project=of, name=name, created_at=of.created_at)
