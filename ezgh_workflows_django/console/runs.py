"""The pages of runs: the list, one run with all that hangs on it, and the verbs. Statuses are moved by the engine alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..engine import reading
from ..engine.clock import Now, read_at
from ..engine.transactions import database
from ..models import Definition, Revision, Run, RunLabel, SpanRecord, Trail, UsageRecord
from ..protocol.states import RunStatus
from . import costs, run_page, words
from .base import ReadOnlyAdmin, as_uuid, links, list_link, list_url, moment_of, page_link, page_url, run_link
from .filters import AppFilter, RunStatusFilter, WorkflowFilter
from .values import NOTHING, block, pairs, text_block, value_block
from .verbs import CANCEL, MAX_RUNS, RETRY, VERBS, RunVerb, carry_out, first_of, too_many

MAX_NAMES: Final = 1_000
CONFIRMED: Final = "confirmed"


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin[Run]):
    """Runs, the newest first: their ids begin with the time."""

    created = moment_of("created_at", gettext_lazy("created"))
    to_start = moment_of("start_at", gettext_lazy("to start"))
    started = moment_of("started_at", gettext_lazy("started"))
    ended = moment_of("ended_at", gettext_lazy("ended"))
    deadline = moment_of("deadline_at", gettext_lazy("deadline"))
    list_display = ("short_id", "shown_status", "workflow", "created", "duration", "cost_in_short", "labels_shown", "correlation_id", "app")
    list_display_links = None
    list_prefetched = ("app",)
    list_filter = (RunStatusFilter, WorkflowFilter, AppFilter)
    list_deferred = ("payload", "state", "failure")
    search_fields = ("id",)
    search_help_text = gettext_lazy("A run's id, a correlation id, an idempotency key, or a label as name=value; exact")
    actions = ("cancel_selected", "retry_selected")
    fieldsets = (
        (None, {"fields": ("failed_because", "workflow_link", "app", "labels_shown", "result")}),
        (gettext_lazy("Values"), {"fields": ("payload_shown", "state_shown")}),
        (gettext_lazy("Usage"), {"fields": ("cost_shown", "usage_shown", "spans_link")}),
        (gettext_lazy("Times"), {"fields": (("created", "started", "ended"), ("to_start", "deadline", "duration"))}),
        (
            gettext_lazy("Identity"),
            {"fields": ("id", "correlation_id", "idempotency_key", "subject", "priority", "episode", "trace_id", "reason"), "classes": ("collapse",)},
        ),
    )
    readonly_fields = (
        *("failed_because", "workflow_link", "labels_shown", "result", "payload_shown", "state_shown", "subject"),
        *("cost_shown", "usage_shown", "spans_link"),
        *("created", "to_start", "started", "ended", "duration", "deadline"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        """Runs with the database's moment, which says how long a live one has taken."""
        return super().get_queryset(request).annotate(now=Now())

    def get_urls(self) -> list[URLPattern]:
        """The admin's own, and one page for each verb."""
        pages = [path(f"<path:object_id>/{verb.name}/", self._wrapped(verb), name=f"ezgh_workflows_run_{verb.name}") for verb in VERBS]
        return [*pages, *super().get_urls()]

    def look_up(self, rows: QuerySet[Run], term: str) -> QuerySet[Run]:
        """The runs a term names. A term with `=` is a label where there is one, else a key or an id like any other."""
        name, equals, value = term.partition("=")
        labelled = RunLabel.objects.using(database()).filter(name=name, value=value)
        if equals and labelled.exists():
            return rows.filter(pk__in=labelled.values("run_id"))
        return rows.filter(Q(correlation_id=term) | Q(pk__in=_named(term)))

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The page of one run, with the verbs that are the user's and that its state allows."""
        run = self.get_object(request, unquote(object_id))
        if run is None or not self.has_view_permission(request, run):
            return super().change_view(request, object_id, form_url, extra_context)
        offered = [verb for verb in VERBS if request.user.has_perm(verb.permission) and verb.offered(run)]
        context = {
            "page": run_page.look(self.admin_site, run, request.user),
            "run_verbs": [(verb.label, self._verb_url(verb, run.pk)) for verb in offered],
            "trail_url": list_url(self.admin_site, Trail, q=run.pk) if request.user.has_perm("ezgh_workflows.view_trail") else None,
        }
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **context})

    def verb_view(self, request: HttpRequest, object_id: str, verb: RunVerb) -> HttpResponse:
        """The page that asks before a verb is done to one run. Only its POST, with the CSRF token, does anything."""
        if not (request.user.has_perm(verb.permission) and self.has_view_permission(request)):
            raise PermissionDenied
        run = self.get_object(request, unquote(object_id))
        if run is None:
            raise Http404(f"there is no run {object_id[:64]}")
        form = verb.form(request.POST if request.method == "POST" else None)
        if form.is_valid():
            self._carry_out(request, verb, [run], form)
            return HttpResponseRedirect(page_url(self.admin_site, Run, run.pk))
        return self._ask(request, verb, [run], form, back=page_url(self.admin_site, Run, run.pk))

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the user may cancel runs."""
        return request.user.has_perm(CANCEL.permission)

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Whether the user may retry runs."""
        return request.user.has_perm(RETRY.permission)

    @admin.action(description=gettext_lazy("Cancel selected runs"), permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse | None:
        """Ask, then cancel."""
        return self._act_on_selected(request, queryset, CANCEL)

    @admin.action(description=gettext_lazy("Retry selected runs"), permissions=["retry"])
    def retry_selected(self, request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse | None:
        """Ask, then retry."""
        return self._act_on_selected(request, queryset, RETRY)

    @admin.display(description=gettext_lazy("id"))
    def short_id(self, run: Run) -> SafeString:
        """The end of its id, as a link to its page."""
        return run_link(self.admin_site, run.pk)

    @admin.display(description=gettext_lazy("status"))
    def shown_status(self, run: Run) -> SafeString:
        """The stored status; `phase` would take statements for each line of the list."""
        return words.badge(words.ATTENTION if run.attention else run.status)

    @admin.display(description=gettext_lazy("labels"))
    def labels_shown(self, run: Run) -> str:
        """The labels in a line."""
        return pairs(run.labels) or NOTHING

    @admin.display(description=gettext_lazy("duration"))
    def duration(self, run: Run) -> str:
        """From its start to its end, or to now."""
        return words.span(run.started_at, run.ended_at or read_at(run))

    @admin.display(description=gettext_lazy("cost"))
    def cost_in_short(self, run: Run) -> str:
        """What it cost so far, to a millionth."""
        return costs.money_in_short(costs.cost_of(run.usage))

    @admin.display(description=gettext_lazy("cost"))
    def cost_shown(self, run: Run) -> str:
        """What it cost so far, to the last digit."""
        return costs.money(costs.cost_of(run.usage))

    @admin.display(description=gettext_lazy("used"))
    def usage_shown(self, run: Run) -> SafeString | str:
        """What its steps used, and what of that had no price."""
        return costs.usage_lines(run.usage)

    @admin.display(description=gettext_lazy("see also"))
    def spans_link(self, run: Run) -> SafeString:
        """The lists of its spans and of its usage."""
        texts: dict[type[Any], str] = {SpanRecord: _("spans"), UsageRecord: _("usage records")}
        return links(list_link(self.admin_site, model, text, run=run.pk) for model, text in texts.items())

    @admin.display(description=gettext_lazy("failure"))
    def failed_because(self, run: Run) -> SafeString | str:
        """Why it failed, or needs attention."""
        failed = reading.failure(run)
        return NOTHING if failed is None else text_block(words.failure(failed))

    @admin.display(description=gettext_lazy("workflow"))
    def workflow_link(self, run: Run) -> SafeString:
        """The definition it is pinned to."""
        return page_link(self.admin_site, Definition, run.definition_id, f"{run.workflow}@{run.version}")

    @admin.display(description=gettext_lazy("result"))
    def result(self, run: Run) -> SafeString | str:
        """What it came to."""
        return value_block(reading.output(run)) if run.status == RunStatus.SUCCEEDED else NOTHING

    @admin.display(description=gettext_lazy("payload"))
    def payload_shown(self, run: Run) -> SafeString | str:
        """What it was started with."""
        return block(run.payload)

    @admin.display(description=gettext_lazy("state"))
    def state_shown(self, run: Run) -> SafeString | str:
        """What its steps share."""
        return block(run.state)

    @admin.display(description=gettext_lazy("subject"))
    def subject(self, run: Run) -> str:
        """The model instance it is about."""
        return f"{run.subject_label} {run.subject_id}" if run.subject_label else NOTHING

    def _wrapped(self, verb: RunVerb) -> Callable[..., HttpResponse]:
        def view(request: HttpRequest, object_id: str) -> HttpResponse:
            return self.verb_view(request, object_id, verb)

        return self.admin_site.admin_view(view)

    def _verb_url(self, verb: RunVerb, run_id: object) -> str:
        return reverse(f"admin:ezgh_workflows_run_{verb.name}", args=[run_id], current_app=self.admin_site.name)

    def _act_on_selected(self, request: HttpRequest, queryset: QuerySet[Run], verb: RunVerb) -> HttpResponse | None:
        """Ask first; once confirmed, the runs are those that were shown, whatever the list's filters say of them by now."""
        confirmed = CONFIRMED in request.POST
        rows = self.get_queryset(request).filter(pk__in=request.POST.getlist(ACTION_CHECKBOX_NAME)) if confirmed else queryset
        chosen = list(rows.defer(*self.list_deferred).order_by("-pk")[: MAX_RUNS + 1])
        if len(chosen) > MAX_RUNS:
            self.message_user(request, too_many(), messages.ERROR)
            return None
        form = verb.form(request.POST if confirmed else None)
        if not form.is_valid():
            return self._ask(request, verb, chosen, form, action=f"{verb.name}_selected", back=request.get_full_path())
        self._carry_out(request, verb, chosen, form)
        return None

    def _ask(self, request: HttpRequest, verb: RunVerb, chosen: Sequence[Run], form: Form, *, back: str, action: str = "") -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": verb.question,
            "opts": self.opts,
            "media": self.media,
            "verb": verb,
            "runs": [(run, page_url(self.admin_site, Run, run.pk), words.badge(run.status)) for run in chosen],
            "form": form,
            "action": action,
            "back": back,
            "checkbox_name": ACTION_CHECKBOX_NAME,
            "confirmed_name": CONFIRMED,
        }
        return TemplateResponse(request, "admin/ezgh_workflows/run/verb.html", context)

    def _carry_out(self, request: HttpRequest, verb: RunVerb, chosen: Sequence[Run], form: Form) -> None:
        came = carry_out(verb, chosen, form.cleaned_data, request.user.get_username())
        for run in came.done:
            self.log_change(request, run, str(verb.label))
        if came.done:
            self.message_user(request, verb.done(len(came.done)), messages.SUCCESS)
        for note in first_of(came.notes):
            self.message_user(request, note, messages.INFO)
        for refusal in first_of(came.refusals):
            self.message_user(request, refusal, messages.WARNING)


def _named(term: str) -> list[uuid.UUID]:
    """The runs whose id or idempotency key the term is: the key's index begins with app and workflow, so all of them are named."""
    known = Revision.objects.using(database()).order_by("app", "workflow").values_list("app", "workflow").distinct()[:MAX_NAMES]
    apps, workflows = {app for app, _ in known}, {workflow for _, workflow in known}
    keyed = Run.objects.using(database()).filter(app__in=apps, workflow__in=workflows, idempotency_key=term)
    run = as_uuid(term)
    return [*keyed.values_list("pk", flat=True)[:MAX_NAMES], *([] if run is None else [run])]
