"""`manage.py rehearse_import`: what `manage.py demo` starts for its second half, with settings that suit it."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from testproject.shop.rehearsal import rehearse


class Command(BaseCommand):
    help = "Imports the shop's orders with two workers of which one is killed, and says whether all adds up. Makes the tables, and the user demo."

    def handle(self, *args: Any, **options: Any) -> None:
        """Rehearse. Raises `SystemExit` where something does not add up."""
        call_command("migrate", verbosity=0)
        if not rehearse(self.stdout):
            raise SystemExit(1)
