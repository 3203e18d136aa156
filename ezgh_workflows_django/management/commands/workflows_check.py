"""`manage.py workflows_check`: is everything in the database as it must be? Exit code for cron."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ezgh_workflows_django.engine import invariants, mending


class Command(BaseCommand):
    """Scans a live database for broken invariants; safe beside traffic."""

    help = "Look for broken invariants in the workflow tables; ends with code 1 where there are any."
    requires_migrations_checks = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        """`--fix`."""
        parser.add_argument("--fix", action="store_true", help="mend what can be mended safely, and say what was done")

    def handle(self, *args: Any, **options: Any) -> None:
        """Scan, mend if asked, scan again. Raises `CommandError` where something is left."""
        found = invariants.violations()
        if found and options["fix"]:
            for line in mending.mend():
                self.stdout.write(f"mended: {line}")
            found = invariants.violations()
        for violation in found:
            self.stdout.write(str(violation))
        if found:
            raise CommandError(f"{len(found)} broken invariants")
        self.stdout.write("every invariant holds")
