"""Usage, spans and prices: kept once with the report that brought them, priced by the book of that day, exact to the last digit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal, localcontext
from functools import partial
from typing import Any, Final

import pytest
from asgiref.sync import async_to_sync
from django.db.models import Q

from ezgh_workflows_django import Retry
from ezgh_workflows_django.engine import agreement, outcomes, prices, retention, tenancy, totals
from ezgh_workflows_django.engine.totals import Total
from ezgh_workflows_django.errors import InvalidArgument
from ezgh_workflows_django.models import Price, Project, Run, SpanRecord, Trail, UsageRecord
from ezgh_workflows_django.protocol.failures import Failure
from ezgh_workflows_django.protocol.messages import Lease as Offered
from ezgh_workflows_django.protocol.notes import Usage
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import job, sleep, why
from tests.engine.threads import together

BY: Final = ("user", "eva")
SPAN: Final = {"id": "00f067aa0ba902b7", "name": "call", "start": "2024-01-01T09:00:00Z", "end": "2024-01-01T09:00:01.5Z"}
BOOM: Final = Failure(class_="error", message="boom")
POLICY: Final = {"max_attempts": 3, "jitter": 0}


def used(amount: str, unit: str = "tokens", model: str | None = "m") -> Usage:
    """An amount."""
    return Usage(unit=unit, amount=amount, model=model)


def span(span_id: int = 1, **more: Any) -> Mapping[str, Any]:
    """A span that some worker tells."""
    return {**SPAN, "id": f"{span_id:016x}", **more}


def priced(unit: str, amount: str, day: str = "2023-01-01", *, model: str = "m", per: int = 1) -> Price:
    """A price from a day on."""
    return prices.set_price(tenancy.find_project(), unit=unit, amount=amount, model=model, per=per, effective_from=date.fromisoformat(day), by=BY)


def at_work(desk: Desk, **options: Any) -> tuple[Hand, Any, Offered]:
    """A worker, a run, and the lease it works on."""
    hand = desk.worker(job(**options))
    run = job(**options).start({"n": 1})
    return hand, run, hand.take()


def told(run: Any) -> list[tuple[str, str, str, str | None, str]]:
    """What a run used in all."""
    return [
        (each.model, each.unit, *(None if amount is None else str(amount) for amount in (each.amount, each.cost)), str(each.unpriced)) for each in run.usage
    ]


@pytest.fixture(autouse=True)
def project(db: None) -> Project:
    """The default project."""
    return tenancy.provision().project


# Exact to the last digit


@pytest.mark.parametrize(
    "text",
    ["0.1", "0", "12345678901234567890", "0.00000000000000000001", "98765432109876543210.01234567890123456789", f"{'9' * 30}.{'9' * 30}", "1e-30", "5E+3"],
)
def test_an_amount_is_read_back_as_it_was_written_on_every_database(desk: Desk, text: str) -> None:
    hand, run, lease = at_work(desk)
    priced("tokens", "1")
    assert why(hand.complete(lease, usage=(used(text),))) is None
    [record] = UsageRecord.objects.filter(amount=Decimal(text))
    assert (record.amount, record.cost, run.cost, run.usage[0].amount) == (Decimal(text),) * 4


def test_sums_and_costs_are_exact_whatever_the_threads_decimal_context(desk: Desk) -> None:
    hand, run, lease = at_work(desk)
    priced("tokens", "0.000000000000000003", per=7 * 10**6)
    with localcontext(prec=3):
        hand.checkpoint(lease, "a", usage=(used("0.1"),))
        hand.checkpoint(lease, "b", usage=(used("0.2"), used("10000000000000000000000000")))
        hand.complete(lease, usage=(used("70000000"),))
        total, cost = run.usage[0].amount, run.cost
    assert total == Decimal("10000000000000000070000000.3")
    # 3e-18 per 7e6: of the amounts that 7 does not divide, the cost is rounded at the sixtieth digit, half to even
    parts = [Decimal(0)] * 2
    with localcontext(prec=300):
        parts = [Decimal(amount) * 3 / Decimal(7 * 10**24) for amount in ("0.1", "10000000000000000000000000.2", "70000000")]
        assert abs(cost - sum(parts)) < Decimal("1e-59")
        assert cost == sum(each.quantize(Decimal("1e-60")) for each in parts)


# Kept once


def test_usage_of_checkpoints_and_passes_adds_up_on_step_and_run_with_its_key(desk: Desk) -> None:
    hand, run, lease = at_work(desk)
    priced("tokens", "2", per=10)
    hand.checkpoint(lease, "probe", usage=(used("5"),), spans=(span(1),))
    hand.park(lease, sleep("nap", 60), usage=(used("7"), used("1", "seconds", None)))
    desk.advance(seconds=60)
    hand.complete(hand.take(), usage=(used("8"),), spans=(span(2),))
    assert told(run) == [("m", "tokens", "20", "4", "0"), ("", "seconds", "1", None, "1")]
    assert totals.read(desk.step(run, "work").usage) == run.usage
    assert list(UsageRecord.objects.order_by("pk").values_list("step", "attempt", "checkpoint", "unit", "amount")) == [
        ("work", 1, "probe", "tokens", Decimal(5)),
        ("work", 1, "", "tokens", Decimal(7)),
        ("work", 1, "", "seconds", Decimal(1)),
        ("work", 1, "", "tokens", Decimal(8)),
    ]
    assert list(SpanRecord.objects.order_by("pk").values_list("checkpoint", "span_id")) == [("probe", f"{1:016x}"), ("", f"{2:016x}")]


def test_what_is_repeated_counts_once_and_what_is_refused_counts_for_nothing(desk: Desk) -> None:
    hand, run, lease = at_work(desk)
    for _ in range(2):
        assert hand.checkpoint(lease, "probe", usage=(used("1"),), spans=(span(),)).refused is None
    assert [why(hand.complete(lease, usage=(used("10"),), spans=(span(2),))) for _ in range(2)] == [None, "already_applied"]
    assert why(hand.checkpoint(lease, "late", usage=(used("100"),))) == "already_applied"
    assert why(hand.fail(lease, usage=(used("1000"),))) == "already_applied"
    assert told(run) == [("m", "tokens", "11", None, "11")]
    assert SpanRecord.objects.count() == 2


def test_failed_attempts_and_tries_count_and_a_failure_that_comes_again_counts_once(desk: Desk) -> None:
    hand, run, lease = at_work(desk, retry=Retry(max_attempts=2, jitter=0))
    tries = [hand.checkpoint(lease, "charge", failure=BOOM, retry=POLICY, failures=known, usage=(used("1"),)) for known in (0, 0, 1, 1)]
    assert [(each.failure and each.failure.attempts, each.repeated) for each in tries] == [(1, False), (1, True), (2, False), (2, True)]
    assert tries[1].retry_at == tries[0].retry_at
    hand.fail(lease, usage=(used("10"),))
    desk.advance(minutes=1)
    hand.complete(hand.take(), usage=(used("100"),))
    assert told(run) == [("m", "tokens", "112", None, "112")]
    assert desk.kinds(run).count("checkpoint.retry_scheduled") == 2


def test_a_hand_back_and_a_retry_of_the_run_lose_nothing(desk: Desk) -> None:
    hand, run, lease = at_work(desk)
    hand.fail(lease, "returned", usage=(used("1"),))
    hand.fail(hand.take(), usage=(used("10"),))
    run.retry()
    hand.complete(hand.take(), usage=(used("100"),))
    assert (run.status, told(run)) == ("succeeded", [("m", "tokens", "111", None, "111")])


def test_without_usage_of_its_own_a_report_used_what_its_spans_add_up_to(desk: Desk) -> None:
    hand, run, lease = at_work(desk)
    priced("tokens", "0.5")
    line = {"unit": "tokens", "amount": "2", "model": "m"}
    spans = (span(1, usage=[line]), span(2, parent=f"{1:016x}", usage=[line, {"unit": "calls", "amount": "1"}], attributes={"page": 1}), span(3))
    hand.checkpoint(lease, "summed", spans=spans)
    assert told(run) == [("m", "tokens", "4", "2", "0"), ("", "calls", "1", None, "1")]
    hand.complete(lease, usage=(used("100"),), spans=(span(4, usage=[line]),))
    assert told(run)[0] == ("m", "tokens", "104", "52", "0")
    rows = list(SpanRecord.objects.order_by("pk"))
    assert [(row.cost, row.parent, row.attributes) for row in rows] == [
        (Decimal(1), None, "{}"),
        (Decimal(1), f"{1:016x}", '{"page":1}'),
        (None, None, "{}"),
        (Decimal(1), None, "{}"),
    ]
    assert (rows[0].ended_at - rows[0].started_at, totals.read(rows[2].usage)) == (timedelta(seconds=1.5), ())


# The price of that day


def test_a_cost_is_that_of_the_day_and_stays_whatever_the_book_becomes(desk: Desk, project: Project) -> None:
    priced("tokens", "3", "2023-06-01")
    priced("tokens", "1", "2024-01-01", per=1000)
    priced("tokens", "50", "2024-01-03")
    hand, run, lease = at_work(desk)
    hand.checkpoint(lease, "first day", usage=(used("1000"), used("1000", model=None), used("1", "Tokens")))
    assert run.cost == 1
    desk.now += timedelta(days=1, hours=14, minutes=59)  # 2024-01-02 23:59
    hand.checkpoint(lease, "second day", usage=(used("1000"),))
    desk.now += timedelta(minutes=1)
    hand.checkpoint(lease, "third day", usage=(used("1"),))
    priced("tokens", "900", "2024-01-03")
    assert hand.complete(lease).refused is None
    assert told(run) == [("m", "tokens", "2001", "52", "0"), ("", "tokens", "1000", None, "1000"), ("m", "Tokens", "1", None, "1")]
    assert run.cost == Decimal(52)


def test_usage_that_got_a_price_later_has_a_priced_and_an_unpriced_part(desk: Desk) -> None:
    hand, run, lease = at_work(desk)
    hand.checkpoint(lease, "before", usage=(used("10"),))
    assert (run.cost, run.usage) == (None, (Total("m", "tokens", Decimal(10), None, Decimal(10)),))
    priced("tokens", "2")
    hand.complete(lease, usage=(used("5"),))
    assert (run.cost, run.usage) == (Decimal(10), (Total("m", "tokens", Decimal(15), Decimal(10), Decimal(10)),))
    assert (async_to_sync(run.acost)(), async_to_sync(run.ausage)()) == (run.cost, run.usage)


def test_another_projects_book_is_another_book(desk: Desk, project: Project) -> None:
    other = Project.objects.create(organization=project.organization, slug="other", name="Other", created_at=project.created_at)
    prices.set_price(other, unit="tokens", amount="7", model="m", effective_from=date(2023, 1, 1), by=BY)
    hand, run, lease = at_work(desk)
    hand.complete(lease, usage=(used("1"),))
    assert run.cost is None


def test_a_price_is_put_right_for_its_own_day_and_kept_in_book_and_trail(desk: Desk, project: Project) -> None:
    first = priced("tokens", "3.50", "2024-01-01", per=1000)
    later = priced("tokens", "9", "2024-02-01")
    again = priced("tokens", "4", "2024-01-01", per=100)
    assert (again.pk, [(row.pk, row.amount, row.per) for row in prices.prices_of(project)]) == (first.pk, [(later.pk, 9, 1), (first.pk, 4, 100)])
    trail = list(Trail.objects.filter(action="SetPrice").order_by("pk").values_list("actor", "target", "data"))
    was = '{"amount":"3.5","per":1000,"effective_from":"2024-01-01"}'
    assert trail[2] == ("eva", "m/tokens", f'{{"amount":"4","per":100,"effective_from":"2024-01-01","was":{was}}}')


def test_without_a_day_a_price_is_of_today(desk: Desk, project: Project) -> None:
    assert prices.set_price(project, unit="tokens", amount="1", by=BY).effective_from == date(2024, 1, 1)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("amount", {"amount": "-1"}),
        ("amount", {"amount": "NaN"}),
        ("amount", {"amount": "many"}),
        ("amount", {"amount": "1" * 16}),
        ("amount", {"amount": "1e-19"}),
        ("per", {"per": 0}),
        ("per", {"per": 10**13}),
        ("per", {"per": True}),
        ("unit", {"unit": ""}),
        ("unit", {"unit": "a\0"}),
        ("unit", {"unit": "x" * 65}),
        ("model", {"model": "x" * 129}),
    ],
)
def test_a_price_that_is_none_is_refused_by_name(project: Project, field: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        prices.set_price(project, **{"unit": "tokens", "amount": "1", "by": BY, **wrong})
    assert (refused.value.field, Price.objects.count(), Trail.objects.count()) == (field, 0, 0)


def test_who_sets_one_price_at_the_same_moment_leaves_one(transactional_db: None) -> None:
    tenancy.provision()
    set_prices = together([partial(priced, "tokens", str(amount)) for amount in range(1, 9)])
    [row] = Price.objects.all()
    assert {price.pk for price in set_prices} == {row.pk}
    assert Trail.objects.filter(action="SetPrice").count() == 8


# What can't be kept is refused whole, by name


FAULTS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "negative": ("usage[1].amount", {"usage": (used("1"), used("-1"))}),
    "NaN": ("usage[0].amount", {"usage": (used("NaN"),)}),
    "infinite": ("usage[0].amount", {"usage": (used("Infinity"),)}),
    "words": ("usage[0].amount", {"usage": (used("a lot"),)}),
    "too large": ("usage[0].amount", {"usage": (used("1e30"),)}),
    "too fine": ("usage[0].amount", {"usage": (used("1e-31"),)}),
    "no unit": ("usage[0].unit", {"usage": (used("1", ""),)}),
    "long unit": ("usage[0].unit", {"usage": (used("1", "x" * 65),)}),
    "unit with NUL": ("usage[0].unit", {"usage": (used("1", "a\0"),)}),
    "long model": ("usage[0].model", {"usage": (used("1", model="x" * 129),)}),
    "too many pairs": ("usage", {"usage": tuple(used("1", f"u{number}") for number in range(101))}),
    "too many spans": ("spans", {"spans": tuple(span(number) for number in range(1, 1002))}),
    "span id": ("spans[0].id", {"spans": ({**SPAN, "id": "no id"},)}),
    "zero id": ("spans[0].id", {"spans": ({**SPAN, "id": "0" * 16},)}),
    "two of one id": ("spans", {"spans": (span(1), span(1))}),
    "parent": ("spans[0].parent", {"spans": (span(1, parent="up"),)}),
    "no name": ("spans[0].name", {"spans": (span(1, name=""),)}),
    "long name": ("spans[0].name", {"spans": (span(1, name="x" * 201),)}),
    "no start": ("spans[0].start", {"spans": ({key: value for key, value in SPAN.items() if key != "start"},)}),
    "no zone": ("spans[0].start", {"spans": (span(1, start="2024-01-01T09:00:00"),)}),
    "before time": ("spans[0].start", {"spans": (span(1, start="0001-01-01T00:00:00+14:00"),)}),
    "ends before it begins": ("spans[0].end", {"spans": (span(1, end="2024-01-01T08:59:59Z"),)}),
    "attributes": ("spans[0].attributes", {"spans": (span(1, attributes=[1]),)}),
    "attributes with NaN": ("spans[0].attributes.n", {"spans": (span(1, attributes={"n": float("nan")}),)}),
    "large attributes": ("spans[0].attributes", {"spans": (span(1, attributes={"a": "x" * 4096}),)}),
    "usage of a span": ("spans[0].usage", {"spans": (span(1, usage={"unit": "a"}),)}),
    "amount of a span": ("spans[0].usage[0].amount", {"spans": (span(1, usage=[{"unit": "a", "amount": 1}]),)}),
    "pairs of a span": ("spans[0].usage", {"spans": (span(1, usage=[{"unit": f"u{number}", "amount": "1"} for number in range(21)]),)}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_report_with_bad_notes_is_refused_whole_by_name_and_its_neighbour_is_not(desk: Desk, fault: str) -> None:
    place, notes = FAULTS[fault]
    hand = desk.worker(job())
    job().start_many(range(2))
    bad, good = hand.claim()
    [hand.start(lease) for lease in (bad, good)]
    stored = hand.checkpoint(bad, "probe", state={"a": 1}, **notes)
    answers = outcomes.report([Report(bad.id, Outcome.completed(1, **notes)), Report(good.id, Outcome.completed(1, usage=(used("1"),)))])
    assert [why(stored), *map(why, answers)] == ["invalid", "invalid", None]
    for refused in (stored.refused, answers[0].refused):
        assert refused is not None
        assert refused.message.startswith(f"{place}: ")
    assert (desk.lease(bad).status, Run.objects.get(pk=bad.run_id).state) == ("started", "{}")
    assert (UsageRecord.objects.count(), SpanRecord.objects.count()) == (1, 0)


def test_a_run_tells_a_hundred_things_apart_and_no_more(desk: Desk) -> None:
    hand, run, lease = at_work(desk)
    hand.checkpoint(lease, "many", usage=tuple(used("1", f"u{number}") for number in range(100)))
    one_more = hand.checkpoint(lease, "more", 1, state={"a": 1}, usage=(used("1", "another"),))
    assert (why(one_more), run.state) == ("invalid", {})
    assert why(hand.complete(lease, usage=(used("1", "another"),))) == "invalid"
    assert why(hand.complete(lease, usage=(used("1", "u7"),))) is None
    assert (len(run.usage), {str(each.amount) for each in run.usage}) == (100, {"1", "2"})


# Beside the run


def test_it_goes_with_its_run(desk: Desk) -> None:
    hand, _, lease = at_work(desk)
    hand.complete(lease, usage=(used("1"),), spans=(span(),))
    assert retention.prune(desk.now, 10, timedelta(0)) == 1
    assert (UsageRecord.objects.count(), SpanRecord.objects.count()) == (0, 0)


@pytest.mark.plants_faults
def test_totals_that_are_not_the_sum_of_their_records_are_found(desk: Desk) -> None:
    hand, run, lease = at_work(desk)
    hand.complete(lease, usage=(used("1"),))
    assert list(agreement.findings(Q(), 10)) == []
    UsageRecord.objects.create(run_id=run.id, step="work", attempt=1, lease=lease.id, at=desk.now, unit="tokens", model="m", amount=Decimal(1))
    assert [(what, where) for what, where, _ in agreement.findings(Q(), 10)] == [("usage", f"run {run.id}"), ("usage", f"step work of run {run.id}")]
