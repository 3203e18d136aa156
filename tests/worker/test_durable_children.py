"""The words of a durable function, pass by pass, in sync and in async bodies: children."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from uuid import UUID

from ezgh_workflows_django.definitions.graph import Step, Workflow
from ezgh_workflows_django.errors import ChildFailed, Unavailable
from ezgh_workflows_django.protocol.failures import Failure
from ezgh_workflows_django.worker.context import Context

from .passes import Manner, Passes, Words


@dataclass
class Bill:
    total: Decimal


def make_bill() -> Bill:
    return Bill(Decimal("1.50"))


BILLING = Workflow("billing", steps=[Step("make", run=make_bill)])


def test_a_child_is_started_once_and_its_output_is_decoded(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        bill = yield ctx.run_workflow("bill", BILLING, {"image": UUID(int=5)})
        return repr(bill)

    passes = Passes(body(written))
    passes.run()
    passes.run()
    [call] = passes.server.named("children")
    assert (call.workflow, call.payloads, passes.waits) == ("billing", ({"image": str(UUID(int=5))},), ["bill"])
    passes.stored.end_children("bill", {"total": "1.50"})
    assert passes.run().output == "Bill(total=Decimal('1.50'))"


def test_a_child_that_did_not_succeed_is_raised(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        try:
            yield ctx.run_workflow("bill", "billing")
        except ChildFailed as failed:
            return [failed.run_id, failed.failure]

    passes = Passes(body(written))
    passes.run()
    assert passes.server.named("children")[0].has_payload is False
    passes.stored.end_children("bill", Failure(class_="declined", message="no"))
    assert passes.run().output == ["bill-0", {"class": "declined", "message": "no"}]


def test_a_long_batch_goes_in_slices_and_after_a_crash_the_rest_is_started(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        return (yield ctx.run_batch("notify", "notify", list(range(1_201))))

    passes = Passes(body(written))
    passes.server.fail("children", Unavailable("lost"), lands=True)
    passes.run()
    calls = passes.server.named("children")
    assert [(call.first, len(call.payloads)) for call in calls] == [(0, 500), (0, 500), (500, 500), (1_000, 201)]
    del passes.stored.children["notify"][700:]  # as if it had crashed after these
    passes.stored.rows["notify"] = replace(passes.stored.rows["notify"], children=700)
    passes.run()
    assert [(call.first, len(call.payloads)) for call in passes.server.named("children")[4:]] == [(700, 500), (1_200, 1)]
    passes.stored.end_children("notify", *range(1_201))
    assert passes.run().output == list(range(1_201))


def test_failures_of_a_batch_are_raised_or_given(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        given = yield ctx.run_batch("notify", "notify", [1, 2], return_exceptions=True)
        return [given[0], type(given[1]).__name__]

    passes = Passes(body(written))
    passes.run()
    passes.stored.end_children("notify", "sent", Failure(class_="error", message="no"))
    assert passes.run().output == ["sent", "ChildFailed"]


def test_an_empty_batch_is_started_waited_for_and_empty(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        return (yield ctx.run_batch("notify", "notify", []))

    passes = Passes(body(written))
    passes.run()
    passes.stored.end_children("notify")
    assert passes.run().output == []
