"""A worker's start stores each definition in a transaction of its own: while it waits for one, it holds none that others wait for."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from django.db import connection, transaction

from ezgh_workflows_django.engine import catalog, workers
from ezgh_workflows_django.models import Announcement, App, Definition
from ezgh_workflows_django.protocol.messages import Registration
from tests.engine.conftest import Desk
from tests.engine.graphs import job
from tests.engine.threads import PATIENCE, begin
from tests.process.conftest import until


@pytest.mark.skipif(connection.vendor == "sqlite", reason="a file has one writer: it waits before it holds anything")
def test_what_is_stored_is_committed_before_the_next_is_waited_for(transactional_db: None, desk: Desk) -> None:
    app, holds, ends = App.objects.get(), threading.Event(), threading.Event()

    def start_in_a_long_transaction() -> None:
        with transaction.atomic():
            catalog.store(app, job("b").to_spec(), desk.now)
            holds.set()
            assert ends.wait(PATIENCE)

    long = begin(start_in_a_long_transaction)
    assert holds.wait(PATIENCE)
    registered = begin(partial(workers.register, Registration(worker="w1", app="default", definitions=(job("a").to_spec(), job("b").to_spec()))))
    try:
        until(lambda: Definition.objects.filter(workflow="a").exists())
    finally:
        ends.set()
    long.result(PATIENCE)
    assert [name for name, _ in registered.result(PATIENCE).definitions] == ["a", "b"]
    assert Announcement.objects.count() == 2


def test_a_registration_that_is_refused_stores_nothing(desk: Desk) -> None:
    with pytest.raises(Exception, match="there is no app"):
        workers.register(Registration(worker="w1", app="nowhere", definitions=(job("a").to_spec(),)))
    with pytest.raises(Exception, match="worker"):
        workers.register(Registration(worker="", app="default", definitions=(job("a").to_spec(),)))
    assert not Definition.objects.filter(workflow="a").exists()
