"""A key's secret leaves the server once: in the answer that makes it. No log, trail, error, report, document or row has it (case B94)."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import ProgrammingError, connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.views.debug import ExceptionReporter

from ezgh_workflows_django.engine import keys
from ezgh_workflows_django.models import Project, Trail
from tests.api.conftest import SYSTEM, Caller, MakeKey
from tests.api.matrix import calls
from tests.api.parties import KEYS, LEAST, Party

SECRET: Final = "5ec2e7" * 10 + "beef"


class Heard(logging.Handler):
    """Every record, as text with all that it carries."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.texts.append(f"{self.format(record)} {vars(record)}")


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What is logged from here on, by any logger, from DEBUG on."""
    handler, before = Heard(), {}
    named = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]
    for logger in [logging.root, *named]:
        before[logger] = (logger.level, logger.disabled)
        logger.setLevel(logging.DEBUG)
        logger.disabled = False
        if logger is logging.root or not logger.propagate:
            logger.addHandler(handler)
    yield handler.texts
    for logger, (level, disabled) in before.items():
        logger.setLevel(level)
        logger.disabled = disabled
        logger.removeHandler(handler)


@pytest.fixture
def known_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key that is made has the one secret."""
    monkeypatch.setattr(secrets, "token_hex", lambda size: SECRET)


def rows() -> str:
    """Every row of every table."""
    return "\n".join(str(row) for model in apps.get_models() for row in model._default_manager.values())


def walked(caller: Caller, **ids: str) -> list[tuple[str, str]]:
    """Every call of this caller, with its answer."""
    return [(str(call), f"{reply.status} {dict(reply.headers)} {reply.body}") for call in calls() for reply in [call.by(caller, LEAST.get(str(call)), **ids)]]


def test_no_secret_is_in_any_log_trail_error_or_row(project: Project, key: MakeKey, known_secret: None, heard: list[str]) -> None:
    owner = Party(project.apps.get(name="default"), whole_project=True)
    weak, revoked = key("workflows.events.emit"), key("admin")
    keys.revoke(revoked.split("_")[1], by=SYSTEM, project_id=project.pk)
    ids = {name: value for name, value in owner.ids.items() if name != "prefix"}
    with CaptureQueriesContext(connection):  # Django logs every statement with its values
        answers = walked(owner.caller, prefix="nobody", **ids) + walked(Caller(weak), **ids) + walked(Caller(revoked), **ids)
        answers += walked(Caller(f"ezw_{'a' * 12}_{SECRET}"), **ids) + walked(Caller(f"ezx_{SECRET}"), **ids)
    assert [call for call, answer in answers if SECRET in answer] == [f"POST {KEYS}"]
    assert len(heard) > 500
    assert [text for text in heard if SECRET in text] == []
    assert SECRET not in rows()


def test_a_key_where_an_id_should_be_is_kept_nowhere(project: Project, key: MakeKey, known_secret: None, heard: list[str]) -> None:
    """Whoever puts a whole key into a path tells it to every server in between; what is refused for that, the trail tells without it."""
    for call in calls():
        weak = key("workflows.events.emit")
        call.by(Caller(weak), **dict.fromkeys(call.parameters, weak))
    assert SECRET[:8] not in rows()
    assert [text for text in heard if SECRET in text] == []
    assert Trail.objects.filter(action="RefusePoll", data__contains="ezw_").count() > 30


def ours(frames: TracebackType | None) -> TracebackType | None:
    """The frames from the first view on: those before are the test's."""
    while frames is not None and "/ezgh_workflows_django/api/" not in frames.tb_frame.f_code.co_filename:
        frames = frames.tb_next
    return frames


def test_no_report_of_a_fault_shows_a_secret(project: Project, key: MakeKey, known_secret: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ProgrammingError("no such column")

    text = key("admin")
    monkeypatch.setattr(keys, "identity_of", broken)
    with pytest.raises(ProgrammingError) as raised:
        Caller(text).get("api/runs")
    request = RequestFactory().get("/v1/api/runs", headers={"authorization": f"Bearer {text}"})
    report = ExceptionReporter(request, raised.type, raised.value, ours(raised.tb))
    assert "no such column" in report.get_traceback_text()
    assert SECRET not in report.get_traceback_html() + report.get_traceback_text()


def test_the_document_and_its_page_show_none(project: Project, key: MakeKey, known_secret: None) -> None:
    browser = Client()
    browser.force_login(get_user_model().objects.create_user("eva", is_staff=True))
    assert SECRET not in str(Caller(key("read")).get("api/openapi.json").body) + browser.get("/v1/api/docs").content.decode()
