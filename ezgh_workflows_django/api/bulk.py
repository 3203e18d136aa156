"""Cancel, retry or resume many runs by filter: first how many are meant, then so many a call, each in a transaction of its own."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar, Final

from django.db.models import Q, QuerySet
from django.http import HttpResponse
from rest_framework.request import Request

from ..engine import episodes, runs
from ..engine.runs import Actor
from ..errors import NotFound, VerbRefused
from ..models import Run
from ..protocol.states import TERMINAL_RUN, RunStatus
from . import choosing, errors, reach, run_shapes, run_told
from .base import RunView, caller
from .docs import RUNS, call
from .plain_json import to_response

MOST_AT_ONCE: Final = 200
MOST_COUNTED: Final = 10_000


class BulkView(RunView):
    """A verb for the runs that a filter means, of those the verb is for."""

    fits: ClassVar[Q]

    def do(self, run_id: uuid.UUID, reason: str, actor: Actor) -> None:
        """The verb, for one run."""
        raise NotImplementedError

    def carry_out(self, request: Request) -> HttpResponse:
        """Count them; without `preview`, deal with the first of them. One that refuses stops no other."""
        asked = self.read(request, run_shapes.Bulk)
        meant = choosing.chosen(reach.runs(caller(request)), asked["filter"], asked["filter"].get("labels", {})).filter(self.fits)
        count = meant.order_by()[:MOST_COUNTED].count()
        if asked["preview"]:
            return to_response({"count": count, "done": [], "refused": [], "more": count > 0})
        return to_response({"count": count, **self._deal_with(meant, asked["reason"], caller(request).actor)})

    def _deal_with(self, meant: QuerySet[Run], reason: str, actor: Actor) -> dict[str, Any]:
        chosen = list(meant.order_by("pk").values_list("pk", flat=True)[: MOST_AT_ONCE + 1])
        done: list[str] = []
        refused: list[dict[str, str]] = []
        for run_id in chosen[:MOST_AT_ONCE]:
            try:
                self.do(run_id, reason, actor)
                done.append(str(run_id))
            except (NotFound, VerbRefused) as error:
                told = errors.told_of(error)
                refused.append({"id": str(run_id), "code": told.code if told else "refused", "message": str(error)})
        return {"done": done, "refused": refused, "more": bool(done) and len(chosen) > MOST_AT_ONCE}


class BulkCancelView(BulkView):
    """Cancel many runs."""

    needs = {"POST": ("workflows.runs.cancel",)}
    fits = ~Q(status__in=TERMINAL_RUN)

    def do(self, run_id: uuid.UUID, reason: str, actor: Actor) -> None:
        """The engine's verb."""
        runs.cancel(run_id, reason, actor)

    @call(RUNS, "Cancel runs by filter", run_shapes.Bulk, run_told.BulkTold)
    def post(self, request: Request) -> HttpResponse:
        """Of those that are not over. At most 200 a call."""
        return self.carry_out(request)


class BulkRetryView(BulkView):
    """Retry many runs."""

    needs = {"POST": ("workflows.runs.retry",)}
    fits = Q(status__in=[RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.CANCELLED]) | Q(attention=True)

    def do(self, run_id: uuid.UUID, reason: str, actor: Actor) -> None:
        """The engine's verb."""
        episodes.retry(run_id, actor=actor)

    @call(RUNS, "Retry runs by filter", run_shapes.Bulk, run_told.BulkTold)
    def post(self, request: Request) -> HttpResponse:
        """Of those that did not succeed, or need attention. At most 200 a call."""
        return self.carry_out(request)


class BulkResumeView(BulkView):
    """Resume many runs."""

    needs = {"POST": ("workflows.runs.resume",)}
    fits = Q(status=RunStatus.PAUSED)

    def do(self, run_id: uuid.UUID, reason: str, actor: Actor) -> None:
        """The engine's verb."""
        episodes.resume(run_id, actor)

    @call(RUNS, "Resume runs by filter", run_shapes.Bulk, run_told.BulkTold)
    def post(self, request: Request) -> HttpResponse:
        """Of those that are paused. At most 200 a call."""
        return self.carry_out(request)
