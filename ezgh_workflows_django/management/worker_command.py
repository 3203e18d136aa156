"""The command `runworker`, alias `workflows_worker`: from flags to workers that run. What a worker does is in `worker/`."""

from __future__ import annotations

import getpass
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections

from ..conf import DICT, app_settings, given
from ..definitions.registry import registry
from ..engine.direct import DirectEngine
from ..errors import InvalidArgument
from ..models import App
from ..worker import Worker
from ..worker.transports.direct import DirectTransport
from .crew import Crew
from .printing import FORMATS, Printer
from .startup import startup

MAX_APP_NAME: Final = 63


class WorkerCommand(BaseCommand):
    """Takes steps from this project's database and runs them, until it is stopped. The exit code is 0 after a clean stop."""

    help = "Runs the steps of this project's workflows until it is stopped; SIGTERM stops it in order, a second one at once."
    requires_migrations_checks = True
    _has_left_bodies = False

    def add_arguments(self, parser: CommandParser) -> None:
        """The flags."""
        parser.add_argument("--app", action="append", metavar="NAME", help="The app to work for (default: DEFAULT_APP); may be repeated.")
        parser.add_argument("--dev", action="store_true", help="Work for an app of your own, dev-<user>, which is made where it is missing.")
        parser.add_argument("--concurrency", type=int, default=10, metavar="N", help="How many bodies run at once, for each app (default: 10).")
        parser.add_argument("--name", help="The worker's name, which is on every attempt (default: <host>-<pid>).")
        parser.add_argument("--grace", type=float, default=30.0, metavar="SECONDS", help="How long running bodies get at a stop (default: 30).")
        parser.add_argument("--until-idle", action="store_true", help="End once there is nothing to do.")
        parser.add_argument("--no-maintenance", action="store_true", help="Leave timers, lost workers and deadlines to another process.")
        parser.add_argument("--cron", action="store_true", help="Fire schedules for an app named dev-<user> too; others fire theirs without it.")
        parser.add_argument("--only", action="append", default=[], metavar="NAME[/STEP]", help="Serve this workflow or step only; may be repeated.")
        parser.add_argument("--except", action="append", default=[], dest="except_", metavar="NAME[/STEP]", help="Do not serve it; may be repeated.")
        parser.add_argument("--heartbeat-file", type=Path, metavar="PATH", help="A file that is touched at least once a minute while all is well.")
        parser.add_argument("--log-format", choices=FORMATS, default="text", help="Lines of text, or a JSON object a line (default: text).")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run. Raises `CommandError` for flags that can't be, `SystemExit` with the code of a stop that was not clean."""
        printer = Printer(self.stdout, self.stderr, as_json=options["log_format"] == "json", heartbeat_file=options["heartbeat_file"])
        apps = _apps(options["app"] or [], is_dev=options["dev"])
        try:
            _touch(options["heartbeat_file"])
            workers = [_worker(app, printer, options) for app in apps]
        except InvalidArgument as error:
            raise CommandError(f"--{error.field}: {error.reason}") from error
        self._introduce(printer, workers, options)
        crew = Crew(workers)
        code = crew.run()
        self._has_left_bodies = crew.has_left_bodies
        if code:
            raise SystemExit(code)

    def run_from_argv(self, argv: list[str]) -> None:
        """As Django's, but a body that was left behind does not keep the process alive: Python would wait for the threads of its executors."""
        code: Any = 0
        try:
            super().run_from_argv(argv)
        except SystemExit as end:
            code = end.code
            raise
        finally:
            if self._has_left_bodies:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code if isinstance(code, int) else 1)

    def check_migrations(self) -> None:
        """As Django's, but a database that is not up yet is the worker's to wait for."""
        try:
            super().check_migrations()
        except DatabaseError as error:
            self.stderr.write(f"The migrations could not be checked: {error}")

    def _introduce(self, printer: Printer, workers: list[Worker], options: dict[str, Any]) -> None:
        told = startup(workers, tends=not options["no_maintenance"])
        printer.said("start", f"{told.text()}{_paste(workers[0].app) if options['dev'] else ''}", **told.facts())
        connections.close_all()  # this thread asks no more, and an open connection would lie idle as long as the worker lives


def _worker(app: str, printer: Printer, options: dict[str, Any]) -> Worker:
    worker = Worker(
        DirectTransport(DirectEngine()),
        app=app,
        workflows=list(registry),
        concurrency=options["concurrency"],
        grace=options["grace"],
        name=options["name"],
        heartbeat="process",
        only=options["only"],
        except_=options["except_"],
        maintenance=not options["no_maintenance"],
        cron=options["cron"],
        until_idle=options["until_idle"],
        listener=printer,
    )
    worker.serving.refuse_strangers()
    return worker


def _apps(named: list[str], *, is_dev: bool) -> list[str]:
    if is_dev and named:
        raise CommandError("--dev works for an app of your own: leave out --app, or --dev")
    if is_dev:
        return [dev_app(_user())]
    return list(dict.fromkeys(named)) or [app_settings.DEFAULT_APP]


def dev_app(user: str) -> str:
    """The name of a developer's own app: lower case, other characters as `-`, at most 63 characters."""
    return (App.DEV_PREFIX + re.sub(r"[^a-z0-9]", "-", user.lower()))[:MAX_APP_NAME]


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError) as error:  # which of them depends on Python's version
        raise CommandError("--dev: this system has no name for you: set the environment variable USER") from error


def _paste(app: str) -> str:
    """The line that makes a developer's own starts go to his app."""
    line = f'{DICT}["DEFAULT_APP"] = "{app}"' if given() else f'{DICT} = {{"DEFAULT_APP": "{app}"}}'
    return f"\n  your starts  go there with this line in your settings:\n               {line}"


def _touch(heartbeat_file: Path | None) -> None:
    if heartbeat_file is None:
        return
    try:
        heartbeat_file.touch()
    except OSError as error:
        raise InvalidArgument("heartbeat-file", f"{heartbeat_file} can't be written: {error.strerror}") from error
