"""A durable function, pass by pass: the real executor and keeper on a scripted server that keeps checkpoints as the engine does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any

from ezgh_workflows_django.definitions.graph import Step, Workflow
from ezgh_workflows_django.protocol.outcomes import Outcome
from ezgh_workflows_django.protocol.states import LeaseStatus
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.testing.scripted_checkpoints import BEGIN, ScriptedCheckpoints
from ezgh_workflows_django.worker.context import Context
from ezgh_workflows_django.worker.executor import Execution
from ezgh_workflows_django.worker.keeper import Keeping
from ezgh_workflows_django.worker.listener import Listener

Words = Generator[Any, Any, Any]
Manner = Callable[[Callable[..., Any]], Callable[..., Any]]
HOUR = timedelta(hours=1)


class Calls:
    """Functions for inner steps that keep count of their calls."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def named(self, name: str, result: Any = None) -> Callable[[], Any]:
        def call() -> Any:
            self.made.append(name)
            return result

        return call

    def failing(self, *errors: BaseException) -> Callable[[], str]:
        left = list(errors)

        def call() -> str:
            self.made.append("try")
            if left:
                raise left.pop(0)
            return "done"

        return call


class Passes:
    """The passes of one body. `outcome` is how the last one ended, `outcomes` how all did."""

    def __init__(self, body: Callable[..., Any], input: Any = None, *, transactional: bool = False, **fields: Any) -> None:
        self.server = ScriptedTransport()
        self.crashes: list[BaseException] = []
        self.keeping = Keeping(self.server, Listener(), on_crash=self.crashes.append)
        self.outcomes: list[Outcome] = []
        self.transactional = transactional
        usual: dict[str, Any] = {"id": "lease", "run_id": "r1", "idempotency_key": "r1:only", "run_started_at": BEGIN, "expires_at": BEGIN}
        self.swap(body)
        self.lease = lease_of(self.workflow, "only", input, **(usual | fields))
        self.context = Context(self.lease)

    @property
    def stored(self) -> ScriptedCheckpoints:
        """What the server keeps of the body."""
        return self.server.stored["lease"]

    @property
    def outcome(self) -> Outcome:
        """How the last pass ended."""
        return self.outcomes[-1]

    @property
    def waits(self) -> list[str]:
        """What the last pass parked on."""
        return [wait.name for wait in self.outcome.waits]

    def swap(self, body: Callable[..., Any]) -> Passes:
        """Other code from the next pass on."""
        self.workflow = Workflow("job", steps=[Step("only", run=body, transactional=self.transactional)])
        return self

    def run(self, *, lost: bool = False) -> Outcome:
        """One pass; of one that is `lost` the server never gets the outcome, as where its worker is killed."""
        self.lease = self.stored.next_pass(self.lease)
        self.context = Context(self.lease)
        keeper = self.keeping.keeper(self.lease, self.context.cancelled)
        work = Execution(self.lease, self.workflow.body("only"), self.context, keeper=keeper, transactional=self.transactional)
        outcome = work.run()
        if outcome.status is LeaseStatus.SUSPENDED and not lost:
            self.stored.park(outcome)
        self.outcomes.append(outcome)
        return outcome

    def again(self, **came: Any) -> Outcome:
        """What was waited for has come, with these outputs (None where not given), then the next pass."""
        for name in self.waits:
            if self.stored.rows[name].is_open and self.stored.rows[name].retry_at is None:
                self.stored.meet(name, output=came.get(name))
        return self.run()


def as_async(body: Callable[..., Any]) -> Callable[..., Any]:
    """A generator body that yields words, as an async function."""

    async def run(ctx: Context) -> Any:
        return await _driven_async(body(ctx))

    return run


def as_sync(body: Callable[..., Any]) -> Callable[..., Any]:
    """A generator body that yields words, as a sync function."""

    def run(ctx: Context) -> Any:
        return _driven(body(ctx))

    return run


def _driven(steps: Any) -> Any:
    try:
        given = next(steps)
        while True:
            given = steps.send(given)
    except StopIteration as end:
        return end.value


async def _driven_async(steps: Any) -> Any:
    try:
        word = next(steps)
        while True:
            try:
                given = await word if inspect.isawaitable(word) else word
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - the body is shown it
                word = steps.throw(error)
            else:
                word = steps.send(given)
    except StopIteration as end:
        return end.value


def order(ctx: Context, calls: Calls, *asks: str) -> Words:
    """A generator body that asks for these steps, and sleeps, in order."""
    for name in asks:
        yield ctx.sleep(name, HOUR) if name.startswith("sleep") else ctx.step(name, calls.named(name))
