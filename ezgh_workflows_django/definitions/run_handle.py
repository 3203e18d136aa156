"""What callers hold of a run, as authoring code knows it: names and types, nothing that runs."""

from __future__ import annotations

from typing import Any, Protocol

from ..protocol.states import RunStatus


class RunHandle(Protocol):
    """What callers hold of a run: its id, the questions, the verbs (spec: authoring.md "Starting, from Django").

    Each question and each verb reaches the database and has a twin for async callers, its name after an `a`.
    """

    @property
    def id(self) -> str:
        """The run's id, as text."""

    @property
    def run(self) -> Any:
        """The row of it."""

    async def arun(self) -> Any:
        """As `run`."""

    @property
    def status(self) -> RunStatus:
        """The stored state."""

    async def astatus(self) -> RunStatus:
        """As `status`."""

    @property
    def phase(self) -> str:
        """How it ended, else what it is doing now."""

    async def aphase(self) -> str:
        """As `phase`."""

    @property
    def waiting_for(self) -> Any:
        """What its open waits wait for."""

    async def awaiting_for(self) -> Any:
        """As `waiting_for`."""

    @property
    def failure(self) -> Any:
        """Why it failed, or None."""

    async def afailure(self) -> Any:
        """As `failure`."""

    @property
    def labels(self) -> Any:
        """The labels it was started with."""

    async def alabels(self) -> Any:
        """As `labels`."""

    @property
    def state(self) -> Any:
        """The run's state: what completions patched."""

    async def astate(self) -> Any:
        """As `state`."""

    @property
    def payload(self) -> Any:
        """What it was started with."""

    async def apayload(self) -> Any:
        """As `payload`."""

    @property
    def usage(self) -> Any:
        """What its steps used so far, by model and unit."""

    async def ausage(self) -> Any:
        """As `usage`."""

    @property
    def cost(self) -> Any:
        """What that cost, as far as it had a price, or None."""

    async def acost(self) -> Any:
        """As `cost`."""

    @property
    def steps(self) -> Any:
        """The rows of its steps, in the order of the definition."""

    async def asteps(self) -> Any:
        """As `steps`."""

    @property
    def journal(self) -> Any:
        """What happened to it, in order."""

    async def ajournal(self) -> Any:
        """As `journal`."""

    def result(self, timeout: float | None = None) -> Any:
        """The output; waits up to `timeout` seconds for the end. Raises `RunFailed`, `RunCancelled`, `RunTimedOut`, `ResultTimeout`."""

    async def aresult(self, timeout: float | None = None) -> Any:
        """As `result`."""

    def signal(self, name: str, payload: Any = None) -> Any:
        """Send this run an event of its own."""

    async def asignal(self, name: str, payload: Any = None) -> Any:
        """As `signal`."""

    def cancel(self, reason: str = "") -> Any:
        """End the run."""

    async def acancel(self, reason: str = "") -> Any:
        """As `cancel`."""

    def retry(self, from_step: str | None = None) -> Any:
        """Open a new episode of an ended run."""

    async def aretry(self, from_step: str | None = None) -> Any:
        """As `retry`."""

    def pause(self, reason: str = "") -> Any:
        """Offer nothing of this run until `resume`."""

    async def apause(self, reason: str = "") -> Any:
        """As `pause`."""

    def resume(self) -> Any:
        """Undo `pause`."""

    async def aresume(self) -> Any:
        """As `resume`."""

    def resolve(self, step: str, output: Any, reason: str) -> Any:
        """End a failed or waiting step by hand."""

    async def aresolve(self, step: str, output: Any, reason: str) -> Any:
        """As `resolve`."""

    def migrate(self, version: str, *, dry_run: bool = False) -> Any:
        """Move it to another stored version of its workflow."""

    async def amigrate(self, version: str, *, dry_run: bool = False) -> Any:
        """As `migrate`."""
