"""A program: what starts from transactions of another database come to. Ends with code 0 if each is as it should be."""

from __future__ import annotations

from collections.abc import Callable

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402 - after Django is set up
from django.core.checks import run_checks  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connections, transaction  # noqa: E402
from django.test import override_settings  # noqa: E402

from ezgh_workflows_django import checks as our_checks  # noqa: E402
from ezgh_workflows_django import get_run, runs_of, start_run  # noqa: E402
from ezgh_workflows_django.contrib.tasks.compat import task_enqueued  # noqa: E402
from ezgh_workflows_django.errors import InvalidPayload, UnknownRun, UnknownWorkflow  # noqa: E402
from ezgh_workflows_django.models import Run  # noqa: E402
from testproject.workflows import quote  # noqa: E402
from tests.aliases.apart import ALIAS  # noqa: E402
from tests.contrib import jobs  # noqa: E402


def there(run_id: str) -> bool:
    """Whether anybody can see that run."""
    try:
        return get_run(run_id).id == run_id
    except UnknownRun:
        return False


def tables() -> None:
    """Each table is where it belongs."""
    for alias in ("default", ALIAS):
        call_command("migrate", database=alias, verbosity=0)
    ours = {alias: {name for name in connections[alias].introspection.table_names() if name.startswith("ezgh")} for alias in connections}
    assert ours["default"] == set()
    assert "ezgh_workflows_run" in ours[ALIAS]
    assert "auth_user" not in connections[ALIAS].introspection.table_names() or not User.objects.using(ALIAS).exists()


def commit_and_rollback() -> None:
    """A start is sent with the commit; what is rolled back leaves nothing; outside, and in the workflows' own transaction, it is a write."""
    with transaction.atomic():
        user = User.objects.create(username="ada")
        run = quote.start({"sku": "kite"}, subject=user)
        assert not there(run.id)
    assert there(run.id)
    assert [each.id for each in runs_of(user)] == [run.id]
    with transaction.atomic():
        lost = quote.start({"sku": "kite"})
        transaction.set_rollback(True)
    assert not there(lost.id)
    assert there(quote.start({"sku": "kite"}).id)
    with transaction.atomic(using=ALIAS):
        mine = quote.start({"sku": "kite"})
        assert there(mine.id)
        transaction.set_rollback(True, using=ALIAS)
    assert not there(mine.id)


def refused(error: type[Exception], call: Callable[[], object]) -> None:
    """The call raises that."""
    try:
        call()
    except error:
        return
    raise AssertionError(f"not refused: {error}")


def keys_and_refusals() -> None:
    """One run a key, whoever starts it; what can't be is refused where it is asked for, and the caller's transaction goes on."""
    first = quote.start({"sku": "kite"}, idempotency_key="once")
    with transaction.atomic():
        second = quote.start({"sku": "kite"}, idempotency_key="once")
        many = quote.start_many([{"sku": "a"}, {"sku": "b"}])
        refused(InvalidPayload, lambda: quote.start({"sku": float("nan")}))
        refused(UnknownWorkflow, lambda: start_run("nobody"))
        assert User.objects.filter(username="ada").exists()
    assert second.id == first.id
    assert [each.payload["sku"] for each in many] == ["a", "b"]


def tasks() -> None:
    """So it is with tasks, and with what monitors hear."""
    heard: list[str] = []

    def hear(sender: object, task_result: object, **_: object) -> None:
        heard.append(getattr(task_result, "id", ""))

    task_enqueued.connect(hear)
    with transaction.atomic():
        result = jobs.add.enqueue(1)
        assert not there(result.id)
        assert heard == []
    assert heard == [result.id]
    assert jobs.add.get_result(result.id).args == [1]


def checks() -> None:
    """The checks say what it means, and what is missing."""
    assert [message.id for message in run_checks(tags=[our_checks.TAG])] == ["ezgh_workflows.I001"]
    with override_settings(DATABASE_ROUTERS=[]):
        [found] = [message for message in run_checks(tags=[our_checks.TAG]) if message.id == "ezgh_workflows.W004"]
    assert "default, workflows" in found.msg


if __name__ == "__main__":
    tables()
    commit_and_rollback()
    keys_and_refusals()
    tasks()
    checks()
    assert Run.objects.using(ALIAS).count() == 6
