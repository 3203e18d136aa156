"""`manage.py workflows_replay`: would the code about to ship break runs in flight? Exit code for CI."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.timezone import is_naive, make_aware

from ezgh_workflows_django.definitions.graph import Workflow
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine import replaying
from ezgh_workflows_django.errors import UnknownWorkflow


class Command(BaseCommand):
    """Replays stored journals against this code. Runs no inner step and writes nothing to the database."""

    help = "Replay stored journals of durable functions against this code; ends with code 1 where it would break any."
    requires_migrations_checks = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which journals, and where to keep them."""
        parser.add_argument("--workflow", metavar="NAME", help="only runs of this workflow")
        parser.add_argument("--since", metavar="DATE", help="only runs created then or later: 2024-01-31 or 2024-01-31T09:00Z")
        parser.add_argument("--limit", type=int, default=1_000, metavar="N", help="at most N journals, those of runs in flight first, the newest first (1,000)")
        parser.add_argument("--write", metavar="FOLDER", help="also keep each journal there, one JSON file each: fixtures for `assert_replays`")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replay. Raises `CommandError` where a journal breaks, or an argument makes no sense."""
        since = _moment(options["since"]) if options["since"] else None
        folder = Path(options["write"]) if options["write"] else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        if options["limit"] < 1:
            raise CommandError(f"--limit {options['limit']}: a whole number from 1 on is needed")
        if options["workflow"] and not replaying.is_known(options["workflow"]):
            raise CommandError(f"--workflow {options['workflow']}: neither this code nor the database has a workflow of that name")
        replayed, broken, skipped = 0, 0, 0
        for recorded in replaying.of_runs(options["workflow"], since, limit=options["limit"]):
            workflow = _code(recorded)
            if folder is not None:
                name = f"{recorded.lease.workflow}-{recorded.lease.step}-{recorded.lease.run_id}.json"
                (folder / name).write_text(json.dumps(recorded.to_json(), indent=1) + "\n", encoding="utf-8")
            if workflow is None:
                skipped += 1
                continue
            fault = replaying.fault(recorded, workflow)
            replayed += 1
            if fault is not None:
                broken += 1
                self.stdout.write(fault)
        told = f"{replayed} journals replayed, {broken} would break"
        if skipped:
            told += f", {skipped} not replayed: this code has no such workflow and revision, so only workers that still have it serve those runs"
        told += _cut(options["limit"], *replaying.count(options["workflow"], since))
        if broken:
            raise CommandError(told)
        self.stdout.write(told)


def _code(recorded: replaying.Recording) -> Workflow | None:
    try:
        return registry.get(recorded.lease.workflow, recorded.lease.revision)
    except UnknownWorkflow:
        return None


def _cut(limit: int, in_flight: int, over: int) -> str:
    """What the limit kept from being looked at; nothing where that is nothing."""
    left = in_flight + over - limit
    if left <= 0:
        return ""
    missed = in_flight - limit
    which = f"{missed} of them of runs in flight" if missed > 0 else "of runs that are over"
    return f"; cut at --limit {limit}: {left} more, {which}, were not looked at"


def _moment(text: str) -> Any:
    moment = parse_datetime(text)
    if moment is None:
        day = parse_date(text)
        moment = None if day is None else parse_datetime(f"{day}T00:00:00")
    if moment is None:
        raise CommandError(f"--since {text}: a date or a moment is needed, such as 2024-01-31 or 2024-01-31T09:00Z")
    return make_aware(moment) if is_naive(moment) else moment
