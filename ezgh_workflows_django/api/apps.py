"""Apps of a project: creating them, looking at them, letting them grow, holding their work back."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from ..engine import announcing
from ..engine import apps as verbs
from ..models import App
from . import reach, run_answers, tenancy_shapes
from .base import ApiView, caller
from .docs import RUNS, TENANCY, call
from .pages import Page, page
from .plain_json import to_response


class AppsView(ApiView):
    """The apps of a project."""

    needs = {"POST": (verbs.CREATE,), "GET": ("workflows.apps.read",)}

    @call(TENANCY, "Create an app", tenancy_shapes.NewApp, tenancy_shapes.AppTold, status=HTTPStatus.CREATED, conflicts="`app_exists`")
    def post(self, request: Request, **where: str) -> HttpResponse:
        """An app with one queue over 1 to 32 partitions."""
        asked = self.read(request, tenancy_shapes.NewApp)
        made = verbs.create(reach.project(caller(request), where), by=caller(request), **asked)
        return to_response(_told([made])[0], HTTPStatus.CREATED)

    @call(TENANCY, "List apps", None, tenancy_shapes.AppsTold, query=Page)
    def get(self, request: Request, **where: str) -> HttpResponse:
        """The newest first, each with its queue's depth, its oldest ready step, live workers, announced workflows and stranded runs."""
        asked = self.read_query(request, Page)
        reach.project(caller(request), where)
        shown, following = page(reach.apps(caller(request)), asked)
        return to_response({"apps": _told(shown), "next": following})


class AppView(ApiView):
    """One app."""

    needs = {"PATCH": (verbs.UPDATE,), "GET": ("workflows.apps.read",)}

    @call(TENANCY, "Get an app", None, tenancy_shapes.AppPage)
    def get(self, request: Request, **where: str) -> HttpResponse:
        """With how its queue stands, and the runs that no live worker serves."""
        app = reach.app(caller(request), where["app"], where)
        return to_response(_told([app])[0] | {"stranded_runs": _stranded(app)})

    @call(TENANCY, "Update an app", tenancy_shapes.AppChange, tenancy_shapes.AppTold, conflicts="`partitions_shrink`, `queue_fixed`")
    def patch(self, request: Request, **where: str) -> HttpResponse:
        """Partitions only grow; the queue can't change."""
        asked = self.read(request, tenancy_shapes.AppChange)
        app = reach.app(caller(request), where["app"], where)
        return to_response(_told([verbs.update(app, by=caller(request), **asked)])[0])


class AppPauseView(ApiView):
    """Hold an app's work back."""

    needs = {"POST": (verbs.PAUSE,)}

    @call(TENANCY, "Pause an app", tenancy_shapes.Pause, tenancy_shapes.AppTold)
    def post(self, request: Request, **where: str) -> HttpResponse:
        """Claims answer empty, of the app or of one workflow of it; all else goes on."""
        asked = self.read(request, tenancy_shapes.Pause)
        app = reach.app(caller(request), where["app"], where)
        verbs.pause(app, by=caller(request), workflow=asked.get("workflow"), reason=asked["reason"])
        return to_response(_told([app])[0])


class AppResumeView(ApiView):
    """Let an app's work go on."""

    needs = {"POST": (verbs.RESUME,)}

    @call(TENANCY, "Resume an app", tenancy_shapes.Pause, tenancy_shapes.AppTold)
    def post(self, request: Request, **where: str) -> HttpResponse:
        """Ends the pause of the app, or of one workflow of it."""
        asked = self.read(request, tenancy_shapes.Pause)
        app = reach.app(caller(request), where["app"], where)
        verbs.resume(app, by=caller(request), workflow=asked.get("workflow"))
        return to_response(_told([app])[0])


class AppWorkflowsView(ApiView):
    """What an app's workers announce."""

    needs = {"GET": ("workflows.apps.read",)}

    @call(TENANCY, "List an app's workflows", None, tenancy_shapes.WorkflowsTold)
    def get(self, request: Request, **where: str) -> HttpResponse:
        """Announced by workers that were heard of within `ANNOUNCEMENT_TTL`, with versions and timeouts."""
        return _announced(reach.app(caller(request), where["app"], where))


class WorkflowsView(ApiView):
    """What the workers of the key's apps announce."""

    needs = {"GET": ("workflows.apps.read",)}

    @call(RUNS, "List workflows", None, tenancy_shapes.WorkflowsTold, query=tenancy_shapes.AppQuery)
    def get(self, request: Request) -> HttpResponse:
        """As an app's workflows, of every app in the key's reach."""
        named = self.read_query(request, tenancy_shapes.AppQuery).get("app")
        return _announced(*(reach.apps(caller(request)) if named is None else [reach.app(caller(request), named)]))


def _announced(*apps: App) -> HttpResponse:
    rows = [
        {
            "app": each.app,
            "name": each.workflow,
            "version": each.version,
            "revision": each.revision,
            "longest_timeout_ms": each.longest_timeout_ms,
            "workers": each.workers,
            "created_at": run_answers.moment(each.created_at),
        }
        for each in announcing.announced(*apps)
    ]
    return to_response({"workflows": rows})


def _told(apps: Iterable[App]) -> list[dict[str, Any]]:
    """Apps as they are answered: a constant number of statements, however many."""
    return [_fact(fact) for fact in verbs.facts_of(apps)]


def _stranded(app: App) -> list[dict[str, Any]]:
    rows = verbs.stranded(app).select_related("definition__revision")
    return [
        {
            "id": str(run.pk),
            "workflow": run.workflow,
            "version": run.version,
            "revision": run.definition.revision.revision,
            "status": run.status,
            "created_at": run_answers.moment(run.created_at),
        }
        for run in rows.defer("payload", "state", "usage", "failure", "definition__spec", "definition__input_schemas")[: verbs.MOST_LISTED]
    ]


def _fact(fact: verbs.Facts) -> dict[str, Any]:
    app = fact.app
    paused = [{"workflow": each.workflow, "paused_at": run_answers.moment(each.paused_at), "reason": each.reason} for each in fact.paused_workflows]
    return {
        **{name: getattr(app, name) for name in ("id", "name", "kind", "queue", "partitions", "paused_reason")},
        "created_at": run_answers.moment(app.created_at),
        "paused_at": run_answers.moment(app.paused_at),
        "paused_workflows": paused,
        "depth": fact.depth,
        "oldest_ready_at": run_answers.moment(fact.oldest_ready_at),
        "live_workers": fact.live_workers,
        "workflows": list(fact.workflows),
        "stranded": fact.stranded,
    }
