"""Usage, cost, spans and prices over HTTP; three model calls on two days, from the body to the answer."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from ezgh_workflows_django import Context, Step, Workflow
from ezgh_workflows_django.models import App, Price, Project, Trail
from ezgh_workflows_django.testing import Lab
from tests.api.conftest import Caller, MakeKey
from tests.engine.graphs import job

SPAN = {"id": "00f067aa0ba902b7", "name": "call", "start": "2026-01-01T09:00:00Z", "end": "2026-01-01T09:00:02Z"}


def set_price(api: Caller, unit: str, amount: str, day: str, model: str | None = "opus") -> None:
    """A price of a million tokens."""
    told = api.post("api/prices", {"model": model, "unit": unit, "amount": amount, "per": 1_000_000, "effective_from": day})
    assert told.status == 201, told.body


def ask(ctx: Context, question: str) -> int:
    """A call of a model, which says what it used."""
    with ctx.span("model", question=question) as span:
        span.set_usage(model="opus", input_tokens=1_200 + len(question), output_tokens=Decimal("345.5"))
    return len(question)


def talk(ctx: Context) -> int:
    """Three calls of a model; the last one on the next day, by an inner step that knows better what it used."""

    def ask_last() -> int:
        ctx.set_usage(model="opus", output_tokens=7)
        return ask(ctx, "last")

    ask(ctx, "first")
    ctx.step("second", ask, ctx, "second")
    ctx.sleep("night", 24 * 3600)
    return int(ctx.step("last", ask_last))


def test_three_model_calls_show_their_exact_cost_by_the_price_of_that_day(api: Caller) -> None:
    set_price(api, "input_tokens", "15", "2023-01-01")
    set_price(api, "output_tokens", "75", "2023-01-01")
    set_price(api, "output_tokens", "80.000001", "2024-01-02")
    flow = Workflow("talk", steps=[Step("work", run=talk)])
    with Lab(workflows=[flow]) as lab:
        run: Any = flow.start()
        lab.run_until_idle()
        lab.advance(hours=24)
        assert run.result(0) == 4
        shown = api.get(f"api/runs/{run.id}").body
        # (1205 + 1206) × 15 + (345.5 + 345.5) × 75, then 7 × 80.000001, a millionth of it each
        assert (shown["cost"], shown["currency"], run.cost) == ("0.088550000007", "USD", Decimal("0.088550000007"))
        assert shown["usage"] == [
            {"model": "opus", "unit": "input_tokens", "amount": "2411", "cost": "0.036165", "unpriced": "0"},
            {"model": "opus", "unit": "output_tokens", "amount": "698", "cost": "0.052385000007", "unpriced": "0"},
        ]
        assert [(step["name"], step["cost"], step["usage"]) for step in shown["steps"]] == [("work", shown["cost"], shown["usage"])]
        assert [each["cost"] for each in api.get("api/runs").body["runs"]] == ["0.088550000007"]
        spans = api.get(f"api/runs/{run.id}/spans").body["spans"]
        assert [(each["checkpoint"], each["attributes"], each["cost"]) for each in spans] == [
            ("second", {"question": "second"}, "0.0440025"),
            ("", {"question": "first"}, "0.0439875"),
            ("last", {"question": "last"}, "0.0457000003455"),  # as the span tells it; what counts for the run overrides it
        ]


def test_a_worker_over_http_tells_usage_and_spans_with_each_of_its_calls(api: Caller) -> None:
    session = api.register(job())
    run = job().start()
    lease = session.take()
    line = {"unit": "seconds", "amount": "1.5"}
    assert session.on(lease, "checkpoint", {"name": "probe", "pos": 1, "output": 1, "usage": [line], "spans": [SPAN]}).status == 200
    assert session.on(lease, "suspend", {"waits": [{"name": "nap", "kind": "sleep", "ms": 0}], "usage": [line]}).status == 200
    lease = session.take()
    outcome = {"id": lease["id"], "complete": {"output": 1, "spans": [{**SPAN, "id": "1" * 16, "usage": [line]}]}}
    assert api.post("api/steps/outcomes", {"outcomes": [outcome]}).body["outcomes"][0]["run"] == "succeeded"
    assert api.get(f"api/runs/{run.id}").body["usage"] == [{"model": None, "unit": "seconds", "amount": "4.5", "cost": None, "unpriced": "4.5"}]


def test_spans_are_read_a_page_at_a_time(api: Caller) -> None:
    session = api.register(job())
    run = job().start()
    spans = [{**SPAN, "id": f"{number:016x}"} for number in range(1, 6)]
    session.on(session.take(), "fail", {"class": "error", "message": "", "spans": spans})
    read: list[str] = []
    after: int | None = 0
    while after is not None:
        page = api.get(f"api/runs/{run.id}/spans?limit=2&after={after}").body
        read, after = [*read, *(each["id"] for each in page["spans"])], page["next"]
    assert read == [each["id"] for each in spans]


@pytest.mark.parametrize(
    ("notes", "field"),
    [
        ({"usage": [{"unit": "tokens", "amount": "-1"}]}, "usage[0].amount"),
        ({"usage": [{"unit": "tokens", "amount": "many"}]}, "usage[0].amount"),
        ({"spans": [{**SPAN, "end": "2025-01-01T09:00:00Z"}]}, "spans[0].end"),
        ({"spans": [{**SPAN, "id": "span"}]}, "spans[0].id"),
        ({"spans": ["span"]}, "spans"),
    ],
)
def test_bad_notes_are_400_and_named(api: Caller, notes: dict[str, Any], field: str) -> None:
    session = api.register(job())
    job().start()
    lease = session.take()
    for told in (session.on(lease, "complete", notes), session.on(lease, "checkpoint", {"name": "a", "pos": 1, **notes})):
        assert told.why == (400, "invalid")
        assert field in told.body["error"]["message"]
    assert session.on(lease, "complete", {}).status == 200


def test_a_start_joins_the_trace_of_its_header_and_a_malformed_one_counts_as_none(api: Caller) -> None:
    session = api.register(job())
    joined = api.post("api/runs", {"workflow": "job"}, traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00").body["id"]
    lease = session.take()
    assert (lease["run_id"], lease["traceparent"][:36], lease["traceparent"][-3:]) == (joined, "00-0af7651916cd43dd8448eb211c80319c-", "-00")
    assert api.get(f"api/runs/{joined}").body["trace_id"] == lease["trace_id"]
    other = api.post("api/runs", {"workflow": "job"}, traceparent="00-zz")
    assert other.status == 201
    assert len(api.get(f"api/runs/{other.body['id']}").body["trace_id"]) == 32


# The price book


def test_prices_are_set_and_listed_with_their_history(api: Caller) -> None:
    for unit, amount, day in (("output_tokens", "75", "2024-01-01"), ("input_tokens", "1e1", "2024-01-01"), ("output_tokens", "70.50", "2025-01-01")):
        set_price(api, unit, amount, day)
    without = api.post("api/prices", {"unit": "seconds", "amount": "0.0001"})
    assert (without.body["model"], without.body["per"], without.body["currency"], len(without.body["effective_from"])) == (None, 1, "USD", 10)
    book = api.get("api/prices?limit=3").body
    assert [(each["model"], each["unit"], each["amount"], each["effective_from"]) for each in book["prices"][1:]] == [
        ("opus", "output_tokens", "70.5", "2025-01-01"),
        ("opus", "input_tokens", "10", "2024-01-01"),
    ]
    assert [each["amount"] for each in api.get(f"api/prices?cursor={book['next']}").body["prices"]] == ["75"]
    assert [each["amount"] for each in api.get("api/prices?model=opus&unit=output_tokens").body["prices"]] == ["70.5", "75"]
    assert [each["unit"] for each in api.get("api/prices?model=").body["prices"]] == ["seconds"]
    assert Trail.objects.filter(action="SetPrice", actor_kind="key").count() == 4


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"amount": 15}, "amount"),
        ({"amount": "-1"}, "amount"),
        ({"amount": "1e-30"}, "amount"),
        ({"per": 0}, "per"),
        ({"per": "1"}, "per"),
        ({"effective_from": "tomorrow"}, "effective_from"),
        ({"unit": "a\x00b"}, "unit"),
        ({"unit": None}, "unit"),
    ],
)
def test_a_price_that_is_none_is_400_and_named(api: Caller, wrong: dict[str, Any], field: str) -> None:
    told = api.post("api/prices", {"unit": "tokens", "amount": "1", **wrong})
    assert (told.why, list(told.body["error"]["fields"]), Price.objects.count()) == ((400, "invalid"), [field], 0)


def test_a_key_of_one_app_reads_the_book_and_cannot_write_in_it(key: MakeKey, project: Project) -> None:
    caller = Caller(key("admin", app=App.objects.get(name="default")))
    assert caller.get("api/prices").status == 200
    told = caller.post("api/prices", {"unit": "tokens", "amount": "1"})
    assert (told.why, Price.objects.count()) == ((403, "forbidden"), 0)
