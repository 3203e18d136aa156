"""The words of a durable function, as methods of `ctx`: what a user writes, and what each promises. The work is in the files beside.

In a sync body a word gives its result; in an `async def` body it gives what to await for it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ..definitions import names
from ..definitions.policies import Key, Wait
from ..definitions.starts import MISSING
from ..errors import InvalidArgument

if TYPE_CHECKING:
    from ..definitions.durations import Duration
    from ..definitions.graph import Workflow
    from ..definitions.policies import Retry
    from .durable import Pass

MAX_NAME: Final = 200
"""Characters of a name that a user gives."""


class Words:
    """The part of `ctx` that a journal stands behind. Each named thing is done once; later passes are given what it came to.

    Names are used once in a pass; they have at most 200 characters, and no `[` or `]`. Words raise `InvalidArgument` for what can't be asked.
    A body that parks is unwound by something that is no `Exception`: let it pass.
    """

    _home: Pass

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        transactional: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Call `fn(*args, **kwargs)` once, store its result by its return annotation, and give it back as every later pass will get it.

        A failure is tried again as `retry` says, without holding a worker (default: one attempt); for good it raises `StepFailed`. After `timeout`
        it fails with class `timeout`: an async `fn` is cancelled, a sync one is left behind in a thread, and what it returns is dropped.
        With `transactional`, what `fn` writes to the workflows' database and its result are committed together, or not at all.
        """
        from . import inner_steps

        work = inner_steps.work(_checked(name), fn, retry=retry, timeout=timeout, transactional=transactional)
        return self._say(inner_steps.step(self._home, name, inner_steps.with_arguments(work, args, kwargs)))

    def map(
        self,
        name: str,
        fn: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        concurrency: int | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """A step `name[index]` for each item, at most `concurrency` (10) at once; the list of their results. Raises what the first to fail raised."""
        from . import groups, inner_steps

        work = inner_steps.work(_checked(name), fn, retry=retry, timeout=timeout)
        return self._say(groups.map_items(self._home, name, work, items, concurrency))

    def gather(self, *members: Any, return_exceptions: bool = False) -> Any:
        """Run members side by side; the list of what they give. In a sync body they are callables without arguments, run in threads of their own;
        in an async one words of `ctx`, and coroutines that use `ctx`. As `map` about failures; with `return_exceptions` they are values of the list.

        A callable may be called more than once in a pass, as the body is in a run: what must happen once belongs into a step.
        """
        from . import groups

        return self._say(groups.gather(self._home, members, is_async=self._is_async, return_exceptions=return_exceptions))

    def sleep(self, name: str, duration: Duration) -> Any:
        """Go on after a while (a timedelta or seconds), from when it was first asked for. Holds no worker."""
        from . import waits

        return self._say(waits.sleep(self._home, _checked(name), duration))

    def sleep_until(self, name: str, moment: datetime) -> Any:
        """Go on at a moment, an aware datetime; at once where it has passed."""
        from . import waits

        return self._say(waits.sleep_until(self._home, _checked(name), moment))

    def wait_for_event(
        self,
        name: str,
        *,
        event: str,
        key: Key | None = "",
        timeout: Duration | None = None,
        on_timeout: str = "fail",
        lookback: Duration | None = timedelta(0),
    ) -> Any:
        """The payload of an event. One that came since the run was created counts; `lookback` widens that, `None` closes it.

        After `timeout` it raises `WaitTimeout`; with `on_timeout="continue"` it gives `TIMED_OUT`, which is no payload.
        """
        from . import waits

        wait = Wait(event, key=None if isinstance(key, str) and not key else key, timeout=timeout, on_timeout=on_timeout, lookback=lookback)
        return self._say(waits.for_event(self._home, _checked(name), wait))

    def wait_any(self, name: str, **branches: Wait) -> Any:
        """The first of several events, as `Arrived(name, payload)`: which branch, and what it brought."""
        from . import waits

        return self._say(waits.any_of(self._home, _checked(name), {_checked(branch): wait for branch, wait in branches.items()}))

    def wait_all(self, name: str, **branches: Wait) -> Any:
        """All of several events: their payloads, by branch."""
        from . import waits

        return self._say(waits.all_of(self._home, _checked(name), {_checked(branch): wait for branch, wait in branches.items()}))

    def run_workflow(self, name: str, workflow: Workflow | str, payload: Any = MISSING) -> Any:
        """Start a child run, once, and wait for what it comes to. Raises `ChildFailed` where it does not succeed."""
        from . import families

        return self._say(families.run_one(self._home, _checked(name), workflow, payload))

    def run_batch(self, name: str, workflow: Workflow | str, payloads: Sequence[Any], *, return_exceptions: bool = False) -> Any:
        """Start a child run for each payload, once, and wait for all; the list of what they come to, in order.

        Raises `ChildFailed` for the first that did not succeed; with `return_exceptions` those are values of the list.
        """
        from . import families

        return self._say(families.run_many(self._home, _checked(name), workflow, list(payloads), return_exceptions=return_exceptions))

    def now(self) -> datetime:
        """When the latest result that was given so far was stored, else when the run began: the same in every pass. Costs no write."""
        return self._home.now

    def random(self) -> float:
        """A number from 0 to below 1, the same in every pass. Costs no write. Not for secrets: whoever knows the run's id can tell it."""
        return self._dice.random()

    def uuid(self) -> UUID:
        """A UUID (version 4), the same in every pass. Costs no write. Not for secrets."""
        return UUID(int=self._dice.getrandbits(128), version=4)

    @property
    def _dice(self) -> Random:
        return self._home.dice

    @property
    def _is_async(self) -> bool:
        return self._home.is_async

    def _say(self, word: Coroutine[Any, Any, Any]) -> Any:
        return self._home.manner.give(word)


def _checked(name: str) -> str:
    """The name, where it can be one."""
    fault = names.text_fault(name, MAX_NAME) or ("is empty" if not name else None) or ("has [ or ] in it" if "[" in name or "]" in name else None)
    if fault:
        raise InvalidArgument("name", f"the name {name!r:.80} {fault}: give text of at most {MAX_NAME} characters without brackets")
    return name
