"""The list of leases: who holds what for how long, and which were reclaimed, when, from whom, how late.

A lease has no page of its own, because its address would hold its id, and whoever knows that may write its outcome.
"""

from __future__ import annotations

from typing import ClassVar, Final

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import URLPattern
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from ..engine.clock import Now, read_at
from ..engine.transactions import database
from ..models import Lease, Step, Worker
from ..protocol.states import LIVE_LEASE, LeaseStatus
from . import words
from .attempts import ending, late
from .base import ReadOnlyAdmin, as_uuid, moment_of, page_link, run_link
from .filters import LeaseStatusFilter, RunFilter

MAX_SESSIONS: Final = 1_000


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin[Lease]):
    """Leases, the newest steps' first; those of one ended status by their end, the latest first."""

    actions = None
    offered = moment_of("offered_at", gettext_lazy("offered"))
    expires = moment_of("expires_at", gettext_lazy("expires"))
    ended = moment_of("ended_at", gettext_lazy("ended"))
    list_display = (
        *("shown_status", "step_link", "run_link", "attempt", "worker_name", "ended", "lateness", "step_status"),
        *("why", "offered", "expires"),
    )
    list_display_links = None
    list_select_related: ClassVar = ["step"]
    list_filter = (LeaseStatusFilter, RunFilter)
    list_deferred = ("progress", "traceback", "step__input", "step__output", "step__failure")
    search_fields = ("run",)
    search_help_text = gettext_lazy("The id of a run, or the exact name of a worker")

    def get_urls(self) -> list[URLPattern]:
        """The list alone."""
        return [url for url in super().get_urls() if url.name == f"{self.opts.app_label}_{self.opts.model_name}_changelist"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Lease]:
        """Leases with the database's moment, which says whether they have expired."""
        return super().get_queryset(request).annotate(now=Now())

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """By an index in either case: on step and token, or on status and end."""
        ended = set(LeaseStatus) - LIVE_LEASE
        return ("-ended_at",) if request.GET.get(LeaseStatusFilter.parameter_name) in ended else ("-step", "-token")

    def look_up(self, rows: QuerySet[Lease], term: str) -> QuerySet[Lease]:
        """The leases of a run, or of the sessions of a worker."""
        run = as_uuid(term)
        if run is not None:
            return rows.filter(run=run)
        sessions = Worker.objects.using(database()).filter(name=term).order_by("-seen_at").values_list("pk", flat=True)
        return rows.filter(worker__in=list(sessions[:MAX_SESSIONS]))

    @admin.display(description=gettext_lazy("status"))
    def shown_status(self, lease: Lease) -> SafeString:
        """The status; `expired` from the lease's last moment on."""
        return words.badge(words.lease_state(lease, read_at(lease)))

    @admin.display(description=gettext_lazy("step"))
    def step_link(self, lease: Lease) -> SafeString:
        """The step it is an attempt of."""
        return page_link(self.admin_site, Step, lease.step_id, lease.step.name)

    @admin.display(description=gettext_lazy("run"))
    def run_link(self, lease: Lease) -> SafeString:
        """The run it belongs to."""
        return run_link(self.admin_site, lease.run_id)

    @admin.display(description=gettext_lazy("reclaimed late by"))
    def lateness(self, lease: Lease) -> str:
        """How long after its last moment it was reclaimed."""
        return late(lease)

    @admin.display(description=gettext_lazy("step is now"))
    def step_status(self, lease: Lease) -> SafeString:
        """What became of the step."""
        return words.badge(lease.step.status)

    @admin.display(description=gettext_lazy("ending"))
    def why(self, lease: Lease) -> str:
        """Why it ended, and what its worker was refused."""
        return ending(lease)
