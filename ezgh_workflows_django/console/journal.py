"""The pages of the journal: what happened to a run, entry by entry."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from ..models import JournalEntry
from .base import ReadOnlyAdmin, as_uuid, moment_of, run_link
from .filters import ONE_RUN, RunFilter
from .values import ENGINE_KEYS, block, brief


@admin.register(JournalEntry)
class JournalAdmin(ReadOnlyAdmin[JournalEntry]):
    """Entries, the newest first; those of one run by their number, the last first."""

    happened = moment_of("at", gettext_lazy("at"))
    list_display = ("seq", "kind", "run_link", "happened", "step", "attempt", "worker", "told")
    list_filter = (RunFilter,)
    search_fields = ("run",)
    search_help_text = gettext_lazy("The id of a run")
    fields = ("run_link", "seq", "kind", "happened", "step", "attempt", "worker", "data_shown")
    readonly_fields = ("run_link", "data_shown", "happened")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """By an index in either case: on run and number, or the key."""
        return ("-seq",) if request.GET.get(ONE_RUN) else ("-pk",)

    def look_up(self, rows: QuerySet[JournalEntry], term: str) -> QuerySet[JournalEntry]:
        """The entries of a run."""
        run = as_uuid(term)
        return rows.none() if run is None else rows.filter(run=run)

    @admin.display(description=gettext_lazy("run"))
    def run_link(self, entry: JournalEntry) -> SafeString:
        """The run it tells of."""
        return run_link(self.admin_site, entry.run_id)

    @admin.display(description=gettext_lazy("told"))
    def told(self, entry: JournalEntry) -> str:
        """Its data in short."""
        return brief(entry.data, plain=ENGINE_KEYS)

    @admin.display(description=gettext_lazy("data"))
    def data_shown(self, entry: JournalEntry) -> SafeString | str:
        """Its data."""
        return block(entry.data, plain=ENGINE_KEYS)
