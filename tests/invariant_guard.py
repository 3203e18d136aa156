"""After each test on the database: no invariant of the engine is broken by what it did. Marked `plants_faults`, a test breaks them on purpose.

The conftest takes its hook in. Tests of `unittest` classes have rolled back before it could look.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator
from typing import Any

import pytest

MARKER = "plants_faults"
ACCESS = frozenset({"db", "transactional_db", "django_db_reset_sequences", "django_db_serialized_rollback"})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Look while the test's rows and its clock are still there; a test that has failed by itself is left alone."""
    result = yield
    if _is_looked_at(item) and _is_on_database(item) and item.get_closest_marker(MARKER) is None:
        found = broken()
        assert not found, "the test leaves broken invariants behind:\n" + "\n".join(found)
    return result


def look() -> None:
    """Look now, where the guard is on at all: for a test that undoes what it does before it ends."""
    if _every():
        found = broken()
        assert not found, "this leaves broken invariants behind:\n" + "\n".join(found)


def broken() -> list[str]:
    """What is broken in both of two looks, a line each, but for lateness: a test need not see to everything that is due.

    Each look is many statements, and what a test started may still be at work between them.
    """
    found = _look()
    return [line for line in _look() if line in found] if found else []


def _look() -> list[str]:
    from ezgh_workflows_django.engine import invariants  # the models can't be imported before Django is set up
    from ezgh_workflows_django.engine.tenancy import app_now
    from ezgh_workflows_django.models import App, Run, Step

    if not App.objects.exists() or not (Run.objects.exists() or Step.objects.exists()):
        return []
    app = App.objects.order_by("pk")[0]
    _, now = app_now(app.name)
    checks = [check for check in invariants.CHECKS if check is not invariants.nothing_overdue]
    return [str(violation) for check in checks for violation in check(now)]


def _is_looked_at(item: pytest.Item) -> bool:
    """`GUARD=1` looks after each test, as in one stage of CI; `GUARD=5` after every fifth or so, by its name: a look is a hundred statements."""
    every = _every()
    return every > 0 and zlib.crc32(item.nodeid.encode()) % every == 0


def _every() -> int:
    return int(os.environ.get("GUARD", "0"))


def _is_on_database(item: pytest.Item) -> bool:
    names = set(getattr(item, "fixturenames", ()))
    is_unittest = hasattr(getattr(item, "cls", None), "_pre_setup")
    return not is_unittest and (item.get_closest_marker("django_db") is not None or not ACCESS.isdisjoint(names))
