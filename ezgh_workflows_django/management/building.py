"""From flags to workers: which app, which way to the server, which processes. Starts none of them."""

from __future__ import annotations

import os
from typing import Any, Final

from django.core.management.base import CommandError
from django.db import connections

from ..conf import DICT, app_settings, given
from ..definitions.registry import registry
from ..engine.direct import DirectEngine
from ..engine.hygiene import BodyScope
from ..errors import InvalidArgument
from ..protocol.messages import Lease
from ..worker import Worker
from ..worker.dev import own_app
from ..worker.listener import Listener
from ..worker.transports.base import Surroundings, Transport
from ..worker.transports.choice import over_http, refuse_transactions
from ..worker.transports.direct import DirectTransport
from ..worker.transports.recipe import Recipe
from ..worker.wear import Limits
from .heartbeat_file import HeartbeatFile

KEY_VARIABLE: Final = "EZGH_WORKFLOWS_API_KEY"
"""The environment variable that holds the API key where no flag does: what is on a command line, everybody on the machine can read."""

CONCURRENCY: Final = 10
_MEGABYTE: Final = 1024**2


def workers(options: dict[str, Any], listener: Listener) -> list[Worker]:
    """A worker for each app. Raises `InvalidArgument`, `NotAvailable`, `CommandError` for flags that can't be."""
    apps = _apps(options["app"] or [], is_dev=options["dev"])
    path = options["heartbeat_file"]
    file = None if path is None else HeartbeatFile(path, apps)
    made = [_worker(app, options, listener if file is None else file.of(app, listener)) for app in apps]
    for worker, transport in made:
        worker.serving.refuse_strangers()
        refuse_transactions(worker.serving, transport)
    return [worker for worker, _ in made]


def api_key(options: dict[str, Any]) -> str:
    """The key that goes with `--url`. Raises `InvalidArgument` where there is none."""
    key = options["api_key"] or os.environ.get(KEY_VARIABLE, "")
    if not key:
        raise InvalidArgument("api_key", f"--url needs a key: give one here, or in the environment variable {KEY_VARIABLE}")
    return str(key)


def surroundings() -> Surroundings:
    """What a process that has Django puts around bodies, whichever way it reaches its server."""
    return Surroundings(scope=_scope, release=connections.close_all)


def line_to_paste(app: str) -> str:
    """The line that makes a developer's own starts go to his app."""
    return f'{DICT}["DEFAULT_APP"] = "{app}"' if given() else f'{DICT} = {{"DEFAULT_APP": "{app}"}}'


def _worker(app: str, options: dict[str, Any], listener: Listener) -> tuple[Worker, Transport]:
    transport = _transport(options)
    processes = options["processes"]
    worker = Worker(
        transport,
        organization_id=options["organization"],
        project_id=options["project"],
        app=app,
        workflows=list(registry),
        concurrency=_concurrency(options["concurrency"], processes),
        grace=options["grace"],
        name=options["name"],
        heartbeat="process",
        only=options["only"],
        except_=options["except_"],
        maintenance=not (options["no_maintenance"] or options["url"]),
        cron=options["cron"],
        until_idle=options["until_idle"],
        listener=listener,
        processes=processes,
        home=_home(options),
        limits=_limits(options["max_tasks"], options["max_memory"]),
    )
    return worker, transport


def _transport(options: dict[str, Any]) -> Transport:
    if options["url"]:
        return over_http(options["url"], api_key(options), surroundings=surroundings(), makes_app=options["dev"])
    for field in ("api_key", "organization", "project"):
        if options[field]:
            raise InvalidArgument(field, "is for a server elsewhere: give --url too, or leave it out to work straight on the database")
    return DirectTransport(DirectEngine())


def _home(options: dict[str, Any]) -> Recipe:
    """How a process that runs bodies gets to the same code and the same server."""
    arguments = {"settings": os.environ.get("DJANGO_SETTINGS_MODULE", ""), "url": options["url"]}
    if options["url"]:
        arguments["api_key"] = api_key(options)
    return Recipe(f"{__package__}.bodies_elsewhere:home", arguments)


def _concurrency(asked: int | None, processes: int) -> int:
    if processes > 1 and asked not in (None, processes):
        raise InvalidArgument("concurrency", f"with {processes} processes, as many bodies run at once, each in its own: leave it out")
    return CONCURRENCY if asked is None else asked


def _limits(tasks: int | None, megabytes: int | None) -> Limits | None:
    for field, value in (("max-tasks", tasks), ("max-memory", megabytes)):
        if value is not None and value < 1:
            raise InvalidArgument(field, f"{value} would replace the process before it has done anything: give 1 or more")
    if tasks is None and megabytes is None:
        return None
    return Limits(tasks=tasks, memory=None if megabytes is None else megabytes * _MEGABYTE)


def _apps(named: list[str], *, is_dev: bool) -> list[str]:
    if is_dev and named:
        raise CommandError("--dev works for an app of your own: leave out --app, or --dev")
    if is_dev:
        return [own_app()]
    return list(dict.fromkeys(named)) or [str(app_settings.DEFAULT_APP)]


def _scope(lease: Lease) -> BodyScope:
    del lease
    return BodyScope()
