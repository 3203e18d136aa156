"""API keys: what opens, what does not and why, what a key may give on, and that no secret is kept anywhere (case B94)."""

from __future__ import annotations

import logging
import re
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django.engine import apps, keys, permissions
from ezgh_workflows_django.engine.keys import Identity
from ezgh_workflows_django.errors import InvalidArgument, KeyRefused, NotPermitted, UnknownKey
from ezgh_workflows_django.models import ApiKey, App, Organization, Project, Trail
from tests.conftest import ROOT
from tests.engine.conftest import Desk
from tests.engine.threads import together

BOSS = ("user", "ann")


def home() -> Project:
    """The default project."""
    return Project.objects.order_by("pk")[0]


def make(*grants: str, by: Any = BOSS, **options: Any) -> tuple[ApiKey, str]:
    """A key of the default project."""
    return keys.create("bot", grants or ("worker",), by=by, project=options.pop("project", home()), **options)


def who(*grants: str, **options: Any) -> Identity:
    """The identity behind a new key."""
    return keys.authenticate(make(*grants, **options)[1])


def refusal(text: str) -> KeyRefused:
    """How a key is refused."""
    with pytest.raises(KeyRefused) as refused:
        keys.authenticate(text)
    return refused.value


def elsewhere(slug: str = "theirs") -> Project:
    """A project of another organization."""
    now = home().created_at
    organization = Organization.objects.create(slug=slug, name=slug, created_at=now)
    return Project.objects.create(organization=organization, slug="default", name=slug, created_at=now)


def changed(text: str, place: int) -> str:
    """The key with one other character."""
    return text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]


# --- opening


def test_a_key_says_who_it_is_and_what_it_may(desk: Desk) -> None:
    app = App.objects.get(name="default")
    key, text = make("worker", "workflows.runs.read", app=app)
    identity = keys.authenticate(text)
    assert (identity.prefix, identity.name, identity.project_id, identity.app_id) == (key.prefix, "bot", home().pk, app.pk)
    assert (identity.organization, identity.project, identity.actor) == ("default", "default", ("key", key.prefix))
    assert identity.permissions == {"workflows.workers.poll", "workflows.apps.sync", "workflows.runs.read"}
    assert identity.may("workflows.workers.poll")
    with pytest.raises(NotPermitted, match=r"workflows\.runs\.start") as refused:
        identity.need("workflows.workers.poll", "workflows.runs.start")
    assert refused.value.permissions == ("workflows.runs.start",)


@pytest.mark.parametrize("place", [4, 15, 17, 48, 80])
def test_a_key_that_differs_in_one_character_opens_nothing(desk: Desk, place: int) -> None:
    assert refusal(changed(make()[1], place)).reason == "unknown"


@pytest.mark.parametrize(
    "text", ["", "ezw_", "secret", "ezw_a_b", "ezw_\0", "ezw_" + "\ud800" * 12 + "_" + "0" * 64, "x" * 100_000], ids=lambda text: ascii(text[:9])
)
def test_what_has_not_the_form_of_a_key_is_refused_without_asking_the_database(desk: Desk, text: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert refusal(text).reason == "malformed"
    assert len(captured) == 0


def test_a_key_with_more_around_it_is_malformed(desk: Desk) -> None:
    text = make()[1]
    assert [refusal(other).reason for other in (text + "\n", " " + text, text.upper(), text + "0")] == ["malformed"] * 4


def test_a_revoked_key_opens_nothing_and_revoking_it_again_changes_nothing(desk: Desk) -> None:
    key, text = make()
    keys.revoke(key.prefix, by=BOSS, project_id=home().pk)
    desk.now += timedelta(minutes=5)
    again = keys.revoke(key.prefix, by=BOSS, project_id=home().pk)
    refused = refusal(text)
    assert (refused.reason, refused.prefix, refused.project_id) == ("revoked", key.prefix, home().pk)
    assert again.revoked_at == desk.now - timedelta(minutes=5)
    assert Trail.objects.filter(action="RevokeKey").count() == 1


def test_a_key_opens_until_its_end_and_not_at_it(desk: Desk) -> None:
    _, text = make(lasts=timedelta(hours=1))
    desk.now += timedelta(hours=1, microseconds=-1)
    assert keys.authenticate(text).name == "bot"
    desk.now += timedelta(microseconds=1)
    assert refusal(text).reason == "expired"


def test_to_its_bearer_every_refusal_is_the_same_and_a_wrong_secret_names_no_key(desk: Desk) -> None:
    key, text = make()
    wrong = changed(text, 40)
    keys.revoke(key.prefix, by=BOSS, project_id=home().pk)
    found = [refusal(text), refusal(wrong), refusal("secret"), refusal(changed(text, 5))]
    assert ({str(each) for each in found}, [each.reason for each in found]) == ({str(found[0])}, ["revoked", "unknown", "malformed", "unknown"])
    assert [each.prefix for each in found[1:]] == [None] * 3


def test_a_hash_that_is_moved_to_another_key_opens_nothing(desk: Desk) -> None:
    _, text = make()
    stronger, _ = make("admin")
    ApiKey.objects.filter(pk=stronger.pk).update(secret_hash=ApiKey.objects.exclude(pk=stronger.pk).get().secret_hash)
    assert refusal(f"ezw_{stronger.prefix}_{text[-64:]}").reason == "unknown"


def test_its_use_is_noted_at_most_once_a_minute_and_costs_one_statement_otherwise(desk: Desk) -> None:
    key, text = make()
    counts, moments = [], []
    for seconds in (0, 59, 1):
        desk.now += timedelta(seconds=seconds)
        with CaptureQueriesContext(connection) as captured:
            keys.authenticate(text)
        counts.append(len(captured))
        moments.append(ApiKey.objects.get(pk=key.pk).used_at)
    assert (counts, moments) == ([2, 1, 2], [desk.now - timedelta(minutes=1)] * 2 + [desk.now])


def test_calls_with_one_key_at_one_moment_all_open(transactional_db: None, desk: Desk) -> None:
    _, text = make()
    assert {each.prefix for each in together([partial(keys.authenticate, text)] * 4)} == {ApiKey.objects.get().prefix}


# --- giving on


@pytest.mark.parametrize("grant", ["admin", "WorkflowsExecuteAccess", "workflows.runs.start", "workflows.*.read"])
def test_a_key_gives_no_permission_that_it_lacks(desk: Desk, grant: str) -> None:
    giver = who("worker", permissions.CREATE_KEYS)
    with pytest.raises(NotPermitted, match="a key gives only what it has") as refused:
        make("worker", grant, by=giver)
    assert set(refused.value.permissions) == permissions.expanded([grant]) - giver.permissions
    assert ApiKey.objects.count() == 1


def test_a_key_that_may_not_create_keys_creates_none(desk: Desk) -> None:
    with pytest.raises(NotPermitted, match=r"workflows\.keys\.create"):
        make("worker", by=who("worker"))
    with pytest.raises(NotPermitted, match=r"workflows\.keys\.revoke"):
        keys.revoke(make()[0].prefix, by=who("worker"), project_id=home().pk)


def test_a_policy_is_given_on_by_name_only_by_who_has_it_by_name(desk: Desk) -> None:
    by_name, singly = who("admin"), who("workflows.workers.poll", "workflows.apps.sync", permissions.CREATE_KEYS)
    assert keys.grants_of(make("worker", "admin", by=by_name)[0]) == ("workflows.apps.sync", "workflows.workers.poll", "WorkflowsAdminAccess")
    assert keys.grants_of(make("worker", by=singly)[0]) == ("workflows.apps.sync", "workflows.workers.poll")
    assert keys.grants_of(make("worker")[0]) == ("WorkflowsWorkerAccess",)


def test_a_key_of_one_app_gives_keys_of_that_app_only(desk: Desk) -> None:
    app, other = App.objects.get(name="default"), apps.create(home(), "second", by=BOSS)
    giver = who("admin", app=app)
    assert make("read", by=giver, app=app)[0].app == app
    for wider in (None, other):
        with pytest.raises(NotPermitted, match="in its own scope or narrower"):
            make("read", by=giver, app=wider)


def test_a_key_gives_none_in_another_project(desk: Desk) -> None:
    with pytest.raises(NotPermitted, match="in its own scope or narrower"):
        make("read", by=who("admin"), project=elsewhere())


def test_what_a_key_gives_does_not_outlive_it(desk: Desk) -> None:
    giver = who("admin", lasts=timedelta(days=1))
    assert make("read", by=giver)[0].expires_at == giver.expires_at
    assert make("read", by=giver, lasts=timedelta(hours=1))[0].expires_at == desk.now + timedelta(hours=1)
    with pytest.raises(InvalidArgument, match="outlive"):
        make("read", by=giver, lasts=timedelta(days=2))


# --- whose keys


def test_keys_of_another_project_or_app_do_not_exist_for_a_key(desk: Desk) -> None:
    theirs, _ = make("read", project=elsewhere())
    ours, _ = make("read")
    boss, of_app = who("admin"), who("admin", app=App.objects.get(name="default"))
    for by, prefix, project_id in ((boss, theirs.prefix, home().pk), (boss, theirs.prefix, theirs.project_id), (of_app, ours.prefix, home().pk)):
        with pytest.raises(UnknownKey):
            keys.revoke(prefix, by=by, project_id=project_id)
    assert [key.revoked_at for key in ApiKey.objects.all()] == [None] * 4
    assert keys.keys_of(home().pk).count() == 3
    assert [key.prefix for key in keys.keys_of(home().pk, of_app.app_id)] == [of_app.prefix]


@pytest.mark.parametrize("prefix", ["", "absent", "\0", "\ud800", "a" * 300], ids=ascii)
def test_a_prefix_of_no_key_is_unknown(desk: Desk, prefix: str) -> None:
    with pytest.raises(UnknownKey):
        keys.revoke(prefix, by=BOSS, project_id=home().pk)


def test_an_app_of_another_project_makes_no_key_here(desk: Desk) -> None:
    theirs = apps.create(elsewhere(), "theirs", by=BOSS)
    with pytest.raises(InvalidArgument, match="another project"):
        make("read", app=theirs)


@pytest.mark.parametrize("name", ["", "  ", "n" * 101, "a\0", "\ud800"], ids=ascii)
def test_a_bad_name_is_refused(desk: Desk, name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^name"):
        keys.create(name, ["read"], by=BOSS, project=home())


@pytest.mark.parametrize("grants", [(), ("owner",), ("read", "workflows.runs.fly"), ("workflows.*",), ("\0",)], ids=ascii)
def test_what_is_no_permission_is_refused_by_name(desk: Desk, grants: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgument, match=r"^permissions"):
        keys.create("bot", grants, by=BOSS, project=home())


def test_an_end_that_has_come_or_names_no_zone_is_refused(desk: Desk) -> None:
    for end in (desk.now, datetime(2030, 1, 1)):  # noqa: DTZ001 - that is what is refused
        with pytest.raises(InvalidArgument, match=r"^expires_at"):
            make(expires_at=end)


# --- secrecy


def test_the_secret_is_kept_nowhere(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key, text = make("admin")
    secret = text.rpartition("_")[2]
    with CaptureQueriesContext(connection) as captured:
        identity = keys.authenticate(text)
        keys.revoke(key.prefix, by=identity, project_id=home().pk)
    told = [repr(refusal(text)), repr(identity), repr(key), str(key), caplog.text, *Trail.objects.values_list("data", flat=True)]
    told += [query["sql"] for query in captured.captured_queries] + [repr(ApiKey.objects.values().get())]
    assert (len(secret), [place for place in told if secret in place]) == (64, [])
    assert "secret_hash" in {field.attname for field in ApiKey._meta.fields} - set(keys.keys_of(home().pk).get().__dict__)


def test_making_and_revoking_are_in_the_trail(desk: Desk) -> None:
    giver = who("admin")
    key, _ = make("read", by=giver, lasts=timedelta(hours=1))
    keys.revoke(key.prefix, by=giver, project_id=home().pk)
    rows = Trail.objects.filter(target_kind="key", target=key.prefix).order_by("pk").values_list("action", "actor_kind", "actor")
    assert list(rows) == [("CreateKey", "key", giver.prefix), ("RevokeKey", "key", giver.prefix)]


# --- the table


def test_the_policies_hold_what_the_names_promise() -> None:
    held = {policy.scope: policy.permissions for policy in permissions.POLICIES}
    runs = {f"workflows.runs.{verb}" for verb in ("start", "signal", "cancel", "retry", "pause", "resume")}
    assert held["worker"] == {"workflows.workers.poll", "workflows.apps.sync"}
    assert held["execute"] == {*runs, "workflows.events.emit"}
    assert held["read"] == {name for name in permissions.BY_NAME if name.endswith(".read")}
    assert held["write"] == held["worker"] | held["execute"]
    assert held["admin"] == set(permissions.BY_NAME)


def test_a_stored_name_that_means_nothing_any_more_gives_nothing(desk: Desk) -> None:
    key, text = make("read")
    ApiKey.objects.filter(pk=key.pk).update(grants='["workflows.runs.fly", "WorkflowsGodAccess", "workflows.runs.read"]')
    assert keys.authenticate(text).permissions == {"workflows.runs.read"}


def test_staff_may_do_what_their_model_permissions_say() -> None:
    given = permissions.of_staff({"ezgh_workflows.view_run", "ezgh_workflows.cancel_run"}.__contains__)
    assert given == {"workflows.runs.read", "workflows.runs.cancel"}
    assert not any(name.startswith(("workflows.keys", "workflows.workers", "workflows.apps")) for name in permissions.of_staff(lambda _: True))


def test_the_page_lists_every_permission_once_with_what_gives_it_to_staff() -> None:
    page = (ROOT / "docs" / "permissions.md").read_text()
    listed = re.findall(r"^\| `(workflows\.[a-z.]+)` \| .+? \| (?:`(\w+)` )?\|$", page, re.MULTILINE)
    staff = {each.name: (each.staff or "").removeprefix("ezgh_workflows.") for each in permissions.PERMISSIONS}
    assert (dict(listed), len(listed)) == (staff, len(staff))
    assert all(f"| `{policy.scope}` | `{policy.name}` |" in page for policy in permissions.POLICIES)
