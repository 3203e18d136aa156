"""Lists that stay fast over millions of rows: a bounded count, and no payload in a row. Owns no page."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Max, Model, QuerySet
from django.http import HttpRequest

if TYPE_CHECKING:
    from .base import ReadOnlyAdmin

    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator  # takes no parameter at run time

MAX_COUNTED: Final = 5_000
"""How many rows a list pages through; a filter reaches what lies behind."""

NEWEST: Final = 20_000
"""How many of the newest rows are looked at for a column without an index."""


class CappedPaginator(_Paginator):
    """Counts to `MAX_COUNTED` and no further."""

    @cached_property
    def count(self) -> int:
        """The number of rows, at most `MAX_COUNTED`."""
        return min(self._counted, MAX_COUNTED)

    @property
    def is_capped(self) -> bool:
        """Whether there are more rows than this pages through."""
        return self._counted > MAX_COUNTED

    @cached_property
    def _counted(self) -> int:
        rows = self.object_list
        return rows.order_by().values("pk")[: MAX_COUNTED + 1].count() if isinstance(rows, QuerySet) else len(rows)


class BoundedChangeList(ChangeList):
    """A list that leaves the columns in a page's `list_deferred` in the database, and reads those in `list_prefetched` apart."""

    model_admin: ReadOnlyAdmin[Any]

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """The rows of the list, without the large columns."""
        rows: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        return rows.defer(*self.model_admin.list_deferred).prefetch_related(*self.model_admin.list_prefetched)

    def apply_select_related(self, qs: QuerySet[Any]) -> QuerySet[Any]:
        """Join what the page names, and nothing else: Django's own joins every table it can for one foreign key in the list."""
        named = self.list_select_related
        return qs.select_related(*named) if isinstance(named, (list, tuple)) and named else qs


def newest(rows: QuerySet[Any], model: type[Model], database: str) -> QuerySet[Any]:
    """The rows among the `NEWEST` of a table whose keys are counted up."""
    last = model._default_manager.using(database).aggregate(last=Max("pk"))["last"] or 0
    return rows.filter(pk__gt=last - NEWEST)
