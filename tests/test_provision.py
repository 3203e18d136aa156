"""What `migrate` leaves in the tables is there again whenever it is taken away."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db.models import Model

from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine.provision import provision
from ezgh_workflows_django.models import App, Definition, Organization, Project, Tick

TABLES: tuple[type[Model], ...] = (Organization, Project, App, Tick, Definition)


def counts() -> dict[str, int]:
    """How many rows each of the provisioned tables has."""
    return {model.__name__: model._default_manager.count() for model in TABLES}


def provisioned() -> dict[str, int]:
    """How many there should be."""
    return {"Organization": 1, "Project": 1, "App": 1, "Tick": 1, "Definition": len(registry)}


@pytest.mark.django_db
def test_migrate_makes_the_default_app_the_ticks_row_and_the_definitions() -> None:
    assert counts() == provisioned()
    assert App.objects.get().name == "default"


@pytest.mark.django_db(transaction=True)
def test_a_flush_leaves_them_there() -> None:
    call_command("flush", interactive=False, verbosity=0)
    assert counts() == provisioned()


@pytest.mark.django_db
def test_provisioning_again_adds_nothing() -> None:
    before = counts()
    provision("default")
    assert counts() == before


@pytest.mark.django_db
def test_another_database_is_left_alone() -> None:
    Tick.objects.all().delete()
    provision("elsewhere")
    assert Tick.objects.count() == 0
