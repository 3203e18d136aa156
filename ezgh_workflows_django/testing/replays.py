"""Journals kept as fixtures, and replayed against the code for ever."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..definitions.graph import Workflow
from ..definitions.registry import registry
from ..definitions.seam import RunHandle
from ..engine import replaying, runs
from ..engine.replaying import Recording
from ..errors import UnknownWorkflow
from ..models import Run

Journal = Recording | Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | Path | RunHandle | Run
"""A recording, its JSON object, a file of it, or a run whose bodies' journals are meant."""


def assert_replays(workflow: Workflow, journal: Journal, *, exactly: bool = False) -> None:
    """Replay a journal against this code: no inner step is run, nothing is stored, no database is needed for a file.

    Raises `AssertionError`, in plain words, where the code asks for other things than the journal holds; it may ask for more at the end.
    With `exactly`, a body that is over must also come to the same result.
    """
    recorded = _recordings(journal)
    if not recorded:
        raise AssertionError(f"{journal} has no journal of a durable function to replay")
    faults = [fault for each in recorded if (fault := replaying.fault(each, workflow, exactly=exactly)) is not None]
    if faults:
        raise AssertionError("the code does not replay this journal:\n" + "\n".join(faults))


def record(run: RunHandle | Run) -> list[dict[str, Any]]:
    """The journals of a run's durable functions as JSON objects, to be kept as fixtures."""
    return [each.to_json() for each in replaying.recordings(_row(run))]


def broken_replays() -> list[str]:
    """I12: what finished runs of this database, replayed on their own code, do not come to again. Runs whose code is not here are passed over."""
    faults: list[str] = []
    for recorded in replaying.of_runs():
        try:
            workflow = registry.get(recorded.lease.workflow, recorded.lease.revision)
        except UnknownWorkflow:
            continue
        fault = replaying.fault(recorded, workflow, exactly=True)
        if fault is not None:
            faults.append(fault)
    return faults


def _recordings(journal: Journal) -> list[Recording]:
    if isinstance(journal, Recording):
        return [journal]
    if isinstance(journal, (str, Path)):
        journal = json.loads(Path(journal).read_text(encoding="utf-8"))
    if isinstance(journal, Mapping):
        return [Recording.from_json(journal)]
    if isinstance(journal, Sequence) and not isinstance(journal, str):
        return [Recording.from_json(each) for each in journal]
    return list(replaying.recordings(_row(journal)))


def _row(run: Any) -> Run:
    """The run's row, of a row or a handle."""
    return run if isinstance(run, Run) else runs.get(run.id)
