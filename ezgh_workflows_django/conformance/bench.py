"""What one check works with on the server: workflows under names of its own, sessions, runs, keys; and it puts away what the check leaves."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .answers import Answer
from .findings import NotApplicable, Seen
from .sessions import Session
from .shapes import Durations
from .wire import Wire
from .workflows import Spec, step, workflow

if TYPE_CHECKING:
    from ..worker.transports.http import Line

POLL: Final = "workflows.workers.poll"
SYNC: Final = "workflows.apps.sync"


@dataclass(frozen=True, slots=True)
class Site:
    """Where on a server the checks work, and how it is reached. `connect` gives a line with another key; `patience` is in seconds."""

    line: Line
    connect: Callable[[str], Line]
    app: str
    organization: str | None
    project: str | None
    prefix: str
    patience: float
    durations: Durations

    @property
    def path(self) -> str:
        """The path of the project, under which apps and keys are."""
        return project_path(self.organization, self.project)


def project_path(organization: str | None, project: str | None) -> str:
    """The path of a project; without names that of the default one."""
    return f"v1/organizations/{organization or 'default'}/projects/{project or 'default'}"


@dataclass(slots=True)
class Left:
    """What checks leave behind: how many runs that are over, the runs that could not be ended, the keys that could not be revoked."""

    ended: int = 0
    open_runs: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


class Bench:
    """One check's hold on the server. `seen` is what it has judged so far."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.name = name
        self.seen: list[Seen] = []
        self.wire = Wire(site.line, self.seen, site.patience)
        self._workers: list[str] = []
        self._runs: list[str] = []
        self._keys: list[str] = []
        self._lines: list[Line] = []

    @property
    def durations(self) -> Durations:
        """The server's own durations."""
        return self.site.durations

    # --- workflows and sessions

    def named(self, name: str) -> str:
        """A name that nothing else on the server has."""
        return f"{self.site.prefix}.{self.name}.{name}"

    def workflow(self, name: str, *steps: Spec, **options: Any) -> Spec:
        """A definition of these steps, under a name of this check's own."""
        return workflow(self.named(name), *steps, **options)

    def job(self, name: str = "job", **options: Any) -> Spec:
        """A definition of one step, `work`, with these options."""
        return self.workflow(name, step("work", **options))

    def register(self, *workflows: Spec, wire: Wire | None = None, **rest: Any) -> Answer:
        """One registration with these definitions; what it answers is the check's to judge."""
        named = {"organization": self.site.organization, "project": self.site.project}
        asked = {"worker": self.named("worker"), "app": self.site.app, "concurrency": 10, "definitions": list(workflows), "sdk": "conformance", "host": "here"}
        asked |= {name: value for name, value in named.items() if value is not None}
        answer = (wire or self.wire).post("workers/register", asked | rest)
        if answer.status == 200 and isinstance(answer.value, dict):
            self._workers.append(str(answer.value.get("worker_id")))
        return answer

    def session(self, *workflows: Spec, wire: Wire | None = None, **rest: Any) -> Session:
        """A session that serves these workflows."""
        return Session(wire or self.wire, self.register(*workflows, wire=wire, **rest).ok(), workflows)

    # --- runs and events

    def ask_start(self, spec: Spec, **rest: Any) -> Answer:
        """A start; what it answers is the check's to judge. Raises `NotApplicable` where this key may start none."""
        answer = self.possible(self.wire.post("runs", {"workflow": spec["name"], "app": self.site.app, **rest}), "start runs")
        if answer.status in (200, 201) and isinstance(answer.value, dict) and isinstance(answer.value.get("id"), str):
            self.keep_run(answer.value["id"])
        return answer

    def start(self, spec: Spec, payload: Any = None, **rest: Any) -> str:
        """A new run, by its id."""
        return str(self.ask_start(spec, payload=payload, **rest).ok(201)["id"])

    def a_run(self, **options: Any) -> tuple[Session, str]:
        """A run of a job with these options, and a session that serves it."""
        job = self.job(**options)
        return self.session(job), self.start(job)

    def keep_run(self, run: str) -> None:
        """End that run when the check is over."""
        if run not in self._runs:
            self._runs.append(run)

    def cancel(self, run: str) -> None:
        """End a run. Raises `NotApplicable` where this key may not."""
        self.possible(self.wire.post(f"runs/{run}/cancel"), "cancel runs").ok()

    def emit(self, name: str, key: str, payload: Any) -> None:
        """Send an event. Raises `NotApplicable` where this key may not."""
        answer = self.wire.post("events", {"name": name, "key": key, "payload": payload, "app": self.site.app})
        self.possible(answer, "emit events").ok(200, 201)

    def look(self, path: str) -> Answer:
        """Read something of the runs. Raises `NotApplicable` where this key may not."""
        return self.possible(self.wire.get(path), "read runs").ok()

    # --- other keys

    def with_key(self, key: str) -> Wire:
        """The same server, as another key."""
        line = self.site.connect(key)
        self._lines.append(line)
        return Wire(line, self.seen, self.site.patience)

    def other_key(self, *permissions: str, app: str | None = None) -> Wire:
        """The same server, as a new key with these permissions. Raises `NotApplicable` where this one may make none."""
        asked = {"name": self.named("key")[-60:], "permissions": list(permissions), **({} if app is None else {"app": app})}
        made = self.possible(self.wire.call("POST", f"{self.site.path}/keys", asked), "make keys")
        if made.status == 201:
            made.came = "201 with the new key"  # a secret, which belongs in no report
        made.ok(201)
        self._keys.append(str(made["prefix"]))
        return self.with_key(str(made["key"]))

    def revoke_keys(self) -> None:
        """End the keys that were made for this check. Raises `NotApplicable` where this one may not."""
        while self._keys:
            self.possible(self.wire.call("DELETE", f"{self.site.path}/keys/{self._keys[-1]}"), "revoke keys").ok()
            self._keys.pop()

    def other_app(self) -> str:
        """An app of the project that is not the one the checks work in. Raises `NotApplicable` where there is none to be seen."""
        told = self.possible(self.wire.call("GET", f"{self.site.path}/apps"), "list apps").ok()
        others = [each["name"] for each in told["apps"] if each["name"] != self.site.app]
        if not others:
            raise NotApplicable("the project has no other app")
        return str(others[0])

    def possible(self, answer: Answer, what: str) -> Answer:
        """The answer, where the call is one that this key may make and this server has. Raises `NotApplicable` where it is not."""
        if answer.status == 403:
            raise NotApplicable(f"this key may not {what}")
        if answer.status == 405 or (answer.status == 404 and answer.code in (None, "unknown_project")):
            raise NotApplicable(f"there is no call here to {what}: {answer.sent.partition(' {')[0]} was answered {answer.status}")
        return answer

    # --- putting away

    def tidy(self) -> Left:
        """End its runs, sessions and keys, as far as the server lets it; expects nothing of it any more."""
        quiet = Wire(self.site.line, [], self.site.patience)
        for worker_id in self._workers:
            quiet.post(f"workers/{worker_id}/leave")
        open_runs = [run for run in self._runs if quiet.post(f"runs/{run}/cancel").status not in (200, 409)]
        keys = [prefix for prefix in self._keys if quiet.call("DELETE", f"{self.site.path}/keys/{prefix}").status != 200]
        for line in self._lines:
            line.close()
        return Left(len(self._runs) - len(open_runs), open_runs, keys)


def unknown_id() -> str:
    """An id that nothing has."""
    return str(uuid.uuid4())
