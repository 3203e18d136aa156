"""The filters of the lists: choices from small tables or from the code, never from a scan of a large one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from ..engine.clock import StatementNow
from ..engine.transactions import database
from ..models import App, Revision, Step, Trail
from ..protocol import codec
from ..protocol.states import LeaseStatus, RunStatus, StepStatus
from .base import as_uuid
from .paging import newest
from .words import ATTENTION, EXPIRED, LIVE, state

MAX_CHOICES: Final = 100
MAX_VALUE: Final = 255
ONE_RUN: Final = "run"
Choice = tuple[str, str]


class Filter(admin.SimpleListFilter):
    """A filter whose value every database here can be asked for, whatever stands in the address."""

    def value(self) -> str | None:
        """The value of the address; None where it has none."""
        given = super().value()
        return None if given is None else codec.clean_text(given, MAX_VALUE)


class AppFilter(Filter):
    """One app's rows."""

    title = gettext_lazy("app")
    parameter_name = "app"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[Choice]:
        """The apps by name."""
        return [(str(pk), name) for pk, name in App.objects.using(database()).order_by("name").values_list("pk", "name")[:MAX_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of the chosen app."""
        if self.value() is None:
            return queryset
        is_key = str(self.value()).isdecimal() and len(str(self.value())) < 19  # what a 64-bit key can be
        return queryset.filter(app=self.value()) if is_key else queryset.none()


class WorkflowFilter(Filter):
    """The rows of workflows of one name."""

    title = gettext_lazy("workflow")
    parameter_name = "workflow"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[Choice]:
        """The names in the table of revisions, which is as small as the code is."""
        names = Revision.objects.using(database()).order_by("workflow").values_list("workflow", flat=True).distinct()
        return [(name, name) for name in names[:MAX_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of the chosen workflow."""
        return queryset if self.value() is None else queryset.filter(workflow=self.value())


class RunFilter(Filter):
    """The rows of one run. It is chosen by a link, so it is shown only where one was followed."""

    title = gettext_lazy("run")
    parameter_name = ONE_RUN

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[Choice]:
        """The run that was chosen, and no other."""
        return [(self.value() or "", self.value() or "")] if self.value() else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of the chosen run, in the order in which they came."""
        if self.value() is None:
            return queryset
        chosen = as_uuid(str(self.value()))
        return queryset.none() if chosen is None else queryset.filter(run=chosen)


class StateFilter(Filter):
    """The rows in one state. Subclasses name the states."""

    title = gettext_lazy("status")
    parameter_name = "status"
    states: ClassVar[Iterable[str]] = ()

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[Choice]:
        """The states in words."""
        return [(name, state(name)) for name in self.states]


class RunStatusFilter(StateFilter):
    """Runs in one status, or those that need an operator."""

    states = (ATTENTION, *RunStatus)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The runs in the chosen status. Naming the apps lets the index on app and status find the rare ones."""
        if self.value() is None:
            return queryset
        indexed = queryset.filter(app__in=list(App.objects.using(database()).values_list("pk", flat=True)[:1000]))
        return indexed.filter(status=RunStatus.PAUSED, attention=True) if self.value() == ATTENTION else indexed.filter(status=self.value())


class StepStatusFilter(StateFilter):
    """Steps in one status: of one run, or among the newest steps, because the column has no index of its own."""

    title = gettext_lazy("status (of the newest steps)")
    states = tuple(StepStatus)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The steps in the chosen status."""
        if self.value() is None:
            return queryset
        near = queryset if request.GET.get(ONE_RUN) else newest(queryset, Step, database())
        return near.filter(status=self.value())


class LeaseStatusFilter(StateFilter):
    """Leases that live, that have expired and are not seen to yet, or that ended in one way."""

    states = (LIVE, EXPIRED, *LeaseStatus)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The leases in the chosen state."""
        chosen = self.value()
        if chosen is None:
            return queryset
        if chosen == LIVE:
            return queryset.filter(live_step__isnull=False)
        if chosen == EXPIRED:
            return queryset.filter(status__in=[LeaseStatus.OFFERED, LeaseStatus.STARTED], expires_at__lte=StatementNow())
        return queryset.filter(status=chosen)


class RecentFilter(Filter):
    """The values of one column of the trail, as its newest entries have them."""

    looked_at: ClassVar[int] = 10_000
    column: ClassVar[str]

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[Choice]:
        """The values among the newest entries."""
        trails = Trail.objects.using(database())
        last = trails.order_by("-pk").values_list("pk", flat=True).first() or 0
        found = trails.filter(pk__gt=last - self.looked_at).order_by(self.column).values_list(self.column, flat=True).distinct()
        return [(value, value) for value in found[:MAX_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The entries with the chosen value."""
        return queryset if self.value() is None else queryset.filter(**{self.column: self.value()})


class ActionFilter(RecentFilter):
    """What was done."""

    title = gettext_lazy("action")
    parameter_name = column = "action"


class ActorFilter(RecentFilter):
    """Who did it."""

    title = gettext_lazy("actor")
    parameter_name = column = "actor"
