"""One lease alone may be over MAX_LEASE_BYTES: what is largest of it goes by reference, and put back in its place it is the lease again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from ezgh_workflows_django import Step, Workflow
from ezgh_workflows_django.engine import maintenance
from ezgh_workflows_django.models import Lease as LeaseRow
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.worker.transports.parts import _put
from tests.api.conftest import Caller, Session
from tests.engine.graphs import body, job

MOST = 8_192
SMALL = {**settings.EZGH_WORKFLOWS, "MAX_LEASE_BYTES": MOST}


def size_of(value: Any) -> int:
    """Its bytes in an answer."""
    return len(json.dumps(value, separators=(",", ":")))


def letters_that_take_more(api: Caller) -> Session:
    """2,500 letters that are six bytes each."""
    session = api.register(job())
    job().start({"text": "\u00e9" * 2_500})
    return session


def what_children_came_to(api: Caller) -> Session:
    """The checkpoint of a batch: its own row holds nothing of it."""
    session = api.register(job(), job("kid"))
    job().start()
    lease = session.take()
    session.on(lease, "children", {"name": "kids", "pos": 1, "workflow": "kid", "payloads": [1, 2], "kind": "batch"})
    session.on(lease, "suspend", {"waits": [{"name": "kids", "kind": "child"}]})
    for kid in session.claim():
        session.on(kid, "started")
        session.on(kid, "complete", {"output": "x" * 6_000})
    maintenance.tick()
    return session


def why_steps_failed(api: Caller) -> Session:
    """Inner steps that failed for good, each with a long message."""
    session = api.register(job())
    job().start()
    lease = session.take()
    for number in range(4):
        error = {"class": "permanent", "message": "x" * 4_000}
        assert session.on(lease, "checkpoint", {"name": f"charge-{number}", "pos": number + 1, "error": error}).status == 200
    session.on(lease, "fail", {"class": "returned", "message": "bye"})
    return session


def many_small_values(api: Caller) -> Session:
    """None of them is large."""
    names = [f"s{number}" for number in range(30)]
    flow = Workflow("fan", [*(Step(name, run=body) for name in names), Step("join", run=body, after=names, input="$.run.payload")])
    session = api.register(flow)
    flow.start(1)
    for lease in session.claim(max=50):
        session.on(lease, "started")
        session.on(lease, "complete", {"output": lease["step"] + "x" * 400})
    return session


@pytest.mark.parametrize("prepare", [letters_that_take_more, what_children_came_to, why_steps_failed, many_small_values])
def test_a_lease_alone_is_under_the_bound_and_its_parts_make_it_whole(api: Caller, prepare: Callable[[Caller], Session]) -> None:
    session = prepare(api)
    assert StepRow.objects.filter(status="ready").count() == 1
    with override_settings(EZGH_WORKFLOWS=SMALL):
        asked = session.body(max=1)
        told = api.post("api/steps/claim", asked).body
        assert size_of(told) <= MOST
    whole = api.post("api/steps/claim", asked).body["leases"][0]
    assert size_of(whole) > MOST
    [lease] = told["leases"]
    for place, reference in lease.pop("parts").items():
        _put(lease, place, api.get(f"api/steps/{lease['id']}/parts/{reference.replace('/', '%2F')}").body)
    changing = ("expires_at", "expires_in_ms")
    assert {key: value for key, value in lease.items() if key not in changing} == {key: value for key, value in whole.items() if key not in changing}


def test_an_offer_lives_on_while_its_parts_are_fetched(api: Caller) -> None:
    session = letters_that_take_more(api)
    with override_settings(EZGH_WORKFLOWS=SMALL):
        [lease] = session.claim(max=1)
    before = LeaseRow.objects.get(pk=lease["id"])
    assert api.get(f"api/steps/{lease['id']}/parts/input").status == 200
    after = LeaseRow.objects.get(pk=lease["id"])
    assert (before.status, after.status, after.expires_at > before.expires_at) == ("offered", "offered", True)
