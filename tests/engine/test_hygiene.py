"""What surrounds a body in a worker's process: Django's language and time zone, and connections that the next one can use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.utils import timezone, translation

from ezgh_workflows_django import Step, Workflow
from ezgh_workflows_django.engine.hygiene import BodyScope, engine_call
from ezgh_workflows_django.testing import Lab
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.worker import Worker

from .threads import elsewhere

Found = tuple[str | None, str]


def found() -> Found:
    """Language and time zone as they are here."""
    return translation.get_language(), timezone.get_current_timezone_name()


@pytest.fixture(autouse=True)
def spanish(settings: Any) -> None:
    """A project whose language is not Django's own."""
    settings.LANGUAGE_CODE = "es"


def in_a_sync_scope() -> tuple[Found, Found]:
    """What two bodies find, one after another in a thread in which something else was set before each."""

    def one() -> Found:
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        with BodyScope():
            return found()

    return one(), one()


def in_an_async_scope() -> tuple[Found, Found]:
    """The same on an event loop."""

    async def one() -> Found:
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        async with BodyScope():
            return found()

    async def both() -> tuple[Found, Found]:
        return await one(), await one()

    return asyncio.run(both())


@pytest.mark.parametrize("bodies", [in_a_sync_scope, in_an_async_scope])
def test_a_body_finds_language_and_time_zone_as_the_settings_have_them(bodies: Callable[[], Any]) -> None:
    assert elsewhere(bodies) == (("es", "UTC"), ("es", "UTC"))


def test_what_a_body_sets_is_gone_after_it() -> None:
    def bodies() -> Found:
        with BodyScope():
            translation.activate("fr")
            timezone.activate("Asia/Tokyo")
        return found()

    assert elsewhere(bodies) == ("es", "UTC")


async def afound() -> list[str | None]:
    """As `found`, of an async body."""
    return list(found())


@pytest.mark.django_db
@pytest.mark.parametrize("body", [lambda: list(found()), afound], ids=["sync", "async"])
def test_a_body_in_a_lab_finds_them_too(body: Callable[[], Any]) -> None:
    job = Workflow("speaks", steps=[Step("only", run=body)])
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    try:
        with Lab(workflows=[job]) as lab:
            run = job.start()
            lab.run_until_idle()
            assert run.result() == ["es", "UTC"]
    finally:
        translation.deactivate()
        timezone.deactivate()


def test_a_transaction_that_a_body_leaves_open_is_rolled_back_loudly_and_swallows_no_later_write(
    transactional_db: None, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[Iterator[None]] = []

    def leaves_open() -> None:
        def generator() -> Iterator[None]:
            with transaction.atomic():
                Group.objects.create(name="lost")
                yield

        kept.append(generator())
        next(kept[0])

    def bodies() -> bool:
        with BodyScope():
            leaves_open()
        is_open = connection.in_atomic_block
        with BodyScope():
            Group.objects.create(name="kept")
        return is_open

    assert elsewhere(bodies) is False
    assert list(Group.objects.values_list("name", flat=True)) == ["kept"]
    [record] = [record for record in caplog.records if "transaction that it left open on the database default" in record.getMessage()]
    assert record.levelname == "ERROR"


def test_a_transaction_around_the_body_is_not_the_bodys_to_leave(db: None) -> None:
    with transaction.atomic():
        with BodyScope():
            Group.objects.create(name="within")
        assert connection.in_atomic_block
        assert Group.objects.filter(name="within").exists()


def test_an_async_body_that_leaves_its_transaction_open_keeps_nothing_of_it(transactional_db: None, caplog: pytest.LogCaptureFixture) -> None:
    def begins() -> None:
        transaction.atomic().__enter__()
        Group.objects.create(name="lost")

    async def bodies() -> list[str]:
        async with BodyScope():
            await sync_to_async(begins)()
        async with BodyScope():
            await Group.objects.acreate(name="kept")
            return [group.name async for group in Group.objects.all()]

    assert asyncio.run(bodies()) == ["kept"]
    assert "transaction that it left open" in caplog.text


def test_an_async_body_leaves_no_connection_open(transactional_db: None) -> None:
    opened: list[Any] = []

    async def body() -> None:
        async with BodyScope():
            await Group.objects.acount()
            await sync_to_async(lambda: opened.append(connections["default"]))()
            assert opened[0].connection is not None

    asyncio.run(body())
    assert opened[0].connection is None


def test_a_connection_that_died_meanwhile_is_replaced_before_a_body_meets_it(transactional_db: None) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("a file does not hang up")

    asks, kills = {"postgresql": ("pg_backend_pid", "SELECT pg_terminate_backend({})"), "mysql": ("connection_id", "KILL {}")}[connection.vendor]

    def run(statement: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchone() if cursor.description else None

    def bodies() -> int:
        [number] = run(f"SELECT {asks}()")
        elsewhere(lambda: run(kills.format(number)))
        own: Any = connections["default"]
        own.health_check_enabled = own.close_at = None  # Django's own look: a project may have turned it off
        with BodyScope():
            return Group.objects.count()

    assert elsewhere(bodies) == 0


def test_what_debug_keeps_of_statements_is_gone_after_each_body_and_at_each_call_of_the_engine(transactional_db: None) -> None:
    """B76: a worker with DEBUG on would grow for weeks."""

    def bodies() -> list[bool]:
        own: Any = connections["default"]
        own.force_debug_cursor = True
        kept = []
        for around in (BodyScope, engine_call, BodyScope):
            with around():
                kept.append(own.queries != [])
                Group.objects.count()
                kept.append(own.queries != [])
            kept.append(own.queries != [])
        return kept

    assert elsewhere(bodies) == [False, True, False, False, True, True, False, True, False]


def test_an_async_body_whose_sync_call_never_returns_takes_no_other_bodys_thread() -> None:
    gate = threading.Event()

    async def waits_for_ever() -> None:
        await sync_to_async(gate.wait)(20)

    async def asks() -> str:
        return await sync_to_async(lambda: "answered")()

    stuck = Workflow("stuck", steps=[Step("only", run=waits_for_ever)])
    asking = Workflow("asking", steps=[Step("only", run=asks)])
    first, second = lease_of(stuck, "only", timeout_ms=50), lease_of(asking, "only", timeout_ms=10_000)
    server = ScriptedTransport(first, scope=lambda lease: BodyScope())
    worker = Worker(server, workflows=[stuck, asking], maintenance=False, grace=0.1)
    running = threading.Thread(target=worker.run_sync, daemon=True)
    running.start()
    server.wait_until(lambda: first.id in server.outcomes)
    assert (server.outcomes[first.id][0].class_, server.outcomes[first.id][0].body_ended, worker.stuck) == ("timeout", False, 1)
    server.offer(second)
    server.wait_until(lambda: second.id in server.outcomes)
    assert server.outcomes[second.id][0].output == "answered"
    gate.set()
    server.wait_until(lambda: len(server.outcomes[first.id]) == 2)
    assert worker.stuck == 0
    worker.stop()
    running.join(10)
    assert not running.is_alive()
