"""A task that waits for the test's word."""

from __future__ import annotations

from tests.contrib.jobs import task

from .workflows import gated_body


@task()
def gated(folder: str) -> int:
    """Runs until the test says `go`."""
    return gated_body(folder)
