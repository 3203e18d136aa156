"""Every page of the console: it is there for who may view it, read-only, bounded, and never shows a lease's id."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import NoReverseMatch, reverse

from ezgh_workflows_django import emit
from ezgh_workflows_django.console.base import ReadOnlyAdmin
from ezgh_workflows_django.engine import runs
from ezgh_workflows_django.models import Lease
from ezgh_workflows_django.protocol.notes import Usage
from tests.console.conftest import Shop, list_of, page_of, staff, text

SPAN = {"id": "00f067aa0ba902b7", "name": "call", "start": "2024-01-01T09:00:00Z", "end": "2024-01-01T09:00:01Z", "attributes": {"page": 1}}
MODELS = ("app", "definition", "run", "step", "lease", "journalentry", "event", "worker", "trail", "usagerecord", "spanrecord", "schedule")
WITH_PAGE = tuple(model for model in MODELS if model != "lease")


@pytest.fixture
def busy(shop: Shop) -> Shop:
    """A row for every page: a run at work, a run that waits, a failed one, a cancelled one, an event."""
    shop.waiting("A-2")
    shop.failed(usage=(Usage(unit="calls", amount="1"),), spans=(SPAN,))
    runs.cancel(shop.start("A-3").pk, "no stock", actor=("user", "ann"))
    shop.started(labels={"team": "blue"})
    emit("payment", key="A-9", payload={"paid": 1})
    shop.scheduled()
    return shop


def a_row(model: str) -> Any:
    """The newest row of a model."""
    return _model(model)._default_manager.order_by("pk").last()


def _model(name: str) -> Any:
    return next(model for model in admin.site._registry if model._meta.label_lower == f"ezgh_workflows.{name}")


def test_these_are_the_pages() -> None:
    ours = {model._meta.model_name for model, page in admin.site._registry.items() if isinstance(page, ReadOnlyAdmin)}
    assert ours == set(MODELS)


def test_a_viewer_sees_the_list(busy: Shop, viewer: Client, subtests: pytest.Subtests) -> None:
    for model in MODELS:
        with subtests.test(model):
            assert 'id="result_list"' in text(viewer, list_of(model))


@pytest.mark.parametrize("value", ["99999999999999999999999", "%00", "%ED%A0%80"])
def test_a_filter_takes_whatever_stands_in_the_address(busy: Shop, viewer: Client, value: str, subtests: pytest.Subtests) -> None:
    for model in MODELS:
        filters: Any = admin.site._registry[_model(model)].list_filter
        names = [each.parameter_name for each in filters]
        with subtests.test(model):
            assert viewer.get(f"{list_of(model)}?{'&'.join(f'{name}={value}' for name in names)}").status_code == 200


def test_a_list_takes_no_lookup_but_those_of_its_filters(busy: Shop, viewer: Client, subtests: pytest.Subtests) -> None:
    for model in MODELS:
        with subtests.test(model):
            assert viewer.get(f"{list_of(model)}?pk__gt=99999999999999999999999").status_code == 400


def test_a_viewer_sees_the_page_of_a_row(busy: Shop, viewer: Client, subtests: pytest.Subtests) -> None:
    for model in WITH_PAGE:
        with subtests.test(model):
            assert 'name="_save"' not in text(viewer, page_of(a_row(model)))


def test_nobody_adds_rows_by_hand(busy: Shop, root: Client, subtests: pytest.Subtests) -> None:
    for model in MODELS:
        with subtests.test(model):
            page = admin.site.get_model_admin(_model(model))
            assert not page.has_add_permission(root.get("/admin/").wsgi_request)


def test_nobody_changes_or_deletes_rows_by_hand(busy: Shop, root: Client, subtests: pytest.Subtests) -> None:
    for model, action in itertools.product(WITH_PAGE, ("change", "delete")):
        with subtests.test(f"{action} {model}"):
            row = a_row(model)
            response = root.post(reverse(f"admin:ezgh_workflows_{model}_{action}", args=[row.pk]), {"post": "yes"})
            assert response.status_code == 403
            assert a_row(model) == row


def test_a_list_offers_no_deleting(busy: Shop, root: Client, subtests: pytest.Subtests) -> None:
    for model in MODELS:
        with subtests.test(model):
            assert "delete_selected" not in text(root, list_of(model))


def test_a_list_takes_its_own_view_permission(busy: Shop, subtests: pytest.Subtests) -> None:
    for model in MODELS:
        with subtests.test(model):
            stranger = staff(f"no {model}", *(f"view_{other}" for other in MODELS if other != model))
            assert stranger.get(list_of(model)).status_code == 403


def test_a_page_takes_its_own_view_permission(busy: Shop, subtests: pytest.Subtests) -> None:
    for model in WITH_PAGE:
        with subtests.test(model):
            stranger = staff(f"no {model}", *(f"view_{other}" for other in MODELS if other != model))
            assert stranger.get(page_of(a_row(model))).status_code == 403


@pytest.mark.parametrize(("permission", "heading"), [("step", "Steps"), ("lease", "Attempts"), ("journalentry", "Journal")])
def test_a_table_of_the_run_page_takes_the_permission_of_its_rows(busy: Shop, permission: str, heading: str) -> None:
    reader = staff("reader", *(f"view_{model}" for model in MODELS if model != permission))
    run = a_row("run")
    assert f'<h2 class="fieldset-heading">{heading}</h2>' not in text(reader, page_of(run))
    assert f'<h2 class="fieldset-heading">{heading}</h2>' in text(staff("other", *(f"view_{model}" for model in MODELS)), page_of(run))


def test_no_list_shows_the_id_of_a_lease(busy: Shop, operator: Client, subtests: pytest.Subtests) -> None:
    for model in MODELS:
        with subtests.test(model):
            shown = text(operator, list_of(model))
            assert not _ids_of_leases() & set(re.findall(r"[0-9a-f-]{32,36}", shown))


def test_no_page_shows_the_id_of_a_lease(busy: Shop, operator: Client, subtests: pytest.Subtests) -> None:
    for model in WITH_PAGE:
        with subtests.test(model):
            shown = text(operator, page_of(a_row(model)))
            assert not _ids_of_leases() & set(re.findall(r"[0-9a-f-]{32,36}", shown))


def _ids_of_leases() -> set[str]:
    leases = Lease.objects.values_list("pk", flat=True)
    found = {form for pk in leases for form in (str(pk), pk.hex)}
    assert found
    return found


@pytest.mark.parametrize("page", ["change", "delete", "history", "add"])
def test_a_lease_has_no_page_whose_address_would_hold_its_id(page: str) -> None:
    with pytest.raises(NoReverseMatch):
        reverse(f"admin:ezgh_workflows_lease_{page}", args=[] if page == "add" else ["x"])


def test_pages_bring_no_script_or_style_of_their_own(busy: Shop, operator: Client, subtests: pytest.Subtests) -> None:
    """A strict Content-Security-Policy blocks both."""
    for model in MODELS:
        with subtests.test(model):
            shown = text(operator, list_of(model))
            assert not re.search(r"\sstyle=|<style|\son\w+=|<script>", shown)


def test_the_run_page_brings_no_script_or_style_of_its_own(busy: Shop, operator: Client) -> None:
    assert not re.search(r"\sstyle=|<style|\son\w+=|<script>", text(operator, page_of(a_row("run"))))


def statements(client: Client, address: str) -> list[str]:
    """The statements a page takes."""
    with CaptureQueriesContext(connection) as captured:
        text(client, address)
    return [query["sql"] for query in captured.captured_queries]


def test_a_list_takes_as_many_statements_for_many_rows_as_for_few(busy: Shop, viewer: Client, subtests: pytest.Subtests) -> None:
    few = {model: len(statements(viewer, list_of(model))) for model in MODELS}
    second = busy.desk.worker(busy.order, name="w2")
    busy.order.start_many([{"order": f"M-{number}"} for number in range(20)])
    [second.start(lease) for lease in second.claim(20)]
    emit("payment", key="A-8")
    busy.failed(usage=tuple(Usage(unit=f"u{number}", amount="1") for number in range(9)), spans=(SPAN,))
    for model in MODELS:
        with subtests.test(model):
            assert len(statements(viewer, list_of(model))) == few[model] <= 12


def test_no_list_counts_a_whole_table(busy: Shop, viewer: Client, subtests: pytest.Subtests) -> None:
    """B91."""
    for model in MODELS:
        with subtests.test(model):
            counts = [statement for statement in statements(viewer, list_of(model)) if "COUNT(" in statement]
            assert counts
            assert all("LIMIT 5001" in statement for statement in counts)


LARGE = {
    "run": ("run.payload", "run.state"),
    "step": ("step.input", "step.output"),
    "lease": ("step.output", "lease.traceback"),
    "event": ("event.payload",),
    "spanrecord": ("spanrecord.attributes",),
    "definition": ("definition.spec",),
}


def test_a_list_leaves_large_columns_in_the_database(busy: Shop, viewer: Client, subtests: pytest.Subtests) -> None:
    """B91."""
    for model, columns in LARGE.items():
        taken = re.sub(r'["`]', "", " ".join(statements(viewer, list_of(model))))
        for column in columns:
            with subtests.test(f"{model} {column}"):
                assert f"ezgh_workflows_{column}" not in taken


def test_the_list_of_a_large_table_joins_none(busy: Shop, viewer: Client, subtests: pytest.Subtests) -> None:
    """B91: joined with a small table, MariaDB begins with that one and sorts the large one whole."""
    for model in ("run", "step", "event", "journalentry", "usagerecord", "spanrecord"):
        with subtests.test(model):
            taken = [re.sub(r'["`]', "", statement) for statement in statements(viewer, list_of(model))]
            rows = [statement for statement in taken if f"FROM ezgh_workflows_{model}" in statement]
            assert rows
            assert not [statement for statement in rows if " JOIN " in statement]


def test_the_run_page_takes_a_bounded_number_of_statements(busy: Shop, viewer: Client) -> None:
    assert len(statements(viewer, page_of(a_row("run")))) <= 18
