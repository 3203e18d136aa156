"""The commands' page: each command and each of its flags has its words."""

from __future__ import annotations

import re

import pytest
from django.core.management import find_commands, load_command_class
from django.core.management.base import BaseCommand

from ezgh_workflows_django import management

from .conftest import ROOT

APP = "ezgh_workflows_django"
NAMES = sorted(find_commands(next(iter(management.__path__))))
ALIASES = {"workflows_worker": "runworker"}


def section(command: str) -> str:
    """What the page says of a command."""
    parts = re.split(r"^## (.+)$", (ROOT / "docs" / "commands.md").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[command]


def flags(command: str) -> set[str]:
    """A command's own flags."""
    own = load_command_class(APP, command).create_parser("manage.py", command)
    common = BaseCommand().create_parser("manage.py", command)
    return set(own._option_string_actions) - set(common._option_string_actions)


@pytest.mark.parametrize("command", NAMES)
def test_a_command_and_its_flags_are_documented(command: str) -> None:
    text = section(command) + section(ALIASES.get(command, command))
    assert {flag for flag in flags(command) if f"`{flag}`" not in text} == set()


def test_the_worker_has_two_names_and_the_same_flags() -> None:
    assert flags("workflows_worker") == flags("runworker")
