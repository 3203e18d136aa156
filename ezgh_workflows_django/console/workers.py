"""The pages of worker sessions: who is here, what they serve, what they hold."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from ..conf import app_settings
from ..engine.clock import Now, read_at
from ..engine.transactions import database
from ..models import Announcement, Definition, Lease, Worker
from . import words
from .attempts import attempts
from .base import ReadOnlyAdmin, as_uuid, links, moment_of, page_link
from .filters import AppFilter
from .values import NOTHING

MAX_DEFINITIONS: Final = 200


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin[Worker]):
    """Sessions, the last heard of first."""

    registered = moment_of("registered_at", gettext_lazy("registered"))
    seen = moment_of("seen_at", gettext_lazy("last heard of"))
    gone = moment_of("left_at", gettext_lazy("left"))
    list_display = ("name", "shown_state", "app", "seen", "registered", "gone", "concurrency", "host", "sdk")
    list_select_related: ClassVar = ["app"]
    list_filter = (AppFilter,)
    ordering = ("-seen_at",)
    search_fields = ("name",)
    search_help_text = gettext_lazy("The beginning of a name")
    fields = ("name", "shown_state", "app", "host", "sdk", "concurrency", "registered", "seen", "gone", "serves")
    readonly_fields = ("shown_state", "serves", "registered", "seen", "gone")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        """Sessions with the database's moment, which says for how long they have been silent."""
        return super().get_queryset(request).annotate(now=Now())

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The page of one session, with what it holds for those who may view leases."""
        may_view = request.user.has_perm("ezgh_workflows.view_lease")
        session = as_uuid(object_id)
        rows = attempts(Lease.objects.filter(worker=session, live_step__isnull=False)) if may_view and session else []
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), "attempts": rows, "may_view_leases": may_view})

    def look_up(self, rows: QuerySet[Worker], term: str) -> QuerySet[Worker]:
        """Sessions whose name begins with the term."""
        return rows.filter(name__startswith=term)

    @admin.display(description=gettext_lazy("state"))
    def shown_state(self, worker: Worker) -> SafeString:
        """Here, silent for longer than what it announced lasts, or gone."""
        return words.badge(_state(worker))

    @admin.display(description=gettext_lazy("serves"))
    def serves(self, worker: Worker) -> SafeString | str:
        """The definitions it announces."""
        announced = Announcement.objects.using(database()).filter(worker=worker).select_related("definition").defer("definition__spec")
        return links(page_link(self.admin_site, Definition, each.definition_id, each.definition) for each in announced[:MAX_DEFINITIONS]) or NOTHING


def _state(worker: Worker) -> str:
    if worker.left_at is not None:
        return "left"
    return "silent" if read_at(worker) - worker.seen_at >= app_settings.ANNOUNCEMENT_TTL else "here"
