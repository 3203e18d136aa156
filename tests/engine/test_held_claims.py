"""What may change while a claim is held, and what it then gets (case B94: a key that is revoked opens nothing, at once)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from ezgh_workflows_django.engine import apps, keys, leases, tenancy, wakeups, workers
from ezgh_workflows_django.engine.locking import locked
from ezgh_workflows_django.engine.sql import looking
from ezgh_workflows_django.models import ApiKey, App, Lease, Step
from ezgh_workflows_django.protocol.messages import Claimed, ClaimRequest
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import job
from tests.engine.test_held_sleep import PATIENT, Listening
from tests.engine.threads import PATIENCE, begin

SYSTEM = ("system", "test")


def held(hand: Hand, by: keys.Identity | None = None, claim_id: str = "held", maximum: int = 10) -> leases.Claim:
    """A claim that has looked once, in vain."""
    request = ClaimRequest(worker_id=hand.session.worker_id, claim_id=claim_id, max=maximum, serves=hand.serves)
    call = leases.open_claim(request, by=by)
    assert call.look()[1] == Claimed()
    return call


def bearer(desk: Desk) -> keys.Identity:
    """Who holds a new key."""
    app, now = tenancy.app_now(None)
    text = keys.create("bot", ["worker"], by=SYSTEM, project=app.project, app=None, expires_at=now + timedelta(hours=1))[1]
    return keys.authenticate(text)


def revoke(desk: Desk, identity: keys.Identity) -> None:
    """Somebody revokes the key."""
    keys.revoke(identity.prefix, by=SYSTEM, project_id=identity.project_id)


def outlive(desk: Desk, identity: keys.Identity) -> None:
    """The key expires."""
    desk.now += timedelta(hours=2)


def delete(desk: Desk, identity: keys.Identity) -> None:
    """Its row is gone."""
    ApiKey.objects.filter(prefix=identity.prefix).delete()


def test_work_that_comes_is_taken(desk: Desk) -> None:
    call = held(desk.worker(job()), bearer(desk))
    run = job().start()
    now, claimed = call.look_again()
    assert [lease.run_id for lease in claimed.leases] == [run.id]
    assert now is not None
    assert now.session.worker_id == call.session.worker_id


@pytest.mark.parametrize("void", [revoke, outlive, delete])
def test_a_claim_whose_key_is_good_no_more_is_over_and_takes_nothing(desk: Desk, void: Callable[[Desk, Any], None]) -> None:
    identity = bearer(desk)
    call = held(desk.worker(job()), identity)
    job().start()
    void(desk, identity)
    assert call.look_again() == (None, Claimed())
    assert not Lease.objects.exists()


def test_a_claim_of_a_person_of_the_site_needs_no_key(desk: Desk) -> None:
    app, _ = tenancy.app_now(None)
    person = keys.Identity("eva", "eva", app.project_id, app.project.organization_id, "default", "default", None, frozenset(), kind="user")
    call = held(desk.worker(job()), person)
    job().start()
    assert len(call.look_again()[1].leases) == 1


def test_a_claim_whose_session_has_left_is_over_and_takes_nothing(desk: Desk) -> None:
    hand = desk.worker(job())
    call = held(hand)
    job().start()
    workers.leave(hand.session.worker_id)
    assert call.look_again() == (None, Claimed())
    assert not Lease.objects.exists()


def test_what_a_session_was_found_unable_to_serve_meanwhile_is_not_offered_to_it_again(desk: Desk) -> None:
    hand = desk.worker(job(), job("other"))
    call = held(hand)
    run = job().start()
    [lease] = hand.claim()
    hand.fail(lease, "unservable")
    assert run.phase == "queued"
    now, claimed = call.look_again()
    assert claimed == Claimed()
    assert now is not None
    assert now.session.banned
    other = job("other").start()
    assert [lease.run_id for lease in now.look_again()[1].leases] == [other.id]


def test_of_one_claim_that_is_held_twice_both_calls_get_the_same_leases(desk: Desk) -> None:
    """Its client had lost the first one from sight, and asked again."""
    hand = desk.worker(job())
    first, second = held(hand, maximum=1), held(hand, maximum=1)
    job().start_many(range(2))
    _, given = first.look_again()
    now, repeated = second.look_again()
    assert now is None
    assert [lease.id for lease in repeated.leases] == [lease.id for lease in given.leases]
    assert Lease.objects.count() == 1


def held_by_others(count: int) -> None:
    """This transaction holds the first steps that a claim would take."""
    for pk in Step.objects.order_by("claim_order", "available_at", "pk").values_list("pk", flat=True)[:count]:
        locked(Step.objects.filter(pk=pk)).get()


@pytest.fixture
def contended(desk: Desk, transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> leases.Claim:
    """A claim of one step, in front of a queue that is full for a while, and under a database that tells of new work."""
    monkeypatch.setattr(wakeups, "listener", Listening())
    hand = desk.worker(job())
    call = held(hand, maximum=1)
    job().start_many(range(2 * leases.WINDOW))
    desk.now += timedelta(minutes=1)
    return call


@pytest.mark.skipif("__import__('django.db').db.connection.vendor == 'sqlite'", reason="a writer of SQLite holds the whole file")
@pytest.mark.parametrize("look", [leases.Claim.look, leases.Claim.look_again])
def test_a_claim_whose_candidates_others_hold_takes_one_from_behind_them(contended: leases.Claim, look: Callable[[leases.Claim], Any]) -> None:
    with transaction.atomic():
        held_by_others(leases.WINDOW)
        _, claimed = begin(lambda: look(contended)).result(PATIENCE)
    assert len(claimed.leases) == 1


@pytest.mark.skipif("__import__('django.db').db.connection.vendor == 'sqlite'", reason="a writer of SQLite holds the whole file")
@pytest.mark.parametrize("look", [leases.Claim.look, leases.Claim.look_again])
def test_a_claim_that_finds_only_what_others_hold_looks_again_soon_and_then_no_more(
    contended: leases.Claim, look: Callable[[leases.Claim], tuple[leases.Claim, Claimed]]
) -> None:
    with transaction.atomic():
        held_by_others(2 * leases.WINDOW)
        now, claimed = begin(lambda: look(contended)).result(PATIENCE)
        assert (claimed, now.seconds_to_next()) == (Claimed(), wakeups.LOOK_EVERY)
        Step.objects.update(claim_order=None)  # the others have taken them
    now, claimed = now.look_again()
    assert (claimed, now.seconds_to_next()) == (Claimed(), PATIENT)


def test_what_all_others_took_between_a_look_and_its_locks_is_looked_for_once_more(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = desk.worker(job())
    call = held(hand, maximum=1)
    job().start_many(range(leases.WINDOW + 1))
    stale = looking.look(call.wanted, leases.WINDOW)
    hand.claim(leases.WINDOW)
    looks, look = [stale], looking.look
    monkeypatch.setattr(looking, "look", lambda *asked: looks.pop() if looks else look(*asked))
    assert len(call.look_again()[1].leases) == 1


def test_of_claims_of_one_run_each_it_is_told_which_have_nothing(desk: Desk) -> None:
    hand = desk.worker(job(), job("paused"), job("other"))
    ready, leased, paused, other = job().start(1), job().start(2), job("paused").start(3), job("other").start(4)
    [taken] = hand.claim(1, run=leased.id)
    assert taken.run_id == leased.id
    apps.pause(App.objects.get(name="default"), by=SYSTEM, workflow="paused")
    calls = [
        leases.open_claim(ClaimRequest(worker_id=hand.session.worker_id, claim_id=run.id, max=1, serves=hand.serves[:2], run=run.id))
        for run in (ready, leased, paused, other)
    ]
    idle, due_in = leases.without_work(calls)
    assert (idle, due_in) == (calls[1:], wakeups.LOOK_EVERY)
    assert [lease.run_id for lease in calls[0].look()[1].leases] == [ready.id]
    assert leases.without_work(calls)[0] == calls
