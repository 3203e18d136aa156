"""`django.tasks` on this engine: the contract of a backend, line by line."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.test import override_settings

from ezgh_workflows_django import Retry, get_run
from ezgh_workflows_django.contrib.tasks import WorkflowsBackend
from ezgh_workflows_django.contrib.tasks.compat import (
    PACKAGE,
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from ezgh_workflows_django.contrib.tasks.definitions import revision_of, workflow_name
from ezgh_workflows_django.contrib.tasks.signals import connect
from ezgh_workflows_django.contrib.tasks.wiring import provision
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.models import App, Run
from ezgh_workflows_django.testing import Lab

BACKEND = "ezgh_workflows_django.contrib.tasks.WorkflowsBackend"
OURS = {"BACKEND": BACKEND, "QUEUES": ["default", "emails"]}

pytestmark = pytest.mark.django_db

with override_settings(TASKS={"default": OURS}):  # tasks are judged by their backends while they are imported
    from . import jobs


def tasks(**aliases: Any) -> Any:
    """`TASKS` with these backends beside the default one."""
    return override_settings(TASKS={"default": OURS, **aliases})


@pytest.fixture(autouse=True)
def used() -> Iterator[None]:
    """The project uses the backend, and migrated with it; nobody has seen anything yet. The registry is as it was afterwards."""
    jobs.SEEN.clear()
    registry.swap(before := registry.swap())
    with tasks():
        provision("default")
        connect()
        yield
    registry.swap(before)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A lab whose workers serve both queues."""
    backend = task_backends["default"]
    for each in (jobs.add, jobs.send, jobs.fetch, jobs.third_time, jobs.fail, jobs.no_json, jobs.stuck, jobs.writes):
        backend.validate_task(each)
    with Lab() as opened:
        opened.worker("mailer", app="emails")
        yield opened


@contextmanager
def heard() -> Iterator[list[tuple[str, Any, Any, str]]]:
    """What the three signals say: which, the sender, the status, the task's name."""
    told: list[tuple[str, Any, Any, str]] = []
    receivers = []
    for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

        def hear(sender: Any, task_result: Any, name: str = name, **_: Any) -> None:
            told.append((name, sender, task_result.status, task_result.task.name))

        signal.connect(hear, weak=False)
        receivers.append((signal, hear))
    try:
        yield told
    finally:
        for signal, hear in receivers:
            signal.disconnect(hear)


def version_of(result: Any) -> str:
    """The version that the run of a result is pinned to."""
    return str(Run.objects.get(pk=result.id).version)


def test_it_can_all_that_a_backend_can() -> None:
    backend = task_backends["default"]
    assert isinstance(backend, WorkflowsBackend)
    assert all((backend.supports_defer, backend.supports_async_task, backend.supports_get_result, backend.supports_priority))


def test_a_task_is_run_and_its_result_read(lab: Lab) -> None:
    result = jobs.add.enqueue(2, second=3)
    assert (result.status, result.args, result.kwargs, result.attempts) == (TaskResultStatus.READY, [2], {"second": 3}, 0)
    assert result.is_finished is False
    lab.run_until_idle()
    result.refresh()
    assert (result.status, result.return_value, result.attempts, result.worker_ids) == (TaskResultStatus.SUCCESSFUL, 5, 1, ["lab"])
    assert result.enqueued_at == result.started_at == result.last_attempted_at == result.finished_at == lab.now
    assert jobs.add.get_result(result.id) == result
    assert jobs.SEEN == [("add", 2, 3)]
    assert Run.objects.get(pk=result.id).workflow == "tests.contrib.jobs.add"


def test_the_queue_of_a_task_is_an_app(lab: Lab) -> None:
    result = jobs.send.enqueue("ada@example.org")
    run = Run.objects.get(pk=result.id)
    assert (run.app.name, run.priority) == ("emails", 7)
    lab.run_until_idle()
    result.refresh()
    assert (result.return_value, result.worker_ids) == ("sent to ada@example.org", ["mailer"])
    again = jobs.send.get_result(result.id).task
    assert (again.queue_name, again.priority, again.run_after) == ("emails", 7, None)


def test_queues_are_made_by_migrate_once() -> None:
    provision("default")
    assert list(App.objects.order_by("pk").values_list("name", flat=True)) == ["default", "emails"]


def test_a_deferred_task_waits_for_its_time(lab: Lab) -> None:
    later = lab.now + timedelta(hours=2)
    result = jobs.add.using(run_after=later).enqueue(1)
    lab.run_until_idle()
    assert jobs.add.get_result(result.id).status == TaskResultStatus.READY
    assert jobs.add.get_result(result.id).task.run_after == later
    lab.advance(hours=2)
    assert jobs.add.get_result(result.id).started_at == later


def test_higher_priorities_go_first(lab: Lab) -> None:
    App.objects.update(partitions=1)
    for priority in (-100, 0, 100, 50):
        jobs.add.using(priority=priority).enqueue(priority)
    lab.run_until_idle()
    assert jobs.SEEN == [("add", priority, 1) for priority in (100, 50, 0, -100)]


def test_coroutine_functions_are_run(lab: Lab) -> None:
    result = jobs.fetch.enqueue("https://example.org")
    lab.run_until_idle()
    result.refresh()
    assert result.return_value == {"url": "https://example.org"}
    assert Group.objects.get().name == "https://example.org"


def test_the_context_counts_attempts_and_errors_are_kept_with_class_and_traceback(lab: Lab) -> None:
    result = jobs.third_time.enqueue("not yet")
    lab.run_until_idle()
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.READY, 1, 1)
    lab.advance(minutes=5)
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, [3, "not yet"], 3)
    assert [(attempt, status) for attempt, status, _ in jobs.SEEN] == [(number, TaskResultStatus.RUNNING) for number in (1, 2, 3)]
    assert [error.exception_class_path for error in result.errors] == ["ezgh_workflows_django.errors.Retryable"] * 2
    assert "Retryable: not yet 2" in result.errors[1].traceback
    assert "third_time" in result.errors[1].traceback
    assert result.started_at < result.last_attempted_at


def test_a_failed_task_tells_its_exception(lab: Lab) -> None:
    result = jobs.fail.enqueue("luck")
    lab.run_until_idle()
    result.refresh()
    assert (result.status, result.is_finished) == (TaskResultStatus.FAILED, True)
    [error] = result.errors
    assert error.exception_class is ValueError
    assert error.traceback.startswith("Traceback (most recent call last):")
    assert "in fail" in error.traceback
    assert error.traceback.endswith("ValueError: no luck\n")
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018


def test_what_is_no_json_fails_for_good_and_is_not_stuck(lab: Lab) -> None:
    result = jobs.no_json.enqueue()
    lab.run_until_idle()
    result.refresh()
    assert (result.status, jobs.SEEN) == (TaskResultStatus.FAILED, ["no_json"])
    assert "no_json returned what is no JSON" in result.errors[0].traceback
    with pytest.raises(TypeError):
        jobs.add.enqueue(datetime(2024, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(("end", "path"), [("cancel", "RunCancelled"), ("time", "RunTimedOut")])
def test_an_end_that_no_attempt_brought_is_an_error_too(lab: Lab, end: str, path: str) -> None:
    result = jobs.add.enqueue(1)
    run = get_run(result.id)
    if end == "cancel":
        run.cancel("enough")
    else:
        Run.objects.filter(pk=result.id).update(deadline_at=lab.now, due_at=lab.now)
        for worker in list(lab.workers):
            lab.kill(worker)
        lab.advance(seconds=1)
    result.refresh()
    assert (result.status, [error.exception_class.__name__ for error in result.errors]) == (TaskResultStatus.FAILED, [path])


@pytest.mark.django_db(transaction=True)
def test_a_task_exists_if_and_only_if_its_transaction_commits() -> None:
    with heard() as told, transaction.atomic():
        lost = jobs.writes.enqueue("lost")
        transaction.set_rollback(True)
    assert told == []
    with pytest.raises(TaskResultDoesNotExist):
        jobs.writes.get_result(lost.id)
    with heard() as told, transaction.atomic():
        kept = jobs.writes.enqueue("kept")
        assert told == []
    assert [name for name, *_ in told] == ["enqueued"]
    assert jobs.writes.get_result(kept.id).status == TaskResultStatus.READY


def test_each_transition_is_told_once_by_the_backends_class(lab: Lab) -> None:
    with heard() as told:
        jobs.third_time.enqueue("again")
        jobs.fail.enqueue("luck")
        lab.advance(minutes=5)
    assert {sender for _, sender, _, _ in told} == {WorkflowsBackend}
    mine = [(name, status) for name, _, status, task in told if task == "third_time"]
    ready, running, done = TaskResultStatus.READY, TaskResultStatus.RUNNING, TaskResultStatus.SUCCESSFUL
    assert mine == [("enqueued", ready), *[("started", running)] * 3, ("finished", done)]
    others = [(name, status) for name, _, status, task in told if task == "fail"]
    assert others == [("enqueued", ready), ("started", running), ("finished", TaskResultStatus.FAILED)]


def test_what_is_told_is_logged_at_the_levels_of_django(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    jobs.fail.enqueue("luck")
    jobs.add.enqueue(1)
    lab.run_until_idle()
    name = "django.tasks" if PACKAGE == "django.tasks" else "django_tasks"
    levels = [
        (record.levelname, record.getMessage().split("state=")[1]) for record in caplog.records if record.name == name and "state=" in record.getMessage()
    ]
    assert sorted(levels) == [("ERROR", "FAILED"), ("INFO", "RUNNING"), ("INFO", "RUNNING"), ("INFO", "SUCCESSFUL")]


@pytest.mark.django_db(transaction=True)
def test_async_callers_have_their_own_ways() -> None:
    async def go() -> Any:
        with heard() as told:
            result = await jobs.add.aenqueue(4)
            assert [name for name, *_ in told] == ["enqueued"]
        found = await jobs.add.aget_result(result.id)
        await found.arefresh()
        return found

    assert async_to_sync(go)().args == [4]


@pytest.mark.parametrize("result_id", ["", "nothing", "0193a7f0-0000-7000-8000-000000000000", "x" * 64])
def test_an_id_that_is_nothing_does_not_exist(result_id: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(result_id)


def test_a_run_that_is_no_task_is_no_result(lab: Lab) -> None:
    from tests.engine.graphs import job

    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(job().start().id)


def test_a_result_of_another_task_is_a_mismatch() -> None:
    result = jobs.add.enqueue(1)
    with pytest.raises(Exception, match="does not match"):
        jobs.fail.get_result(result.id)


@pytest.mark.parametrize(
    ("path", "text"), [("tests.contrib.jobs.gone", "can't be found"), ("tests.contrib.jobs.no_task", "is no task"), ("os.system", "is no task")]
)
def test_a_stored_path_that_is_no_task_is_never_called(path: str, text: str) -> None:
    result = jobs.add.enqueue(1)
    Run.objects.filter(pk=result.id).update(payload=f'{{"task": "{path}", "queue": "default", "args": [], "kwargs": {{}}}}')
    with pytest.raises(SuspiciousOperation, match=text):
        task_backends["default"].get_result(result.id)


def test_what_a_backend_refuses_is_refused() -> None:
    for bad in ({"queue_name": "nowhere"}, {"priority": 101}, {"run_after": datetime(2024, 1, 1)}):  # noqa: DTZ001 - naive on purpose
        with pytest.raises(InvalidTask):
            jobs.add.using(**bad)


def test_a_stored_task_outlives_its_queue_in_the_settings() -> None:
    result = jobs.send.enqueue("ada@example.org")
    with override_settings(TASKS={"default": {"BACKEND": BACKEND}}):
        assert task_backends["default"].get_result(result.id).task.queue_name == "emails"


def test_two_backends_have_policies_of_their_own_for_one_task(lab: Lab) -> None:
    with tasks(
        **{"a very careful one, with a name of more than 32 characters": OURS | {"OPTIONS": {"RETRY": {"max_attempts": 2, "initial": 5}, "TIMEOUT": 9}}}
    ):
        [careful] = [alias for alias in task_backends if alias != "default"]
        result = jobs.fail.using(backend=careful).enqueue("luck")
        plain = jobs.fail.enqueue("luck")
        assert version_of(result) != version_of(plain)
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(result.id)
        lab.worker("new")
        lab.advance(minutes=1)
        assert task_backends[careful].get_result(result.id).attempts == 2
        assert task_backends["default"].get_result(plain.id).attempts == 1


def test_settings_may_change_in_mid_test() -> None:
    first = jobs.add.enqueue(1)
    with override_settings(TASKS={"default": OURS | {"OPTIONS": {"RETRY": Retry(max_attempts=9)}}}):
        second = jobs.add.enqueue(1)
    assert version_of(first) != version_of(second)
    assert jobs.add.get_result(second.id).status == TaskResultStatus.READY


@pytest.mark.parametrize("other", ["immediate.ImmediateBackend", "dummy.DummyBackend"])
def test_tasks_run_under_the_backends_for_tests_unchanged(other: str) -> None:
    with override_settings(TASKS={"default": {"BACKEND": f"{PACKAGE}.backends.{other}", "QUEUES": ["default", "emails"]}}):
        assert jobs.third_time.using(priority=0).enqueue("once").args == ["once"]
        assert jobs.add.enqueue(1).backend == "default"
    assert not Run.objects.exists()


def test_tasks_and_results_are_copied_and_pickled() -> None:
    result = jobs.add.enqueue(1)
    assert copy.deepcopy(jobs.add).module_path == jobs.add.module_path
    if hasattr(jobs.add, "_reconstruct"):  # from Django 6.1 on
        assert pickle.loads(pickle.dumps(jobs.add.using(priority=3))).priority == 3
    assert copy.copy(result) == result


def test_policies_that_cannot_be_are_refused_by_name() -> None:
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": {"TIMEOUT": -1}}}), pytest.raises(InvalidTaskBackend, match="timeout"):
        jobs.add.using(priority=1)


@pytest.mark.parametrize("path", ["shop.tasks.sendInvoice", "_own.tasks.x", "a" * 200, "Shop.tasks.x", "shop.tasks.x"])
def test_every_path_has_a_legal_name_of_its_own(path: str) -> None:
    from ezgh_workflows_django.definitions.names import WORKFLOW_PATTERN, matches

    assert matches(WORKFLOW_PATTERN, workflow_name(path))
    assert workflow_name(path) != workflow_name(path.swapcase())
    assert revision_of("über") != revision_of("uber")
