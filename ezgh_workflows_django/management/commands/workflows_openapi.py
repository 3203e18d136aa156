"""`manage.py workflows_openapi`: the OpenAPI document of the HTTP API, or the page of the protocol's objects, printed or written to a file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    """Writes the document."""

    help = "Print the OpenAPI 3.1 document of the HTTP API, or write it to a file."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """`--file`, `--objects`."""
        parser.add_argument("--objects", action="store_true", help="the objects of the worker protocol instead, as a page of Markdown")
        parser.add_argument("--file", type=Path, help="where to write it; without, it is printed")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write it. Raises `CommandError` where the extra `api` is not installed."""
        try:
            from ...api import objects, openapi
        except ImportError as error:
            raise CommandError(f"the HTTP API needs more packages ({error}): pip install ezgh-workflows-django[api]") from error
        text = objects.as_text() if options["objects"] else openapi.as_text()
        if options["file"] is None:
            self.stdout.write(text, ending="")
            return
        options["file"].write_text(text)
        self.stdout.write(f"{options['file']} has {text.count(chr(10)):,} lines.")
