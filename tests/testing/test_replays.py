"""Journals replayed against changed code: what would break is said in plain words, before anything new runs (case B24)."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from ezgh_workflows_django import Context, Workflow, emit, workflow
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine.handles import RunHandle
from ezgh_workflows_django.models import Checkpoint
from ezgh_workflows_django.testing import Lab, assert_replays, record

pytestmark = pytest.mark.django_db

ran: list[str] = []


def inner(name: str) -> Callable[[], str]:
    """The function of an inner step; it says that it ran."""

    def run() -> str:
        ran.append(name)
        return name

    return run


def function(*asks: str, revision: str = "1") -> Workflow:
    """A durable function that asks for these, `step:a`, `sleep:a`, `event:a`, in order; its name is always the same."""

    @workflow("shipping", revision=revision)
    def body(ctx: Context) -> str:
        for kind, name in (ask.split(":") for ask in asks):
            if kind == "step":
                ctx.step(name, inner(name))
            elif kind == "sleep":
                ctx.sleep(name, 60)
            else:
                ctx.wait_for_event(name, event="go")
        return "shipped"

    return body


def stored_of(run: Any) -> Any:
    """The checkpoints of a run."""
    return Checkpoint.objects.filter(run=run.id)


BEFORE = ("step:reserve", "step:charge", "event:wait", "step:ship")
NEW = ("step:bill",)


@pytest.fixture
def parked() -> Any:
    """A run of BEFORE, parked at its wait."""
    ran.clear()
    with Lab(workflows=[function(*BEFORE)]) as lab:
        run = function(*BEFORE).start()
        lab.run_until_idle()
        assert ran == ["reserve", "charge"]
        ran.clear()
        yield run


CHANGES = {
    "renamed": (("step:reserve", "step:bill", "event:wait"), "expected step `charge` at 2, the code asks for `bill`"),
    "swapped": (("step:charge", "step:reserve", "event:wait"), "expected step `reserve` at 1, the code asks for `charge`"),
    "removed": (("step:reserve", "event:wait"), "expected step `charge` at 2, the code asks for wait `wait`"),
    "inserted": (("step:check", "step:reserve", "step:charge", "event:wait"), "expected step `reserve` at 1, the code asks for `check`"),
    "another kind": (("step:reserve", "sleep:charge", "event:wait"), "expected step `charge` at 2, the code asks for sleep `charge`"),
    "ends early": (("step:reserve",), "expected step `charge` at 2, the code returned without asking for it"),
    "twice": (("step:reserve", "step:reserve"), "the code asks for `reserve` twice"),
}


@pytest.mark.parametrize(("asks", "told"), CHANGES.values(), ids=CHANGES)
def test_a_change_under_a_run_in_flight_is_told_before_it_is_shipped(parked: RunHandle, asks: tuple[str, ...], told: str) -> None:
    with pytest.raises(AssertionError) as raised:
        assert_replays(function(*asks), parked)
    assert told in str(raised.value)
    assert ran == []


@pytest.mark.parametrize("asks", [BEFORE, BEFORE[:3], (*BEFORE, *NEW), (*BEFORE[:3], *NEW)], ids=["same", "nothing after", "more after", "other after"])
def test_what_was_not_asked_for_yet_may_change(parked: RunHandle, asks: tuple[str, ...]) -> None:
    assert_replays(function(*asks), parked)
    assert ran == []


@pytest.mark.parametrize(("asks", "told"), CHANGES.values(), ids=CHANGES)
def test_a_change_that_was_shipped_all_the_same_fails_the_run_before_the_new_thing_runs(asks: tuple[str, ...], told: str) -> None:
    ran.clear()
    old, new = function(*BEFORE), function(*asks)
    with Lab(workflows=[old]) as lab:
        run = old.start()
        lab.run_until_idle()
        ran.clear()
        lab.kill(lab.workers[0])
        lab.worker("new", [new])
        before = list(stored_of(run).order_by("pos").values_list("name", "output"))
        run.signal("go")
        lab.run_until_idle()
        assert run.failure is not None
        assert run.failure.class_ == "nondeterminism"
        assert told in run.failure.message
        assert ran == []
        assert list(stored_of(run).order_by("pos").values_list("name", "output"))[:2] == before[:2]


def test_a_finished_journal_is_kept_in_a_file_and_replayed_without_a_run(parked: RunHandle, tmp_path: Path) -> None:
    parked.signal("go")
    Lab._open.run_until_idle()  # type: ignore[union-attr]  # the fixture's
    assert parked.result() == "shipped"
    ran.clear()
    file = tmp_path / "journal.json"
    file.write_text(json.dumps(record(parked)))
    assert_replays(function(*BEFORE), file, exactly=True)
    assert_replays(function(*BEFORE, *NEW), file)
    with pytest.raises(AssertionError, match="it had returned 'shipped', and now goes on with step `bill` at 5"):
        assert_replays(function(*BEFORE, *NEW), file, exactly=True)
    with pytest.raises(AssertionError, match="expected step `ship` at 4, the code asks for `bill`"):
        assert_replays(function(*BEFORE[:3], *NEW), file)
    assert ran == []


def test_the_command_replays_what_is_stored_and_its_exit_code_tells(parked: RunHandle, tmp_path: Path) -> None:
    out = StringIO()
    call_command("workflows_replay", "--write", str(tmp_path), stdout=out)
    assert out.getvalue().strip() == "1 journals replayed, 0 would break"
    [file] = tmp_path.iterdir()
    assert_replays(function(*BEFORE), file)
    registry.swap()
    registry.add(function("step:bill"))
    with pytest.raises(CommandError, match="1 journals replayed, 1 would break"):
        call_command("workflows_replay", "--workflow", "shipping", "--since", "2024-01-01", stdout=out)
    assert "expected step `reserve` at 1, the code asks for `bill`" in out.getvalue()
    out = StringIO()
    call_command("workflows_replay", "--since", "2024-01-02T00:00Z", stdout=out)
    assert out.getvalue().startswith("0 journals")
    with pytest.raises(CommandError, match="--workflow shiping: neither this code nor the database has a workflow of that name"):
        call_command("workflows_replay", "--workflow", "shiping")
    with pytest.raises(CommandError, match="--since yesterday"):
        call_command("workflows_replay", "--since", "yesterday")


def test_a_run_in_flight_is_replayed_however_many_newer_ones_are_over() -> None:
    """What is asleep for a month is what a deploy would break: it comes before all that has ended, and what was left out is said."""
    with Lab(workflows=[function(*BEFORE)]) as lab:
        asleep = function(*BEFORE).start()
        lab.run_until_idle()
        for _ in range(3):
            over = function(*BEFORE).start()
            lab.run_until_idle()
            over.signal("go")
            lab.run_until_idle()
        registry.swap()
        registry.add(function("step:bill"))
        out = StringIO()
        with pytest.raises(CommandError) as broken:
            call_command("workflows_replay", "--limit", "1", stdout=out)
        assert f"run {asleep.id}, shipping/shipping: expected step `reserve` at 1" in out.getvalue()
        assert str(broken.value) == "1 journals replayed, 1 would break; cut at --limit 1: 3 more, of runs that are over, were not looked at"
        with pytest.raises(CommandError, match=r"^3 journals replayed, 3 would break; cut at --limit 3: 1 more, of runs that are over, were not looked at$"):
            call_command("workflows_replay", "--limit", "3", stdout=out)
        with pytest.raises(CommandError, match=r"^4 journals replayed, 4 would break$"):
            call_command("workflows_replay", "--limit", "4", stdout=out)


def test_a_cut_among_runs_in_flight_is_said_as_such(parked: RunHandle) -> None:
    function(*BEFORE).start()
    Lab._open.run_until_idle()  # type: ignore[union-attr]  # the fixture's
    out = StringIO()
    call_command("workflows_replay", "--limit", "1", stdout=out)
    assert out.getvalue().strip() == "1 journals replayed, 0 would break; cut at --limit 1: 1 more, 1 of them of runs in flight, were not looked at"


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_a_limit_that_is_none_is_refused(db: None, limit: str) -> None:
    with pytest.raises(CommandError, match=f"--limit {limit}: a whole number from 1 on is needed"):
        call_command("workflows_replay", "--limit", limit)


def test_journals_of_a_revision_this_code_does_not_have_are_passed_over(parked: RunHandle) -> None:
    registry.swap()
    registry.add(function("step:bill", revision="2"))
    out = StringIO()
    call_command("workflows_replay", stdout=out)
    assert "0 journals replayed, 0 would break, 1 not replayed" in out.getvalue()


def test_items_of_a_map_replay_in_any_order() -> None:
    @workflow("mapper")
    def mapper(ctx: Context) -> Any:
        first = ctx.map("squares", lambda n: n * n, [1, 2, 3], concurrency=3)
        ctx.wait_for_event("go", event="go", key="m")
        return [*first, *ctx.map("again", lambda n: -n, first)]

    with Lab(workflows=[mapper]) as lab:
        run = mapper.start()
        lab.run_until_idle()
        emit("go", key="m")
        lab.run_until_idle()
        assert run.result() == [1, 4, 9, -1, -4, -9]
        journal = record(run)
        journal[0]["lease"]["checkpoints"].reverse()
        assert_replays(mapper, journal, exactly=True)
