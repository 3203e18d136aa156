"""The pages of schedules: when they fire, what became of it, and the verbs. The engine does them and writes the trail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..engine import schedules
from ..engine.transactions import database
from ..errors import InvalidArgument, InvalidPayload, NotFound, StartError
from ..models import Definition, Occurrence, Run, Schedule
from . import words
from .base import ReadOnlyAdmin, moment_of, page_link
from .filters import AppFilter
from .values import NOTHING, block, pairs
from .verbs import first_of

MAX_SCHEDULES: Final = 200
"""How many schedules one request acts on: each is a transaction of its own."""

MAX_OCCURRENCES: Final = 50

_BECAME: Final = {
    "waiting": gettext_lazy("waits for its turn"),
    "started": gettext_lazy("started"),
    "skipped": gettext_lazy("skipped"),
    "missed": gettext_lazy("missed"),
}


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin[Schedule]):
    """Schedules by workflow, those that are taken out of their workflow last."""

    next_one = moment_of("next_at", gettext_lazy("next"))
    paused = moment_of("paused_at", gettext_lazy("paused"))
    removed = moment_of("removed_at", gettext_lazy("removed"))
    list_display = ("__str__", "timezone", "app", "next_one", "overlap", "catch_up", "paused", "removed")
    list_prefetched = ("app",)
    list_filter = (AppFilter,)
    list_deferred = ("payload",)
    ordering = ("workflow", "number", "pk")
    search_fields = ("workflow",)
    search_help_text = gettext_lazy("The exact name of a workflow")
    actions = ("pause_selected", "resume_selected", "run_selected")
    fields = (
        *("workflow", "app", "number", "expression", "timezone", "ahead", "overlap", "catch_up", "paused", "paused_reason", "removed"),
        *("follows", "payload_shown", "labels_shown", "became"),
    )
    readonly_fields = ("ahead", "paused", "removed", "follows", "payload_shown", "labels_shown", "became")

    def look_up(self, rows: QuerySet[Schedule], term: str) -> QuerySet[Schedule]:
        """The schedules of a workflow."""
        return rows.filter(workflow=term)

    def has_pause_permission(self, request: HttpRequest) -> bool:
        """Whether the user may pause schedules."""
        return request.user.has_perm("ezgh_workflows.pause_schedule")

    def has_resume_permission(self, request: HttpRequest) -> bool:
        """Whether the user may resume schedules."""
        return request.user.has_perm("ezgh_workflows.resume_schedule")

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Whether the user may run schedules now."""
        return request.user.has_perm("ezgh_workflows.run_schedule")

    @admin.action(description=gettext_lazy("Pause selected schedules"), permissions=["pause"])
    def pause_selected(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        """Let them fire no more."""
        self._carry_out(request, queryset, schedules.pause, lambda n: ngettext("%(count)d schedule is paused.", "%(count)d schedules are paused.", n))

    @admin.action(description=gettext_lazy("Resume selected schedules"), permissions=["resume"])
    def resume_selected(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        """Let them fire again, from now on."""
        self._carry_out(request, queryset, schedules.resume, lambda n: ngettext("%(count)d schedule is resumed.", "%(count)d schedules are resumed.", n))

    @admin.action(description=gettext_lazy("Run selected schedules now"), permissions=["run"])
    def run_selected(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        """Start what they start."""
        self._carry_out(request, queryset, schedules.run, lambda n: ngettext("%(count)d run is started.", "%(count)d runs are started.", n))

    @admin.display(description=gettext_lazy("next times"))
    def ahead(self, schedule: Schedule) -> SafeString | str:
        """When it fires, the next five times."""
        moments = format_html_join("", '<li class="ezw-moment">{}</li>', ((words.moment(at),) for at in schedules.ahead(schedule)))
        return format_html("<ul>{}</ul>", moments) if moments else NOTHING

    @admin.display(description=gettext_lazy("follows"))
    def follows(self, schedule: Schedule) -> SafeString:
        """The definition that it starts."""
        return page_link(self.admin_site, Definition, schedule.definition_id, schedule.definition)

    @admin.display(description=gettext_lazy("payload"))
    def payload_shown(self, schedule: Schedule) -> SafeString | str:
        """What its runs are started with."""
        return block(schedule.payload)

    @admin.display(description=gettext_lazy("labels"))
    def labels_shown(self, schedule: Schedule) -> str:
        """The labels of its runs."""
        return pairs(schedule.labels) or NOTHING

    @admin.display(description=gettext_lazy("what became of it"))
    def became(self, schedule: Schedule) -> SafeString | str:
        """Its last occurrences, the newest first."""
        rows = Occurrence.objects.using(database()).filter(schedule=schedule).order_by("-pk")[:MAX_OCCURRENCES]
        lines = format_html_join("", "<li>{}</li>", ((self._line(row),) for row in rows))
        return format_html("<ul>{}</ul>", lines) if lines else NOTHING

    def _line(self, row: Occurrence) -> SafeString:
        at = _("by hand, %(by)s") % {"by": row.by} if row.at is None else words.moment(row.at)
        told = row.reason if row.run_id is None else page_link(self.admin_site, Run, row.run_id, _("run"))
        return format_html('<span class="ezw-moment">{}</span>: {} {}', at, _BECAME.get(row.became, row.became), told)

    def _carry_out(self, request: HttpRequest, queryset: QuerySet[Schedule], verb: Callable[..., Any], done_text: Callable[[int], str]) -> None:
        """Do a verb to each, in the user's name; a refusal stops no other."""
        chosen = list(queryset.defer(*self.list_deferred)[: MAX_SCHEDULES + 1])
        if len(chosen) > MAX_SCHEDULES:
            self.message_user(request, _("At most %(count)d schedules at once. Nothing was done.") % {"count": MAX_SCHEDULES}, messages.ERROR)
            return
        done, refusals = 0, []
        for schedule in chosen:
            try:
                verb(schedule.pk, by=("user", request.user.get_username()))
                self.log_change(request, schedule, verb.__name__)
                done += 1
            except (NotFound, StartError, InvalidArgument, InvalidPayload) as error:
                refusals.append(f"{schedule}: {error}")
        if done:
            self.message_user(request, done_text(done) % {"count": done}, messages.SUCCESS)
        for refusal in first_of(tuple(refusals)):
            self.message_user(request, refusal, messages.WARNING)
