"""The protocol's calls over HTTP: each as the JSON of protocol.md, on a `Line`. Knows no Django, and of HTTP only what replies mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final, TypeVar, overload

from ...errors import NotAvailable, TransportError, Unavailable
from ...protocol import answers_json, calls_json
from ...protocol.durable import Children, Record, Started, Stored
from ...protocol.messages import Beat, Claimed, ClaimRequest, Extension, Lease, Registered, Registration
from ...protocol.outcomes import Answer, Report
from .base import Surroundings
from .http import Line
from .parts import Parts
from .recipe import Recipe
from .replies import Reply, Unfit, accepted, of_leases, refusal

Item = TypeVar("Item")
Told = TypeVar("Told")

CLAIM: Final = "v1/api/steps/claim"

REGISTER_PATIENCE: Final = 30.0
"""Seconds that a registration is waited for: it may bring a thousand definitions."""


class HttpTransport:
    """`Transport` to a server anywhere. `base_url` is where the project includes `ezgh_workflows_django.urls`.

    Raises `InvalidArgument` for a URL or a key that can't be one.
    """

    does_transactions = False

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        surroundings: Surroundings | None = None,
        line: Line | None = None,
    ) -> None:
        self._line = line or Line(base_url, api_key)
        self._parts = Parts(self._line)
        self._surroundings = surroundings
        self._arguments = {"base_url": base_url, "api_key": api_key}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._line!r}>"

    @property
    def recipe(self) -> Recipe:
        """How the heartbeat process builds a transport to the same server."""
        return Recipe(f"{__name__}:{HttpTransport.__name__}", self._arguments)

    def register(self, registration: Registration) -> Registered:
        """See `Transport`. Raises `Rejected` with every fault of the definitions."""
        told = calls_json.registration_to_json(registration)
        return _read(self._line.call("POST", "v1/api/workers/register", told, patience=REGISTER_PATIENCE), answers_json.registered_from_json)

    def claim(self, request: ClaimRequest) -> Claimed:
        """See `Transport`. Once interrupted, it asks only for what that claim has been given already: it serves nothing any more."""
        if not self._line.is_interrupted:
            try:
                return self._claimed(self._line.held(CLAIM, calls_json.claim_to_json(request), request.wait_ms / 1000))
            except Unavailable:
                if not self._line.is_interrupted:
                    raise
        again = replace(request, wait_ms=0, serves=())
        try:
            return self._claimed(self._line.call("POST", CLAIM, calls_json.claim_to_json(again)))
        except TransportError:
            return Claimed()  # what it may have been given was never started: the offer runs out

    def started(self, lease_ids: Sequence[str]) -> Sequence[Extension]:
        """See `Transport`."""
        return _grouped(lease_ids, self._started)

    def heartbeat(self, beats: Sequence[Beat]) -> Sequence[Extension]:
        """See `Transport`. A progress that the server can't take is left out: a lease must not hang on it."""
        return _grouped(beats, self._beaten)

    def report(self, reports: Sequence[Report]) -> Sequence[Answer]:
        """See `Transport`. An outcome that the server can't take is refused `invalid` or `payload_too_large`."""
        return _grouped(reports, self._reported)

    def checkpoint(self, records: Sequence[Record]) -> Sequence[Stored]:
        """See `Transport`. A result that the server can't take is refused `invalid` or `payload_too_large`."""
        return [self._stored(record) for record in records]

    def children(self, request: Children) -> Started:
        """See `Transport`. A batch that the server can't take is refused `invalid` or `payload_too_large`."""
        reply = self._on_leases(_lease(request.lease_id, "children"), calls_json.children_to_json(request))
        refused = refusal(reply, unfit=True)
        if refused is not None:
            return Started(lease_id=request.lease_id, name=request.name, refused=refused)
        return _read(reply, lambda value: answers_json.started_from_json(request.lease_id, value))

    @overload
    def atomically(self, work: Callable[[], Record]) -> Stored: ...

    @overload
    def atomically(self, work: Callable[[], Report]) -> Answer: ...

    def atomically(self, work: Callable[[], Record] | Callable[[], Report]) -> Stored | Answer:
        """Never: no transaction reaches over HTTP. Raises `NotAvailable`."""
        raise NotAvailable(
            "a transactional step and its result are one database transaction, which can't be had over HTTP: "
            "run its worker with the direct transport, by `manage.py runworker` without --url"
        )

    def leave(self, worker_id: str) -> None:
        """See `Transport`."""
        accepted(self._line.call("POST", f"v1/api/workers/{worker_id}/leave", {}))

    def interrupt(self) -> None:
        """See `Transport`."""
        self._line.interrupt()

    def body_scope(self, lease: Lease) -> AbstractContextManager[Any]:
        """The scope it was made with, else nothing."""
        return self._surroundings.scope(lease) if self._surroundings is not None else nullcontext()

    def tend(self) -> None:
        """Nothing: the server looks after itself."""

    def release(self) -> None:
        """What it was made with, else nothing."""
        if self._surroundings is not None:
            self._surroundings.release()

    def close(self) -> None:
        """See `Transport`."""
        self._line.close()

    def _claimed(self, reply: Reply) -> Claimed:
        return _read(reply, lambda value: answers_json.claimed_from_json(self._parts.filled_in(value)))

    def _on_leases(self, path: str, body: Mapping[str, Any]) -> Reply:
        return of_leases(self._line.call("POST", path, body))

    def _started(self, lease_ids: Sequence[str]) -> list[Extension]:
        if len(lease_ids) == 1:
            return [_extension(lease_ids[0], self._on_leases(_lease(lease_ids[0], "started"), {}))]
        reply = self._on_leases("v1/api/steps/started", {"leases": list(lease_ids)})
        return _read(reply, lambda value: _each(lease_ids, value["leases"], answers_json.extension_from_json))

    def _beaten(self, beats: Sequence[Beat]) -> list[Extension]:
        if len(beats) == 1:
            return [self._beaten_once(beats[0])]
        reply = self._on_leases("v1/api/steps/heartbeat", {"leases": [calls_json.beat_to_json(beat) for beat in beats]})
        return _read(reply, lambda value: _each([beat.lease_id for beat in beats], value["leases"], answers_json.extension_from_json))

    def _beaten_once(self, beat: Beat) -> Extension:
        path = _lease(beat.lease_id, "heartbeat")
        reply = self._on_leases(path, {} if beat.progress is None else {"progress": beat.progress})
        if reply.is_unfit and beat.progress is not None:
            reply = self._on_leases(path, {})
        return _extension(beat.lease_id, reply)

    def _reported(self, reports: Sequence[Report]) -> list[Answer]:
        if len(reports) == 1:
            return [self._reported_once(reports[0])]
        told = [(report.lease_id, *calls_json.outcome_to_json(report.outcome)) for report in reports]
        reply = self._on_leases("v1/api/steps/outcomes", {"outcomes": [{"id": lease_id, call: body} for lease_id, call, body in told]})
        return _read(reply, lambda value: _each([report.lease_id for report in reports], value["outcomes"], answers_json.answer_from_json))

    def _reported_once(self, report: Report) -> Answer:
        call, body = calls_json.outcome_to_json(report.outcome)
        reply = self._on_leases(_lease(report.lease_id, call), body)
        refused = refusal(reply, unfit=True)
        if refused is not None:
            return Answer(lease_id=report.lease_id, refused=refused)
        return _read(reply, lambda value: answers_json.answer_from_json(report.lease_id, value))

    def _stored(self, record: Record) -> Stored:
        reply = self._on_leases(_lease(record.lease_id, "checkpoint"), calls_json.record_to_json(record))
        refused = refusal(reply, unfit=True)
        if refused is not None:
            return Stored(lease_id=record.lease_id, name=record.name, refused=refused)
        return _read(reply, lambda value: answers_json.stored_from_json(record.lease_id, record.name, value))


def _grouped(items: Sequence[Item], send: Callable[[Sequence[Item]], list[Told]]) -> list[Told]:
    """What `send` gives for all of them; where that is too much, or something in it is unfit, for one half after the other."""
    if not items:
        return []
    try:
        return send(items)
    except Unfit:
        if len(items) == 1:
            raise
    half = len(items) // 2
    return [*_grouped(items[:half], send), *_grouped(items[half:], send)]


def _extension(lease_id: str, reply: Reply) -> Extension:
    refused = refusal(reply)
    if refused is not None:
        return Extension(lease_id=lease_id, refused=refused)
    return _read(reply, lambda value: answers_json.extension_from_json(lease_id, value))


def _each(lease_ids: Sequence[str], told: Sequence[Mapping[str, Any]], read: Callable[[str, Mapping[str, Any]], Told]) -> list[Told]:
    """The answers to one call for many leases, in their order; a lease that got none is in none of them."""
    by_id = {answer["id"]: answer for answer in told}
    return [read(lease_id, by_id[lease_id]) for lease_id in lease_ids if lease_id in by_id]


def _read(reply: Reply, read: Callable[[Any], Told]) -> Told:
    """What a reply that says yes brought. Raises as `accepted`, and `Unavailable` for what is no answer of this protocol."""
    value = accepted(reply)
    try:
        return read(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unavailable(f"{reply.call} was answered {reply.status} with what is no answer of this protocol ({type(error).__name__}: {error})") from error


def _lease(lease_id: str, call: str) -> str:
    return f"v1/api/steps/{lease_id}/{call}"
