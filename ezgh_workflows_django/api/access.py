"""A project's keys, and its trail."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from ..engine import keys, payloads, permissions, trail
from ..errors import NotPermitted
from ..models import ApiKey
from . import reach, run_answers, tenancy_shapes
from .base import ApiView, caller
from .docs import TENANCY, call
from .pages import Page, page
from .plain_json import to_response

READ_TRAILS = "workflows.trails.read"


class KeysView(ApiView):
    """The keys of a project."""

    needs = {"POST": (permissions.CREATE_KEYS,), "GET": ("workflows.keys.read",)}

    @call(TENANCY, "Create a key", tenancy_shapes.NewKey, tenancy_shapes.KeyMade, status=HTTPStatus.CREATED)
    def post(self, request: Request, **where: str) -> HttpResponse:
        """No stronger than the key that makes it, and in its scope or narrower. Its secret is shown this once."""
        asked = self.read(request, tenancy_shapes.NewKey)
        identity, project = caller(request), reach.project(caller(request), where)
        app = None if asked.get("app") is None else reach.app(identity, asked["app"], where)
        ends = None if asked.get("expires_at") is None else datetime.fromisoformat(asked["expires_at"])
        key, text = keys.create(asked["name"], asked["permissions"], by=identity, project=project, app=app, expires_at=ends)
        return to_response({**_told(key), "key": text}, HTTPStatus.CREATED)

    @call(TENANCY, "List keys", None, tenancy_shapes.KeysTold, query=Page)
    def get(self, request: Request, **where: str) -> HttpResponse:
        """Revoked and expired ones too, the newest first, never with a secret."""
        asked = self.read_query(request, Page)
        project = reach.project(caller(request), where)
        shown, following = page(keys.keys_of(project.pk, caller(request).app_id), asked)
        return to_response({"keys": [_told(key) for key in shown], "next": following})


class KeyView(ApiView):
    """One key."""

    needs = {"DELETE": (permissions.REVOKE_KEYS,)}

    @call(TENANCY, "Revoke a key", None, tenancy_shapes.KeyTold)
    def delete(self, request: Request, prefix: str, **where: str) -> HttpResponse:
        """It opens nothing any more, at once. Revoking it twice changes nothing."""
        project = reach.project(caller(request), where)
        return to_response(_told(keys.revoke(prefix, by=caller(request), project_id=project.pk)))


class TrailsView(ApiView):
    """Who did what."""

    needs = {"GET": (READ_TRAILS,)}

    @call(TENANCY, "Read the trail", None, tenancy_shapes.TrailsTold, query=tenancy_shapes.TrailQuery)
    def get(self, request: Request, **where: str) -> HttpResponse:
        """The newest first, by action, actor, target and time. A key of one app can't: the trail is the project's."""
        asked = self.read_query(request, tenancy_shapes.TrailQuery)
        project = reach.project(caller(request), where)
        if caller(request).app_id is not None:
            raise NotPermitted([READ_TRAILS], "the trail is the project's, and this key belongs to one app of it")
        for name in ("since", "until"):
            if name in asked:
                asked[name] = reach.moment(name, asked[name])
        found = trail.page(project.pk, **asked)
        return to_response({"trails": [_entry(row) for row in found.entries], "next": found.cursor})


def _told(key: ApiKey) -> dict[str, Any]:
    moments = ("created_at", "expires_at", "revoked_at", "used_at")
    return {
        "prefix": key.prefix,
        "name": key.name,
        "app": None if key.app is None else key.app.name,
        "permissions": list(keys.grants_of(key)),
        "created_by": key.created_by,
        **{name: run_answers.moment(getattr(key, name)) for name in moments},
    }


def _entry(row: Any) -> dict[str, Any]:
    told = {name: getattr(row, name) for name in ("action", "actor_kind", "actor", "target_kind", "target")}
    return {"at": run_answers.moment(row.at), **told, "data": payloads.from_text(row.data)}
