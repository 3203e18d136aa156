"""What a worker says of itself before its first claim. Gathers and words it; starts nothing and decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

from django.core.checks import run_checks
from django.db import DatabaseError, InterfaceError, connections

from .. import __version__
from ..checks import WORKER_TAG
from ..conf import app_settings
from ..engine import home
from ..models import App
from ..worker import Worker

_VENDORS: Final = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mysql": "MariaDB"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """The facts of a worker's start. `apps` are texts `name (queue q)`, `missing` what would keep it from its work."""

    worker: str
    apps: tuple[str, ...]
    workflows: tuple[str, ...]
    concurrency: int
    processes: int
    heartbeat: str
    maintenance: str
    cron: str
    missing: tuple[str, ...]
    database: str | None = None
    server: str | None = None

    def facts(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def text(self) -> str:
        """The block that is printed."""
        rows = (
            ("app", self.apps),
            ("workflows", self.workflows or ("none",)),
            ("concurrency", (self._concurrency(),)),
            ("database", (self.database,) if self.database is not None else ()),
            ("server", (self.server,) if self.server is not None else ()),
            ("heartbeat", (self.heartbeat,)),
            ("maintenance", (self.maintenance,)),
            ("cron", (self.cron,)),
            ("missing", self.missing or ("nothing",)),
        )
        return "\n".join([f"ezgh_workflows_django {__version__}, worker {self.worker}", *(line for name, values in rows for line in _row(name, values))])

    def _concurrency(self) -> str:
        for_each = ", for each app" if len(self.apps) > 1 else ""
        return f"{self.concurrency} bodies at once{', each in a process of its own' if self.processes > 1 else ''}{for_each}"


def startup(workers: Sequence[Worker], *, tends: bool) -> Startup:
    """The facts about the workers of one process, which hold the same workflows. Asks the database once for each app."""
    first = workers[0]
    queues, faults = _queues([worker.app for worker in workers])
    return Startup(
        worker=first.name,
        apps=tuple(f"{app} (queue {queue})" for app, queue in queues.items()),
        workflows=_workflows(first),
        concurrency=first.concurrency,
        processes=first.processes,
        database=_database(),
        heartbeat=_heartbeat(),
        maintenance="every second" if tends else "off: another process must run it",
        cron=_cron(first, queues),
        missing=(*_unserved(first), *faults, *([] if faults else _left_behind()), *_warnings()),
    )


def remote_startup(workers: Sequence[Worker], url: str) -> Startup:
    """The facts about the workers of one process that reach their server over HTTP. Asks nobody."""
    first = workers[0]
    return Startup(
        worker=first.name,
        apps=tuple(_remote_app(worker.app) for worker in workers),
        workflows=_workflows(first),
        concurrency=first.concurrency,
        processes=first.processes,
        server=url,
        heartbeat="from a process of its own, as often as the server asks for",
        maintenance="the server's own",
        cron="the server's own",
        missing=_unserved(first),
    )


def _remote_app(app: str) -> str:
    """An app of a server elsewhere, whose queue only that server knows, but for a developer's: that is named as its app."""
    return f"{app} (queue {app})" if app.startswith(App.DEV_PREFIX) else f"{app} (queue: the server's own)"


def _workflows(worker: Worker) -> tuple[str, ...]:
    return tuple(f"{each.name} revision {each.revision}, version {each.version}" for each in worker.serving.workflows())


def _row(name: str, values: Sequence[str]) -> list[str]:
    return [f"  {name if index == 0 else '':<13}{value}" for index, value in enumerate(values)]


def _queues(apps: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Each app's queue, and what is wrong with finding it. A developer's app is made when its worker registers, its queue named as itself."""
    queues = {app: app if app.startswith(App.DEV_PREFIX) else "unknown" for app in apps}
    try:
        stored = dict(App.objects.using(app_settings.DATABASE).filter(name__in=apps).values_list("name", "queue"))
    except (DatabaseError, InterfaceError) as error:
        return queues, [f"an answer of the database ({_first_line(error)}): is it up, and was `manage.py migrate` run?"]
    absent = [app for app in apps if app not in stored and not app.startswith(App.DEV_PREFIX)]
    return queues | stored, [f'the app "{app}": `migrate` makes the one that DEFAULT_APP names, `workflows_app create` others' for app in absent]


def _left_behind() -> list[str]:
    """What a changed `DEFAULT_APP` still needs. A database that goes away meanwhile is the worker's to wait for."""
    try:
        former = home.left_behind()
    except (DatabaseError, InterfaceError):
        return []
    if former is None:
        return []
    return [f'`migrate`: DEFAULT_APP is "{app_settings.DEFAULT_APP}" now, and this project\'s schedules still fire in the app "{former}" as well']


def _unserved(worker: Worker) -> tuple[str, ...]:
    if not worker.serving.workflows():
        return ("workflows: no installed app has a `workflows` module that binds one, so there is nothing to do",)
    if not worker.serving.serves():
        return ("steps to serve: --only and --except leave none",)
    return ()


def _warnings() -> list[str]:
    """What the system checks warn of; their errors have kept the command from running."""
    return [f"{_first_line(message.msg)} ({message.id})" for message in run_checks(tags=[WORKER_TAG])]


def _database() -> str:
    connection = connections[app_settings.DATABASE]
    values = connection.settings_dict
    place = f" at {values['HOST']}{':' if values['PORT'] else ''}{values['PORT']}" if values["HOST"] else ""
    return f"{_VENDORS.get(connection.vendor, connection.vendor)} {values['NAME']}{place}"


def _heartbeat() -> str:
    every, ttl, window = map(_seconds, (app_settings.HEARTBEAT, app_settings.LEASE_TTL, app_settings.RECOVERY_WINDOW))
    return f"every {every} from a process of its own; a lease lives {ttl} without one, and may come back for {window} more"


def _cron(worker: Worker, apps: Iterable[str]) -> str:
    """Whether schedules fire for these apps. A developer's app is another copy of the project: its schedules would be doubles of the project's own."""
    if worker.cron:
        return "on, for an app named dev-<user> too"
    if any(app.startswith(App.DEV_PREFIX) for app in apps):
        return "off: an app named dev-<user> fires schedules only with --cron"
    return "on"


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"


def _first_line(value: object) -> str:
    return (str(value).splitlines() or [""])[0]
