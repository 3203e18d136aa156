"""The claim loop: one poll at a time, never for more than there is room for. Takes leases in hand and passes them on; runs nothing itself."""

from __future__ import annotations

import threading
import uuid
from typing import Final

from .. import clock
from ..errors import SessionLost, Unavailable
from ..protocol.messages import Claimed, ClaimRequest, Registered
from ..protocol.outcomes import Outcome
from .backoff import Backoff
from .bodies import Runner
from .hands import Hands, Held
from .heartbeat import Heartbeat
from .listener import Listener
from .reporter import Reporter
from .serving import Serving
from .session import Session
from .starter import Starter
from .transports.base import Transport

MAX_TASKS: Final = 10
"""Leases that one poll asks for at most; the server may allow fewer."""

MAX_WAIT_MS: Final = 55_000
"""How long a poll asks to be held; the server may clamp it."""

STAMP_EVERY: Final = 5.0
"""Seconds that the loop waits at a stretch at most, before it stamps the heartbeats again."""

UP_PATIENCE: Final = 20.0
"""Seconds that the first claim waits at most for the heartbeats to be up. A process that ends instead is replaced meanwhile, with a warning."""

UP_LOOK: Final = 0.2
"""Seconds between two looks whether the worker was told to stop meanwhile."""

GATHER: Final = 0.01
"""Seconds a busy worker waits for more bodies to end before it claims: one claim for ten costs little more than one for one."""

SHORT_REST: Final = 0.25
"""Seconds of rest after a poll that was to be held and came back empty at once, so that a server which does not hold is not stormed."""


class Claims:
    """Polls for work until `stopping` is set, or, with `until_idle`, until a claim brings nothing while nothing runs."""

    def __init__(
        self,
        transport: Transport,
        session: Session,
        serving: Serving,
        hands: Hands,
        bodies: Runner,
        starter: Starter,
        reporter: Reporter,
        heartbeat: Heartbeat,
        listener: Listener,
        stopping: threading.Event,
        *,
        until_idle: bool = False,
        tends: bool = False,
    ) -> None:
        self._transport = transport
        self._session = session
        self._serves = serving.serves()
        self._find = serving.find
        self._hands = hands
        self._bodies = bodies
        self._starter = starter
        self._reporter = reporter
        self._heartbeat = heartbeat
        self._listener = listener
        self._stopping = stopping
        self._until_idle = until_idle
        self._tends = tends
        self._backoff = Backoff()
        self._unanswered: ClaimRequest | None = None
        self._stamped_at = float("-inf")
        self._awaits_heartbeat = True

    def run(self) -> None:
        """Poll until it is time to stop. Raises `Rejected`, and whatever is a bug."""
        while not self._stopping.is_set():
            self._stamp()
            session = self._session.open(self._pause)
            if session is None:
                return
            self._await_heartbeat()
            if not self._turn(session):
                return

    def _await_heartbeat(self) -> None:
        """Before the first claim: leases taken while a heartbeat process still starts could be orphaned before their first heartbeat."""
        until = clock.monotonic() + UP_PATIENCE
        while self._awaits_heartbeat and not self._stopping.is_set():
            self._stamp()
            is_up = self._heartbeat.wait_until_up(UP_LOOK)
            self._awaits_heartbeat = not is_up and clock.monotonic() < until
            if not is_up and not self._awaits_heartbeat:
                self._listener.warning(f"the heartbeat process is not up after {UP_PATIENCE:g} s; work is taken all the same, and may be lost to others")

    def _turn(self, session: Registered) -> bool:
        """One poll, where there is room for it. Says whether to go on."""
        self._hands.size = self._bodies.capacity
        room = self._hands.wait_for_room(STAMP_EVERY)
        if room > 0:
            room = self._hands.gather_room(min(MAX_TASKS, self._hands.size), GATHER)
        if room <= 0 or self._stopping.is_set():
            return True
        was_quiet, changes, asked_at = self._hands.is_empty, self._hands.changes, clock.monotonic()
        if self._tends and self._until_idle:
            self._tend()
        claimed = self._ask(self._unanswered or self._request(session, room))
        if claimed is None:
            return True
        self._take(claimed)
        if claimed.leases:
            self._rest(claimed, 0.0)
            return True
        if self._until_idle:
            return self._wait_for_more(was_quiet, changes)
        self._rest(claimed, SHORT_REST if clock.monotonic() - asked_at < SHORT_REST / 5 else 0.0)
        return True

    def _request(self, session: Registered, room: int) -> ClaimRequest:
        wait_ms = 0 if self._until_idle else min(MAX_WAIT_MS, session.max_wait_ms)
        most = min(MAX_TASKS, session.max_claim, room)
        return ClaimRequest(worker_id=session.worker_id, claim_id=uuid.uuid4().hex, max=most, wait_ms=wait_ms, serves=self._serves)

    def _ask(self, request: ClaimRequest) -> Claimed | None:
        """The answer to a poll, or None after a failure, once it is time to try again."""
        try:
            claimed = self._transport.claim(request)
        except Unavailable as error:
            self._unanswered = request  # asked again under the same claim id, it brings the leases whose delivery was lost
            self._fail(error, error.retry_after)
            return None
        except SessionLost as error:
            self._unanswered = None
            self._session.lost()
            if self._backoff.failures:
                self._fail(error, None)
            else:
                self._backoff.next()
            return None
        self._unanswered = None
        self._backoff.reset()
        return claimed

    def _fail(self, error: Unavailable | SessionLost, retry_after: float | None) -> None:
        if self._stopping.is_set():
            return
        wait = self._backoff.next(retry_after)
        self._listener.warning(f"no work could be claimed ({error}); trying again in {wait:.1f} s")
        self._pause(wait)

    def _take(self, claimed: Claimed) -> None:
        now = clock.monotonic()
        batch = [Held(lease, self._find(lease), now, self._heartbeat.progressed) for lease in claimed.leases if self._hands.get(lease.id) is None]
        if not batch:
            return
        self._hands.take(batch)
        self._heartbeat.hold(batch)
        if self._stopping.is_set():
            self._give_back(batch)
        else:
            self._starter.put(batch)

    def _give_back(self, batch: list[Held]) -> None:
        """What was given while the worker had begun to stop goes back, untouched."""
        for held in batch:
            self._hands.end(held)
            self._reporter.tell(held, Outcome.returned("the worker is stopping; the body did not run"))

    def _wait_for_more(self, was_quiet: bool, changes: int) -> bool:
        """After an empty claim: False where nothing ran while it was asked, so that nothing can have become ready."""
        if was_quiet:
            return False
        self._hands.wait_for_change(changes, STAMP_EVERY)
        return True

    def _rest(self, claimed: Claimed, at_least: float) -> None:
        asked = (claimed.retry_after_ms or 0) / 1000
        if max(asked, at_least) > 0:
            self._pause(max(asked, at_least))

    def _pause(self, seconds: float) -> bool:
        """Wait, stamping; says whether the worker is stopping."""
        until = clock.monotonic() + seconds
        while (left := until - clock.monotonic()) > 0 and not self._stopping.wait(min(left, STAMP_EVERY)):
            self._stamp()
        return self._stopping.is_set()

    def _stamp(self) -> None:
        now = clock.monotonic()
        if now - self._stamped_at >= 1.0:
            self._stamped_at = now
            self._heartbeat.stamp()
            self._listener.alive()

    def _tend(self) -> None:
        try:
            self._transport.tend()
        except Unavailable as error:
            self._listener.warning(f"maintenance could not run: {error}")
