"""The pages of the price book: prices are added and put right, never deleted. The engine writes, and keeps the trail."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.exceptions import NON_FIELD_ERRORS
from django.db.models import ForeignKey, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from ..conf import app_settings
from ..engine import prices
from ..engine.transactions import database
from ..errors import InvalidArgument
from ..models import Price, Project
from ..protocol import amounts
from .base import _ModelAdmin, moment_of
from .paging import CappedPaginator


class PriceForm(forms.ModelForm):  # type: ignore[type-arg]  # Django's class takes no parameter at run time
    """A price. What the engine would refuse is told beside the field."""

    class Meta:
        model = Price
        fields = ("project", "model", "unit", "amount", "per", "effective_from")

    def clean(self) -> dict[str, Any]:
        """Raises nothing: each fault is the form's."""
        given: dict[str, Any] = super().clean() or {}
        told = {name: given.get(name, getattr(self.instance, name)) for name in ("model", "unit", "amount", "per")}
        if not self.errors:
            try:
                prices.check(**told)
            except InvalidArgument as error:
                self.add_error(error.field if error.field in self.fields else NON_FIELD_ERRORS, error.reason)
        return given


@admin.register(Price)
class PriceAdmin(_ModelAdmin[Price]):
    """Prices by model and unit, the newest first. What they are of, and since when, stays; another day is another price."""

    form = PriceForm
    changed = moment_of("changed_at", gettext_lazy("changed"))
    list_display = ("unit", "model", "price_shown", "effective_from", "project", "changed")
    list_select_related: ClassVar = ["project"]
    list_per_page = 50
    show_full_result_count = False
    paginator = CappedPaginator
    ordering = ("model", "unit", "-effective_from")
    sortable_by = ()
    search_fields = ("model", "unit")
    readonly_fields = ("changed",)
    kept: ClassVar = ("project", "model", "unit", "effective_from")

    class Media:
        css: ClassVar = {"all": ["ezgh_workflows/console.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Price]:
        """The book, in the database that holds the workflow tables."""
        return super().get_queryset(request).using(database())

    def get_readonly_fields(self, request: HttpRequest, obj: Price | None = None) -> tuple[str, ...]:
        """Of a price that is there, what it is of and since when."""
        return self.readonly_fields if obj is None else (*self.kept, *self.readonly_fields)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """The oldest project, which most sites have no other of, and today."""
        project = Project.objects.using(database()).order_by("pk").first()
        return {"project": None if project is None else project.pk, **super().get_changeform_initial_data(request)}

    def formfield_for_foreignkey(self, db_field: ForeignKey[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        """The projects of the database that holds the workflow tables."""
        return super().formfield_for_foreignkey(db_field, request, **{**kwargs, "using": database()})

    def has_delete_permission(self, request: HttpRequest, obj: Price | None = None) -> bool:
        """Never: what a unit once cost is history."""
        return False

    def save_model(self, request: HttpRequest, obj: Price, form: Any, change: bool) -> None:
        """The engine sets it, in the user's name."""
        kept = prices.set_price(
            obj.project,
            model=obj.model,
            unit=obj.unit,
            amount=obj.amount,
            per=obj.per,
            effective_from=obj.effective_from,
            by=("user", request.user.get_username()),
        )
        obj.pk = kept.pk

    @admin.display(description=gettext_lazy("price"))
    def price_shown(self, price: Price) -> str:
        """How much for how many."""
        amount = f"{amounts.text_of(price.amount)} {app_settings.CURRENCY}"
        return amount if price.per == 1 else f"{amount} / {price.per:,}"
