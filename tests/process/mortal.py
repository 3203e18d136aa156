"""A worker that is killed right after the first new thing it has stored of a body: `python -m tests.process.mortal APP`.

Stored things are checkpoints, children and suspensions; one that is stored already kills nobody, or it would never get on.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import django
from django.core.management import call_command

from ezgh_workflows_django.protocol.messages import Children, Record, Report, Started
from ezgh_workflows_django.protocol.states import LeaseStatus


def main() -> None:
    """Work until then."""
    django.setup()
    from ezgh_workflows_django.engine.direct import DirectEngine
    from ezgh_workflows_django.models import Run

    before: dict[str, Callable[..., Any]] = {name: getattr(DirectEngine, name) for name in ("checkpoint", "children", "report")}

    def checkpoint(self: Any, records: Sequence[Record]) -> Any:
        answers = before["checkpoint"](self, records)
        _die_if(any(not each.repeated and each.refused is None for each in answers))
        return answers

    def children(self: Any, request: Children) -> Started:
        known = Run.objects.filter(parent_checkpoint__isnull=False).count()
        started: Started = before["children"](self, request)
        _die_if(started.refused is None and Run.objects.filter(parent_checkpoint__isnull=False).count() > known)
        return started

    def report(self: Any, reports: Sequence[Report]) -> Any:
        answers = before["report"](self, reports)
        parked = [answer for told, answer in zip(reports, answers, strict=True) if told.outcome.status is LeaseStatus.SUSPENDED]
        _die_if(any(answer.refused is None for answer in parked))
        return answers

    for name, method in (("checkpoint", checkpoint), ("children", children), ("report", report)):
        setattr(DirectEngine, name, method)
    call_command("runworker", "--app", sys.argv[1], "--name", f"mortal-{os.getpid()}", *sys.argv[2:])


def _die_if(it_is_time: bool) -> None:
    if it_is_time:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
