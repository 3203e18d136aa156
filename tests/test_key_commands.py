"""`workflows_key` and `workflows_app`: the secret is printed once, and refusals are one line."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from ezgh_workflows_django.engine import keys, tenancy
from ezgh_workflows_django.engine.workers import register
from ezgh_workflows_django.errors import KeyRefused
from ezgh_workflows_django.models import ApiKey, App, Trail
from ezgh_workflows_django.protocol.messages import Registration
from tests.engine.graphs import job

pytestmark = pytest.mark.django_db


def said(*arguments: str) -> str:
    """What a command prints."""
    out = StringIO()
    call_command(*arguments, stdout=out, stderr=out)
    return out.getvalue()


def facts(*arguments: str) -> Any:
    """The same as JSON."""
    return json.loads(said(*arguments, "--format", "json"))


def test_a_key_is_printed_once_and_works() -> None:
    printed = said("workflows_key", "create", "bot", "--permission", "worker", "--permission", "workflows.runs.read", "--app", "default")
    text = printed.split()[0]
    identity = keys.authenticate(text)
    listed = said("workflows_key", "list") + said("workflows_key", "list", "--format", "json")
    assert (identity.name, identity.app_id, identity.grants) == ("bot", tenancy.provision().pk, ("WorkflowsWorkerAccess", "workflows.runs.read"))
    assert identity.prefix in listed
    assert text.rpartition("_")[2] not in listed + "".join(Trail.objects.values_list("data", flat=True))


def test_a_key_is_revoked() -> None:
    made = facts("workflows_key", "create", "bot", "--permission", "read", "--expires-in", "0.5")
    assert "is revoked" in said("workflows_key", "revoke", made["prefix"])
    with pytest.raises(KeyRefused):
        keys.authenticate(made["key"])
    [listed] = facts("workflows_key", "list")
    assert (listed["prefix"], listed["revoked_at"] is None, listed["expires_at"] is None) == (made["prefix"], False, False)
    assert "revoked" in said("workflows_key", "list")


def test_there_may_be_no_keys() -> None:
    assert said("workflows_key", "list").strip() == "no keys"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "bot"), "permissions: at least one is needed"),
        (("create", "bot", "--permission", "owner"), "the scopes are worker, execute, read, write, admin"),
        (("create", "bot", "--permission", "read", "--app", "absent"), "has no app 'absent'"),
        (("create", "bot", "--permission", "read", "--project", "absent"), "there is no project 'absent'"),
        (("create", "bot", "--permission", "read", "--expires-in", "0"), "more than 0"),
        (("create", "bot", "--permission", "read", "--expires-in", "nan"), "more than 0"),
        (("revoke", "absent"), "has no key 'absent'"),
    ],
)
def test_what_a_key_cannot_be_is_refused_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        said("workflows_key", *arguments)
    assert ApiKey.objects.count() == 0


def test_an_app_is_created_grown_and_listed() -> None:
    said("workflows_app", "create", "reports", "--queue", "slow", "--partitions", "8")
    said("workflows_app", "update", "reports", "--partitions", "9")
    assert [(each["name"], each["queue"], each["partitions"]) for each in facts("workflows_app", "list")] == [("default", "default", 4), ("reports", "slow", 9)]
    assert "queue slow over 9" in said("workflows_app", "list")
    assert set(Trail.objects.filter(target="reports").values_list("actor_kind", "actor")) == {("command", "workflows_app")}


def test_an_app_and_a_workflow_of_it_are_paused_and_resumed() -> None:
    register(Registration(worker="w1", app="default", definitions=(job().to_spec(),)))
    said("workflows_app", "pause", "default", "--reason", "the bank is down")
    said("workflows_app", "pause", "default", "--workflow", "job")
    listed = said("workflows_app", "list")
    assert ("paused: the bank is down" in listed, "job paused: no reason given" in listed) == (True, True)
    assert 'workflow "job" of app "default" is not paused any more' in said("workflows_app", "resume", "default", "--workflow", "job")
    said("workflows_app", "resume", "default")
    assert "paused" not in said("workflows_app", "list")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "default"), 'has an app "default" already'),
        (("create", "reports", "--queue", "Q"), "queue: 1 to 63 small letters"),
        (("create", "reports", "--partitions", "33"), "1 to 32"),
        (("update", "default", "--partitions", "3"), "never shrink"),
        (("update", "absent", "--partitions", "3"), "has no app 'absent'"),
        (("pause", "default", "--workflow", "absent"), "no workflow 'absent' is stored"),
    ],
)
def test_what_an_app_cannot_be_is_refused_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        said("workflows_app", *arguments)
    assert list(App.objects.values_list("name", "partitions")) == [("default", 4)]
