"""The pages of definitions: what an app knows to run, each version as it was stored."""

from __future__ import annotations

from typing import ClassVar, Final

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..engine.transactions import database
from ..models import Announcement, Definition, Run, Worker
from .base import ReadOnlyAdmin, links, list_link, moment_of, page_link
from .filters import AppFilter, WorkflowFilter
from .values import NOTHING, block

MAX_WORKERS: Final = 50


@admin.register(Definition)
class DefinitionAdmin(ReadOnlyAdmin[Definition]):
    """Definitions, the newest first."""

    created = moment_of("created_at", gettext_lazy("created"))
    list_display = ("workflow", "revision_name", "version", "app", "created")
    list_select_related: ClassVar = ["app", "revision"]
    list_filter = (AppFilter, WorkflowFilter)
    list_deferred = ("spec", "input_schemas")
    search_fields = ("workflow",)
    search_help_text = gettext_lazy("Part of a workflow's name")
    fields = ("workflow", "revision_name", "version", "app", "created", "announced_by", "ways", "spec_shown", "schemas_shown")
    readonly_fields = ("revision_name", "announced_by", "ways", "spec_shown", "schemas_shown", "created")

    def look_up(self, rows: QuerySet[Definition], term: str) -> QuerySet[Definition]:
        """Definitions whose workflow's name has the term in it."""
        return rows.filter(workflow__icontains=term)

    @admin.display(description=gettext_lazy("revision"))
    def revision_name(self, definition: Definition) -> str:
        """What workers say they serve."""
        return definition.revision.revision

    @admin.display(description=gettext_lazy("announced by"))
    def announced_by(self, definition: Definition) -> SafeString | str:
        """The worker sessions that serve it now."""
        announced = Announcement.objects.using(database()).filter(definition=definition).select_related("worker")[:MAX_WORKERS]
        return links(page_link(self.admin_site, Worker, each.worker_id, each.worker.name) for each in announced) or NOTHING

    @admin.display(description=gettext_lazy("see also"))
    def ways(self, definition: Definition) -> SafeString:
        """The runs of its workflow."""
        return list_link(self.admin_site, Run, _("runs"), app=definition.app_id, workflow=definition.workflow)

    @admin.display(description=gettext_lazy("definition"))
    def spec_shown(self, definition: Definition) -> SafeString | str:
        """Its wire form."""
        return block(definition.spec)

    @admin.display(description=gettext_lazy("schemas of its inputs"))
    def schemas_shown(self, definition: Definition) -> SafeString | str:
        """What its bodies take."""
        return block(definition.input_schemas)
