"""A key that is good no more is told nothing, whatever it asks for and however long it has waited; and the trail hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import AsyncClient

from ezgh_workflows_django.engine import keys, runs
from ezgh_workflows_django.models import ApiKey, Project, Trail
from tests.api.conftest import SYSTEM, Caller, MakeKey, Reply
from tests.api.test_asgi import Remote
from tests.engine.threads import elsewhere

UNKNOWN = f"ezw_{'a' * 12}_{'0' * 64}"
NOWHERE = ["api/runs/%00", "api/runs/%00/journal", "organizations/default/projects/default/apps/%00", "api/runs/%ED%A0%80", "api/runs/" + "x" * 400]


def revoked(text: str) -> str:
    """That key, revoked."""
    keys.revoke(text.split("_")[1], by=SYSTEM, project_id=Project.objects.get().pk)
    return text


def expired(text: str) -> str:
    """That key, past its end."""
    ApiKey.objects.filter(prefix=text.split("_")[1]).update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    return text


@pytest.mark.parametrize("path", NOWHERE, ids=[*NOWHERE[:-1], "long"])
@pytest.mark.parametrize("ended", [revoked, expired])
def test_a_key_that_was_good_is_turned_away_as_one_that_never_was(key: MakeKey, path: str, ended: Callable[[str], str]) -> None:
    text = ended(key("admin"))
    told, unknown = Caller(text).get(path), Caller(UNKNOWN).get(path)
    assert told.why == (401, "unauthenticated")
    assert (told.status, told.body) == (unknown.status, unknown.body)
    assert Trail.objects.get(action="RefusePoll").actor == text.split("_")[1]


def test_the_trail_has_one_row_for_a_key_a_code_and_an_hour(key: MakeKey, project: Project) -> None:
    """The next hour has a row of its own, and so has another code."""
    text = key("workflows.events.emit")
    for _ in range(2):
        assert Caller(text).get("api/runs").status == 403
    Trail.objects.filter(action="RefusePoll").update(once="the hour before")
    assert Caller(text).get("api/runs").status == 403
    revoked(text)
    for _ in range(2):
        assert Caller(text).get("api/runs").status == 401
    rows = Trail.objects.filter(action="RefusePoll", actor=text.split("_")[1]).order_by("pk").values_list("target_kind", "target")
    assert list(rows) == [("code", "403"), ("code", "403"), ("code", "401")]


@pytest.fixture
def remote(over_asgi: AsyncClient) -> Remote:
    """A caller over ASGI."""
    return Remote(over_asgi)


def test_a_key_that_is_revoked_while_it_waits_is_not_told_how_the_run_ended(remote: Remote) -> None:
    async def story() -> Reply:
        await remote.claim(wait_ms=0)
        run_id = (await remote.call("POST", "runs", {"workflow": "job"})).body["id"]
        waiting = asyncio.create_task(remote.call("GET", f"runs/{run_id}?wait_ms=20000"))
        await remote.held(1)
        await asyncio.to_thread(elsewhere, lambda: revoked(remote.key))
        await asyncio.to_thread(elsewhere, lambda: runs.cancel(run_id))
        return await waiting

    told = asyncio.run(story())
    assert told.why == (401, "unauthenticated")
    assert Trail.objects.filter(action="RefusePoll", actor=remote.key.split("_")[1]).count() == 1
