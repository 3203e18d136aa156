"""What a worker for a server elsewhere says of itself before its first claim."""

from __future__ import annotations

from django.core.management import load_command_class

from ezgh_workflows_django import Worker
from ezgh_workflows_django.management import building
from ezgh_workflows_django.management.startup import remote_startup
from ezgh_workflows_django.testing.scripted import ScriptedTransport
from ezgh_workflows_django.worker.listener import Listener
from tests.engine.graphs import job

URL = "https://flows.example.org"


def printed(*apps: str) -> list[str]:
    """The start-up block of a worker of these apps."""
    return remote_startup([Worker(ScriptedTransport(), workflows=[job()], app=app, name="afar") for app in apps], URL).text().splitlines()


def test_a_remote_worker_names_the_app_and_says_that_its_queue_is_the_servers() -> None:
    assert "  app          reports (queue: the server's own)" in printed("reports")
    assert f"  server       {URL}" in printed("reports")


def test_a_developers_own_app_has_a_queue_of_its_name() -> None:
    assert printed("dev-ann", "reports")[1:3] == ["  app          dev-ann (queue dev-ann)", "               reports (queue: the server's own)"]


def test_the_command_names_the_project_that_its_key_is_for() -> None:
    flags = ["--url", URL, "--api-key", "ezw_a_b", "--organization", "acme", "--project", "billing"]
    parser = load_command_class("ezgh_workflows_django", "runworker").create_parser("manage.py", "runworker")
    [worker] = building.workers(vars(parser.parse_args(flags)) | {"grace": 30.0}, Listener())
    registration = worker._terms().registration
    assert (registration.organization, registration.project) == ("acme", "billing")
