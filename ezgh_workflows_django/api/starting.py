"""Starting runs, listing them, and sending events. A start over HTTP is of what some live worker announces."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from ..definitions.durations import from_milliseconds
from ..definitions.starts import MISSING, Start
from ..engine import announcing, events, starts
from ..errors import WorkflowNotAnnounced
from ..models import App, Run
from ..protocol import tracing
from . import choosing, reach, run_answers, run_shapes, run_told
from .base import RunView, caller
from .docs import RUNS, call
from .pages import page
from .plain_json import to_response
from .throttles import KeyThrottle

CALLERS_TRACE: Final = OpenApiParameter(
    tracing.HEADER,
    {"type": "string"},
    OpenApiParameter.HEADER,
    description="The caller's span (W3C): the run joins its trace. One that is malformed counts as none.",
)


class RunsView(RunView):
    """The runs of the key's project or app."""

    throttle_classes = (KeyThrottle,)
    needs = {"POST": ("workflows.runs.start",), "GET": ("workflows.runs.read",)}

    @call(
        RUNS,
        "Start a run",
        run_shapes.Start,
        run_told.RunTold,
        status=(HTTPStatus.CREATED, HTTPStatus.OK),
        conflicts="`workflow_not_announced`, `idempotency_conflict`, `concurrency_limit`",
        also=(429,),
        headers=[CALLERS_TRACE],
    )
    def post(self, request: Request, **where: str) -> HttpResponse:
        """201, or 200 with the run that has the idempotency key. It pins the newest stored version among those that live workers announce."""
        asked = self.read(request, run_shapes.Start)
        app = reach.app(caller(request), where.get("app") or asked.get("app"), where)
        run = _started(app, asked["workflow"], _start(asked, request.headers.get(tracing.HEADER)))
        run.app = app
        return to_response(run_answers.brief(run), HTTPStatus.CREATED if run.is_new else HTTPStatus.OK)

    @call(RUNS, "List runs", None, run_told.RunsTold, query=run_shapes.RunsQuery)
    def get(self, request: Request, **where: str) -> HttpResponse:
        """The newest first. `label.NAME=VALUE` in the query chooses by label."""
        asked = self.read_query(request, run_shapes.RunsQuery)
        identity = caller(request)
        runs = reach.runs(identity) if "app" not in where else reach.runs(identity).filter(app=reach.app(identity, where["app"], where))
        runs = choosing.chosen(runs, asked, choosing.labels_of(request.query_params))
        shown, following = page(runs.select_related("app").defer("payload", "state"), asked)
        return to_response({"runs": [run_answers.brief(run) for run in shown], "next": following})


class AppRunsView(RunsView):
    """The runs of one app."""

    @call(
        RUNS,
        "Start a run of an app",
        run_shapes.Start,
        run_told.RunTold,
        status=(HTTPStatus.CREATED, HTTPStatus.OK),
        conflicts="`workflow_not_announced`, `idempotency_conflict`, `concurrency_limit`",
        also=(429,),
        headers=[CALLERS_TRACE],
    )
    def post(self, request: Request, **where: str) -> HttpResponse:
        """As starting a run; the path names the app."""
        return super().post(request, **where)

    @call(RUNS, "List runs of an app", None, run_told.RunsTold, query=run_shapes.RunsQuery)
    def get(self, request: Request, **where: str) -> HttpResponse:
        """As listing runs; the path names the app."""
        return super().get(request, **where)


class EventsView(RunView):
    """Events from outside."""

    needs = {"POST": ("workflows.events.emit",)}

    @call(RUNS, "Emit an event", run_shapes.Emit, run_told.EventTold, status=(HTTPStatus.CREATED, HTTPStatus.OK))
    def post(self, request: Request) -> HttpResponse:
        """201, or 200 where the `event_id` was known. It reaches the whole project but developers' apps; with an app's key, that app alone."""
        asked = self.read(request, run_shapes.Emit)
        identity = caller(request)
        app = reach.app_for_events(identity, asked.get("app"))
        told = (asked["name"], asked["key"], asked["payload"])
        receipt = events.emit(*told, event_id=asked.get("event_id"), app=app, only_there=identity.app_id is not None)
        return to_response({"id": receipt.id, "known": receipt.known}, HTTPStatus.OK if receipt.known else HTTPStatus.CREATED)


def _started(app: App, workflow: str, wanted: Start) -> Run:
    """A new run, or the one that has the idempotency key: that is known whether or not anybody announces its workflow any more."""
    try:
        definition = announcing.newest(app, workflow)
    except WorkflowNotAnnounced:
        known = starts.known(app, workflow, wanted)
        if known is None:
            raise
        return known
    return starts.start(definition, wanted)


def _start(asked: Any, traceparent: str | None) -> Start:
    at = asked.get("at")
    return Start(
        payload=asked.get("payload", MISSING),
        labels=asked.get("labels", {}),
        idempotency_key=asked.get("idempotency_key"),
        correlation_id=asked.get("correlation_id"),
        at=None if at is None else datetime.fromisoformat(at),
        delay=from_milliseconds(asked.get("delay_ms")),
        priority=asked["priority"],
        traceparent=traceparent,
    )
