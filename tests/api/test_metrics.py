"""The page of metrics: scraped, documented, and enough to see what is wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from django.db import connection
from django.test import AsyncClient
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families as parsed

from ezgh_workflows_django import Concurrency, Cron, Workflow
from ezgh_workflows_django.api import metrics as view
from ezgh_workflows_django.api.holds import holds
from ezgh_workflows_django.engine import clock, following, maintenance, metrics
from ezgh_workflows_django.models import App, FigureKind, Project, Schedule, Tick, Worker
from tests.api.conftest import Caller, MakeKey, Reply
from tests.api.matrix import another_app
from tests.api.test_asgi import Remote
from tests.conftest import ROOT
from tests.engine.graphs import job

NOW: Final = datetime(2024, 1, 1, 9, 0, tzinfo=UTC)
LABELS: Final = ("app", "workflow", "partition", "state", "status", "reason", "le")


class Clock:
    """The database's clock, which a test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def advance(self, seconds: float) -> None:
        """Move it, and tick once, with no gap before it."""
        self.now += timedelta(seconds=seconds)
        Tick.objects.update(ticked_at=self.now, lenient_until=None)
        maintenance.tick()


@pytest.fixture
def time(project: Project) -> Iterator[Clock]:
    """The clock stands at nine; from then on minutes are summed."""
    made = Clock()
    clock.freeze(lambda: made.now)
    maintenance.ensure_row()
    Tick.objects.update(ticked_at=NOW, summed_until=NOW, lenient_until=None)
    yield made
    clock.freeze(None)


def scraped(caller: Caller) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples of the page by name, then by the values of their labels, in the order of `LABELS`."""
    told = caller.get("api/metrics")
    assert (told.status, told.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parsed(told.body):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels[name] for name in LABELS if name in sample.labels)] = sample.value
    return samples


def values(caller: Caller, name: str) -> Mapping[tuple[str, ...], float]:
    """Those of one metric."""
    return scraped(caller).get(metrics.PREFIX + name, {})


def test_every_metric_is_scraped_and_counts_what_there_was(api: Caller, time: Clock) -> None:
    session = api.register(job())
    job().start_many([1, 2])
    time.now += timedelta(seconds=3)
    done, lost = session.claim()
    for lease in (done, lost):
        session.on(lease, "started")
    time.now += timedelta(seconds=4)
    session.on(done, "complete", {"output": 1})
    for _ in range(3):
        time.advance(31)
    session.on(lost, "complete", {"output": 1})
    Worker.objects.update(seen_at=time.now)
    time.advance(120)
    told = scraped(api)
    assert {name.removeprefix(metrics.PREFIX) for name in told} >= {
        *(metric.name for metric in metrics.METRICS if metric.kind == "gauge" and metric.name not in ("admission_waiting", "admission_oldest_seconds")),
        *(f"{metric.name}_total" for metric in metrics.METRICS if metric.kind == "counter"),
        *(f"{metric.name}_{part}" for metric in metrics.METRICS if metric.kind == "histogram" for part in ("bucket", "sum", "count")),
    }
    assert told["ezgh_workflows_runs_ended_total"] == {("default", "job", "succeeded"): 1}
    assert told["ezgh_workflows_leases_ended_total"] == {("default", "job", "completed"): 1, ("default", "job", "reclaimed"): 1}
    assert told["ezgh_workflows_refusals_total"] == {("default", "job", "fenced"): 1}
    assert told["ezgh_workflows_claim_wait_seconds_sum"] == {("default", "job"): 6}
    assert told["ezgh_workflows_run_seconds_sum"] == {("default", "job"): 7}
    buckets = told["ezgh_workflows_run_seconds_bucket"]
    assert (buckets["default", "job", "5.0"], buckets["default", "job", "10.0"], buckets["default", "job", "+Inf"]) == (0, 1, 1)
    assert told["ezgh_workflows_runs"]["default", "running"] == 1
    assert 0 <= told["ezgh_workflows_figures_age_seconds"][()] <= 90


def test_counters_go_on_after_what_they_counted_is_gone(api: Caller, time: Clock) -> None:
    api.register(job())
    job().start().cancel()
    time.advance(90)
    before = values(api, "runs_ended_total")
    time.advance(40 * 86_400)
    assert (before, values(api, "runs_ended_total")) == ({("default", "job", "cancelled"): 1},) * 2


# --- what is wrong shows in one metric


def test_a_stuck_queue_shows(api: Caller, time: Clock) -> None:
    api.register(job())
    job().start()
    time.advance(600)
    oldest = values(api, "queue_oldest_seconds")
    assert (max(oldest.values()), sum(values(api, "queue_depth").values()), len(oldest)) == (600, 1, 4)


def test_a_dead_fleet_shows(api: Caller, time: Clock) -> None:
    api.register(job())
    gone = api.register(job(), worker="w2")
    states = [values(api, "workers")]
    api.post(f"api/workers/{gone.id}/leave")
    time.advance(181)
    states.append(values(api, "workers"))
    time.advance(600)
    states.append(values(api, "workers"))
    told = [{state: each["default", state] for state in ("live", "silent", "lost")} for each in states]
    assert told == [{"live": 2, "silent": 0, "lost": 0}, {"live": 0, "silent": 1, "lost": 0}, {"live": 0, "silent": 0, "lost": 1}]


def test_a_late_tick_shows(api: Caller, time: Clock) -> None:
    job().start(delay=60)
    time.advance(65)
    assert values(api, "tick_lateness_seconds") == {(): 5}
    time.now += timedelta(seconds=120)
    assert values(api, "tick_age_seconds") == {(): 120}


def test_who_stands_in_line_what_is_stranded_paused_or_late_shows(api: Caller, time: Clock) -> None:
    one = Workflow("one", steps=job().steps, concurrency=Concurrency(1), cron=Cron("0 9 * * *"))
    api.register(one)
    one.start_many([1, 2])
    time.advance(0)
    following.run_once(time.now, 10)
    Schedule.objects.update(due_at=time.now)
    api.post("organizations/default/projects/default/apps/default/pause", {"reason": "x"})
    Worker.objects.update(left_at=time.now)
    time.now += timedelta(seconds=90)
    told = scraped(api)
    assert told["ezgh_workflows_admission_waiting"] == {("default", "one"): 1}
    assert told["ezgh_workflows_admission_oldest_seconds"] == {("default", "one"): pytest.approx(90, abs=0.001)}
    assert [told[f"ezgh_workflows_{name}"][("default",)] for name in ("stranded_runs", "app_paused", "schedules_late")] == [2, 1, 1]


# --- who is told, and at what price


def test_a_key_is_told_of_what_it_reaches(api: Caller, key: MakeKey, project: Project, time: Clock) -> None:
    other = another_app(project)
    job().start()
    assert {labels[0] for labels in values(api, "runs")} == {"default", "other"}
    assert {labels[0] for labels in values(Caller(key("read", app=other)), "runs")} == {"other"}
    assert Caller(key("execute")).get("api/metrics").why == (403, "forbidden")


def test_a_scrape_is_a_fixed_number_of_statements_whatever_there_is(api: Caller, project: Project, time: Clock) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            list(metrics.read(App.objects.filter(project=project)))
        return len(captured)

    session = api.register(job())
    job().start_many(range(10))
    for lease in session.claim(max=5):
        session.on(lease, "started")
        session.on(lease, "complete", {"output": 1})
    time.advance(90)
    before = statements()
    another_app(project)
    assert (before, statements()) == (13, 13)


def test_held_requests_are_those_of_the_process(over_asgi: AsyncClient) -> None:
    remote = Remote(over_asgi)

    async def story() -> Reply:
        waiting = asyncio.create_task(remote.claim())
        await remote.held(1)
        told = await remote.call("GET", "metrics")
        holds().close()
        await waiting
        return told

    assert "ezgh_workflows_held_requests 1.0" in asyncio.run(story()).body


def test_without_the_extra_the_answer_names_it(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "find_spec", lambda name: None)
    told = api.get("api/metrics")
    assert told.why == (501, "not_available")
    assert "ezgh-workflows-django[metrics]" in told.body["error"]["message"]


# --- the docs


def test_the_page_of_docs_has_each_metric_with_its_labels_and_line_and_no_other() -> None:
    suffix = {"gauge": "", "counter": "_total", "histogram": ""}
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\| (.+) \|$", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    assert [(name, tuple(re.findall(r"`(\w+)`", labels)), line) for name, labels, line in rows] == [
        (metric.full_name + suffix[metric.kind], metric.labels, metric.line) for metric in metrics.METRICS
    ]


def test_the_alerts_of_the_docs_name_metrics_that_there_are() -> None:
    named = set(re.findall(r"ezgh_workflows_\w+", (ROOT / "docs" / "metrics.md").read_text()))
    assert {name.removesuffix("_total") for name in named} == {metric.full_name for metric in metrics.METRICS}


def test_every_figure_is_a_metric() -> None:
    assert {metric.of for metric in metrics.METRICS if metric.of is not None} == set(FigureKind)
