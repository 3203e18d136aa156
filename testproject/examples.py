"""The four examples on a lab's clock, told as lines."""

from __future__ import annotations

from collections.abc import Callable

from ezgh_workflows_django import emit
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


EXAMPLES: dict[str, Callable[[Lab, Tell], None]] = {
    "wait and sleep": wait_and_sleep,
    "give up after a timeout": give_up,
    "steps that depend on other steps": join,
    "step timeout": time_out,
}
