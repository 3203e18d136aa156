"""`manage.py demo`: the four examples on a lab's clock, then a real import with two real workers, one of which is killed."""

import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from testproject.shop import demo as shop


class Command(BaseCommand):
    """Each half in a process and on a SQLite file of its own, whatever this project's database is."""

    help = "Show the four examples, then import 1,000 orders with two workers, killing one half-way."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where the import is kept."""
        parser.add_argument("--file", default=shop.FILE, metavar="PATH", help=f"the SQLite file of the import, which stays ({shop.FILE})")

    def handle(self, *args: Any, **options: Any) -> None:
        """Raises `CommandError` where either half does not end as it should."""
        self._show_examples()
        shop.run(self.stdout, options["file"])

    def _show_examples(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"DATABASE_URL": f"sqlite:///{folder}/examples.sqlite3"}
            shown = subprocess.run([sys.executable, "manage.py", "show_examples"], cwd=shop.ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        self.stdout.write(shown.stdout, ending="")
        if shown.returncode:
            raise CommandError(f"the examples ended with code {shown.returncode}")
