"""The document that is committed is the one this code has, and it is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client

from ezgh_workflows_django.models import Project
from tests.api.conftest import Caller
from tests.api.matrix import calls
from tests.conftest import ROOT

COMMITTED = ROOT / "docs" / "openapi.json"
OBJECTS = ROOT / "docs" / "protocol-objects.md"


@pytest.fixture(scope="module")
def document() -> Any:
    """The document as it is committed."""
    return json.loads(COMMITTED.read_text())


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    """Method, path and description of every call."""
    for path, methods in document["paths"].items():
        for method, each in methods.items():
            yield method.upper(), path, each


@pytest.mark.parametrize(("flags", "committed"), [([], COMMITTED), (["--objects"], OBJECTS)])
def test_the_command_writes_it(flags: list[str], committed: Path, tmp_path: Path) -> None:
    call_command("workflows_openapi", *flags, "--file", str(tmp_path / "o"), stdout=StringIO())
    assert (tmp_path / "o").read_text() == committed.read_text(), f"run `manage.py workflows_openapi {' '.join(flags)} --file docs/{committed.name}`"


def test_it_has_every_call_and_every_call_its_words_and_codes(document: Any) -> None:
    told = list(operations(document))
    assert document["openapi"].startswith("3.1")
    assert len(told) == len(calls()) - 1  # the page for people is no call
    assert len({each["operationId"] for _, _, each in told}) == len(told)
    assert [path for _, path, each in told if not each.get("summary") or not each.get("description")] == []
    assert [path for _, path, each in told if "503" not in each["responses"]] == []
    assert [path for _, path, each in told if each.get("security") and not {"401", "403"} <= each["responses"].keys()] == []


def test_every_reference_in_it_leads_somewhere(document: Any) -> None:
    names = set(document["components"]["schemas"])
    text = COMMITTED.read_text()
    assert {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]} == names


def test_it_is_served_to_keys_and_as_a_page_to_staff(api: Caller, project: Project) -> None:
    assert api.get("api/openapi.json").body["info"]["title"] == "EZGH Workflows"
    assert Client().get("/v1/api/docs").status_code == 401
    browser = Client()
    browser.force_login(get_user_model().objects.create_user("eva", password="x", is_staff=True))
    page = browser.get("/v1/api/docs").content.decode()
    assert all(summary in page for summary in ("Claim leases", "Start a run", "Create an app"))
    assert "<script" not in page
    assert "https://" not in page
