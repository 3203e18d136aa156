"""A callable key is looked up among the workflows that the server's own code has in that app, and nowhere else (spec: authoring.md "A graph")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

from ezgh_workflows_django import Concurrency, Context, Cron, Step, Wait, Workflow, start_run, workflow
from ezgh_workflows_django.conf import DICT
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.definitions.starts import Start
from ezgh_workflows_django.engine import catalog, leases, outcomes, replaying, starts, tenancy, workers
from ezgh_workflows_django.engine import versions as migrations
from ezgh_workflows_django.errors import InvalidArgument, InvalidWorkflow
from ezgh_workflows_django.models import App, Definition, Occurrence, Project, Run
from ezgh_workflows_django.protocol.durable import WaitFor
from ezgh_workflows_django.protocol.messages import ClaimRequest, Registered, Registration, Serve
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from ezgh_workflows_django.protocol.states import WaitKind
from tests.engine.bodies import Family
from tests.engine.conftest import Desk
from tests.engine.graphs import body, job

WAIT = "workflow parcel, step wait: a callable key stays on the server; use key_expr"
SLOT = "workflow parcel, concurrency: a callable key stays on the server; use key_expr"


def parcel(*, key: Any = lambda run: f"own {run.payload}", slot: Callable[[Any], Any] | None = None, **rest: Any) -> Any:
    """One wait, and with `slot` one bucket for each of its keys."""
    limit: Any = {} if slot is None else {"concurrency": Concurrency(1, key=slot)}
    return Workflow("parcel", steps=[Step("wait", wait=Wait("paid", key=key, timeout=rest.pop("timeout", None)))], **limit, **rest)


def remote(workflow: Workflow, app: App) -> Registered:
    """A registration that came over HTTP: the app that its key opens has been found."""
    return workers.register(Registration(worker="remote", app=app.name, definitions=(workflow.to_spec(),)), app)


def faults(workflow: Workflow, app: App) -> tuple[str, ...]:
    with pytest.raises(InvalidWorkflow) as refused:
        remote(workflow, app)
    return refused.value.faults


@pytest.fixture
def shop(desk: Desk) -> App:
    return tenancy.create_app("shop")


@pytest.fixture
def default(desk: Desk) -> App:
    return tenancy.app_now(None)[0]


def test_an_app_that_the_servers_code_does_not_serve_has_none_of_its_keys(desk: Desk, shop: App) -> None:
    registry.add(parcel())
    assert faults(parcel(), shop) == (WAIT,)
    assert not Definition.objects.filter(app=shop).exists()


def test_the_default_app_has_the_servers_code(desk: Desk, default: App) -> None:
    registry.add(parcel())
    remote(parcel(), default)
    run = starts.start(catalog.newest(default, "parcel"), Start(payload=7))
    assert desk.step(run, "wait").wait_key == "own 7"


def test_a_developers_app_of_the_sites_own_project_has_the_servers_code_and_one_of_another_has_not(desk: Desk, default: App) -> None:
    registry.add(parcel())
    own = tenancy.create_app("dev-eva")
    remote(parcel(), own)
    assert desk.step(starts.start(catalog.newest(own, "parcel"), Start(payload=7)), "wait").wait_key == "own 7"
    stranger = Project.objects.create(organization=default.project.organization, slug="strangers", name="Strangers", created_at=desk.now)
    assert faults(parcel(), App.objects.create(project=stranger, name="dev-eva", created_at=desk.now)) == (WAIT,)


def test_the_default_app_is_the_one_of_the_settings(desk: Desk, shop: App, default: App) -> None:
    registry.add(parcel())
    with override_settings(**{DICT: {"DEFAULT_APP": "shop"}}):
        remote(parcel(), shop)
        assert faults(parcel(), default) == (WAIT,)


def test_an_app_of_another_project_that_is_called_as_the_default_one_is_another(desk: Desk, default: App) -> None:
    registry.add(parcel())
    stranger = Project.objects.create(organization=default.project.organization, slug="strangers", name="Strangers", created_at=desk.now)
    assert faults(parcel(), App.objects.create(project=stranger, name=default.name, created_at=desk.now)) == (WAIT,)


@pytest.mark.parametrize("bring", [lambda desk, code: desk.worker(code, app="shop"), lambda desk, code: code.start(1, app="shop")], ids=["worker", "start"])
def test_an_app_that_the_servers_code_has_been_brought_to_has_its_keys(desk: Desk, shop: App, bring: Callable[[Desk, Any], Any]) -> None:
    """Other versions of that revision are served, too: a timeout may be edited."""
    registry.add(code := parcel())
    bring(desk, code)
    remote(parcel(timeout=60), shop)
    run = starts.start(catalog.newest(shop, "parcel"), Start(payload=7))
    assert (desk.step(run, "wait").wait_key, run.version) == ("own 7", parcel(timeout=60).version)


def test_what_a_remote_worker_stored_itself_brings_no_code(desk: Desk, shop: App) -> None:
    """Not even where its definition has the words of one that has a callable key."""
    registry.add(parcel())
    remote(Workflow("parcel", steps=[Step("wait", run=body, input={"key_callable": True})]), shop)
    assert faults(parcel(), shop) == (WAIT,)


def test_another_revision_is_other_code(desk: Desk, shop: App) -> None:
    registry.add(code := parcel())
    registry.add(parcel(revision="2"))
    desk.worker(code, app="shop")
    assert faults(parcel(revision="2"), shop) == (WAIT,)
    assert faults(parcel(revision="3"), shop) == (WAIT,)


def test_a_callable_key_of_a_bucket_is_refused_at_the_registration_too(desk: Desk, shop: App, default: App) -> None:
    registry.add(parcel(slot=lambda run: "a"))
    with pytest.raises(InvalidWorkflow, match="workflow other, concurrency: a callable key stays on the server; use key_expr"):
        remote(job("other", concurrency=Concurrency(1, key=lambda run: "a")), default)
    assert faults(parcel(slot=lambda run: "b"), shop) == (WAIT, SLOT)
    remote(parcel(slot=lambda run: "b"), default)


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (parcel(key="literal", slot=lambda run: "a"), WAIT),
        (Workflow("parcel", steps=[Step("other", run=body)], concurrency=Concurrency(1, key=lambda run: "a")), WAIT),
        (Workflow("parcel", steps=[Step("wait", run=body)], concurrency=Concurrency(1, key=lambda run: "a")), WAIT),
        (parcel(), SLOT),
        (parcel(concurrency=Concurrency(1, key="literal")), SLOT),
    ],
    ids=["literal", "no step", "another kind", "no limit", "literal limit"],
)
def test_code_of_the_revision_that_lacks_the_key_is_refused_by_name(desk: Desk, default: App, code: Workflow, fault: str) -> None:
    registry.add(code)
    assert faults(parcel(slot=lambda run: "a"), default) == (fault,)


@pytest.fixture
def lost(desk: Desk) -> Any:
    """A stored workflow whose code has lost the step of its callable key, without a new revision."""
    registry.add(code := parcel(cron=Cron("0 10 * * *")))
    desk.worker(code)
    desk.tick()
    registry.swap()
    registry.add(Workflow("parcel", steps=[Step("other", run=body)]))
    return Definition.objects.get(workflow="parcel")


def test_a_start_whose_key_the_code_has_lost_is_refused_by_name(desk: Desk, lost: Definition) -> None:
    with pytest.raises(InvalidArgument, match=f"key: {WAIT}: the code here has no callable key parcel/wait in revision 1"):
        starts.start(lost, Start())
    assert Run.objects.count() == 0


def test_an_occurrence_whose_key_the_code_has_lost_is_skipped_and_says_why(desk: Desk, lost: Definition) -> None:
    desk.advance(hours=1)
    [occurrence] = Occurrence.objects.all()
    assert (occurrence.became, Run.objects.count()) == ("skipped", 0)
    assert "no callable key parcel/wait in revision 1" in occurrence.reason


def test_a_bucket_whose_key_the_code_has_lost_refuses_the_start_by_name(desk: Desk) -> None:
    registry.add(code := parcel(key=None, slot=lambda run: "a"))
    desk.worker(code)
    registry.swap()
    with pytest.raises(InvalidArgument, match=f"key: {SLOT}: the code here has no callable key parcel/concurrency in revision 1"):
        start_run("parcel")


# Children are started by name, in the app of their parent


def test_a_child_in_an_app_of_its_own_is_that_apps_workflow(desk: Desk, shop: App) -> None:
    registry.add(job("kid", timeout=9))
    parent = job()
    hand = desk.worker(parent, job("kid"), app="shop")
    parent.start(1, app="shop")
    [child] = hand.child(hand.take(), "one", "kid").runs
    assert Run.objects.get(pk=child).version == job("kid").version


def test_a_child_in_the_default_app_is_of_this_processs_code(family: Family) -> None:
    registry.add(code := job("kid", timeout=9))
    [child] = family.hand.child(family.lease, "one", "kid").runs
    assert Run.objects.get(pk=child).version == code.version


def test_a_child_of_a_name_that_its_app_does_not_have_is_refused(desk: Desk, shop: App) -> None:
    registry.add(parcel())
    parent = job()
    hand = desk.worker(parent, app="shop")
    parent.start(1, app="shop")
    refused = hand.child(hand.take(), "one", "parcel").refused
    assert refused is not None
    assert 'no workflow "parcel" is stored for app "shop"' in refused.message
    assert not Definition.objects.filter(app=shop, workflow="parcel").exists()


# --- migrate


def test_the_sites_code_is_not_replayed_on_a_run_of_another_project(desk: Desk, default: App) -> None:
    """Its names are those of other code: what stands outside of the inner steps would be done here, with that project's payload."""
    called: list[Any] = []

    def made(revision: str) -> Workflow:
        @workflow("payout", revision=revision)
        def payout(ctx: Context, payload: Any) -> None:
            called.append(payload)
            ctx.sleep("nap", 60)

        return payout

    before, after = made("1"), made("2")
    registry.add(before)
    registry.add(after)
    stranger = Project.objects.create(organization=default.project.organization, slug="strangers", name="Strangers", created_at=desk.now)
    for app, notes, calls in ((default, 0, [1]), (App.objects.create(project=stranger, name="theirs", created_at=desk.now), 1, [1, 1])):
        versions = [catalog.store(app, each.to_spec(), desk.now) for each in (before, after)]
        run = starts.start(versions[0], Start(payload=1))
        session = remote(before, app)
        [lease] = leases.claim(ClaimRequest(worker_id=session.worker_id, claim_id=app.name, max=1, serves=(Serve("payout", "1"),))).leases
        leases.started([lease.id])
        outcomes.report([Report(lease.id, Outcome.suspended((WaitFor(name="nap", kind=WaitKind.SLEEP, pos=1, ms=60_000),)))])
        judged = migrations.dry_run(run.pk, after.version)
        assert (len(judged.notes), called, judged.faults) == (notes, calls, ())
        assert migrations.migrate(run.pk, after.version).after == after.version
        assert replaying.count() == (1, 0)  # the site's own
