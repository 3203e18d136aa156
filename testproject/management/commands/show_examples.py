"""`manage.py show_examples`: the four examples, on this process's database."""

import logging
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from testproject.examples import tell_all


class Command(BaseCommand):
    """Runs the examples on a lab and prints what they have to say."""

    help = "Run the four example workflows on a clock that is moved."

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate, run, check."""
        logging.getLogger("ezgh_workflows").setLevel(logging.CRITICAL)  # two of them fail on purpose
        call_command("migrate", verbosity=0)
        tell_all(self.stdout.write)
        call_command("workflows_check", stdout=self.stderr)
