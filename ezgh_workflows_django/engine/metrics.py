"""What a scrape is told: the table of metrics, and their values for some apps now. Locks nothing; a constant number of statements.

What is live is counted by index, so ended runs cost a scrape nothing. What only rises comes from the running totals that maintenance makes,
which survive restarts and retention.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from django.db.models import Count, F, Min, Q

from ..conf import app_settings
from ..models import App, FigureKind, Run, Schedule, Worker
from ..protocol.states import LIVE_RUN
from . import apps, figures, maintenance, slots, workers
from .clock import read_at
from .distributions import Sum
from .transactions import database

Kind = Literal["gauge", "counter", "histogram"]

PREFIX: Final = "ezgh_workflows_"

LOST_FOR: Final = timedelta(hours=1)
"""How long a worker that was lost is counted as such."""

SCHEDULE_IS_LATE: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name without the prefix, the names of its labels, one line. `of` are the figures that it is read from, if any."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    line: str
    of: FigureKind | None = None

    @property
    def full_name(self) -> str:
        """The name as it is scraped, without what is added for a counter (`_total`) and a histogram (`_bucket`, `_sum`, `_count`)."""
        return PREFIX + self.name


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of a metric. `labels` are the values of its labels, in order; a histogram has a sum of times for value."""

    name: str
    labels: tuple[str, ...]
    value: float | Sum


_OF_WORKFLOW: Final = ("app", "workflow")

METRICS: Final[tuple[Metric, ...]] = (
    Metric("queue_depth", "gauge", ("app", "partition"), "Steps that are ready to be claimed."),
    Metric("queue_oldest_seconds", "gauge", ("app", "partition"), "How long the oldest of them has been ready; 0 where there is none."),
    Metric("app_paused", "gauge", ("app",), "1 while somebody holds the app's work back, else 0."),
    Metric("runs", "gauge", ("app", "status"), "Runs that are not over."),
    Metric("stranded_runs", "gauge", ("app",), "Runs that are not over and that no live worker serves."),
    Metric("admission_waiting", "gauge", _OF_WORKFLOW, "Runs that stand in line for a slot or a turn."),
    Metric("admission_oldest_seconds", "gauge", _OF_WORKFLOW, "How long the first of them has stood there."),
    Metric("workers", "gauge", ("app", "state"), "Worker sessions: live, silent (not heard of for three minutes), lost (given up within the last hour)."),
    Metric("schedules_late", "gauge", ("app",), "Schedules with an occurrence that has been due for over a minute."),
    Metric("tick_age_seconds", "gauge", (), "How long ago maintenance last ran, in any process."),
    Metric("tick_lateness_seconds", "gauge", (), "How late its last tick was with the oldest thing that was due."),
    Metric("figures_age_seconds", "gauge", (), "How far what follows is behind: the minutes until then have been summed."),
    Metric("held_requests", "gauge", (), "Requests that the process which answers holds open: claims, event streams, waits for a run."),
    Metric("runs_ended", "counter", (*_OF_WORKFLOW, "status"), "Runs that ended.", FigureKind.RUN_ENDED),
    Metric("leases_ended", "counter", (*_OF_WORKFLOW, "status"), "Attempts that ended; those of lost workers as reclaimed.", FigureKind.LEASE_ENDED),
    Metric("refusals", "counter", (*_OF_WORKFLOW, "reason"), "Calls of workers that were refused, each lease and reason once.", FigureKind.REFUSED),
    Metric("admission_wait_seconds", "histogram", _OF_WORKFLOW, "From when a run was due to when it began.", FigureKind.ADMISSION_WAIT),
    Metric("claim_wait_seconds", "histogram", _OF_WORKFLOW, "From when a step was ready to when it was claimed.", FigureKind.CLAIM_WAIT),
    Metric("run_seconds", "histogram", _OF_WORKFLOW, "From when a run began to when it ended.", FigureKind.RUN_TIME),
)

BY_NAME: Final[Mapping[str, Metric]] = {metric.name: metric for metric in METRICS}
_OF_FIGURES: Final = {metric.of: metric for metric in METRICS if metric.of is not None}


def read(of: Iterable[App]) -> Iterator[Reading]:
    """Every value there is for these apps, but for those of the process that answers: a dozen statements, however many they are."""
    facts = apps.facts_of(of)
    names = {fact.app.pk: fact.app.name for fact in facts}
    yield from _of_the_tick()
    if facts:
        now = read_at(facts[0].app)
        yield from _of_queues(facts, now)
        yield from _of_runs(names)
        yield from _of_lines(names, now)
        yield from _of_workers(names, now)
        yield from _of_schedules(names, now)
        yield from _of_figures(names)


def _of_the_tick() -> Iterator[Reading]:
    tick: Any = maintenance.status()
    if tick is not None:
        yield Reading("tick_age_seconds", (), _seconds(tick.now - tick.ticked_at))
        yield Reading("tick_lateness_seconds", (), tick.lateness_ms / 1000)
        yield Reading("figures_age_seconds", (), _seconds(tick.now - tick.summed_until))


def _of_queues(facts: Sequence[apps.Facts], now: datetime) -> Iterator[Reading]:
    for fact in facts:
        yield Reading("app_paused", (fact.app.name,), float(fact.app.paused_at is not None))
        yield Reading("stranded_runs", (fact.app.name,), fact.stranded)
        for partition in range(fact.app.partitions):
            depth, labels = fact.partitions.get(partition), (fact.app.name, str(partition))
            yield Reading("queue_depth", labels, 0 if depth is None else depth.ready)
            yield Reading("queue_oldest_seconds", labels, 0 if depth is None else _seconds(now - depth.oldest_at))


def _of_runs(names: Mapping[int, str]) -> Iterator[Reading]:
    live = Run.objects.using(database()).live().filter(app__in=names)
    counts = {(app_id, status): count for app_id, status, count in live.order_by().values_list("app", "status").annotate(Count("pk"))}
    for app_id, name in names.items():
        for status in sorted(LIVE_RUN):
            yield Reading("runs", (name, status), counts.get((app_id, status), 0))


def _of_lines(names: Mapping[int, str], now: datetime) -> Iterator[Reading]:
    waiting = slots.in_line().filter(app__in=names).order_by().values_list("app", "workflow")
    for app_id, workflow, count, first_at in waiting.annotate(Count("pk"), Min("queue_order")):
        yield Reading("admission_waiting", (names[app_id], workflow), count)
        yield Reading("admission_oldest_seconds", (names[app_id], workflow), _seconds(now - first_at))


def _of_workers(names: Mapping[int, str], now: datetime) -> Iterator[Reading]:
    heard = now - min(3 * workers.SEEN_EVERY, app_settings.ANNOUNCEMENT_TTL)
    given_up = Q(left_at__gte=F("seen_at") + app_settings.ANNOUNCEMENT_TTL)  # who says goodbye was heard of within a minute or so
    states = {
        "live": Q(left_at=None, seen_at__gte=heard),
        "silent": Q(left_at=None, seen_at__lt=heard),
        "lost": Q(left_at__gte=now - LOST_FOR) & given_up,
    }
    rows = Worker.objects.using(database()).filter(Q(left_at=None) | Q(seen_at__gte=now - LOST_FOR - app_settings.ANNOUNCEMENT_TTL), app__in=names)
    counted = {state: Count("pk", filter=which) for state, which in states.items()}
    counts: dict[int, list[int]] = {app_id: found for app_id, *found in rows.order_by().values_list("app").annotate(**counted)}
    for app_id, name in names.items():
        for state, count in zip(states, counts.get(app_id, [0] * len(states)), strict=True):
            yield Reading("workers", (name, state), count)


def _of_schedules(names: Mapping[int, str], now: datetime) -> Iterator[Reading]:
    late = Schedule.objects.using(database()).due(now - SCHEDULE_IS_LATE).filter(app__in=names).order_by()
    counts = dict(late.values_list("app").annotate(Count("pk")))
    for app_id, name in names.items():
        yield Reading("schedules_late", (name,), counts.get(app_id, 0))


def _of_figures(names: Mapping[int, str]) -> Iterator[Reading]:
    for key, total in figures.totals(list(names)).items():
        metric = _OF_FIGURES[FigureKind(key.kind)]
        labels = (names[key.app_id], key.workflow, key.outcome)[: len(metric.labels)]
        yield Reading(metric.name, labels, total if metric.kind == "histogram" else total.count)


def _seconds(age: timedelta) -> float:
    return max(0.0, age.total_seconds())
