"""The pages of events and signals: what came from outside, and which runs took it."""

from __future__ import annotations

from typing import Final

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..engine import waits
from ..engine.transactions import database
from ..models import App, Event, Project, Receipt, Run
from .base import ReadOnlyAdmin, as_uuid, links, moment_of, page_link
from .filters import RunFilter
from .values import NOTHING, block

MAX_SCOPES: Final = 1_000
MAX_RECEIPTS: Final = 200


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin[Event]):
    """Events, the newest first."""

    created = moment_of("created_at", gettext_lazy("came"))
    list_display = ("name", "key", "reach", "created", "delivered")
    list_prefetched = ("project", "app")
    list_filter = (RunFilter,)
    list_deferred = ("payload",)
    search_fields = ("name",)
    search_help_text = gettext_lazy("The exact name of an event, or the id of a run for its signals")
    fields = ("name", "key", "reach", "event_id", "created", "delivered", "taken_by", "payload_shown")
    readonly_fields = ("reach", "delivered", "taken_by", "payload_shown", "created")

    def look_up(self, rows: QuerySet[Event], term: str) -> QuerySet[Event]:
        """A run's signals, or the events of a name: the index begins with the scope, so every scope is named."""
        run = as_uuid(term)
        if run is not None:
            return rows.filter(run=run)
        projects = Project.objects.using(database()).values_list("pk", flat=True)[:MAX_SCOPES]
        apps = App.objects.using(database()).values_list("pk", flat=True)[:MAX_SCOPES]
        return rows.filter(scope__in=[*map(waits.project_scope, projects), *map(waits.app_scope, apps)], name=term)

    @admin.display(description=gettext_lazy("reaches"))
    def reach(self, event: Event) -> SafeString | str:
        """How far it reaches: one run, one app, or a project."""
        if event.run_id is not None:
            return page_link(self.admin_site, Run, event.run_id, _("run %(id)s") % {"id": event.run_id})
        if event.app is not None:
            return _("app %(name)s") % {"name": event.app.name}
        return _("project %(slug)s") % {"slug": event.project.slug}

    @admin.display(description=gettext_lazy("offered to all"), boolean=True)
    def delivered(self, event: Event) -> bool:
        """Whether every wait that was open for it has been looked at."""
        return event.due_at is None

    @admin.display(description=gettext_lazy("taken by"))
    def taken_by(self, event: Event) -> SafeString | str:
        """The runs that took it, the first of them."""
        receipts = Receipt.objects.using(database()).filter(event=event).order_by("pk")[:MAX_RECEIPTS]
        return links(page_link(self.admin_site, Run, receipt.run_id, receipt.run_id) for receipt in receipts) or NOTHING

    @admin.display(description=gettext_lazy("payload"))
    def payload_shown(self, event: Event) -> SafeString | str:
        """What it carries."""
        return block(event.payload)
