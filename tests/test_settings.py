"""The one dict of settings: read live, each name documented."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any, get_type_hints

import pytest
from django.test import override_settings

from ezgh_workflows_django import conf
from ezgh_workflows_django.conf import BY_NAME, SETTINGS, AppSettings, Setting, app_settings

SPECIFIED = {
    "DEFAULT_APP": "default",
    "LEASE_TTL": timedelta(seconds=30),
    "RECOVERY_WINDOW": timedelta(seconds=30),
    "OFFER_TTL": timedelta(seconds=10),
    "HEARTBEAT": timedelta(seconds=20),
    "REQUEST_TIMEOUT": timedelta(seconds=30),
    "MAX_CLAIM": 100,
    "MAX_HELD": 2000,
    "MAX_PAYLOAD_BYTES": 2**20,
    "MAX_LEASE_BYTES": 8 * 2**20,
    "MAX_REQUEST_BYTES": 16 * 2**20,
    "KEEP_TRACEBACKS": False,
    "MAX_RECLAIMS": 5,
    "ANNOUNCEMENT_TTL": timedelta(minutes=10),
    "RETENTION": timedelta(days=30),
    "EVENT_RETENTION": timedelta(days=30),
    "IDEMPOTENCY_TTL": timedelta(days=7),
    "DATABASE": "default",
    "LISTEN_DSN": None,
}

TYPES = {
    "text": "str",
    "app": "str",
    "optional text": "str | None",
    "duration": "timedelta",
    "count": "int",
    "bytes": "int",
    "switch": "bool",
    "names": "tuple[str, ...]",
}


@pytest.mark.parametrize(("name", "value"), SPECIFIED.items(), ids=SPECIFIED)
@override_settings(EZGH_WORKFLOWS={})
def test_a_setting_that_is_not_given_has_its_default(name: str, value: Any) -> None:
    assert getattr(app_settings, name) == value


@override_settings()
def test_a_project_without_the_dict_has_the_defaults(settings: Any) -> None:
    del settings.EZGH_WORKFLOWS
    assert app_settings.MAX_CLAIM == 100


@override_settings(EZGH_WORKFLOWS={"MAX_CLAIM": 3})
def test_settings_are_read_live() -> None:
    before = app_settings.MAX_CLAIM
    with override_settings(EZGH_WORKFLOWS={"MAX_CLAIM": 7}):
        within = app_settings.MAX_CLAIM
    assert (before, within, app_settings.MAX_CLAIM) == (3, 7, 3)


@pytest.mark.parametrize("given", [90, 90.0, timedelta(seconds=90)])
def test_a_duration_is_a_timedelta_or_seconds(given: Any) -> None:
    with override_settings(EZGH_WORKFLOWS={"LEASE_TTL": given}):
        assert app_settings.LEASE_TTL == timedelta(minutes=1, seconds=30)


@override_settings(EZGH_WORKFLOWS={"REDACT": ["iban"]})
def test_a_list_of_names_is_read_as_a_tuple() -> None:
    assert app_settings.REDACT == ("iban",)


@override_settings(EZGH_WORKFLOWS={})
def test_a_setting_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = app_settings.MAX_HELD
    monkeypatch.setattr(conf, "read", lambda setting, value: pytest.fail("read again"))
    assert app_settings.MAX_HELD == first


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="EZGH_WORKFLOWS has no setting LEASE_TTI"):
        app_settings.LEASE_TTI  # noqa: B018  # the reading is what is tested


def test_the_types_that_callers_see_are_those_of_the_table() -> None:
    hints = {name: str(getattr(hint, "__name__", hint)) if isinstance(hint, type) else str(hint) for name, hint in get_type_hints(AppSettings).items()}
    assert {name: hint.replace("datetime.", "") for name, hint in hints.items()} | {"REDACT": "tuple[str, ...]"} == {
        name: TYPES[setting.kind] for name, setting in BY_NAME.items()
    }


def test_names_are_unique_and_every_line_is_a_sentence() -> None:
    assert len(BY_NAME) == len(SETTINGS)
    assert [setting.name for setting in SETTINGS if not setting.line.endswith(".")] == []
    assert {field.name for field in fields(Setting)} == {"name", "kind", "default", "line", "least"}
