"""`manage.py workflows_prune`: deletes runs that ended long ago, now and not when maintenance comes to it. `engine.retention` decides what may go."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...conf import app_settings
from ...engine import maintenance, retention
from ...engine.clock import read_at

BATCH: Final = 200
"""Runs a batch; each run is a transaction of its own."""

MOST_DAYS: Final = 36_500


class Command(BaseCommand):
    """Prunes ended runs in batches, the oldest first. A run that somebody holds is left for the next time."""

    help = "Deletes ended runs older than RETENTION, or than --older-than. A run with an idempotency key stays IDEMPOTENCY_TTL at least."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        """The flags."""
        parser.add_argument("--older-than", type=float, metavar="DAYS", help="Delete runs that ended more than so many days ago (default: RETENTION).")
        parser.add_argument("--dry-run", action="store_true", help="Say how many that is, and delete nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prune. Raises `CommandError` for an age that is none."""
        keep = _keep(options["older_than"])
        now = _database_now()
        if options["dry_run"]:
            self.stdout.write(f"{retention.due(now, keep).count()} runs would be deleted")
            return
        self.stdout.write(f"{_prune(now, keep)} runs deleted")


def _prune(now: datetime, keep: timedelta) -> int:
    """Delete batch by batch, until there is none, or until nobody lets go of what is left; returns how many went."""
    deleted = 0
    while batch := list(retention.due(now, keep).values_list("pk", flat=True)[:BATCH]):
        retention.prune(now, BATCH, keep)
        left = retention.due(now, keep).filter(pk__in=batch).count()
        deleted += len(batch) - left
        if left == len(batch):
            break
    return deleted


def _keep(days: float | None) -> timedelta:
    if days is None:
        return app_settings.RETENTION
    if not 0 <= days <= MOST_DAYS:
        raise CommandError(f"--older-than: {days:g} days can't be counted back: give 0 to {MOST_DAYS:,}")
    return timedelta(days=days)


def _database_now() -> datetime:
    """The database's moment, which ends are stored in."""
    maintenance.ensure_row()
    tick = maintenance.status()
    if tick is None:
        raise CommandError("the tick's row vanished while it was read: try again")
    return read_at(tick)
