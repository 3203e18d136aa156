"""Starts the import of a file: one run for each row, all or none. Knows nothing of workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from django.db import transaction

from ezgh_workflows_django import RunHandle, Start

from .models import Upload
from .rows import ORDERS, read
from .workflows import Job, import_order


def start_import(path: Path = ORDERS) -> tuple[Upload, Sequence[RunHandle]]:
    """The upload, and its runs in the order of the rows. A row's idempotency key keeps it from being started twice."""
    with transaction.atomic():
        upload = Upload.objects.create(name=path.name)
        starts = [
            Start(payload=Job(upload.pk, row), idempotency_key=f"upload {upload.pk} line {row.line}", labels={"line": str(row.line)}, subject=upload)
            for row in read(path)
        ]
        return upload, import_order.start_many(starts)
