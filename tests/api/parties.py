"""Somebody with one of everything in an app, and every place of a call where things are named: in paths, queries and bodies."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from ezgh_workflows_django import Cron
from ezgh_workflows_django.engine import following, keys, tenancy
from ezgh_workflows_django.models import App
from tests.api.conftest import SYSTEM, Caller, Reply
from tests.api.matrix import GUARDED, Call, document
from tests.engine.graphs import chain, job

NOWHERE: Final = {
    "organization": "nowhere",
    "project": "nowhere",
    "app": "nowhere",
    "app by id": "99999999",
    "run_id": str(uuid.UUID(int=1)),
    "lease_id": str(uuid.UUID(int=2)),
    "worker_id": str(uuid.UUID(int=3)),
    "schedule_id": "99999999",
    "prefix": "a" * 12,
    "claim_id": "none",
    "workflow": "nothing",
    "version": "0" * 16,
    "announcement": "job@" + "0" * 16,
    "idempotency_key": "another",
    "correlation_id": "another",
    "event_id": "another",
}
"""One of each that nobody has."""

NO_THINGS: Final = {"reference"}
"""Parameters of paths that name no thing of their own: `reference` is a place in a lease."""

FIELDS: Final = {
    *("app", "organization", "project", "worker_id", "run", "runs", "leases", "outcomes", "workflow", "version", "announce"),
    *("claim_id", "idempotency_key", "correlation_id", "event_id", "actor", "target"),
}
"""The fields of queries and bodies that name things."""

APPS: Final = "organizations/<str:organization>/projects/<str:project>/apps"
KEYS: Final = "organizations/<str:organization>/projects/<str:project>/keys"
TRAILS: Final = "organizations/<str:organization>/projects/<str:project>/trails"

LEAST: Final[dict[str, Any]] = {
    "POST api/steps/<str:lease_id>/fail": {"class": "permanent"},
    "POST api/steps/<str:lease_id>/suspend": {"waits": [{"name": "x", "kind": "sleep", "ms": 1}]},
    "POST api/steps/<str:lease_id>/checkpoint": {"name": "x", "pos": 1},
    "POST api/steps/<str:lease_id>/children": {"name": "x", "pos": 1, "workflow": "job", "payloads": []},
    "POST api/runs/<str:run_id>/resolve": {"step": "work"},
    "POST api/runs/<str:run_id>/migrate": {"version": job().version, "dry_run": True},
    "POST api/runs/<str:run_id>/signal": {"name": "paid"},
    f"POST {APPS}": {"name": "new"},
    f"POST {APPS}/<str:app>/runs": {"workflow": "job"},
    f"POST {KEYS}": {"name": "x", "permissions": ["read"]},
}
"""The least body of the calls that refuse an empty one, so that it is the id in the path that they look at."""


class Party:
    """Somebody with one of everything in an app: a session, a run with a live lease, a schedule, a key."""

    def __init__(self, app: App, *, whole_project: bool) -> None:
        secret = keys.create("bot", ["admin"], by=SYSTEM, project=app.project, app=None if whole_project else app)[1]
        spare = keys.create("spare", ["read"], by=SYSTEM, project=app.project, app=app)[0]
        self.app, self.caller = app, Caller(secret)
        self.session = self.caller.register(job(), app=app.name)
        self.caller.register(job("nightly", cron=Cron("0 3 * * *")), app=app.name)
        following.run_once(tenancy.app_now(app)[1], 10)
        app.schedules.update(id=10_000_000 + app.pk)  # long enough to be told from other digits of an answer
        self.ids = {
            "organization": app.project.organization.slug,
            "project": app.project.slug,
            "app": app.name,
            "app by id": str(app.pk),
            "worker_id": self.session.id,
            "schedule_id": str(app.schedules.get().pk),
            "prefix": spare.prefix,
            "reference": "input",
        }
        self.fresh_lease()

    def start(self, **rest: Any) -> str:
        """The id of a new run."""
        return str(self.caller.post("api/runs", {"workflow": "job", "app": self.app.name, **rest}).body["id"])

    def fresh_lease(self) -> None:
        """Have a new run, and its lease, started."""
        run_id = self.start()
        [lease] = self.session.claim(run=run_id)
        self.session.on(lease, "started")
        self.ids |= {"lease_id": lease["id"], "run_id": run_id}

    def has_more(self) -> Party:
        """Besides, a workflow, a version, a claim, an event, and names for runs that nobody else has."""
        longer, treasure = chain("a", "b"), job("treasure")
        self.caller.register(longer, treasure, app=self.app.name)
        self.caller.post("api/events", {"name": "paid", "event_id": "mine", "app": self.app.name})
        self.start(idempotency_key="mine", correlation_id="mine")
        self.session.claim(claim_id="mine")
        mine = dict.fromkeys(("claim_id", "idempotency_key", "correlation_id", "event_id"), "mine")
        self.ids |= {**mine, "workflow": "treasure", "version": longer.version, "announcement": f"treasure@{treasure.version}"}
        return self


class Place(NamedTuple):
    """A field of a call that names a thing: of its query or, where there is one, of the body that is made with a value."""

    call: str
    field: str
    thing: str
    body: Callable[[Party, str], Any] | None = None

    def ask(self, call: Call, me: Party, value: str) -> Reply:
        """Make the call with this value there, and all else one's own."""
        if self.body is None:
            return me.caller.get(f"{call.path(**me.ids)}?{self.field}={value}")
        body = self.body(me, value)
        return call.by(me.caller, body, **me.ids)


def _start(name: str) -> Callable[[Party, str], Any]:
    return lambda me, value: {"workflow": "job", "app": me.app.name, name: value}


def _registration(name: str) -> Callable[[Party, str], Any]:
    return lambda me, value: {"worker": "w", "app": me.app.name, name: value}


def _bulk(name: str) -> Callable[[Party, str], Any]:
    return lambda me, value: {"filter": {name: value}}


def _claim(name: str) -> Callable[[Party, str], Any]:
    return lambda me, value: me.session.body(**{name: [value] if name == "announce" else value})


def _suspend(me: Party, value: str) -> Any:
    me.fresh_lease()
    return {"waits": [{"name": "kids", "kind": "child", "runs": [value]}]}


def _suspended(me: Party, value: str) -> Any:
    suspend = _suspend(me, value)
    return {"outcomes": [{"id": me.ids["lease_id"], "suspend": suspend}]}


def _children(me: Party, value: str) -> Any:
    me.fresh_lease()
    return {"name": "kids", "pos": 1, "workflow": value, "payloads": [1]}


_OF_RUNS: Final = ("app", "workflow", "idempotency_key", "correlation_id")

PLACES: Final = (
    *(Place("POST api/workers/register", name, name, _registration(name)) for name in ("app", "organization", "project")),
    Place("POST api/steps/claim", "worker_id", "worker_id", _claim("worker_id")),
    Place("POST api/steps/claim", "worker_id", "worker_id", lambda me, value: me.session.body(worker_id=value, serves=[{"name": "x", "revision": "1"}])),
    Place("POST api/steps/claim", "worker_id", "worker_id", lambda me, value: me.session.body(worker_id=value, announce=["x@1"])),
    Place("POST api/steps/claim", "run", "run_id", _claim("run")),
    Place("POST api/steps/claim", "claim_id", "claim_id", _claim("claim_id")),
    Place("POST api/steps/claim", "announce", "announcement", _claim("announce")),
    Place("POST api/steps/started", "leases", "lease_id", lambda _, value: {"leases": [value]}),
    Place("POST api/steps/heartbeat", "leases", "lease_id", lambda _, value: {"leases": [{"id": value, "progress": 1}]}),
    Place("POST api/steps/outcomes", "outcomes", "lease_id", lambda _, value: {"outcomes": [{"id": value, "complete": {"output": 1}}]}),
    Place("POST api/steps/outcomes", "runs", "run_id", _suspended),
    Place("POST api/steps/<str:lease_id>/suspend", "runs", "run_id", _suspend),
    Place("POST api/steps/<str:lease_id>/children", "workflow", "workflow", _children),
    *(Place(f"POST {path}", name, name, _start(name)) for path in ("api/runs", f"{APPS}/<str:app>/runs") for name in _OF_RUNS),
    *(Place(f"GET {path}", name, name) for path in ("api/runs", f"{APPS}/<str:app>/runs") for name in _OF_RUNS),
    *(Place(f"POST api/runs/{verb}", name, name, _bulk(name)) for verb in ("cancel", "retry", "resume") for name in ("app", "workflow", "correlation_id")),
    Place("POST api/runs/<str:run_id>/migrate", "version", "version", lambda _, value: {"version": value, "dry_run": True}),
    Place("POST api/events", "app", "app", lambda _, value: {"name": "paid", "app": value}),
    Place("POST api/events", "event_id", "event_id", lambda me, value: {"name": "paid", "app": me.app.name, "event_id": value}),
    Place("GET api/workflows", "app", "app"),
    *(Place(f"POST {APPS}/<str:app>/{verb}", "workflow", "workflow", lambda _, value: {"workflow": value}) for verb in ("pause", "resume")),
    Place(f"POST {KEYS}", "app", "app", lambda _, value: {"name": "x", "permissions": ["read"], "app": value}),
    Place(f"GET {TRAILS}", "actor", "prefix"),
    Place(f"GET {TRAILS}", "target", "run_id"),
)


def by_path(me: Party, of: Party) -> Iterator[tuple[Call, str, dict[str, str], dict[str, str]]]:
    """Each thing in each path: what it is, the path's values with theirs there, and those with one that nobody has.

    All else in the path is one's own; under their organization, theirs.
    """
    for call in GUARDED:
        for name in call.parameters:
            if name in NO_THINGS:
                continue
            for thing in ("app", "app by id") if name == "app" else (name,):
                if of.ids[thing] != me.ids[thing]:
                    rest = of.ids if name == "organization" else me.ids
                    yield call, thing, {**rest, name: of.ids[thing]}, {**rest, name: NOWHERE[thing]}


def named_fields() -> set[tuple[str, str]]:
    """Every call and field of its query or body that names a thing, as the document has them."""
    told = document()
    return {
        (str(call), name)
        for call in GUARDED
        for operation in [told["paths"].get(call.documented, {}).get(call.method.lower(), {})]
        for name in {*_in_query(operation), *_in_body(told, operation)} & FIELDS
    }


def _in_query(operation: Any) -> Iterator[str]:
    yield from (each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")


def _in_body(told: Any, operation: Any) -> Iterator[str]:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        yield from _properties(told, content["schema"])


def _properties(told: Any, schema: Any) -> Iterator[str]:
    if "$ref" in schema:
        schema = told["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    for name, each in schema.get("properties", {}).items():
        yield name
        yield from _properties(told, each)
    for each in (schema.get("items", {}), *schema.get("oneOf", ()), *schema.get("allOf", ()), *schema.get("anyOf", ())):
        if each:
            yield from _properties(told, each)
