"""A run on a server elsewhere: an id, its verbs and its questions, as `RunHandle` has them. Each question asks the server again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Protocol
from urllib.parse import quote

from .. import clock, errors
from ..errors import InvalidArgument, ResultTimeout, RunCancelled, RunEnded, RunFailed, RunTimedOut, Unavailable
from ..protocol import codec
from ..protocol.failures import Failure
from ..protocol.states import RunStatus
from .backoff import Backoff
from .transports.replies import Reply, failure

HOLD: Final = 24.0
"""Seconds that the server is asked to wait for the end of a run; it may answer sooner."""

SHORT_REST: Final = 0.25
"""Seconds between two looks at a server that does not wait."""

PATIENCE: Final = 10.0

_ENDED: Final[Mapping[str, type[RunEnded]]] = {RunStatus.FAILED: RunFailed, RunStatus.CANCELLED: RunCancelled, RunStatus.TIMED_OUT: RunTimedOut}

_ERRORS: Final[Mapping[str, Callable[[str], Exception]]] = {
    "concurrency_limit": errors.ConcurrencyLimit,
    "idempotency_conflict": errors.IdempotencyConflict,
    "not_available": errors.NotAvailable,
    "payload_too_large": lambda message: errors.PayloadTooLarge("payload", message),
    "run_terminal": errors.RunTerminal,
    "unknown_app": errors.UnknownApp,
    "unknown_run": errors.UnknownRun,
    "unknown_step": errors.UnknownStep,
    "unknown_workflow": errors.UnknownWorkflow,
    "verb_refused": errors.VerbRefused,
    "workflow_not_announced": errors.WorkflowNotAnnounced,
}

_ADVICE: Final[Mapping[str, str]] = {
    "unauthenticated": "make a key with `manage.py workflows_key create`, and give the client that",
    "forbidden": "the key has to be given what the message names; `execute` is the scope that starts and steers runs, `read` the one that looks at them",
}


class Asker(Protocol):
    """What sends a request."""

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, patience: float = ..., query: Mapping[str, Any] | None = ...) -> Reply:
        """Send it; gives the reply."""


def told(reply: Reply) -> Any:
    """What a reply that says yes brought. Raises the error its code stands for, as the engine would; `Rejected`, `Unavailable` for the rest."""
    if 200 <= reply.status < 300:
        return reply.value
    error = reply.error
    if error is not None and error["code"] in _ERRORS:
        raise _ERRORS[error["code"]](str(error.get("message", "")))
    if error is not None and reply.status == 400:
        fields = error.get("fields") or {"request": error.get("message", "")}
        field, reason = next(iter(fields.items()))
        raise InvalidArgument(str(field), str(reason))
    raise failure(reply, _ADVICE)


class RemoteRun:
    """One run, by its id. Made by `Client.start` and `Client.run`; costs nothing until it is asked. Raises `UnknownRun` where there is none.

    Every call may raise `Unavailable`, where trying again may help, and `Rejected`, where the key does not allow it; `result` tries again by itself.
    """

    def __init__(self, asker: Asker, run_id: str) -> None:
        self._asker = asker
        self.id = run_id
        self._path = f"v1/api/runs/{quote(run_id, safe='')}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteRun) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def look(self) -> Mapping[str, Any]:
        """All that the server tells of it: status, phase, what it waits for, steps, attempts, output, failure (`GET runs/{id}`)."""
        return self._look(0.0)

    @property
    def status(self) -> RunStatus:
        """The stored state."""
        return RunStatus(self.look()["status"])

    @property
    def phase(self) -> str:
        """How it ended, else what it is doing now."""
        return str(self.look()["phase"])

    @property
    def payload(self) -> Any:
        """What it was started with."""
        return self.look()["payload"]

    @property
    def state(self) -> Any:
        """The run's state: what completions patched."""
        return self.look()["state"]

    @property
    def waiting_for(self) -> Any:
        """What its open waits wait for."""
        return self.look()["waiting_for"]

    @property
    def failure(self) -> Failure | None:
        """Why it failed, or None."""
        found = self.look()["failure"]
        return None if found is None else Failure.from_json(found)

    @property
    def usage(self) -> Sequence[Mapping[str, Any]]:
        """What its steps used so far, by model and unit: `model`, `unit`, `amount`, `cost`, `unpriced`, amounts as text."""
        used: Sequence[Mapping[str, Any]] = self.look()["usage"]
        return used

    @property
    def cost(self) -> Decimal | None:
        """What that cost, as far as it had a price; None where nothing had one."""
        found = self.look()["cost"]
        return None if found is None else Decimal(found)

    def result(self, timeout: float | None = None) -> Any:
        """The output; waits up to `timeout` seconds for the end (None: for ever), also while the server can't be reached.

        Raises `RunFailed`, `RunCancelled`, `RunTimedOut`, `ResultTimeout`.
        """
        until = float("inf") if timeout is None else clock.monotonic() + timeout
        backoff = Backoff(first=SHORT_REST, cap=5.0)
        while True:
            asked_at, left = clock.monotonic(), max(0.0, until - clock.monotonic())
            try:
                run = self._look(min(HOLD, left))
            except Unavailable as error:
                if clock.monotonic() >= until:
                    raise ResultTimeout(f"run {self.id} could not be asked for within {timeout} s: {error}") from error
                _rest(backoff.next(error.retry_after), until)
                continue
            backoff.reset()
            if run["ended_at"] is not None:
                return _result(run)
            if clock.monotonic() >= until:
                raise ResultTimeout(f"run {self.id} is still {run['status']} after {timeout} s")
            if clock.monotonic() - asked_at < SHORT_REST:
                _rest(SHORT_REST, until)

    def signal(self, name: str, payload: Any = None) -> str:
        """Send it an event of its own: `delivered` or `buffered`. Raises `RunTerminal`."""
        return str(self._verb("signal", name=name, payload=codec.plain(payload, "payload"))["delivery"])

    def cancel(self, reason: str = "") -> RunStatus:
        """End it; gives the status it is left in. Raises `RunTerminal` where it had ended otherwise."""
        return RunStatus(self._verb("cancel", reason=reason)["status"])

    def retry(self, from_step: str | None = None) -> None:
        """Begin again from its failed steps, or from one by name. Raises `VerbRefused`."""
        self._verb("retry", from_step=from_step)

    def pause(self, reason: str = "") -> None:
        """Offer nothing of it until `resume`. Raises `RunTerminal`."""
        self._verb("pause", reason=reason)

    def resume(self) -> None:
        """Undo `pause`."""
        self._verb("resume")

    def resolve(self, step: str, output: Any, reason: str) -> None:
        """End a failed or waiting step by hand with this output. Raises `VerbRefused`, `UnknownStep`."""
        self._verb("resolve", step=step, output=codec.plain(output, "output"), reason=reason)

    def migrate(self, version: str, *, dry_run: bool = False) -> Mapping[str, Any]:
        """Move it to another stored version of its workflow, or with `dry_run` only say what that would do."""
        moved: Mapping[str, Any] = self._verb("migrate", version=version, dry_run=dry_run)
        return moved

    async def alook(self) -> Mapping[str, Any]:
        """As `look`."""
        return await asyncio.to_thread(self.look)

    async def aresult(self, timeout: float | None = None) -> Any:
        """As `result`; the event loop goes on meanwhile."""
        return await asyncio.to_thread(self.result, timeout)

    async def asignal(self, name: str, payload: Any = None) -> str:
        """As `signal`."""
        return await asyncio.to_thread(self.signal, name, payload)

    async def acancel(self, reason: str = "") -> RunStatus:
        """As `cancel`."""
        return await asyncio.to_thread(self.cancel, reason)

    async def aretry(self, from_step: str | None = None) -> None:
        """As `retry`."""
        await asyncio.to_thread(self.retry, from_step)

    async def apause(self, reason: str = "") -> None:
        """As `pause`."""
        await asyncio.to_thread(self.pause, reason)

    async def aresume(self) -> None:
        """As `resume`."""
        await asyncio.to_thread(self.resume)

    async def aresolve(self, step: str, output: Any, reason: str) -> None:
        """As `resolve`."""
        await asyncio.to_thread(self.resolve, step, output, reason)

    async def amigrate(self, version: str, *, dry_run: bool = False) -> Mapping[str, Any]:
        """As `migrate`."""
        return await asyncio.to_thread(self.migrate, version, dry_run=dry_run)

    def _look(self, hold: float) -> Mapping[str, Any]:
        query = {"wait_ms": round(hold * 1000)} if hold else None
        run: Mapping[str, Any] = told(self._asker.call("GET", self._path, patience=hold + PATIENCE, query=query))
        return run

    def _verb(self, verb: str, **body: Any) -> Any:
        return told(self._asker.call("POST", f"{self._path}/{verb}", body))


def _rest(seconds: float, until: float) -> None:
    time.sleep(max(0.0, min(seconds, until - clock.monotonic())))


def _result(run: Mapping[str, Any]) -> Any:
    if run["status"] == RunStatus.SUCCEEDED:
        return run["output"]
    why = (run["failure"] or {}).get("message") or run.get("reason")
    message = f"run {run['id']} of {run['workflow']} {run['status']}" + (f": {why}" if why else "")
    raise _ENDED[run["status"]](message, run["id"], run["failure"])
