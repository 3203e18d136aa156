"""The fixture `workflows_lab`, for pytest: `pytest_plugins = ["ezgh_workflows_django.testing.pytest_plugin"]` is not needed once installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def workflows_lab(db: None) -> Iterator[object]:
    """A `Lab` on this test's database, at Monday 2024-01-01 09:00 UTC, with all workflows the project registered."""
    from .lab import Lab

    with Lab() as lab:
        yield lab
