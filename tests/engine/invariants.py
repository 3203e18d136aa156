"""What holds of all runs after whatever happened to them: J1 to J3 of the cases, read from the rows."""

from __future__ import annotations

from collections import Counter, defaultdict

from ezgh_workflows_django.engine import catalog
from ezgh_workflows_django.models import JournalEntry, Lease, Run, Step, Wait
from ezgh_workflows_django.protocol.states import TERMINAL_STEP


def broken() -> list[str]:
    """What is wrong, a line each; nothing, where all is well."""
    return [fault for run in Run.objects.all() for fault in _faults(run)]


def _faults(run: Run) -> list[str]:
    steps = {step.name: step for step in Step.objects.filter(run=run)}
    leases = list(Lease.objects.filter(run=run).select_related("step"))
    found = {
        "two leases with one token": _doubled(leases),
        "a live lease of a step that is not leased": [lease for lease in leases if lease.live_step and lease.step.status != "leased"],
        "a leased step without a live lease": _unheld(steps, leases),
        "a gap in the journal": _gap(run),
        "a wait without its step": Wait.objects.filter(run=run).exclude(step__status="waiting").exists(),
        "a waiting step without its wait": len([step for step in steps.values() if step.status == "waiting"]) != Wait.objects.filter(run=run).count(),
        "a step that ended twice": _ended_twice(run),
    }
    found |= _of_ended(steps, leases) if run.is_terminal else _of_live(run, steps)
    return [f"run {run.pk} ({run.status}): {what}: {where}" for what, where in found.items() if where]


def _of_ended(steps: dict[str, Step], leases: list[Lease]) -> dict[str, object]:
    return {
        "a live lease in an ended run": [lease for lease in leases if lease.live_step],
        "an open step in an ended run": [step.name for step in steps.values() if step.status not in TERMINAL_STEP or step.claim_order or step.timer_at],
    }


def _of_live(run: Run, steps: dict[str, Step]) -> dict[str, object]:
    is_open = [step for step in steps.values() if step.status not in TERMINAL_STEP]
    moving = [step for step in is_open if step.status != "blocked"]
    parents = catalog.plan_of(run).steps
    blocked = [step for step in is_open if step.status == "blocked" and step.name in parents]
    waits_for_nobody = run.status in ("queued", "paused", "failing")
    return {
        "nothing will move it": not moving and not waits_for_nobody,
        "open steps miscounted": run.open_steps != len(is_open) and (run.open_steps, len(is_open)),
        "a ready step nobody can claim": [step.name for step in moving if step.status == "ready" and not step.claim_order and run.status != "paused"],
        "a ready step of a paused run on offer": [step.name for step in moving if step.claim_order and run.status == "paused"],
        "blockers miscounted": [s.name for s in blocked if s.blockers != len([p for p in parents[s.name].after if steps[p].status != "succeeded"])],
    }


def _doubled(leases: list[Lease]) -> list[object]:
    return [each for each, count in Counter((lease.step_id, lease.token) for lease in leases).items() if count > 1]


def _unheld(steps: dict[str, Step], leases: list[Lease]) -> list[str]:
    held = {lease.live_step: lease.token for lease in leases if lease.live_step}
    return [step.name for step in steps.values() if step.status == "leased" and held.get(step.pk) != step.token]


def _gap(run: Run) -> bool:
    numbers = list(JournalEntry.objects.filter(run=run).order_by("seq").values_list("seq", flat=True))
    return numbers != list(range(1, run.journal_seq + 1))


def _ended_twice(run: Run) -> list[str]:
    """Within an episode a step ends once."""
    ends: dict[str, int] = defaultdict(int)
    twice: list[str] = []
    for kind, step in JournalEntry.objects.filter(run=run).order_by("seq").values_list("kind", "step"):
        if kind in ("run.retried", "step.resolved"):
            ends.clear()
        elif kind in ("step.succeeded", "step.failed"):
            ends[step] += 1
            twice += [step] if ends[step] > 1 else []
    return twice
