"""Django's signals about runs. Sent after the commit, in the process that made the move, best effort.

For what must happen use a step or `on_failure`. Every signal carries `run_id` and `workflow`; the sender is the `Run` model.
"""

from __future__ import annotations

from django.dispatch import Signal

starting = Signal()
"""A run has been stored: `run_id`, `workflow`."""

run_started = Signal()
"""A run has been admitted: `run_id`, `workflow`."""

run_finished = Signal()
"""A run is over: also `status`."""

step_failed = Signal()
"""A step failed for good: also `step`, `failure` (`protocol.failures.Failure`)."""

lease_reclaimed = Signal()
"""A lease was taken back from a worker gone silent: also `step`, `attempt`, `worker`."""
