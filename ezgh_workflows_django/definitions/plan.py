"""What the engine reads of a stored definition: the graph and its policies, defaults filled in. Never a Python body.

A `Plan` is made of a wire form that was validated when it was stored; it is not validated again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from ..protocol.states import Delivery, StepKind
from .policies import NO_RETRY, Retry
from .wire import read_retry, version_of

ON_FAILURE: Final = "on_failure"
"""The name of the step that compensation runs in; no user's step may have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWait:
    """What a wait step waits for.

    `key`, `key_expr` and `callable_key` are three ways to the key; with none of them the key is empty. `lookback` (ms) is how long
    before the run's creation an event may have come; `lookback_closed` says that nothing before the wait opened counts.
    """

    event: str
    key: str | None = None
    key_expr: str | None = None
    callable_key: bool = False
    timeout_ms: int | None = None
    lookback: int = 0
    lookback_closed: bool = False
    on_timeout: str = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One node. `position` is its place in the definition, `input` its template (None: the one input rule)."""

    name: str
    position: int
    kind: StepKind
    after: tuple[str, ...] = ()
    retry: Retry = NO_RETRY
    timeout_ms: int | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    input: Any = None
    wait: PlanWait | None = None
    sleep_ms: int | None = None
    transactional: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One immutable definition, as the engine runs it. Durations are milliseconds. Hand out one per version: its answers are cached."""

    name: str
    revision: str
    version: str
    steps: Mapping[str, PlanStep]
    deadline_ms: int | None = None
    on_failure: PlanStep | None = None
    cron: tuple[Mapping[str, Any], ...] = ()
    concurrency: Mapping[str, Any] | None = None
    rate: Mapping[str, Any] | None = None
    _children: Mapping[str, tuple[str, ...]] = field(repr=False, compare=False)
    _ancestors: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)
    _descendants: dict[str, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], version: str | None = None) -> Plan:
        """The plan of a stored wire form. `version` saves hashing it again where the caller knows it."""
        steps = {entry["name"]: _step(position, entry, spec) for position, entry in enumerate(spec["steps"])}
        return cls(
            name=spec["name"],
            revision=spec["revision"],
            version=version or version_of(spec),
            steps=MappingProxyType(steps),
            deadline_ms=spec.get("deadline_ms"),
            on_failure=_on_failure(spec),
            cron=tuple(spec.get("cron", ())),
            concurrency=spec.get("concurrency"),
            rate=spec.get("rate"),
            _children=_children(steps),
        )

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The steps that start with the run, in order."""
        return tuple(step.name for step in self.steps.values() if not step.after)

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The steps nothing comes after: their outputs are what a run comes to."""
        return tuple(name for name in self.steps if not self.children(name))

    def output_of(self, outputs: Mapping[str, Any]) -> Any:
        """What a run came to: the output of its one last step, or an object of the last steps' outputs by name."""
        return outputs.get(self.leaves[0]) if len(self.leaves) == 1 else {name: outputs.get(name) for name in self.leaves}

    @cached_property
    def longest_timeout_ms(self) -> int | None:
        """The longest timeout of one pass of a body here, or None where no step has one."""
        bodies = [*self.steps.values(), *([self.on_failure] if self.on_failure else [])]
        return max((step.timeout_ms for step in bodies if step.timeout_ms is not None), default=None)

    def step(self, name: str) -> PlanStep:
        """The step of that name, `on_failure` included. Raises `KeyError`."""
        return self.on_failure if name == ON_FAILURE and self.on_failure else self.steps[name]

    def children(self, name: str) -> tuple[str, ...]:
        """The steps that name this one in `after`, in order."""
        return self._children.get(name, ())

    def ancestors(self, name: str) -> tuple[str, ...]:
        """Every step that this one comes after, parents before children. For `on_failure`: every step."""
        if name not in self._ancestors:
            wanted = frozenset(self.steps) if name == ON_FAILURE else self._reachable(name, self._parents)
            self._ancestors[name] = tuple(step for step in self._order if step in wanted)
        return self._ancestors[name]

    def descendants(self, name: str) -> frozenset[str]:
        """Every step that comes after this one, not itself."""
        if name not in self._descendants:
            self._descendants[name] = self._reachable(name, self._children)
        return self._descendants[name]

    @cached_property
    def _parents(self) -> Mapping[str, tuple[str, ...]]:
        return {step.name: step.after for step in self.steps.values()}

    @cached_property
    def _order(self) -> tuple[str, ...]:
        """All steps, parents first, otherwise in the order of the definition."""
        missing = {step.name: len(step.after) for step in self.steps.values()}
        order = list(self.roots)
        for name in order:  # grows while it is walked
            for child in self.children(name):
                missing[child] -= 1
                if not missing[child]:
                    order.append(child)
        return tuple(order)

    @staticmethod
    def _reachable(name: str, edges: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
        seen: set[str] = set()
        todo = [name]
        while todo:
            for other in edges.get(todo.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return frozenset(seen)


def _children(steps: Mapping[str, PlanStep]) -> Mapping[str, tuple[str, ...]]:
    children: dict[str, list[str]] = {}
    for step in steps.values():
        for parent in step.after:
            children.setdefault(parent, []).append(step.name)
    return {parent: tuple(names) for parent, names in children.items()}


def _step(position: int, entry: Mapping[str, Any], spec: Mapping[str, Any]) -> PlanStep:
    kind = StepKind(entry["kind"])
    has_body = kind is StepKind.RUN
    return PlanStep(
        name=entry["name"],
        position=position,
        kind=kind,
        after=tuple(entry.get("after", ())),
        retry=_retry(entry, spec) if has_body else NO_RETRY,
        timeout_ms=entry.get("timeout_ms", spec.get("timeout_ms")) if has_body else None,
        delivery=Delivery(entry.get("delivery", Delivery.AT_LEAST_ONCE)),
        input=entry.get("input"),
        wait=_wait(entry["wait"]) if kind is StepKind.WAIT else None,
        sleep_ms=entry.get("sleep_ms"),
        transactional=entry.get("transactional", False),
    )


def _retry(entry: Mapping[str, Any], spec: Mapping[str, Any]) -> Retry:
    stored = entry.get("retry", spec.get("retry"))
    return NO_RETRY if stored is None else read_retry(stored)


def _wait(stored: Mapping[str, Any]) -> PlanWait:
    lookback = stored.get("lookback_ms", 0)
    return PlanWait(
        event=stored["event"],
        key=stored.get("key"),
        key_expr=stored.get("key_expr"),
        callable_key=stored.get("key_callable", False),
        timeout_ms=stored.get("timeout_ms"),
        lookback=lookback or 0,
        lookback_closed=lookback is None,
        on_timeout=stored.get("on_timeout", "fail"),
    )


def _on_failure(spec: Mapping[str, Any]) -> PlanStep | None:
    if not spec.get("on_failure"):
        return None
    return PlanStep(name=ON_FAILURE, position=len(spec["steps"]), kind=StepKind.ON_FAILURE, retry=_retry({}, spec), timeout_ms=spec.get("timeout_ms"))
