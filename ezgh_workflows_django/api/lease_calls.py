"""A worker's calls on leases it holds, one by one and in groups. Only keys that may poll a lease's app know that it exists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.request import Request

from ..engine import checkpoints, children, leases, outcomes
from ..errors import UnknownLease
from ..protocol import answers_json, calls_json
from ..protocol.failures import Refused
from ..protocol.messages import Beat, Extension
from ..protocol.outcomes import Answer, Report
from . import errors, parts, reach, worker_answers, worker_shapes
from .base import WorkerView, caller
from .docs import WORKER, call
from .plain_json import to_response

T = TypeVar("T")

REFUSALS = "`already_applied`, `fenced`, `run_terminal` or `not_started`"

_STATUS = {"unknown_lease": 404, "invalid": 400, "payload_too_large": 413}


class StartedView(WorkerView):
    """A body is about to run."""

    @call(WORKER, "Start a lease", worker_shapes.Nothing, worker_answers.Extended, conflicts=REFUSALS)
    def post(self, request: Request, lease_id: str) -> HttpResponse:
        """The body is about to run. Idempotent."""
        _check_reach(request, lease_id)
        [extension] = leases.started([lease_id])
        return _answer(extension.refused, lambda: answers_json.extension_to_json(extension))


class HeartbeatView(WorkerView):
    """A lease lives on."""

    @call(WORKER, "Send a heartbeat", worker_shapes.Beat, worker_answers.Extended, conflicts=REFUSALS)
    def post(self, request: Request, lease_id: str) -> HttpResponse:
        """Extends the lease, and the worker's announcements."""
        progress = self.read(request, worker_shapes.Beat)["progress"]
        _check_reach(request, lease_id)
        [extension] = leases.heartbeat([Beat(lease_id, progress)])
        return _answer(extension.refused, lambda: answers_json.extension_to_json(extension))


class EndView(WorkerView):
    """A body has ended, in the way that its path says."""

    shape: type[serializers.Serializer[Any]] = worker_shapes.Complete
    how = calls_json.COMPLETE

    def end(self, request: Request, lease_id: str) -> HttpResponse:
        """Read how the body ended, and report it."""
        outcome = calls_json.outcome_from_json(self.how, self.read(request, self.shape))
        _check_reach(request, lease_id)
        [answer] = outcomes.report([Report(lease_id, outcome)])
        return _answer(answer.refused, lambda: answers_json.answer_to_json(answer))


class CompleteView(EndView):
    """A body returned."""

    @call(WORKER, "Complete a step", worker_shapes.Complete, worker_answers.Ended, conflicts=REFUSALS)
    def post(self, request: Request, lease_id: str) -> HttpResponse:
        """The body returned `output`."""
        return self.end(request, lease_id)


class FailView(EndView):
    """A body raised, timed out, or was not run."""

    shape = worker_shapes.Fail
    how = calls_json.FAIL

    @call(WORKER, "Fail a step", worker_shapes.Fail, worker_answers.Ended, conflicts=REFUSALS)
    def post(self, request: Request, lease_id: str) -> HttpResponse:
        """The body failed with this class, or was handed back (`returned`), or can't be run here (`unservable`)."""
        return self.end(request, lease_id)


class SuspendView(EndView):
    """A body parks."""

    shape = worker_shapes.Suspend
    how = calls_json.SUSPEND

    @call(WORKER, "Suspend a step", worker_shapes.Suspend, worker_answers.Ended, conflicts=REFUSALS)
    def post(self, request: Request, lease_id: str) -> HttpResponse:
        """Parks the step and ends the lease; it is ready again, in the same attempt, when its waits are met."""
        return self.end(request, lease_id)


class CheckpointView(WorkerView):
    """An inner step of a durable function has a result."""

    @call(WORKER, "Store a checkpoint", worker_shapes.Checkpoint, worker_answers.StoredTold, conflicts=REFUSALS)
    def post(self, request: Request, lease_id: str) -> HttpResponse:
        """The first write of a name wins; a repeated one gives back what is stored."""
        record = calls_json.record_from_json(lease_id, self.read(request, worker_shapes.Checkpoint))
        _check_reach(request, lease_id)
        [stored] = checkpoints.checkpoint([record])
        return _answer(stored.refused, lambda: answers_json.stored_to_json(stored))


class ChildrenView(WorkerView):
    """A durable function starts child runs."""

    @call(WORKER, "Start child runs", worker_shapes.Children, worker_answers.ChildrenTold, conflicts=REFUSALS)
    def post(self, request: Request, lease_id: str) -> HttpResponse:
        """Starts one run for each payload, once per name, however often it is called."""
        wanted = calls_json.children_from_json(lease_id, self.read(request, worker_shapes.Children))
        _check_reach(request, lease_id)
        started = children.start(wanted)
        return _answer(started.refused, lambda: answers_json.started_to_json(started))


class PartView(WorkerView):
    """A value that was too large to go with its lease."""

    @call(WORKER, "Fetch a part of a lease", None, OpenApiTypes.ANY)
    def get(self, request: Request, lease_id: str, reference: str) -> HttpResponse:
        """The value itself, as JSON; `reference` is from the lease's `parts`. The lease lives on as after a heartbeat: an offer with large parts has time."""
        _check_reach(request, lease_id)
        leases.heartbeat([Beat(lease_id)])
        return to_response(parts.fetch(lease_id, reference))


class ManyStartedView(WorkerView):
    """Several bodies are about to run."""

    @call(WORKER, "Start many leases", worker_shapes.LeaseIds, worker_answers.ManyExtended)
    def post(self, request: Request) -> HttpResponse:
        """As `started`, for many; one answer each."""
        wanted = self.read(request, worker_shapes.LeaseIds)["leases"]
        told = _each(request, dict.fromkeys(wanted), leases.started, Extension)
        return to_response({"leases": [answers_json.extension_to_json(told[lease_id]) for lease_id in wanted]})


class ManyHeartbeatView(WorkerView):
    """Several leases live on."""

    @call(WORKER, "Send many heartbeats", worker_shapes.Beats, worker_answers.ManyExtended)
    def post(self, request: Request) -> HttpResponse:
        """As `heartbeat`, for many; one answer each."""
        beats = {each["id"]: Beat(each["id"], each["progress"]) for each in self.read(request, worker_shapes.Beats)["leases"]}
        told = _each(request, beats, lambda known: leases.heartbeat([beats[lease_id] for lease_id in known]), Extension)
        return to_response({"leases": [answers_json.extension_to_json(told[lease_id]) for lease_id in beats]})


class OutcomesView(WorkerView):
    """Several bodies have ended."""

    @call(WORKER, "Report many outcomes", worker_shapes.Outcomes, worker_answers.ManyEnded)
    def post(self, request: Request) -> HttpResponse:
        """As `complete`, `fail` and `suspend`, for many; one answer each. One that can't be read is answered alone."""
        told: list[Answer | None] = []
        reports: list[Report] = []
        for item in self.read(request, worker_shapes.Outcomes)["outcomes"]:
            read = _report_of(item)
            told.append(read if isinstance(read, Answer) else None)
            reports += [] if isinstance(read, Answer) else [read]
        known = reach.leases(caller(request), (report.lease_id for report in reports))
        answered = iter(outcomes.report([report for report in reports if report.lease_id in known]))
        others = iter(next(answered) if report.lease_id in known else Answer(lease_id=report.lease_id, refused=_unknown(report.lease_id)) for report in reports)
        return to_response({"outcomes": [answers_json.answer_to_json(answer or next(others)) for answer in told]})


def _report_of(item: Mapping[str, Any]) -> Report | Answer:
    """One of many outcomes, or the answer that says what is wrong with it."""
    lease_id = item.get("id")
    shape = worker_shapes.Outcome(data=item)
    if shape.is_valid():
        calls = [name for name in (calls_json.COMPLETE, calls_json.FAIL, calls_json.SUSPEND) if name in shape.validated_data]
        if len(calls) == 1:
            return Report(str(lease_id), calls_json.outcome_from_json(calls[0], shape.validated_data[calls[0]]))
        fault = "one of complete, fail and suspend is needed"
    else:
        fault = errors.in_words(shape.errors)
    return Answer(lease_id=lease_id if isinstance(lease_id, str) else "", refused=Refused("invalid", fault))


def _check_reach(request: Request, lease_id: str) -> None:
    if not reach.leases(caller(request), [lease_id]):
        raise UnknownLease(_unknown(lease_id).message)


def _each(request: Request, wanted: Iterable[str], verb: Callable[[Sequence[str]], list[Extension]], refused: type[Extension]) -> dict[str, Extension]:
    """The verb's answers for the leases that the caller knows, and that there is no such lease for the others."""
    wanted = list(wanted)
    known = reach.leases(caller(request), wanted)
    told = {extension.lease_id: extension for extension in verb([lease_id for lease_id in wanted if lease_id in known])}
    return {lease_id: told.get(lease_id) or refused(lease_id=lease_id, refused=_unknown(lease_id)) for lease_id in wanted}


def _unknown(lease_id: str) -> Refused:
    return Refused("unknown_lease", f"there is no lease {lease_id[:64]}")


def _answer(refused: Refused | None, told: Callable[[], Any]) -> HttpResponse:
    """What the call came to; a refusal is 409, one of a lease that is unknown 404, one of a value that can't be stored 400."""
    if refused is None:
        return to_response(told())
    return to_response({"error": answers_json.refused_to_json(refused)}, _STATUS.get(str(refused.reason), 409))
