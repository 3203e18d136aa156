"""The command `runworker`, alias `workflows_worker`: from flags to workers that run. What a worker does is in `worker/`."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError, connections

from ..checks import WORKER_TAG
from ..errors import InvalidArgument, NotAvailable
from ..worker import Worker
from ..worker.shutdown import hold_signals
from . import building, leaving, reloading
from .crew import Crew
from .printing import FORMATS, Printer, moves_printed
from .startup import remote_startup, startup

GRACE: Final = 30.0
RELOAD_GRACE: Final = 1.0
"""Seconds that bodies get before the code is loaded again, unless `--grace` says otherwise: a developer waits."""

_FLAGS: Final = {"base_url": "url", "api_key": "api-key"}


class WorkerCommand(BaseCommand):
    """Takes steps from this project's database, or from a server elsewhere, and runs them until it is stopped. The exit code is 0 after a clean stop."""

    help = "Runs the steps of this project's workflows until it is stopped; SIGTERM stops it in order, a second one at once."
    requires_migrations_checks = True
    requires_system_checks = (Tags.models, WORKER_TAG)  # a worker serves no URLs: importing them would double the time it takes to start
    _has_left_bodies = False

    def add_arguments(self, parser: CommandParser) -> None:
        """The flags."""
        parser.add_argument("--app", action="append", metavar="NAME", help="The app to work for (default: DEFAULT_APP); may be repeated.")
        parser.add_argument("--dev", action="store_true", help="Work for an app of your own, dev-<user>, which is made where it is missing.")
        parser.add_argument("--concurrency", type=int, metavar="N", help="How many bodies run at once, for each app (default: 10).")
        parser.add_argument("--processes", type=int, default=1, metavar="N", help="Run N bodies at once, each in a process of its own (default: 1, threads).")
        parser.add_argument("--name", help="The worker's name, which is on every attempt (default: <host>-<pid>).")
        parser.add_argument("--grace", type=float, metavar="SECONDS", help="How long running bodies get at a stop (default: 30).")
        parser.add_argument("--until-idle", action="store_true", help="End once there is nothing to do.")
        parser.add_argument("--max-tasks", type=int, metavar="N", help="Replace a process that runs bodies after so many.")
        parser.add_argument("--max-memory", type=int, metavar="MB", help="Replace a process that runs bodies once it takes more memory than this.")
        parser.add_argument("--no-maintenance", action="store_true", help="Leave timers, lost workers and deadlines to another process.")
        parser.add_argument("--cron", action="store_true", help="Fire schedules for an app named dev-<user> too; others fire theirs without it.")
        parser.add_argument("--only", action="append", default=[], metavar="NAME[/STEP]", help="Serve this workflow or step only; may be repeated.")
        parser.add_argument("--except", action="append", default=[], dest="except_", metavar="NAME[/STEP]", help="Do not serve it; may be repeated.")
        parser.add_argument("--heartbeat-file", type=Path, metavar="PATH", help="A file that is touched at least once a minute while all is well.")
        parser.add_argument("--url", help="Work for the server at this address, over HTTP, instead of straight on the database.")
        parser.add_argument("--api-key", metavar="KEY", help=f"The key for that server; better in the environment variable {building.KEY_VARIABLE}.")
        parser.add_argument("--organization", metavar="SLUG", help="The organization of that server that the key is for, by slug or id.")
        parser.add_argument("--project", metavar="SLUG", help="The project that the key is for, by slug or id. With --dev, default where it is not given.")
        parser.add_argument("--reload", action="store_true", help="Start again whenever the project's code changes, for development.")
        parser.add_argument("--log-format", choices=FORMATS, default="text", help="Lines of text, or a JSON object a line (default: text).")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run. Raises `CommandError` for flags that can't be, `SystemExit` with the code of a stop that was not clean."""
        if options["grace"] is None:
            options["grace"] = RELOAD_GRACE if options["reload"] else GRACE
        if options["reload"] and not reloading.is_child():
            self._reload(options["grace"])
        printer = Printer(self.stdout, self.stderr, as_json=options["log_format"] == "json")
        try:
            workers = building.workers(options, printer)
        except InvalidArgument as error:
            raise CommandError(f"--{_FLAGS.get(error.field, error.field)}: {error.reason}") from error
        except NotAvailable as error:
            raise CommandError(str(error)) from error
        self._introduce(printer, workers, options)
        crew = Crew(workers)
        with moves_printed(printer) if options["log_format"] == "json" else nullcontext():
            code = crew.run()
        self._has_left_bodies = crew.has_left_bodies
        if code:
            raise SystemExit(code)
        if crew.is_spent:
            self._replace()

    def execute(self, *args: Any, **options: Any) -> str | None:
        """As Django's, but a worker for a server elsewhere needs no tables here."""
        self.requires_migrations_checks = not options.get("url")
        return super().execute(*args, **options)

    def run_from_argv(self, argv: list[str]) -> None:
        """As Django's, but what a body left behind does not keep the process alive: Python would wait for the threads of its executors."""
        code = 1
        try:
            super().run_from_argv(argv)
            code = 0
        except SystemExit as end:
            code = leaving.exit_code(end)
            raise
        finally:
            if self._has_left_bodies:
                leaving.at_once(code)
            leaving.in_time(code)

    def check_migrations(self) -> None:
        """As Django's, but a database that is not up yet is the worker's to wait for."""
        try:
            super().check_migrations()
        except (DatabaseError, InterfaceError) as error:
            self.stderr.write(f"The migrations could not be checked: {error}")

    def _introduce(self, printer: Printer, workers: list[Worker], options: dict[str, Any]) -> None:
        told = remote_startup(workers, options["url"]) if options["url"] else startup(workers, tends=not options["no_maintenance"])
        paste = f"\n  your starts  go there with this line in your settings:\n               {building.line_to_paste(workers[0].app)}" if options["dev"] else ""
        printer.said("start", f"{told.text()}{paste}", **told.facts())
        connections.close_all()  # this thread asks no more, and an open connection would lie idle as long as the worker lives

    def _reload(self, grace: float) -> None:
        """Be the parent of the worker from now on. Raises `SystemExit`."""
        connections.close_all()
        raise SystemExit(reloading.Reloader(reloading.same_command(), grace=grace, files=reloading.project_files, say=self._say).run())

    def _replace(self) -> None:
        """Become a fresh process of the same command, under the same process id: whoever supervises this one sees nothing of it."""
        hold_signals()  # one that comes before the fresh worker listens would be lost, as PID 1, or end it with another code than 0
        connections.close_all()
        self.stdout.flush()
        self.stderr.flush()
        command = reloading.same_command()
        os.execv(command[0], command)  # noqa: S606 - this very program

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
