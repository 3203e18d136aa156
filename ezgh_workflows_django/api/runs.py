"""One run: how it stands, its journal and graph, and the verbs for it. Each verb answers with how the run stands afterwards."""

from __future__ import annotations

import uuid
from functools import partial
from http import HTTPStatus
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from ..engine import episodes, events, runs, versions
from ..engine.versions import Migration
from ..models import Run
from . import exits, reach, run_answers, run_shapes, run_told, threads, usage_shapes, watch
from .base import RunView, caller
from .claims import longest_hold_ms
from .docs import RUNS, call
from .holds import holds
from .plain_json import to_response


class ReadView(RunView):
    """Looking at a run is in the trail, once for each caller, run and hour."""

    needs = {"GET": ("workflows.runs.read",)}

    def seen(self, request: Request, run_id: str) -> Run:
        """The run, once that the caller reads it is noted. Raises `UnknownRun`."""
        run = reach.run(caller(request), run_id)
        watch.run_read(caller(request), run)
        return run


class OneRunView(ReadView):
    """A run in full."""

    @call(RUNS, "Get a run", None, run_told.RunInFull, query=run_shapes.Wait)
    async def get(self, request: Request, run_id: str) -> HttpResponse:
        """How it stands, what it waits for, its steps and attempts. With `wait_ms`, held until the run is over, where the server can hold."""
        held = holds() if threads.is_async(request._request) else None
        told, wait_ms = await self.work(request, lambda: self._read(request, run_id))
        answer = to_response(told)
        if held is not None and wait_ms and told["ended_at"] is None and held.has_room:
            seconds = min(wait_ms, longest_hold_ms()) / 1000
            await held.watch_runs().wait(uuid.UUID(told["id"]), seconds, partial(exits.leaving(request._request), answer))
            if not held.is_closing:
                answer = to_response(await self.work_again(request, lambda: run_answers.in_full(reach.run(caller(request), run_id))))
        return answer

    def _read(self, request: Request, run_id: str) -> tuple[Any, int]:
        wait_ms = self.read_query(request, run_shapes.Wait)["wait_ms"]
        return run_answers.in_full(self.seen(request, run_id)), wait_ms


class JournalView(ReadView):
    """What happened to a run."""

    @call(RUNS, "Read a run's journal", None, run_told.JournalTold, query=run_shapes.JournalQuery)
    def get(self, request: Request, run_id: str) -> HttpResponse:
        """In order, from `after` on."""
        asked = self.read_query(request, run_shapes.JournalQuery)
        return to_response(run_answers.journal(self.seen(request, run_id), asked["after"], asked["limit"]))


class SpansView(ReadView):
    """What its bodies did when."""

    @call(RUNS, "Read a run's spans", None, usage_shapes.SpansTold, query=usage_shapes.SpansQuery)
    def get(self, request: Request, run_id: str) -> HttpResponse:
        """As workers told them, in the order they came in, each with its own usage and cost."""
        asked = self.read_query(request, usage_shapes.SpansQuery)
        return to_response(run_answers.spans(self.seen(request, run_id), asked["after"], asked["limit"]))


class GraphView(ReadView):
    """What a run is made of."""

    @call(RUNS, "Get a run's graph", None, run_told.GraphTold)
    def get(self, request: Request, run_id: str) -> HttpResponse:
        """The steps of the version it is pinned to, with where each stands."""
        return to_response(run_answers.graph(self.seen(request, run_id)))


class CancelView(RunView):
    """End a run."""

    needs = {"POST": ("workflows.runs.cancel",)}

    @call(RUNS, "Cancel a run", run_shapes.Reason, run_told.Stands, conflicts="`run_terminal`: it has ended otherwise")
    def post(self, request: Request, run_id: str) -> HttpResponse:
        """200 too where it was cancelled before; the answer agrees with the final state."""
        asked = self.read(request, run_shapes.Reason)
        run = reach.run(caller(request), run_id)
        return to_response({"id": run_id, "status": runs.cancel(run.pk, asked["reason"], caller(request).actor)})


class PauseView(RunView):
    """Hold a run back."""

    needs = {"POST": ("workflows.runs.pause",)}

    @call(RUNS, "Pause a run", run_shapes.Reason, run_told.Stands, conflicts="`run_terminal`")
    def post(self, request: Request, run_id: str) -> HttpResponse:
        """It offers nothing until it is resumed; bodies at work finish, the deadline goes on."""
        asked = self.read(request, run_shapes.Reason)
        run = reach.run(caller(request), run_id)
        runs.pause(run.pk, asked["reason"], caller(request).actor)
        return _stands(run)


class ResumeView(RunView):
    """Let a run go on."""

    needs = {"POST": ("workflows.runs.resume",)}

    @call(RUNS, "Resume a run", run_shapes.Reason, run_told.Stands, conflicts="`run_terminal`, `verb_refused`")
    def post(self, request: Request, run_id: str) -> HttpResponse:
        """Undoes a pause; one that needs attention is retried from its failed steps."""
        self.read(request, run_shapes.Reason)
        run = reach.run(caller(request), run_id)
        episodes.resume(run.pk, caller(request).actor)
        return _stands(run)


class RetryView(RunView):
    """Open a run again."""

    needs = {"POST": ("workflows.runs.retry",)}

    @call(RUNS, "Retry a run", run_shapes.Retry, run_told.Stands, conflicts="`verb_refused`: it, or an `at_most_once` body, is still at work")
    def post(self, request: Request, run_id: str) -> HttpResponse:
        """A new episode: the failed steps, or `from_step`, with what follows them, begin again."""
        asked = self.read(request, run_shapes.Retry)
        run = reach.run(caller(request), run_id)
        episodes.retry(run.pk, asked.get("from_step"), caller(request).actor)
        return _stands(run)


class ResolveView(RunView):
    """End a step by hand."""

    needs = {"POST": ("workflows.runs.resolve",)}

    @call(RUNS, "Resolve a step", run_shapes.Resolve, run_told.Stands, conflicts="`verb_refused`: the step is neither failed nor waiting")
    def post(self, request: Request, run_id: str) -> HttpResponse:
        """A failed or waiting step succeeds with this output, and its run goes on from there."""
        asked = self.read(request, run_shapes.Resolve)
        run = reach.run(caller(request), run_id)
        episodes.resolve(run.pk, asked["step"], asked["output"], asked["reason"], caller(request).actor)
        return _stands(run)


class MigrateView(RunView):
    """Move a run to another version."""

    needs = {"POST": ("workflows.runs.migrate",)}

    @call(RUNS, "Migrate a run", run_shapes.Migrate, run_told.Migration, conflicts="`verb_refused`, with every fault; `run_terminal`")
    def post(self, request: Request, run_id: str) -> HttpResponse:
        """To another stored version of its workflow. With `dry_run`, only what that would mean."""
        asked = self.read(request, run_shapes.Migrate)
        run = reach.run(caller(request), run_id)
        if asked["dry_run"]:
            return _migration(versions.dry_run(run.pk, asked["version"]), done=False)
        return _migration(versions.migrate(run.pk, asked["version"], caller(request).actor), done=True)


class SignalView(RunView):
    """Tell one run something."""

    needs = {"POST": ("workflows.runs.signal",)}

    @call(RUNS, "Signal a run", run_shapes.Signal, run_told.Delivery, conflicts="`run_terminal`")
    def post(self, request: Request, run_id: str) -> HttpResponse:
        """`delivered` where a wait took it at once, else `buffered` until one opens."""
        asked = self.read(request, run_shapes.Signal)
        run = reach.run(caller(request), run_id)
        return to_response({"delivery": events.signal(run.pk, asked["name"], asked["payload"])})


def _stands(run: Run) -> HttpResponse:
    return to_response({"id": str(run.pk), "status": runs.get(run.pk).status})


def _migration(migration: Migration, *, done: bool) -> HttpResponse:
    lists = {name: list(getattr(migration, name)) for name in ("added", "removed", "faults", "notes")}
    return to_response({"run": migration.run, "before": migration.before, "after": migration.after, **lists, "done": done}, HTTPStatus.OK)
