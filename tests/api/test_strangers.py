"""What belongs to another project or app is not there: every id, in every place of every call, is answered as one that is nowhere (case B94).

The calls come from the routes, and the fields that name things from the OpenAPI document: a new one fails here until `parties` knows it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
from django.db.models import Model

from ezgh_workflows_django.models import ApiKey, App, Event, JournalEntry, Lease, Organization, Project, Run, Schedule, Step, Wait, Worker, WorkflowPause
from tests.api.conftest import Reply
from tests.api.matrix import GUARDED, another_app, call_of
from tests.api.parties import LEAST, NO_THINGS, NOWHERE, PLACES, Party, by_path, named_fields

WATCHED: Final[tuple[type[Model], ...]] = (App, ApiKey, Worker, Run, Step, Lease, JournalEntry, Event, Wait, WorkflowPause, Schedule)
"""The tables in which everybody here has rows."""

UNKNOWN: Final = {"unknown_worker", "unknown_app", "unknown_project", "unknown_run", "unknown_lease", "unknown_schedule", "unknown_key"}

every_stranger = pytest.mark.parametrize("kind", ["another project", "another app", "an app of another project"])


@pytest.fixture
def treasury(project: Project) -> Project:
    """The owner's project."""
    return _project("owners", "treasury", project)


@pytest.fixture
def strangers(project: Project, treasury: Project) -> dict[str, Party]:
    """The three kinds of somebody else, each with things of their own."""
    second = _project("theirs", "second", project)
    return {
        "another project": Party(another_app(second, "wide"), whole_project=True),
        "another app": Party(another_app(treasury, "near"), whole_project=False),
        "an app of another project": Party(another_app(second, "far"), whole_project=False),
    }


def owner_in(treasury: Project) -> Party:
    """Who has one of everything there."""
    return Party(another_app(treasury, "vault"), whole_project=True).has_more()


def _project(organization: str, name: str, like: Project) -> Project:
    within = Organization.objects.create(slug=organization, name=organization, created_at=like.created_at)
    return Project.objects.create(organization=within, slug=name, name=name, created_at=like.created_at)


def told(reply: Reply, value: str) -> tuple[int, str]:
    """The answer without what may differ: the value that was asked for, new ids, the time."""
    text = json.dumps([dict(reply.headers), reply.body]).replace(value, "VALUE")
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|ezw_\w+|\d{4}-\d\d-\d\dT[\d:.]+Z|(?<=\"id\": )\d+", "NEW", text)
    return reply.status, re.sub(r"\"Content-Length\": \"\d+\"", "", text)


def looked(me: Party) -> dict[str, Any]:
    """What every call that only looks tells somebody of their own things, but for how long ago something was."""
    bodies = {str(call): call.by(me.caller, **me.ids).body for call in GUARDED if call.method == "GET"}
    return {call: re.sub(r"(_seconds\S*) \S+", r"\1", body) if isinstance(body, str) else body for call, body in bodies.items()}


def rows_of(party: Party) -> list[Any]:
    """Every watched row of a party's app."""
    of: dict[type[Model], dict[str, Any]] = {
        App: {"pk": party.app.pk},
        Step: {"run__app": party.app},
        Lease: {"run__app": party.app},
        JournalEntry: {"run__app": party.app},
    }
    return [list(model._default_manager.filter(**of.get(model, {"app": party.app})).order_by("pk").values()) for model in WATCHED]


@every_stranger
def test_nothing_of_others_is_there_by_any_path(treasury: Project, strangers: dict[str, Party], kind: str) -> None:
    me, owner = strangers[kind], owner_in(treasury)
    before = rows_of(owner)
    faults = []
    for call, thing, real, none in by_path(me, owner):
        body = LEAST.get(str(call))
        found, unknown = call.by(me.caller, body, **real), call.by(me.caller, body, **none)
        if found.code not in UNKNOWN or told(found, owner.ids[thing]) != told(unknown, NOWHERE[thing]):
            faults.append((str(call), thing, found.status, found.body, unknown.body))
    assert faults == []
    assert rows_of(owner) == before


@every_stranger
def test_nothing_of_others_is_there_by_any_field(treasury: Project, strangers: dict[str, Party], kind: str) -> None:
    me, owner = strangers[kind], owner_in(treasury)
    before = rows_of(owner)
    faults = []
    for place in PLACES:
        if owner.ids[place.thing] != me.ids.get(place.thing):
            call = call_of(*place.call.split(" ", 1))
            found, unknown = (place.ask(call, me, values[place.thing]) for values in (owner.ids, NOWHERE))
            if told(found, owner.ids[place.thing]) != told(unknown, NOWHERE[place.thing]):
                faults.append((place.call, place.field, found.status, found.body, unknown.body))
    assert faults == []
    assert rows_of(owner) == before


@every_stranger
def test_no_list_of_ones_own_is_other_for_what_others_have(treasury: Project, strangers: dict[str, Party], kind: str) -> None:
    me = strangers[kind]
    looked(me)  # reading a run is noted in the trail once
    before = looked(me)
    owner_in(treasury)
    assert looked(me) == before


def test_they_are_there_for_their_owner(treasury: Project) -> None:
    """Else the others would prove nothing. The owner's key goes last, and the session before it."""
    owner = owner_in(treasury)
    ends = ("POST api/workers/<str:worker_id>/leave", "DELETE")
    ordered = sorted(GUARDED, key=lambda call: (call.method != "GET", str(call).startswith(ends)))
    answers = [(call, call.by(owner.caller, LEAST.get(str(call)), **owner.ids)) for call in ordered if set(call.parameters) - {"organization", "project"}]
    assert [(str(call), reply.body) for call, reply in answers if reply.code in UNKNOWN or reply.status == 400] == []


def test_every_place_that_names_a_thing_is_looked_at() -> None:
    assert named_fields() - {(place.call, place.field) for place in PLACES} == set(), "tests/api/parties.py has no line in PLACES for these"
    assert {name for call in GUARDED for name in call.parameters} - NO_THINGS - NOWHERE.keys() == set(), "tests/api/parties.py knows no such thing in a path"


def test_a_verb_for_many_runs_stays_with_ones_own(treasury: Project, strangers: dict[str, Party]) -> None:
    owner = owner_in(treasury)
    for stranger in strangers.values():
        stranger.caller.post("api/runs/cancel", {"filter": {"status": "running"}})
    assert set(Run.objects.exclude(app=owner.app).values_list("status", flat=True)) == {"cancelled"}
    assert set(Run.objects.filter(app=owner.app).values_list("status", flat=True)) == {"running"}


def test_an_event_of_an_apps_key_stays_in_that_app(treasury: Project, strangers: dict[str, Party]) -> None:
    near, wide = strangers["another app"], strangers["another project"]
    for party, scope in ((near, {"app": near.app}), (wide, {"project": wide.app.project, "app": None})):
        assert party.caller.post("api/events", {"name": "e", "app": party.app.name}).status == 201
        assert Event.objects.filter(name="e", **scope).count() == 1
    assert Event.objects.filter(name="e").count() == 2


def test_a_session_of_others_is_not_kept_alive(treasury: Project, strangers: dict[str, Party]) -> None:
    """What a stranger claims with it neither renews its announcements nor tells what its app has."""
    owner = owner_in(treasury)
    Worker.objects.filter(pk=owner.session.id).update(seen_at=treasury.created_at)
    for stranger in strangers.values():
        assert stranger.caller.post("api/steps/claim", owner.session.body()).why == (409, "unknown_worker")
    assert Worker.objects.get(pk=owner.session.id).seen_at == treasury.created_at
