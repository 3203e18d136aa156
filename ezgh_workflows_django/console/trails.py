"""The pages of the trail: who did what to which thing."""

from __future__ import annotations

from typing import Final

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from ..models import Run, Trail
from .base import ReadOnlyAdmin, moment_of, page_link
from .filters import ActionFilter, ActorFilter
from .values import block, brief

TARGET_KINDS: Final = ("app", "run")


@admin.register(Trail)
class TrailAdmin(ReadOnlyAdmin[Trail]):
    """Entries, the newest first."""

    happened = moment_of("at", gettext_lazy("at"))
    list_display = ("happened", "action", "actor_kind", "actor", "target_kind", "target_link", "told")
    list_filter = (ActionFilter, ActorFilter)
    search_fields = ("target",)
    search_help_text = gettext_lazy("The exact id or name of what was acted on")
    fields = ("happened", "action", "actor_kind", "actor", "target_kind", "target_link", "data_shown")
    readonly_fields = ("target_link", "data_shown", "happened")

    def look_up(self, rows: QuerySet[Trail], term: str) -> QuerySet[Trail]:
        """What was done to one thing: the index begins with its kind, so every kind is named."""
        return rows.filter(target_kind__in=TARGET_KINDS, target=term)

    @admin.display(description=gettext_lazy("target"))
    def target_link(self, entry: Trail) -> SafeString | str:
        """What was acted on; a run by a link."""
        return page_link(self.admin_site, Run, entry.target, entry.target) if entry.target_kind == "run" else entry.target

    @admin.display(description=gettext_lazy("told"))
    def told(self, entry: Trail) -> str:
        """Its data in short."""
        return brief(entry.data)

    @admin.display(description=gettext_lazy("data"))
    def data_shown(self, entry: Trail) -> SafeString | str:
        """Its data."""
        return block(entry.data)
