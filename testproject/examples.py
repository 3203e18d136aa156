"""The four examples on a lab's clock, and a refusal, told as lines."""

from __future__ import annotations

from collections.abc import Callable

from django.test import Client

from ezgh_workflows_django import emit
from ezgh_workflows_django.engine import apps, keys, trail
from ezgh_workflows_django.models import App, Project
from ezgh_workflows_django.protocol import calls_json
from ezgh_workflows_django.protocol.messages import Registration
from ezgh_workflows_django.testing import Lab

from .workflows import LINES, approval, export, order, quote

Tell = Callable[[str], object]
WHEN = "%a %H:%M"


def tell_all(tell: Tell) -> None:
    """Run the four examples one after the other on one lab, from Monday 09:00 on."""
    LINES.clear()
    with Lab(now="2024-01-01T09:00Z", workflows=[order, approval, quote, export]) as lab:
        for title, example in EXAMPLES.items():
            tell(f"{title}:")
            example(lab, lambda line: tell(f"  {line}"))
    tell("refusals:")
    with Lab(now="2024-01-01T09:00Z", workflows=[]):  # a server that holds none of the workers' code
        refuse_registration(lambda line: tell(f"  {line}"))


def wait_and_sleep(lab: Lab, tell: Tell) -> None:
    """Two orders wait for their payments, and cool off for a day."""
    a1, a2 = (order.start({"order": name}, labels={"order": name}) for name in ("A-1", "A-2"))
    lab.run_until_idle()
    if a1.phase == a2.phase == "waiting":
        tell("both orders waiting for payment")
    emit("payment.succeeded", key="A-2", payload={"order": "A-2", "paid": 40})
    lab.run_until_idle()
    tell(f"paid A-2 at {lab.now:{WHEN}}: A-2 waiting ({a2.phase}), A-1 {a1.phase}")
    lab.advance(hours=24)
    tell(f"{LINES.pop()} at {lab.now:{WHEN}}")
    tell(f"A-2 {a2.phase}, A-1 still {a1.phase}")
    emit("payment.succeeded", key="A-1", payload={"order": "A-1", "paid": 40})
    lab.run_until_idle()
    lab.advance(hours=24)
    tell(f"{LINES.pop()} at {lab.now:{WHEN}}")


def give_up(lab: Lab, tell: Tell) -> None:
    """Nobody approves: the wait times out after 72 hours, and a person is told."""
    run = approval.start("expense 77")
    lab.advance(hours=72)
    tell(f"{LINES.pop()} at {lab.now:{WHEN}}")
    failure = run.failure
    tell(f"run {run.phase}, deadline exceeded {str(failure is not None and failure.timed_out).lower()}")


def join(lab: Lab, tell: Tell) -> None:
    """Two parallel steps and one that joins them."""
    quote.start("a lamp")
    lab.run_until_idle()
    tell(LINES.pop())


def time_out(lab: Lab, tell: Tell) -> None:
    """A stuck body is ended by its timeout."""
    run = export.start(None)
    lab.run_until_blocked()
    lab.advance(seconds=30)
    failure = run.failure
    assert failure is not None
    tell(f'run {run.phase}: step "{failure.step}" failed after {failure.attempts} attempt(s): {failure.message}')


def refuse_registration(tell: Tell) -> None:
    """A worker elsewhere announces a workflow over HTTP, and what only its own code can say is refused by name."""
    project = Project.objects.get()
    app = App.objects.filter(name="elsewhere").first() or apps.create(project, "elsewhere", by=trail.SYSTEM)
    _, key = keys.create("remote worker", ["worker"], by=trail.SYSTEM, project=project, app=app)
    registration = Registration(worker="remote worker", app=app.name, definitions=(order.to_spec(),))
    answer = Client(headers={"host": "localhost", "authorization": f"Bearer {key}"}).post(
        "/v1/api/workers/register", calls_json.registration_to_json(registration), content_type="application/json"
    )
    for fault in answer.json()["error"]["message"].splitlines():
        tell(f"remote worker: {fault}")


EXAMPLES: dict[str, Callable[[Lab, Tell], None]] = {
    "wait and sleep": wait_and_sleep,
    "give up after a timeout": give_up,
    "steps that depend on other steps": join,
    "step timeout": time_out,
}
