"""Whatever text a person or a program writes can be kept, though a host's MariaDB tables may not be utf8mb4: an emoji in a reason is no reason for a 500."""

from __future__ import annotations

from typing import Any, Final

from django.apps import apps
from django.db import connection, models

from ezgh_workflows_django.engine import runs
from ezgh_workflows_django.models import Run
from ezgh_workflows_django.models.fields import ExactTextMixin
from tests.engine.conftest import Desk
from tests.engine.graphs import job

OURS: Final = {
    *("ApiKey.secret_hash", "Figure.kind", "Figure.outcome", "RunningTotal.kind", "RunningTotal.outcome", "RefusedCall.reason"),
    *("Trail.actor_kind", "Trail.target_kind"),
    *("Run.status", "Run.paused_from", "Run.ending_as", "Run.trace_id", "Run.traceparent", "Step.kind", "Step.status", "App.kind"),
    *("Lease.status", "Lease.ended_by", "Lease.delivery", "Lease.refusals", "Checkpoint.kind", "JournalEntry.kind"),
    *("Schedule.overlap", "Schedule.catch_up", "Occurrence.became", "SpanRecord.span_id", "SpanRecord.parent"),
}
"""Columns of words that the engine itself writes, or checks to be plain ASCII."""


def texts() -> list[tuple[str, Any]]:
    """Every column of text that this package has, by its name."""
    fields = ((model, field) for model in apps.get_app_config("ezgh_workflows").get_models() for field in model._meta.concrete_fields)
    return [(f"{model.__name__}.{field.name}", field) for model, field in fields if isinstance(field, (models.CharField, models.TextField))]


def test_every_column_that_holds_what_others_write_says_its_character_set() -> None:
    assert [name for name, field in texts() if not isinstance(field, ExactTextMixin) and name not in OURS] == []
    assert {*OURS} - {name for name, _ in texts()} == set()


def test_an_emoji_is_kept_as_it_is(desk: Desk) -> None:
    desk.worker(job())
    run = job().start()
    runs.cancel(run.id, "déjà 🚀")
    assert Run.objects.get().reason == "déjà 🚀"


def test_on_mariadb_the_character_set_is_in_the_column_itself() -> None:
    types = {name: str(field.db_parameters(connection)["type"]) for name, field in texts() if name not in OURS}
    assert [name for name, text in types.items() if ("CHARACTER SET utf8mb4" in text) != (connection.vendor == "mysql")] == []
