"""What the fuzz fills calls with: ids of real things, for about half of them, so that they get past the question whether there is such a thing."""

from __future__ import annotations

import copy
import itertools
import json
import random
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import httpx
import schemathesis
from schemathesis.core.parameters import ParameterLocation

from ezgh_workflows_django import Concurrency, Cron, RateLimit, Retry, Sleep, Step, Wait, Workflow
from tests.engine.graphs import body, job

BATCH: Final = 16
"""How many leases are claimed at once."""

LONGEST_WAIT_MS: Final = 50
"""No call is held longer: what comes after a hold does not depend on how long it was."""

HERE: Final = "../organizations/default/projects/default"


def approval() -> Workflow:
    """A step that waits, and one after it."""
    return Workflow("approval", steps=[Step("ask", wait=Wait("approved")), Step("work", run=body, after=["ask"])])


class Things:
    """Real things on a live server: leases that are offered, started and over, runs in every state, sessions, keys."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self._label = ""

    def are_for(self, label: str) -> None:
        """Begin anew where another operation has its turn, whatever the calls before have done: the app open, a session, a key to revoke."""
        if label == self._label:
            return
        self._label = label
        self.session = self.registered()
        self._leases: Iterator[str] = itertools.chain.from_iterable(iter(self._some_leases, None))
        self._runs: Iterator[str] = itertools.chain.from_iterable(iter(self._some_runs, None))
        endings: list[dict[str, Any]] = [{"complete": {"output": 1}}, {"fail": {"class": "error"}}, {"suspend": {"waits": [_sleep()]}}]
        self._endings = itertools.cycle(endings)
        self.schedule = self._schedule()
        self.post(f"{HERE}/apps/default/resume")
        self.prefix = str(self.post(f"{HERE}/keys", {"name": "spare", "permissions": ["read"]})["prefix"])

    def post(self, path: str, content: Any = None) -> Any:
        """What a call is answered that can't fail."""
        reply = self.client.post(path, json=content or {})
        assert reply.status_code < 300, f"{path}: {reply.status_code} {reply.text}"
        return reply.json()

    def lease(self) -> str:
        """A lease that nobody was given yet."""
        return next(self._leases)

    def run(self) -> str:
        """A run; they come in every state, one after the other."""
        return next(self._runs)

    def registered(self) -> str:
        """A new session."""
        specs = [workflow.to_spec() for workflow in (job(), approval(), job("nightly", cron=Cron("0 3 * * *")))]
        return str(self.post("workers/register", {"worker": "fuzz", "app": "default", "definitions": specs})["worker_id"])

    def outcome(self, given: Any) -> Any:
        """An outcome that can be read, of a real lease, whatever else is in it."""
        return {**(given if isinstance(given, dict) else {}), "id": self.lease(), **next(self._endings)}

    def start(self, workflow: str = "job", **rest: Any) -> str:
        """The id of a new run."""
        return str(self.post("runs", {"workflow": workflow, **rest})["id"])

    def _schedule(self) -> str:
        """The one there is, once that maintenance has come to it: worker's calls keep it going."""
        while not (found := self.client.get(f"{HERE}/apps/default/schedules").json()["schedules"]):
            time.sleep(0.1)
            self.registered()
        return str(found[0]["id"])

    def _some_leases(self) -> list[str]:
        """Of three, one is offered, one started, one over."""
        for _ in range(BATCH):
            self.start()
        claim = {"worker_id": self.session, "claim_id": f"c{next(_numbers)}", "max": BATCH, "serves": _serves()}
        found = [lease["id"] for lease in self.post("steps/claim", claim)["leases"]]
        self.post("steps/started", {"leases": found[::3] + found[1::3]})
        self.post("steps/outcomes", {"outcomes": [{"id": lease, "complete": {"output": 1}} for lease in found[1::3]]})
        return found

    def _some_runs(self) -> list[str]:
        running, paused, cancelled = self.start(labels={"a": "b"}), self.start(), self.start()
        self.post(f"runs/{paused}/pause")
        self.post(f"runs/{cancelled}/cancel")
        over = self.start()
        [lease] = self.post("steps/claim", {"worker_id": self.session, "claim_id": f"c{next(_numbers)}", "serves": _serves(), "run": over})["leases"]
        self.post(f"steps/{lease['id']}/started")
        self.post(f"steps/{lease['id']}/fail", {"class": "permanent", "message": "no"})
        return [running, self.start("approval"), paused, cancelled, over, self.start(delay_ms=3_600_000)]


_numbers = itertools.count(1)

ODD: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 5, 1.5, 10**400, -(10**400), 10**18, float("inf"), "", "x", "wait", "\0", "\ud800", "9" * 300),
    *([], {}, [None], {"x": 1}, {"event": "paid"}, {"max_attempts": 2}),
)
"""What stands where something else belongs. An infinite number is sent as 1e400, which is good JSON."""

KEYS: Final = ("kind", "wait", "sleep_ms", "retry", "timeout_ms", "input", "after", "key_expr", "factor", "jitter", "cron", "rate", "unheard-of")
"""What an object may have besides what it has."""


def mutated(seed: int) -> dict[str, Any]:
    """A definition that was good until one to three places of it were changed; the same for the same seed."""
    chance = random.Random(seed)
    spec: dict[str, Any] = json.loads(json.dumps(chance.choice([everything, approval, job])().to_spec()))
    for _ in range(chance.randint(1, 3)):
        _mutate(spec, chance)
    return spec


def everything() -> Workflow:
    """A workflow with one of each thing that a definition may say."""
    steps = [
        Step("work", run=body, retry=Retry(max_attempts=3, factor=1.5, on={"retryable"}), timeout=60, input={"of": {"$expr": "payload"}}),
        Step("ask", wait=Wait("approved", key_expr="run_id", timeout=60, on_timeout="continue"), after=["work"]),
        Step("rest", sleep=Sleep(5), after=["ask"]),
    ]
    limits: dict[str, Any] = {"concurrency": Concurrency(3, key="k"), "rate": RateLimit(5, per=60), "cron": Cron("0 3 * * *")}
    return Workflow("everything", steps=steps, deadline=3600, retry=Retry(max_attempts=2), on_failure=body, **limits)


def _mutate(spec: dict[str, Any], chance: random.Random) -> None:
    place = chance.choice([each for each in _containers(spec) if each])
    if isinstance(place, list):
        place[chance.randrange(len(place))] = _odd(chance)
    elif (what := chance.random()) < 0.3:
        del place[chance.choice(sorted(place))]
    elif what < 0.6:
        place[chance.choice(KEYS)] = _odd(chance)
    else:
        place[chance.choice(sorted(place))] = _odd(chance)


def _odd(chance: random.Random) -> Any:
    """One of them; not the very same list or object, which the next change may change."""
    return copy.deepcopy(chance.choice(ODD))


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _containers(each)


def as_json(value: Any) -> str:
    """Its JSON text; what is infinite as a number that is too large."""
    return json.dumps(value).replace("Infinity", "1e400")


def _serves() -> list[Any]:
    return [{"name": "job", "revision": "1"}]


def _sleep() -> Any:
    return {"name": "x", "kind": "sleep", "ms": 1}


IN_PATH: Final[Mapping[str, Callable[[Things], str]]] = {
    "organization": lambda _: "default",
    "project": lambda _: "default",
    "app": lambda _: "default",
    "run_id": Things.run,
    "lease_id": Things.lease,
    "worker_id": Things.registered,
    "prefix": lambda things: things.prefix,
    "schedule_id": lambda things: things.schedule,
    "reference": lambda _: "input",
}
"""A real one of each thing in a path."""

IN_FIELDS: Final[Mapping[str, Callable[[Things, Any], Any]]] = {
    "app": lambda things, _: "default",
    "organization": lambda things, _: "default",
    "project": lambda things, _: "default",
    "worker_id": lambda things, _: things.session,
    "run": lambda things, _: things.run(),
    "leases": lambda things, given: [{**each, "id": things.lease()} if isinstance(each, dict) else things.lease() for each in given],
    "outcomes": lambda things, given: [things.outcome(each) for each in given],
    "workflow": lambda things, _: "job",
    "version": lambda things, _: job().version,
    "announce": lambda things, given: [f"job@{job().version}"] * len(given),
    "serves": lambda things, _: _serves(),
    "definitions": lambda things, given: [_definition(each, place) for place, each in enumerate(given)],
    "permissions": lambda things, _: ["read"],
    "labels": lambda things, _: {"a": "b"},
    "queue": lambda things, _: "default",
    "step": lambda things, _: "work",
    "from_step": lambda things, _: "work",
    "waits": lambda things, given: [{**each, **_sleep(), "name": f"x{place}", "until": None} for place, each in enumerate(given)],
    "event": lambda things, _: "approved",
    "wait_ms": lambda things, given: min(int(given), LONGEST_WAIT_MS),
    "at": lambda things, _: None,
    "expires_at": lambda things, _: None,
}
"""What stands in the fields of queries and bodies that name things, given what the fuzz has made."""


def _definition(given: Any, place: int) -> Any:
    """A good definition, or one that is nearly good: none that JSON as the fuzz sends it can't say."""
    seed = zlib.crc32(repr((place, given)).encode("utf-8", "backslashreplace"))
    spec = mutated(seed) if seed % 4 else job().to_spec()
    return spec if "Infinity" not in json.dumps(spec) else job().to_spec()


def fill(case: schemathesis.Case[Any], things: Things) -> None:
    """Put real things into a call, for half of them; a part that is not as the document wants it stays as it is."""
    things.are_for(case.operation.label)
    parts = (case.path_parameters, case.query, case.body)
    if zlib.crc32(repr(parts).encode("utf-8", "backslashreplace")) % 2:  # so that the same call is always the same
        return
    if case.path_parameters and _fits(case, ParameterLocation.PATH):
        case.path_parameters = {name: IN_PATH[name](things) if name in IN_PATH else value for name, value in case.path_parameters.items()}
    if case.query and _fits(case, ParameterLocation.QUERY):
        case.query = filled(things, case.query)
    if isinstance(case.body, dict) and _fits(case, ParameterLocation.BODY):
        case.body = filled(things, case.body)


def filled(things: Things, given: Any) -> Any:
    """A query or body with real things in it."""
    if isinstance(given, list):
        return [filled(things, each) for each in given]
    if not isinstance(given, Mapping):
        return given
    return {name: IN_FIELDS[name](things, each) if name in IN_FIELDS and each is not None else filled(things, each) for name, each in given.items()}


def _fits(case: schemathesis.Case[Any], part: ParameterLocation) -> bool:
    return case.meta is None or not case.meta.is_negative_at(part)
