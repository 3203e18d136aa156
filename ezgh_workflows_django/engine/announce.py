"""Telling the process what moved: Django's signals and the log line of each end, after the commit, best effort."""

from __future__ import annotations

import logging
from typing import Any

from .. import dispatch
from ..models import Lease, Run
from ..protocol.failures import Failure

logger = logging.getLogger("ezgh_workflows.engine")


def starting(run: Run) -> None:
    """A run has been stored."""
    _send(dispatch.starting, run)


def run_started(run: Run) -> None:
    """A run was admitted."""
    logger.info("run %s of %s started", run.pk, run.workflow)
    _send(dispatch.run_started, run)


def run_finished(run: Run) -> None:
    """A run is over."""
    logger.info("run %s of %s %s", run.pk, run.workflow, run.status)
    _send(dispatch.run_finished, run, status=run.status)


def step_failed(run: Run, step: str, failure: Failure) -> None:
    """A step failed for good."""
    logger.warning("step %s of run %s (%s) failed: %s: %s", step, run.pk, run.workflow, failure.class_, failure.message)
    _send(dispatch.step_failed, run, step=step, failure=failure)


def lease_reclaimed(run: Run, step: str, lease: Lease) -> None:
    """A lease was taken back from a worker that went silent."""
    logger.warning("lease of step %s of run %s reclaimed from %s", step, run.pk, lease.worker_name)
    _send(dispatch.lease_reclaimed, run, step=step, attempt=lease.attempt, worker=lease.worker_name)


def _send(signal: Any, run: Run, **facts: Any) -> None:
    for receiver, answer in signal.send_robust(sender=Run, run_id=str(run.pk), workflow=run.workflow, **facts):
        if isinstance(answer, Exception):
            logger.error("receiver %r of a workflow signal failed: %s", receiver, answer, exc_info=answer)
