"""Open waits, and the events they take. Within a run an event is taken once, the oldest untaken one first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from ..definitions import expressions, names, policies
from ..definitions.plan import PlanStep, PlanWait
from ..errors import ExpressionError
from ..models import App, Event, Receipt, Run, Step, Wait
from .inputs import Names
from .locking import Held
from .transactions import database


def project_scope(project_id: int) -> str:
    """The scope of events that reach every app of a project but developers' own."""
    return f"project:{project_id}"


def app_scope(app_id: int) -> str:
    """The scope of events that reach one app."""
    return f"app:{app_id}"


def run_scope(run_id: object) -> str:
    """The scope of a signal."""
    return f"run:{run_id}"


def key_of(held: Held, step: Step, planned: PlanStep) -> str:
    """The key a wait that opens is for: the one stored at the start, else its expression's value now, as text.

    Raises `ExpressionError`.
    """
    wait = _wait_of(planned)
    if step.wait_key is not None:
        return step.wait_key
    if wait.key_expr is None:
        return ""
    return key_text(expressions.evaluate(wait.key_expr, Names(held, planned)), wait.key_expr)


def key_text(value: object, source: str) -> str:
    """A computed key as it is stored and compared. Raises `ExpressionError` where a value makes no key."""
    try:
        return kept_key(value)
    except ValueError as error:
        raise ExpressionError(f"{source}: {error}") from None


def kept_key(value: object) -> str:
    """A computed key as text that its column keeps unchanged. Raises `ValueError` for what makes no key."""
    text = policies.key_text(value)
    fault = names.text_fault(text, names.MAX_KEY_LENGTH)
    if fault:
        raise ValueError(f"a key {fault}")
    return text


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a wait takes: an event of that name and key that came at `since` or later, and before `timeout_at`."""

    name: str
    event: str
    key: str
    since: datetime
    timeout_at: datetime | None


def open_wait(held: Held, step: Step, planned: PlanStep, key: str) -> Wait:
    """Store an open wait for a step of a graph; its unique name makes the first write win."""
    wait = _wait_of(planned)
    app = App.objects.using(database()).only("id", "name", "project_id").get(pk=held.run.app_id)
    timeout_at = None if wait.timeout_ms is None else held.now + timedelta(milliseconds=wait.timeout_ms)
    opened = waiting(held, step, app, Wanted(step.name, wait.event, key, _since(held, wait), timeout_at))
    opened.save(using=database(), force_insert=True)
    return opened


def waiting(held: Held, step: Step, app: App, wanted: Wanted) -> Wait:
    """The row of an open wait, not stored yet."""
    return Wait(
        run=held.run,
        step=step,
        app=app,
        project_id=None if app.is_dev else app.project_id,
        name=wanted.name,
        event=wanted.event,
        key=wanted.key,
        since=wanted.since,
        opened_at=held.now,
        timeout_at=wanted.timeout_at,
    )


def find(wait: Wait) -> Event | None:
    """The oldest event this wait may have; None where there is none. Takes nothing."""
    untaken = (_untaken(rows, wait).order_by("created_at", "pk").first() for rows in (_signals(wait), _events(wait)))
    return min(filter(None, untaken), key=lambda each: (each.created_at, each.pk), default=None)


def take(held: Held, wait: Wait) -> Event | None:
    """Take the oldest event this wait may have, and remember that the run took it; None where there is none."""
    event = find(wait)
    if event is None:
        return None
    Receipt.objects.using(database()).create(event=event, run=held.run, step_id=wait.step_id, taken_at=held.now)
    return event


def arrival(held: Held, wait: Wait) -> Event | None:
    """The event that is there for this open wait, which is then over; None where there is none."""
    event = take(held, wait)
    if event is not None:
        wait.delete(using=database())
    return event


def undelivered(run: Run, before: datetime) -> QuerySet[Any]:
    """When an event came, before that moment, which nobody has delivered yet, and for which step of the run: the oldest first."""
    reached = Q(app=OuterRef("app")) | Q(app=None, project=OuterRef("project"))
    stored = Event.objects.using(database()).filter(reached, due_at__isnull=False, run=None, name=OuterRef("event"), key=OuterRef("key"))
    came = stored.filter(created_at__gte=OuterRef("since"), created_at__lt=before).order_by("created_at").values("created_at")
    open_waits = Wait.objects.using(database()).filter(run=run).annotate(came_at=Subquery(came[:1]))
    return open_waits.filter(came_at__isnull=False).order_by("came_at", "pk").values_list("came_at", "step__name")


def _since(held: Held, wait: PlanWait) -> datetime:
    if wait.lookback_closed:
        return held.now
    return held.run.created_at - timedelta(milliseconds=wait.lookback)


def _untaken(events: QuerySet[Event], wait: Wait) -> QuerySet[Event]:
    taken = Receipt.objects.using(database()).filter(run=wait.run_id, event=OuterRef("pk"))
    return events.filter(~Exists(taken))


def _signals(wait: Wait) -> QuerySet[Event]:
    return _in_time(Event.objects.using(database()).filter(scope=run_scope(wait.run_id), name=wait.event), wait)


def _events(wait: Wait) -> QuerySet[Event]:
    scopes = [app_scope(wait.app_id)]
    if wait.project_id is not None:
        scopes.append(project_scope(wait.project_id))
    return _in_time(Event.objects.using(database()).filter(scope__in=scopes, name=wait.event, key=wait.key, created_at__gte=wait.since), wait)


def _in_time(events: QuerySet[Event], wait: Wait) -> QuerySet[Event]:
    """What came after the timeout was due comes too late, even where the timeout is fired late: the earlier due time wins."""
    return events if wait.timeout_at is None else events.filter(created_at__lt=wait.timeout_at)


def _wait_of(planned: PlanStep) -> PlanWait:
    if planned.wait is None:
        raise ValueError(f"step {planned.name} is no wait")
    return planned.wait
