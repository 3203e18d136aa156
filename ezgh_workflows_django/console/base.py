"""What every page of the console is: read-only, in the workflows' database, bounded in what it asks for. Registers nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from django.contrib import admin
from django.contrib.admin import ShowFacets
from django.contrib.admin.sites import AdminSite
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from ..engine.transactions import database
from ..models import Run
from .paging import BoundedChangeList, CappedPaginator
from .words import moment

M = TypeVar("M", bound=Model)

ID_TAIL: Final = 12

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

    class _ModelAdmin(admin.ModelAdmin[M]):
        """Django's class, with the parameter its stubs give it."""

else:

    class _ModelAdmin(admin.ModelAdmin):
        """Django's class, which takes no parameter at run time."""

        def __class_getitem__(cls, parameter: object) -> type:
            return cls


class ReadOnlyAdmin(_ModelAdmin[M]):
    """Rows that nobody adds, changes or deletes by hand; who may view them is as Django says.

    `list_deferred` names the columns a list leaves in the database, `list_prefetched` the small tables that a list of a large one
    reads apart: joined, MariaDB begins with the small one and sorts the large one whole. A page with a search box says in `look_up` what it finds,
    by indexed columns.
    """

    list_per_page = 50
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    paginator = CappedPaginator
    sortable_by = ()
    ordering: ClassVar[tuple[str, ...]] = ("-pk",)
    list_deferred: ClassVar[tuple[str, ...]] = ()
    list_prefetched: ClassVar[tuple[str, ...]] = ()

    class Media:
        css: ClassVar = {"all": ["ezgh_workflows/console.css"]}

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """None but by the filters: a lookup by hand could scan a large table, or ask for what the database refuses."""
        return lookup in {getattr(each, "parameter_name", "") for each in self.list_filter}

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: rows come from the engine."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        """Never: rows are moved by the engine's verbs."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        """Never: rows go by retention."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        """The rows, in the database that holds the workflow tables."""
        return super().get_queryset(request).using(database())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """A list without the large columns."""
        return BoundedChangeList

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[M], search_term: str) -> tuple[QuerySet[M], bool]:
        """What `look_up` finds for the term; everything without one. Never doubles a row."""
        term = search_term.strip()
        return (self.look_up(queryset, term) if term else queryset), False

    def look_up(self, rows: QuerySet[M], term: str) -> QuerySet[M]:
        """The rows a search term means. A page with `search_fields` overrides it."""
        return rows.none()


def moment_of(column: str, title: str | _StrPromise) -> Callable[[Any, Any], SafeString]:
    """A field of a page or a list that shows a moment to the second, which Django's own formats leave out."""

    def shown(page: Any, row: Any) -> SafeString:
        return format_html('<span class="ezw-moment">{}</span>', moment(getattr(row, column)))

    return admin.display(description=title)(shown)


def as_uuid(term: str) -> uuid.UUID | None:
    """The id a text spells, or None."""
    try:
        return uuid.UUID(term)
    except ValueError:
        return None


def page_link(site: AdminSite, model: type[Model], pk: object, text: object) -> SafeString:
    """A link to the page of one row."""
    return format_html('<a href="{}">{}</a>', page_url(site, model, pk), text)


def run_link(site: AdminSite, run_id: uuid.UUID | str) -> SafeString:
    """A link to a run's page that shows the end of its id, the part in which runs of one time differ, and has all of it at hand."""
    url = page_url(site, Run, run_id)
    return format_html('<a href="{}" title="{}" class="ezw-moment">…{}</a>', url, run_id, str(run_id)[-ID_TAIL:])


def page_url(site: AdminSite, model: type[Model], pk: object) -> str:
    """The address of the page of one row."""
    return reverse(f"admin:{_name(model)}_change", args=[quote(str(pk))], current_app=site.name)


def list_url(site: AdminSite, model: type[Model], **choices: str | int | uuid.UUID) -> str:
    """The address of a list, with these filters chosen."""
    return f"{reverse(f'admin:{_name(model)}_changelist', current_app=site.name)}?{urlencode({name: str(choice) for name, choice in choices.items()})}"


def list_link(site: AdminSite, model: type[Model], text: object, **choices: str | int | uuid.UUID) -> SafeString:
    """A link to a list, with these filters chosen."""
    return format_html('<a href="{}">{}</a>', list_url(site, model, **choices), text)


def links(several: Iterable[SafeString]) -> SafeString:
    """Links in one line."""
    return format_html_join(" · ", "{}", ((each,) for each in several))


def _name(model: type[Model]) -> str:
    return f"{model._meta.app_label}_{model._meta.model_name}"
