"""Which of two revisions is the newer one: the higher, compared number by number. Knows texts and what has them, no store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .graph import Workflow

_PARTS: Final = re.compile(r"([0-9]+)|[^0-9]+")


def revision_order(revision: str) -> tuple[object, ...]:
    """A key to sort revisions by, the newest last: `2` before `10`, `1.9` before `1.10`, `1` before `1a`; a number before a word."""
    parts = [(0, int(found.group()), "") if found.group(1) else (1, 0, found.group()) for found in _PARTS.finditer(revision)]
    return tuple(parts), revision


def oldest_first(workflows: Iterable[Workflow]) -> list[Workflow]:
    """The workflows in the order they came, but those of one name change places so that each comes before the newer ones."""
    given = list(workflows)
    by_name: dict[str, list[Workflow]] = {}
    for workflow in given:
        by_name.setdefault(workflow.name, []).append(workflow)
    waiting = {name: iter(sorted(all_of_it, key=lambda each: revision_order(each.revision))) for name, all_of_it in by_name.items()}
    return [next(waiting[workflow.name]) for workflow in given]
