"""The pages of usage records and spans: what bodies used, and what they did when."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from ..models import SpanRecord, UsageRecord
from ..protocol import amounts
from . import costs, words
from .base import ReadOnlyAdmin, as_uuid, moment_of, run_link
from .filters import RunFilter
from .values import block


@admin.register(UsageRecord)
class UsageRecordAdmin(ReadOnlyAdmin[UsageRecord]):
    """Usage records, the newest first."""

    came = moment_of("at", gettext_lazy("at"))
    list_display = ("unit", "model", "amount_shown", "cost_shown", "run_link", "step", "attempt", "checkpoint", "came")
    list_filter = (RunFilter,)
    search_fields = ("run",)
    search_help_text = gettext_lazy("The id of a run")
    fields = ("run_link", "step", "attempt", "checkpoint", "model", "unit", "amount_shown", "cost_shown", "came")
    readonly_fields = ("run_link", "amount_shown", "cost_shown", "came")

    def look_up(self, rows: QuerySet[UsageRecord], term: str) -> QuerySet[UsageRecord]:
        """The records of a run."""
        run = as_uuid(term)
        return rows.none() if run is None else rows.filter(run=run)

    @admin.display(description=gettext_lazy("run"))
    def run_link(self, record: UsageRecord) -> SafeString:
        """The run it belongs to."""
        return run_link(self.admin_site, record.run_id)

    @admin.display(description=gettext_lazy("amount"))
    def amount_shown(self, record: UsageRecord) -> str:
        """How much, to the last digit."""
        return amounts.text_of(record.amount)

    @admin.display(description=gettext_lazy("cost"))
    def cost_shown(self, record: UsageRecord) -> str:
        """What it cost."""
        return costs.money(record.cost)


@admin.register(SpanRecord)
class SpanRecordAdmin(ReadOnlyAdmin[SpanRecord]):
    """Spans, the newest first."""

    started = moment_of("started_at", gettext_lazy("started"))
    ended = moment_of("ended_at", gettext_lazy("ended"))
    list_display = ("name", "took", "cost_shown", "run_link", "step", "attempt", "checkpoint", "started")
    list_filter = (RunFilter,)
    list_deferred = ("attributes", "usage")
    search_fields = ("run",)
    search_help_text = gettext_lazy("The id of a run")
    fields = ("name", "run_link", "step", "attempt", "checkpoint", ("started", "ended", "took"), "usage_shown", "attributes_shown", "span_id", "parent")
    readonly_fields = ("run_link", "started", "ended", "took", "usage_shown", "attributes_shown")

    def look_up(self, rows: QuerySet[SpanRecord], term: str) -> QuerySet[SpanRecord]:
        """The spans of a run."""
        run = as_uuid(term)
        return rows.none() if run is None else rows.filter(run=run)

    @admin.display(description=gettext_lazy("run"))
    def run_link(self, span: SpanRecord) -> SafeString:
        """The run it belongs to."""
        return run_link(self.admin_site, span.run_id)

    @admin.display(description=gettext_lazy("took"))
    def took(self, span: SpanRecord) -> str:
        """From its start to its end."""
        return words.span(span.started_at, span.ended_at)

    @admin.display(description=gettext_lazy("cost"))
    def cost_shown(self, span: SpanRecord) -> str:
        """What was used in it cost, without the spans within."""
        return costs.money_in_short(span.cost)

    @admin.display(description=gettext_lazy("used"))
    def usage_shown(self, span: SpanRecord) -> SafeString | str:
        """What was used in it, without the spans within."""
        return costs.usage_lines(span.usage)

    @admin.display(description=gettext_lazy("attributes"))
    def attributes_shown(self, span: SpanRecord) -> SafeString | str:
        """What its body noted of it."""
        return block(span.attributes)
