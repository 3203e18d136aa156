"""`manage.py workflows_maintain`: gives maintenance its turns, where no worker of this project does. What is due is `engine.maintenance`'s to know."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections

from ...engine import maintenance
from ...engine.hygiene import engine_call
from ...worker.backoff import Backoff
from ...worker.shutdown import Cause, Inbox, Word, signals_to


class Command(BaseCommand):
    """Ticks until it is stopped; an error of the database costs a warning and a wait. Safe beside any number of others."""

    help = "Runs maintenance: timers, deadlines, lost workers, retention. Runs until SIGTERM or SIGINT."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        """The flags."""
        parser.add_argument(
            "--once",
            action="store_true",
            help="Do what is due, and end. After a gap longer than LEASE_TTL that takes one LEASE_TTL.",
        )
        parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="How long between two ticks (default: 1).")

    def handle(self, *args: Any, **options: Any) -> None:
        """Tick. Raises `CommandError` for an interval that is none; after a crash of the loop, what it raised."""
        if options["interval"] <= 0:
            raise CommandError(f"--interval: {options['interval']:g} seconds can't be waited: give more than 0")
        if options["once"]:
            self._tick_through_leniency()
            return
        inbox, closing = Inbox(), threading.Event()
        with signals_to(inbox):
            loop = threading.Thread(target=self._loop, args=(options["interval"], inbox, closing), name="workflows-maintenance", daemon=True)
            loop.start()
            word = inbox.get()
            closing.set()
            loop.join()
        if word.error is not None:
            raise word.error

    def _loop(self, interval: float, inbox: Inbox, closing: threading.Event) -> None:
        backoff = Backoff(first=interval)
        try:
            while not closing.wait(self._turn(interval, backoff)):
                pass
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
            inbox.put(Word(Cause.CRASH, error))
        finally:
            connections.close_all()

    def _turn(self, interval: float, backoff: Backoff) -> float:
        """One tick; gives the seconds until the next one."""
        try:
            self._tick()
        except DatabaseError as error:
            wait = backoff.next()
            self.stderr.write(f"maintenance could not run ({error}); trying again in {wait:.1f} s")
            return wait
        backoff.reset()
        return interval

    def _tick_through_leniency(self) -> None:
        """Tick until leases are looked at too: a command that runs once a minute would else find a gap every time, and reclaim nothing."""
        while (ticked := self._tick()).lenient_until is not None:
            time.sleep(min(1.0, max(0.0, (ticked.lenient_until - ticked.now).total_seconds())))

    def _tick(self) -> maintenance.Ticked:
        with engine_call():
            ticked = maintenance.tick()
        if ticked.handled:
            self.stdout.write(f"{ticked.now:%Y-%m-%d %H:%M:%S} UTC: {ticked.handled} things that were due")
            self.stdout.flush()
        return ticked
