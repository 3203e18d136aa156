"""`manage.py workflows_maintain`: gives maintenance its turns, where no worker of this project does. What is due is `engine.maintenance`'s to know."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError, connections

from ...engine import maintenance
from ...engine.hygiene import engine_call
from ...engine.transactions import LostRace
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
        """Tick. Raises `CommandError` for an interval that is none, `SystemExit` at a second signal; after a crash of the loop, what it raised."""
        if not 0 < options["interval"] <= threading.TIMEOUT_MAX:
            raise CommandError(f"--interval: {options['interval']:g} seconds can't be waited: give more than 0, and at most {threading.TIMEOUT_MAX:.0f}")
        if options["once"]:
            self._tick_until_done()
            return
        inbox, closing = Inbox(), threading.Event()
        with signals_to(inbox):
            loop = threading.Thread(target=self._loop, args=(options["interval"], inbox, closing), name="workflows-maintenance", daemon=True)
            loop.start()
            if (word := inbox.get()).cause is Cause.SIGNAL:
                closing.set()
                word = inbox.get()  # the loop's last one, or a second signal: a tick may hang in the database
        if word.cause is Cause.SIGNAL:
            self.stderr.write("a second signal: ending now; what the tick has not committed is due again")
            raise SystemExit(1)
        if word.error is not None:
            raise word.error

    def _loop(self, interval: float, inbox: Inbox, closing: threading.Event) -> None:
        """Tick until closed. Its end is its last word in the inbox, a crash or not."""
        last = Word(Cause.CLOSED)
        try:
            self._take_turns(interval, closing)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
            last = Word(Cause.CRASH, error)
        inbox.put(last)

    def _take_turns(self, interval: float, closing: threading.Event) -> None:
        backoff = Backoff(first=interval)
        try:
            while not closing.wait(self._turn(interval, backoff)):
                pass
        finally:
            connections.close_all()

    def _turn(self, interval: float, backoff: Backoff) -> float:
        """One tick; gives the seconds until the next one."""
        try:
            self._tick()
        except (DatabaseError, InterfaceError, LostRace) as error:
            wait = backoff.next()
            self.stderr.write(f"maintenance could not run ({error}); trying again in {wait:.1f} s")
            return wait
        backoff.reset()
        return interval

    def _tick_until_done(self) -> None:
        """Tick until nothing is left, and leases are looked at too: a command that runs once a minute would else find a gap every time, and reclaim nothing."""
        while (ticked := self._tick()).has_more or ticked.lenient_until is not None:
            if ticked.lenient_until is not None and not ticked.has_more:
                time.sleep(min(1.0, max(0.0, (ticked.lenient_until - ticked.now).total_seconds())))

    def _tick(self) -> maintenance.Ticked:
        with engine_call():
            ticked = maintenance.tick()
        if ticked.handled:
            self.stdout.write(f"{ticked.now:%Y-%m-%d %H:%M:%S} UTC: {ticked.handled} things that were due")
            self.stdout.flush()
        return ticked
