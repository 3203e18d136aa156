"""What is wrong with a workflow: every fault at once, each naming workflow, step and fault. Judges; changes nothing, runs nothing.

Each check returns its faults as text. Graph walks are linear and without recursion: definitions also come over the network (case B61).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from ..errors import ExpressionError, InvalidPayload
from ..protocol import codec
from ..protocol.states import Delivery
from . import expressions, inputs, names, signatures
from .ancestry import Ancestry
from .durations import MAX_SPAN_MS, MAX_TIMEOUT_MS, in_words, milliseconds
from .policies import Concurrency, Cron, RateLimit, Retry, Sleep, Wait
from .starts import MISSING

if TYPE_CHECKING:
    from .graph import Step, Workflow

Policy = TypeVar("Policy")

RESERVED_STEPS: Final = frozenset({"on_failure"})
"""The engine names its own step so."""
MAX_STEPS: Final = 10_000
MAX_CRONS: Final = 100
MAX_ATTEMPTS: Final = 1_000_000
MAX_FACTOR: Final = 1_000.0
MAX_INPUT_BYTES: Final = 262_144
MAX_EXPRESSIONS: Final = 1_000

OVERLAPS: Final = ("skip", "queue", "allow", "cancel_running")
CATCH_UPS: Final = ("last", "all", "none")
ON_LIMITS: Final = ("queue", "reject", "cancel_oldest")
ON_TIMEOUTS: Final = ("fail", "continue")
EXHAUSTED: Final = ("fail", "pause")


def workflow_faults(workflow: Workflow) -> list[str]:
    """Every fault of a workflow, in reading order."""
    prefix = f"workflow {workflow.name}"
    wrong = [f"{prefix}: steps are Step objects, not {type(step).__name__}" for step in workflow.steps if not _is_step(step)]
    if wrong:
        return wrong
    parents = _parents(workflow.steps)
    ancestry = Ancestry(parents)
    faults = [f"{prefix}: {fault}" for fault in _own_faults(workflow, parents)]
    for step in workflow.steps:
        faults += [f"{prefix}, step {step.name}: {fault}" for fault in _step_faults(step, parents, ancestry)]
    return faults + [f"{prefix}: {fault}" for fault in _graph_faults(workflow.steps, parents, ancestry)]


def _parents(steps: Iterable[Step]) -> Mapping[str, tuple[str, ...]]:
    """What each name comes after; two steps of one name count as one."""
    parents: dict[str, tuple[str, ...]] = {}
    for step in steps:
        if isinstance(step.name, str):
            after = (parent for parent in step.after if isinstance(parent, str))
            parents[step.name] = (*parents.get(step.name, ()), *after)
    return parents


def _is_step(step: object) -> bool:
    return hasattr(step, "after") and hasattr(step, "run")


def _own_faults(workflow: Workflow, known: Collection[str]) -> Iterator[str]:
    if not names.matches(names.WORKFLOW_PATTERN, workflow.name):
        yield f"a workflow's name matches {names.WORKFLOW_PATTERN}"
    if not names.matches(names.REVISION_PATTERN, workflow.revision):
        yield f"revision {workflow.revision!r}: a revision is text that matches {names.REVISION_PATTERN}"
    if len(workflow.steps) > MAX_STEPS:
        yield f"it has {len(workflow.steps)} steps, at most {MAX_STEPS} are allowed"
    yield from duration_faults("timeout", workflow.timeout, MAX_TIMEOUT_MS)
    yield from duration_faults("deadline", workflow.deadline, MAX_SPAN_MS)
    yield from _policy_faults("retry", workflow.retry, Retry, retry_faults)
    if workflow.on_failure is not None:
        yield from (f"on_failure: {fault}" for fault in signatures.faults(workflow.on_failure))
    if len(workflow.cron) > MAX_CRONS:
        yield f"it has {len(workflow.cron)} crons, at most {MAX_CRONS} are allowed"
    for cron in workflow.cron[:MAX_CRONS]:
        yield from _faults_as("cron", cron, Cron, _cron_faults)
    yield from _policy_faults("concurrency", workflow.concurrency, Concurrency, lambda policy: _concurrency_faults(policy, known))
    yield from _policy_faults("rate", workflow.rate, RateLimit, _rate_faults)


def _policy_faults(what: str, policy: Policy | None, kind: type[Policy], faults_of: Callable[[Policy], Iterable[str]]) -> Iterator[str]:
    if policy is not None:
        yield from _faults_as(what, policy, kind, faults_of)


def _faults_as(what: str, policy: object, kind: type[Policy], faults_of: Callable[[Policy], Iterable[str]]) -> Iterator[str]:
    if not isinstance(policy, kind):
        yield f"{what}: give a {kind.__name__}, not {type(policy).__name__}"
        return
    yield from (f"{what}: {fault}" for fault in faults_of(policy))


def _step_faults(step: Step, known: Collection[str], ancestry: Ancestry) -> Iterator[str]:
    before = ancestry.before(step.name)
    if not names.matches(names.STEP_PATTERN, step.name):
        yield f"a step's name matches {names.STEP_PATTERN}"
    elif step.name in RESERVED_STEPS:
        yield f"the name {step.name} is reserved"
    yield from _kind_faults(step)
    if not isinstance(step.transactional, bool):
        yield f"transactional: {step.transactional!r} is neither True nor False"
    if step.run is not None:
        yield from (f"run: {fault}" for fault in signatures.faults(step.run))
        if step.transactional and signatures.is_async(step.run):
            yield "transactional: an async def can't run in a database transaction: make it a def"
    yield from _policy_faults("wait", step.wait, Wait, lambda wait: wait_faults(wait, known, before))
    yield from _policy_faults("sleep", step.sleep, Sleep, _sleep_faults)
    yield from _policy_faults("retry", step.retry, Retry, retry_faults)
    yield from duration_faults("timeout", step.timeout, MAX_TIMEOUT_MS)
    yield from _choice_faults("delivery", step.delivery, tuple(Delivery))
    yield from _input_faults(step.input, known, before)


def _kind_faults(step: Step) -> Iterator[str]:
    kinds = [name for name in ("run", "wait", "sleep") if getattr(step, name) is not None]
    if len(kinds) != 1:
        yield f"it has {' and '.join(kinds) or 'none'} of run, wait and sleep: give exactly one"
    elif kinds != ["run"]:
        of_bodies = {"retry": step.retry is not None, "timeout": step.timeout is not None, "delivery": step.delivery != Delivery.AT_LEAST_ONCE}
        meant = {"timeout": ": a wait has its own, Wait(timeout=…)"} if kinds == ["wait"] else {}
        for name, given in {**of_bodies, "transactional": step.transactional}.items():
            if given:
                yield f"{name} is for run steps, this one is a {kinds[0]}{meant.get(name, '')}"


def _graph_faults(steps: Sequence[Step], parents: Mapping[str, Sequence[str]], ancestry: Ancestry) -> Iterator[str]:
    if not steps:
        yield "it has no steps: give at least one"
    if not all(isinstance(name, str) for step in steps for name in (step.name, *step.after)):
        yield "the names of steps are text, in after too"
        return
    seen: set[str] = set()
    for step in steps:
        if step.name in seen:
            yield f"there are two steps named {step.name}"
        seen.add(step.name)
    for name, after in parents.items():
        yield from (f"step {name}: it comes after {parent!r}, which is no step here" for parent in after if parent not in parents)
        if len(set(after)) < len(after):
            yield f"step {name}: it names a step twice in after"
    if ancestry.cycle:
        yield f"the steps form a cycle: {' -> '.join(ancestry.cycle)}"


def duration_faults(what: str, duration: Any, maximum_ms: int, *, zero: bool = False) -> Iterator[str]:
    """What is wrong with a duration that goes up to `maximum_ms`; `None` is none."""
    if duration is None:
        return
    try:
        ms = milliseconds(duration)
    except ValueError as error:
        yield f"{what}: {error}"
        return
    if ms > maximum_ms or ms < 0 or (ms == 0 and not zero):
        yield f"{what}: {duration} is out of range, it is {'0 or more' if zero else 'over 0'} and at most {in_words(maximum_ms)}"


def _choice_faults(what: str, value: object, choices: Sequence[str]) -> Iterator[str]:
    if value not in choices:
        yield f"{what}: {value!r} is none of {', '.join(choices)}"


def _number_faults(what: str, value: object, low: float, high: float) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:  # a NaN is neither
        yield f"{what}: {value!r} is no number from {low:g} to {high:g}"


def _count_faults(what: str, value: object, high: int) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
        yield f"{what}: {value!r} is no whole number from 1 to {high}"


def retry_faults(retry: Retry) -> Iterator[str]:
    """What is wrong with a retry policy."""
    yield from _count_faults("max_attempts", retry.max_attempts, MAX_ATTEMPTS)
    yield from duration_faults("initial", retry.initial, MAX_SPAN_MS)
    yield from duration_faults("maximum", retry.maximum, MAX_SPAN_MS)
    yield from (f"{what}: give a duration" for what in ("initial", "maximum") if getattr(retry, what) is None)
    yield from _number_faults("factor", retry.factor, 1, MAX_FACTOR)
    yield from _number_faults("jitter", retry.jitter, 0, 1)
    yield from _on_faults(retry)
    yield from _choice_faults("exhausted", retry.exhausted, EXHAUSTED)


def inner_retry_faults(retry: Retry) -> Iterator[str]:
    """What is wrong with the retry policy of a durable function's inner step: it fails, and its body says what becomes of that."""
    yield from retry_faults(retry)
    if retry.exhausted == "pause":
        yield 'exhausted: "pause" is for the steps of a workflow: give it to the durable function itself, and let this step\'s failure end it'


def _on_faults(retry: Retry) -> Iterator[str]:
    classes = [retry.on] if isinstance(retry.on, str) else retry.on
    if not isinstance(classes, Collection) or not all(names.matches(names.CLASS_PATTERN, class_) for class_ in classes):
        yield f'on: {retry.on!r} is neither "any" nor failure classes that match {names.CLASS_PATTERN}'
    elif "any" in classes and retry.on != "any":
        yield 'on: "any" is all classes there are: write on="any"'


def _sleep_faults(sleep: Sleep) -> Iterator[str]:
    yield from duration_faults("duration", sleep.duration, MAX_SPAN_MS, zero=True)
    if sleep.duration is None:
        yield "duration: give a duration"


def wait_faults(wait: Wait, known: Collection[str], before: Container[str] = ()) -> Iterator[str]:
    """What is wrong with a wait; `known` are the steps that its expression may name, `before` those whose outputs it may read."""
    fault = names.text_fault(wait.event, names.MAX_EVENT_LENGTH)
    if fault or not wait.event:
        yield f"event: the name {fault or 'is empty'}"
    yield from _key_faults(wait.key, wait.key_expr)
    yield from _expression_faults("key_expr", wait.key_expr, known, before)
    yield from duration_faults("timeout", wait.timeout, MAX_SPAN_MS)
    yield from duration_faults("lookback", wait.lookback, MAX_SPAN_MS, zero=True)
    yield from _choice_faults("on_timeout", wait.on_timeout, ON_TIMEOUTS)


def _key_faults(key: object, key_expr: object) -> Iterator[str]:
    if key is not None and key_expr is not None:
        yield "it has key and key_expr: give one"
    if isinstance(key, (str, int, UUID)) and not isinstance(key, bool):
        fault = names.text_fault(str(key), names.MAX_KEY_LENGTH)
        if fault:
            yield f"key: it {fault}"
    elif key is not None and not callable(key):
        yield f"key: {key!r} is no str, int, UUID or callable of the run"


def _expression_faults(what: str, source: object, known: Collection[str], before: Container[str], *, at_start: bool = False) -> Iterator[str]:
    fault = None if source is None else expressions.fault(source, known, before, at_start=at_start)
    if fault:
        yield f"{what}: {fault}"


def _input_faults(template: Any, known: Collection[str], before: Container[str]) -> Iterator[str]:
    if template is None:
        return
    try:
        if codec.loads(codec.dumps(template, limit=MAX_INPUT_BYTES, what="input")) != template:
            yield "input: the template is not plain JSON: give dicts, lists, texts, numbers, true, false and null"
        sources = list(inputs.expressions_in(template))
    except (InvalidPayload, ExpressionError) as error:
        yield f"input: {error}" if isinstance(error, ExpressionError) else str(error)
        return
    if len(sources) > MAX_EXPRESSIONS:
        yield f"input: it has {len(sources)} expressions, at most {MAX_EXPRESSIONS} are allowed"
        return
    for source in sources:
        yield from _expression_faults("input", source, known, before)


def _cron_faults(cron: Cron) -> Iterator[str]:
    from . import occurrences  # only who writes a cron needs cronsim: a worker elsewhere may have httpx alone

    fault = occurrences.fault(cron.expression)
    if fault:
        yield f"expression: {fault}"
    try:
        ZoneInfo(cron.timezone)
    except Exception:  # noqa: BLE001 - zoneinfo raises ValueError, OSError, KeyError and TypeError for bad names
        yield f"timezone: {cron.timezone!r} is no known time zone, such as Europe/Madrid"
    if cron.payload is not MISSING:
        yield from _payload_faults(cron.payload)
    if cron.labels is not None:
        yield from names.label_faults(cron.labels)
    yield from _choice_faults("overlap", cron.overlap, OVERLAPS)
    yield from _choice_faults("catch_up", cron.catch_up, CATCH_UPS)


def _payload_faults(payload: Any) -> Iterator[str]:
    try:
        codec.dumps(payload, limit=None, what="payload")
    except InvalidPayload as error:
        yield str(error)


def _concurrency_faults(concurrency: Concurrency, known: Collection[str]) -> Iterator[str]:
    yield from _count_faults("limit", concurrency.limit, 1_000_000)
    yield from _key_faults(concurrency.key, concurrency.key_expr)
    yield from _expression_faults("key_expr", concurrency.key_expr, known, known, at_start=True)
    yield from _choice_faults("on_limit", concurrency.on_limit, ON_LIMITS)


def _rate_faults(rate: RateLimit) -> Iterator[str]:
    yield from _count_faults("limit", rate.limit, 1_000_000)
    yield from duration_faults("per", rate.per, MAX_SPAN_MS)
    if rate.per is None:
        yield "per: give a duration"
