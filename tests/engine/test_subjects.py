"""The runs of a model instance: a proxy and the model it stands for mean the same row."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.models import User
from django.test.utils import isolate_apps

from ezgh_workflows_django import runs_of
from ezgh_workflows_django.models import Run
from tests.engine.conftest import Desk
from tests.engine.graphs import job


@isolate_apps("tests")
def test_a_proxy_and_its_model_find_each_others_runs(desk: Desk) -> None:
    class Customer(User):
        class Meta:
            proxy = True
            app_label: ClassVar = "tests"

    user = User.objects.create(username="ann")
    customer = Customer.objects.get(pk=user.pk)
    first, second = job().start(1, subject=user), job().start(2, subject=customer)
    assert [run.id for run in runs_of(user)] == [run.id for run in runs_of(customer)] == [second.id, first.id]
    assert set(Run.objects.values_list("subject_label", "subject_id")) == {("auth.user", str(user.pk))}


def test_a_deferred_instance_is_that_row(desk: Desk) -> None:
    user = User.objects.create(username="ann")
    run = job().start(subject=User.objects.defer("email").get(pk=user.pk))
    assert [each.id for each in runs_of(user)] == [run.id]
