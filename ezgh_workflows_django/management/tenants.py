"""What commands about keys and apps have in common: how a project is named on the command line, and how refusals are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ..engine import tenancy
from ..errors import AppConflict, InvalidArgument, NotFound, StartError
from ..models import Project

FORMATS: Final = ("text", "json")

Action = Callable[["TenantCommand", dict[str, Any]], None]


class TenantCommand(BaseCommand):
    """A command with actions, each about one project. Its errors are one line and code 1."""

    requires_migrations_checks = True
    actions: Mapping[str, Action] = {}

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what was asked. Raises `CommandError`."""
        try:
            self.actions[options["action"]](self, options)
        except (NotFound, InvalidArgument, AppConflict, StartError) as error:
            raise CommandError(str(error)) from error

    def say(self, options: Mapping[str, Any], facts: Mapping[str, Any] | Sequence[Mapping[str, Any]], text: str) -> None:
        """Print the text, or the facts as JSON."""
        self.stdout.write(json.dumps(facts, default=str) if options["format"] == "json" else text)


def add_project(parser: CommandParser) -> None:
    """The flags that every action has."""
    parser.add_argument("--organization", metavar="SLUG", help="The organization, by slug or id (default: the first).")
    parser.add_argument("--project", metavar="SLUG", help="The project, by slug or id (default: the first).")
    parser.add_argument("--format", choices=FORMATS, default="text", help="How the answer is printed.")


def project_of(options: Mapping[str, Any]) -> Project:
    """The project that is meant. Raises `UnknownProject`."""
    return tenancy.find_project(options["organization"], options["project"])
