"""Child runs: started by a body under a name, once; told to it when none of them is at work any more.

They are rows of their own, started in the transaction that holds their parent's lock; what they come to is read from them, never copied, but for
an end that was told and is to be undone: that stays with the child (`child_ends`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from ..definitions import names
from ..errors import InvalidArgument, InvalidPayload, NotAvailable, StartError, UnknownRun
from ..models import Checkpoint, Lease, Run, Step
from ..protocol import codec
from ..protocol.durable import Children, Started
from ..protocol.failures import Failure, Refused
from ..protocol.states import CheckpointKind, RunStatus, StepStatus
from . import catalog, child_ends, groups, parking, payloads, progress, refusals, starts
from .locking import Held, hold_if_free
from .transactions import database, verb

MAX_DEPTH = 32
MAX_CALL = 1_000
"""How many children one call starts at most; a longer batch goes in several."""

_KINDS = (CheckpointKind.CHILD, CheckpointKind.BATCH)
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Siblings:
    """The children that were started for one checkpoint."""

    parent: uuid.UUID
    checkpoint: int


def start(request: Children) -> Started:
    """Start child runs, each once: those of this name that are there already are given back. Locks the parent, through its lease.

    A call that can't be (an unknown workflow, a payload that can't be stored, too deep) is answered `invalid` (`payload_too_large`) and starts nothing.
    """
    try:
        texts = _checked(request)
    except InvalidPayload as error:
        return _refuse(request, refusals.unfit(error))
    try:
        told = groups.each({request.lease_id: texts}, lambda held, lease, _: _apply(held, lease, request, texts), lambda _, refused: _refuse(request, refused))
    except (StartError, InvalidArgument) as error:
        return _refuse(request, Refused("invalid", str(error)))
    return told[request.lease_id]


def tell_parent(siblings: Siblings) -> bool:
    """Where none of these children is at work any more, let the step that waits for them look; false where somebody holds the parent.

    Locks the parent, in a transaction of its own, and waits for nobody: whoever was refused leaves the children's marks (`Run.kin_at`).
    """
    if Run.objects.using(database()).filter(parent_checkpoint=siblings.checkpoint, ended_at=None).exists():
        return True
    try:
        return _let_parent_look(siblings)
    except UnknownRun:  # retention has deleted it
        return True


def siblings_of(run: Run) -> Siblings | None:
    """A run and its siblings; None where it is nobody's child."""
    return None if run.parent_id is None or run.parent_checkpoint is None else Siblings(run.parent_id, run.parent_checkpoint)


def results(row: Checkpoint) -> Any:
    """What the children of a met checkpoint had come to when it was met: one object for a child, a list in the order of their payloads for a batch."""
    runs = Run.objects.using(database()).filter(parent_checkpoint=row.pk).order_by("parent_index")
    found = list(runs.only("id", "status", "failure", "reason", "version", "definition_id", "episode", "parent_index", "last_end"))
    episodes = child_ends.met_with(row)
    unchanged = [run for run in found if run.last_end is None or child_ends.episode_of(run, episodes) == run.episode]
    outputs = _outputs(Step.objects.using(database()).filter(run__parent_checkpoint=row.pk), unchanged)
    now = {run.pk: _result(run, outputs) for run in unchanged}
    told = [now.get(run.pk) or payloads.from_text(run.last_end)["told"] for run in found]
    return told if row.kind == CheckpointKind.BATCH else told[0] if told else None


def keep_end(held: Held) -> None:
    """A run is about to be opened again: where it is over, and somebody's child, how it ended stays with it, for what its parent was told of it.

    Its parent's lock is not taken: a parent that is being told at this moment is not seen to be. So the last end stays until a later one was told.
    """
    run = held.run
    if run.parent_checkpoint is None or not run.is_terminal:
        return
    row = Checkpoint.objects.using(database()).filter(pk=run.parent_checkpoint).first()
    if row is None:  # its step has begun anew, and asks for others
        return
    if row.is_open or child_ends.episode_of(run, child_ends.met_with(row)) == run.episode:
        ended = _result(run, _outputs(Step.objects.using(database()).filter(run=run), [run]))
        held.work.move(run, last_end=codec.dumps({"episode": run.episode, "told": ended}, limit=None, what="last_end"))


@verb
def _let_parent_look(siblings: Siblings) -> bool:
    held = hold_if_free(siblings.parent)
    if held is None:
        return False
    step = Step.objects.using(database()).filter(checkpoints=siblings.checkpoint).first()
    if step is not None and step.parked and not held.run.is_terminal:
        held.adopt_new([step])
        parking.look(held, held.steps([step.name])[0])
        held.work.finish()
    return True


def _apply(held: Held, lease: Lease, request: Children, texts: Sequence[str | None]) -> Started:
    refused = refusals.of_outcome(lease, body_ran=True)
    if refused is not None:
        refusals.note(held, lease, refused, "children")
        return _refuse(request, refused)
    progress.live_again(held, lease)
    row = Checkpoint.objects.using(database()).filter(step=lease.step, name=request.name).first()
    fault = _fault(row, request, len(texts))
    if fault is not None:
        return _refuse(request, Refused("invalid", fault))
    if row is None:
        row = _new_checkpoint(held, lease, request)
    there = _there(row, request.first, request.first + len(texts))
    missing = {request.first + place: text for place, text in enumerate(texts) if request.first + place not in there}
    there |= _start(held, lease, request, row, missing)
    return Started(lease_id=request.lease_id, name=request.name, runs=tuple(str(there[request.first + place]) for place in range(len(texts))))


def _fault(row: Checkpoint | None, request: Children, count: int) -> str | None:
    there = 0 if row is None else row.children
    if request.first > there:
        return f"{request.name} has {there} children: those before number {request.first} are to be started first"
    if row is None:
        return None
    if row.kind != request.kind:
        return f"{request.name} was stored as a {row.kind}, and can't start a {request.kind}"
    if not row.is_open and request.first + count > row.children:
        return f"{request.name} is over: it takes no more children"
    return None


def _new_checkpoint(held: Held, lease: Lease, request: Children) -> Checkpoint:
    held.work.move(lease.step, has_checkpoints=True)
    return Checkpoint.objects.using(database()).create(
        run=held.run, step=lease.step, name=request.name, pos=request.pos, kind=request.kind, created_at=held.now
    )


def _there(row: Checkpoint, first: int, last: int) -> dict[int, uuid.UUID]:
    rows = Run.objects.using(database()).filter(parent_checkpoint=row.pk, parent_index__gte=first, parent_index__lt=last)
    return {index: pk for index, pk in rows.values_list("parent_index", "pk") if index is not None}


def _start(held: Held, lease: Lease, request: Children, row: Checkpoint, texts: dict[int, str | None]) -> dict[int, uuid.UUID]:
    """Start those that are not there. Raises `StartError` and `InvalidArgument`, which undo the whole call."""
    if not texts:
        return {}
    if held.run.depth >= MAX_DEPTH:
        raise NotAvailable(f"run {held.run.pk} is {MAX_DEPTH} runs deep: a child of it would be one too many")
    started = starts.start_children(held, lease.step.name, row, request.workflow, texts)
    held.work.move(held.run, has_children=True)
    held.work.move(row, children=row.children + len(started))
    held.work.move(lease.step, reclaims=0)
    held.work.record(
        held.run,
        "children.started",
        step=lease.step.name,
        attempt=lease.attempt,
        worker=lease.worker_name,
        name=request.name,
        workflow=request.workflow,
        count=len(started),
        runs=[str(run_id) for run_id in list(started.values())[:_SHOWN]],
    )
    return started


def _checked(request: Children) -> list[str | None]:
    """The payloads as they are stored. Raises `InvalidPayload`."""
    fault = names.text_fault(request.name, 255) or ("is empty" if not request.name else None)
    if fault:
        raise InvalidPayload("name", f"the name of children {fault}")
    if request.kind not in _KINDS:
        raise InvalidPayload("kind", f"{request.kind} is no kind of children")
    if not 0 <= request.pos < 2**31 or not 0 <= request.first < 2**31:
        raise InvalidPayload("pos", "no place in a body")
    if len(request.payloads) > MAX_CALL:
        raise InvalidPayload(
            "payloads", f"one call starts at most {MAX_CALL:,} children, not {len(request.payloads):,}: send the rest in another, with `first`"
        )
    if request.kind == CheckpointKind.CHILD and (request.first or len(request.payloads) != 1):
        raise InvalidPayload("payloads", f"a {CheckpointKind.CHILD} is one run; many are a {CheckpointKind.BATCH}")
    if not request.has_payload:
        return [None for _ in request.payloads]
    return [payloads.to_text(payload, f"payloads[{request.first + place}]") for place, payload in enumerate(request.payloads)]


def _outputs(steps: QuerySet[Step], runs: Sequence[Run]) -> dict[uuid.UUID, dict[str, Any]]:
    """The outputs of the last steps of these runs, whose steps are given, by run and name: one statement for all."""
    last = {name for run in runs for name in catalog.plan_of(run).leaves}
    found: dict[uuid.UUID, dict[str, Any]] = {}
    for run_id, name, text in steps.filter(name__in=last, status=StepStatus.SUCCEEDED).values_list("run_id", "name", "output"):
        found.setdefault(run_id, {})[name] = payloads.from_text(text)
    return found


def _result(run: Run, outputs: dict[uuid.UUID, dict[str, Any]]) -> dict[str, Any]:
    told: dict[str, Any] = {"run": str(run.pk), "status": run.status}
    if run.status == RunStatus.SUCCEEDED:
        return {**told, "output": catalog.plan_of(run).output_of(outputs.get(run.pk, {}))}
    failure: Any = payloads.from_text(run.failure)
    return {**told, "error": failure or Failure(class_=run.status, message=run.reason or f"the child run was {run.status}").to_json()}


def _refuse(request: Children, refused: Refused) -> Started:
    return Started(lease_id=request.lease_id, name=request.name, refused=refused)
