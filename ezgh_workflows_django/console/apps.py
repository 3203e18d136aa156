"""The pages of apps: their queue, their partitions, whether they are paused."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..definitions.durations import in_words
from ..models import App, Definition, Run, Worker
from .base import ReadOnlyAdmin, links, list_link, moment_of


@admin.register(App)
class AppAdmin(ReadOnlyAdmin[App]):
    """Apps by name, with ways to what they run."""

    paused = moment_of("paused_at", gettext_lazy("paused"))
    created = moment_of("created_at", gettext_lazy("created"))
    list_display = ("name", "project", "kind", "queue", "partitions", "paused", "created")
    list_select_related: ClassVar = ["project"]
    ordering = ("name",)
    search_fields = ("name",)
    search_help_text = gettext_lazy("Part of a name")
    fields = ("name", "organization", "project_slug", "kind", "queue", "partitions", "longest_lease", "paused", "paused_reason", "created", "ways")
    readonly_fields = ("organization", "project_slug", "longest_lease", "ways", "paused", "created")

    def look_up(self, rows: QuerySet[App], term: str) -> QuerySet[App]:
        """Apps whose name has the term in it."""
        return rows.filter(name__icontains=term)

    @admin.display(description=gettext_lazy("organization"))
    def organization(self, app: App) -> str:
        """The organization's slug."""
        return app.project.organization.slug

    @admin.display(description=gettext_lazy("project"))
    def project_slug(self, app: App) -> str:
        """The project's slug."""
        return app.project.slug

    @admin.display(description=gettext_lazy("longest lease without a timeout"))
    def longest_lease(self, app: App) -> str:
        """How long a body without a timeout may run."""
        return in_words(app.invocation_ms)

    @admin.display(description=gettext_lazy("see also"))
    def ways(self, app: App) -> SafeString:
        """The app's runs, workers and definitions."""
        texts: dict[type[Any], str] = {Run: _("runs"), Worker: _("workers"), Definition: _("definitions")}
        return links(list_link(self.admin_site, model, text, app=app.pk) for model, text in texts.items())
