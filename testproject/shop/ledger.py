"""What came of an import, from the rows of the database: what is in, what failed and why, which leases were lost; and whether it all adds up.

Only reads. The good rows and their prices are worked out from the file again, so that the import does not vouch for itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from django.db.models import Count

from ezgh_workflows_django.conf import app_settings
from ezgh_workflows_django.models import Lease, Run
from ezgh_workflows_django.protocol.states import TERMINAL_RUN, LeaseStatus, RunStatus

from .make_orders import BROKEN
from .models import Order, Upload
from .rows import ORDERS, check, price, read


@dataclass(frozen=True, slots=True)
class Lost:
    """A lease that was reclaimed: whose it was, how many seconds after its time, who finished the step instead."""

    step: str
    line: int
    attempt: int
    worker: str
    had_started: bool
    late: float
    finished_by: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """The totals of one upload. `failures` are the engine's own words by line."""

    rows: int
    statuses: Counter[str]
    orders: int
    total: Decimal
    expected_orders: int
    expected_total: Decimal
    failures: dict[int, str]
    twice: int
    lost: tuple[Lost, ...]

    @property
    def is_over(self) -> bool:
        """Whether every run has ended."""
        return sum(self.statuses[status] for status in TERMINAL_RUN) == sum(self.statuses.values())

    def faults(self) -> Iterator[str]:
        """What does not add up."""
        runs = sum(self.statuses.values())
        if runs != self.rows:
            yield f"{self.rows} rows, but {runs} runs"
        if not self.is_over:
            yield f"runs that are not over: {dict(self.statuses)}"
        if (self.orders, self.total) != (self.expected_orders, self.expected_total):
            yield f"{self.orders} orders over {self.total}, but the file has {self.expected_orders} over {self.expected_total}"
        if self.statuses[RunStatus.SUCCEEDED] != self.orders:
            yield f"{self.statuses[RunStatus.SUCCEEDED]} runs succeeded, but {self.orders} orders are stored"
        if set(self.failures) != set(BROKEN):
            yield f"lines {sorted(self.failures)} failed, but lines {sorted(BROKEN)} are broken"
        if self.twice:
            yield f"{self.twice} steps were completed more than once"


def ledger(upload: Upload, path: Path = ORDERS) -> Ledger:
    """Read it all, as it is now."""
    runs = Run.objects.of_subject(upload._meta.label_lower, str(upload.pk))
    rows = list(read(path))
    good = [check(row) for row in rows if row.line not in BROKEN]
    totals = list(Order.objects.filter(upload=upload).values_list("total", flat=True))  # added up here: SQLite would do it in floats
    twice = Lease.objects.filter(run__in=runs, status=LeaseStatus.COMPLETED).values("step").annotate(times=Count("pk")).filter(times__gt=1)
    return Ledger(
        rows=len(rows),
        statuses=Counter(runs.order_by().values_list("status", flat=True)),
        orders=len(totals),
        total=sum(totals, Decimal(0)),
        expected_orders=len(good),
        expected_total=sum((price(line).total for line in good), Decimal(0)),
        failures={_line(run): json.loads(run.failure)["message"] for run in runs.filter(status=RunStatus.FAILED).order_by("id") if run.failure},
        twice=twice.count(),
        lost=tuple(_lost(upload)),
    )


def ended(upload: Upload) -> int:
    """How many of its runs are over."""
    return Run.objects.of_subject(upload._meta.label_lower, str(upload.pk)).filter(status__in=TERMINAL_RUN).count()


def _lost(upload: Upload) -> Iterator[Lost]:
    runs = Run.objects.of_subject(upload._meta.label_lower, str(upload.pk))
    for lease in Lease.objects.filter(run__in=runs, status=LeaseStatus.RECLAIMED).select_related("run", "step").order_by("ended_at", "id"):
        due = lease.expires_at + (app_settings.RECOVERY_WINDOW if lease.started_at else timedelta(0))
        after = Lease.objects.filter(step=lease.step, token__gt=lease.token, ended_by="worker").order_by("token").last()
        yield Lost(
            step=lease.step.name,
            line=_line(lease.run),
            attempt=lease.attempt,
            worker=lease.worker_name,
            had_started=lease.started_at is not None,
            late=(lease.ended_at - due).total_seconds() if lease.ended_at else 0.0,
            finished_by=after.worker_name if after else "nobody",
        )


def _line(run: Run) -> int:
    return int(json.loads(run.labels)["line"])
