"""`POST steps/claim`: leases now, or the call is held until there are some. Under ASGI it hangs on the process's `Holds`; under WSGI nothing is held."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from django.http import HttpResponse
from rest_framework.request import Request

from ..conf import app_settings
from ..definitions.durations import milliseconds
from ..engine import announcing, leases, permissions, wakeups
from ..engine.workers import MAX_WAIT_MS
from ..protocol import answers_json, calls_json
from ..protocol.messages import Claimed, ClaimRequest, Serve
from . import exits, parts, reach, threads, worker_shapes
from .base import WorkerView, caller
from .dispatcher import NOTHING, Dispatcher, Leave, give_back
from .docs import WORKER, call
from .holds import Holds, holds
from .plain_json import to_response
from .worker_answers import LeasesGiven

RETRY_AFTER_MS: Final = 1000
"""What a worker is to rest where its claim could not be held."""

MOST_REMEMBERED: Final = 4096

Serving = Mapping[int, frozenset[str] | None]


class Remembered:
    """What sessions were found to serve, so that their next claim need not ask again: a stored revision never changes. The oldest are forgotten."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[str, tuple[Serve, ...]], Serving] = OrderedDict()

    def of(self, request: ClaimRequest) -> Serving | None:
        """What the session of this claim serves, where it has asked for the same before."""
        return self._found.get((request.worker_id, request.serves))

    def keep(self, request: ClaimRequest, serving: Serving) -> None:
        """Remember it."""
        self._found[request.worker_id, request.serves] = serving
        while len(self._found) > MOST_REMEMBERED:
            self._found.popitem(last=False)


remembered = Remembered()


@dataclass(frozen=True, slots=True)
class Opened:
    """A claim that has been checked and has looked once, unless a look was known to find nothing."""

    request: ClaimRequest
    call: leases.Claim
    claimed: Claimed
    rings: int
    due_in: float | None = None

    @property
    def app_id(self) -> int:
        """The app of the worker."""
        return self.call.session.app.pk

    @property
    def waits(self) -> bool:
        """Whether it would be held: what a repeated claim was given is gone for good, if it is not there now."""
        return not self.claimed.leases and self.request.wait_ms > 0 and not self.call.session.repeated


class ClaimView(WorkerView):
    """Leases for a worker."""

    @call(WORKER, "Claim leases", worker_shapes.Claim, LeasesGiven, conflicts="`unknown_worker`, `unknown_definition`: register again; `run_terminal`")
    async def post(self, request: Request) -> HttpResponse:
        """Up to `max` leases of what the worker serves. While there is nothing, held up to `wait_ms`, where the server can hold."""
        until = time.monotonic() + longest_hold_ms() / 1000
        dispatchers = holds() if threads.is_async(request._request) else None
        opening = asyncio.ensure_future(self.work(request, lambda: self._open(request, dispatchers)))
        try:
            opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_given_to_nobody)
            raise
        if not opened.waits:
            return _answer(opened.claimed)
        if dispatchers is None or not dispatchers.has_room or not opened.call.serving:
            return _answer(Claimed(retry_after_ms=RETRY_AFTER_MS))
        seconds = min(until - time.monotonic(), opened.request.wait_ms / 1000)
        leave = exits.leaving(request._request)
        dispatcher = dispatchers.dispatcher(opened.app_id)
        return _answer(await _hold(dispatcher, opened, seconds, lambda claimed: leave(_answer(claimed) if claimed.leases else _nothing())))

    def _open(self, request: Request, dispatchers: Holds | None) -> Opened:
        """Check the claim, and look for it. Two statements where nothing is to be had: the key's and the session's."""
        asked = self.read(request, worker_shapes.Claim)
        message = calls_json.claim_from_json(asked)
        identity = caller(request)
        if message.run is not None:
            reach.run(identity, message.run)
        opening = leases.open_claim(message, remembered.of(message), by=identity)
        remembered.keep(message, opening.serving)
        if announced := asked["announce"]:
            identity.need(permissions.SYNC)
            announcing.announce(opening.session.worker_id, announced)
        opened = Opened(message, opening, Claimed(), wakeups.bell.rings(opening.session.app.pk))
        if opened.waits and dispatchers is not None and dispatchers.knows_empty(opened.app_id, opening):
            return opened
        looked, claimed = opening.look()
        due_in = looked.seconds_to_next() if opened.waits and dispatchers is not None and not claimed.leases else None
        return replace(opened, call=looked, claimed=claimed, due_in=due_in)


def longest_hold_ms() -> int:
    """How long a call is held at most: what a worker may ask for, and never over four fifths of `REQUEST_TIMEOUT`."""
    return min(MAX_WAIT_MS, milliseconds(app_settings.REQUEST_TIMEOUT) * 4 // 5)


async def _hold(dispatcher: Dispatcher, opened: Opened, seconds: float, leave: Leave) -> Claimed:
    if opened.due_in is not None:
        dispatcher.found_nothing(opened.call, opened.rings, opened.due_in)
    return await dispatcher.wait(opened.call, max(0.0, seconds), leave)


def _answer(claimed: Claimed) -> HttpResponse:
    told = answers_json.claimed_to_json(claimed)
    if len(claimed.leases) == 1:  # several are bounded by the claim itself; one alone may be over
        told["leases"] = [parts.cut(lease) for lease in told["leases"]]
    return to_response(told)


@cache
def _nothing() -> HttpResponse:
    """One for all that leave with it."""
    return _answer(NOTHING)


def _given_to_nobody(opening: asyncio.Future[Opened]) -> None:
    """The client went away while its claim looked: what that brought goes back."""
    if not opening.cancelled() and opening.exception() is None:
        give_back(opening.result().claimed.leases)
