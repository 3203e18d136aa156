"""The pages of steps: where each node of a run's graph is, its values, its attempts."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from ..engine import reading
from ..engine.clock import StatementNow
from ..engine.transactions import database
from ..models import Lease, Step
from ..protocol import codec
from ..protocol.failures import Failure
from ..protocol.states import LeaseStatus, StepStatus
from . import costs, words
from .attempts import attempts
from .base import ReadOnlyAdmin, as_uuid, moment_of, run_link
from .filters import RunFilter, StepStatusFilter
from .values import NOTHING, block, text_block

LARGE = ("input", "output", "failure")


@admin.register(Step)
class StepAdmin(ReadOnlyAdmin[Step]):
    """Steps, the newest first."""

    available = moment_of("available_at", gettext_lazy("available"))
    timer = moment_of("timer_at", gettext_lazy("timer"))
    started = moment_of("started_at", gettext_lazy("started"))
    ended = moment_of("ended_at", gettext_lazy("ended"))
    list_display = ("name", "run_link", "kind", "shown_status", "attempts", "started", "ended", "available", "failures", "reclaims")
    list_filter = (StepStatusFilter, RunFilter)
    list_deferred = LARGE
    search_fields = ("run",)
    search_help_text = gettext_lazy("The id of a run")
    fieldsets = (
        (None, {"fields": ("name", "run_link", "kind", "shown_status", "failed_because")}),
        (gettext_lazy("Values"), {"fields": ("input_shown", "output_shown", "wait_key")}),
        (gettext_lazy("Counts and times"), {"fields": (("attempts", "failures", "reclaims"), ("available", "timer"), ("started", "ended"), "usage_shown")}),
    )
    readonly_fields = ("run_link", "shown_status", "failed_because", "input_shown", "output_shown", "available", "timer", "started", "ended", "usage_shown")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Step]:
        """Steps with whether their lease has expired without anything done about it."""
        return super().get_queryset(request).annotate(expired=expired_lease())

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The page of one step, its attempts for those who may view leases."""
        may_view = request.user.has_perm("ezgh_workflows.view_lease")
        step = self.get_object(request, unquote(object_id)) if may_view else None
        rows = [] if step is None else attempts(Lease.objects.filter(step=step))
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), "attempts": rows, "may_view_leases": may_view})

    def look_up(self, rows: QuerySet[Step], term: str) -> QuerySet[Step]:
        """The steps of a run."""
        run = as_uuid(term)
        return rows.none() if run is None else rows.filter(run=run)

    @admin.display(description=gettext_lazy("run"))
    def run_link(self, step: Step) -> SafeString:
        """The run it belongs to."""
        return run_link(self.admin_site, step.run_id)

    @admin.display(description=gettext_lazy("status"))
    def shown_status(self, step: Step) -> SafeString:
        """The status; `expired` where its worker's lease has expired."""
        return words.badge(status_of(step))

    @admin.display(description=gettext_lazy("used"))
    def usage_shown(self, step: Step) -> SafeString | str:
        """What it used, and what that cost."""
        return costs.usage_lines(step.usage)

    @admin.display(description=gettext_lazy("failure"))
    def failed_because(self, step: Step) -> SafeString | str:
        """Why it failed."""
        return NOTHING if step.failure is None else text_block(words.failure(Failure.from_json(codec.loads(step.failure))))

    @admin.display(description=gettext_lazy("input"))
    def input_shown(self, step: Step) -> SafeString | str:
        """What it was given, wherever that is kept."""
        return block(reading.input_of(step))

    @admin.display(description=gettext_lazy("output"))
    def output_shown(self, step: Step) -> SafeString | str:
        """What it came to."""
        return block(step.output)


def expired_lease() -> Exists:
    """Whether a step is in the hands of a lease that is past its last moment and has not been seen to."""
    held = Lease.objects.using(database()).filter(live_step=OuterRef("pk"), status__in=[LeaseStatus.OFFERED, LeaseStatus.STARTED])
    return Exists(held.filter(expires_at__lte=StatementNow()))


def status_of(step: Any) -> str:
    """A step's status as it is shown; the step was read with `expired=expired_lease()`."""
    return words.EXPIRED if step.status == StepStatus.LEASED and step.expired else str(step.status)
