"""`ctx.run_workflow` and `ctx.run_batch`: child runs, started once, waited for, and what they came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..definitions.graph import Workflow
from ..definitions.results import result_of_run
from ..definitions.starts import MISSING
from ..errors import ChildFailed, InvalidArgument, Permanent
from ..protocol import codec
from ..protocol.durable import Checkpoint, Children, Record, WaitFor
from ..protocol.failures import Failure
from ..protocol.states import CheckpointKind, FailureClass, RunStatus, WaitKind
from .durable import Pass
from .replay import Asked, is_refusal
from .suspension import Broken, Suspended

SLICE: Final = 500
"""Children that are started in one call."""


async def run_one(home: Pass, name: str, workflow: Workflow | str, payload: Any) -> Any:
    """What a child run came to. Raises `ChildFailed`."""
    target = _name_of(workflow, f"child run `{name}`")
    payloads = (None if payload is MISSING else codec.plain(payload, "payload"),)
    asked, stored = await home.ask(name, CheckpointKind.CHILD)
    _raise_refusal(home, stored)
    if stored is None or stored.is_open:
        if stored is None or not stored.children:
            await _start(home, asked, Children(**_call(home, asked), workflow=target, payloads=payloads, has_payload=payload is not MISSING))
        raise home.suspend(_until_over(asked))
    ended = _outcome(home.give(stored).output, workflow, asked)
    if isinstance(ended, ChildFailed):
        raise ended
    return ended


async def run_many(home: Pass, name: str, workflow: Workflow | str, payloads: Sequence[Any], *, return_exceptions: bool) -> list[Any]:
    """What child runs came to, in the order of their payloads. Raises `ChildFailed` for the first that did not succeed, or gives it as a value."""
    target = _name_of(workflow, f"batch `{name}`")
    plain = tuple(codec.plain(payload, f"payloads[{index}]") for index, payload in enumerate(payloads))
    asked, stored = await home.ask(name, CheckpointKind.BATCH)
    _raise_refusal(home, stored)
    _check_count(home, asked, stored, len(plain))
    if stored is None or stored.is_open:
        there = stored.children if stored is not None else 0
        # An empty batch is started, too: what is parked on has to be there.
        for first in range(there, len(plain), SLICE) if plain or stored is not None else (0,):
            await _start(home, asked, Children(**_call(home, asked), workflow=target, payloads=plain[first : first + SLICE], first=first))
        raise home.suspend(_until_over(asked))
    ended = [_outcome(child, workflow, asked) for child in home.give(stored).output]
    failed = next((each for each in ended if isinstance(each, ChildFailed)), None)
    if failed is not None and not return_exceptions:
        raise failed
    return ended


def _call(home: Pass, asked: Asked) -> dict[str, Any]:
    return {"lease_id": home.lease.id, "name": asked.name, "pos": asked.pos, "kind": asked.kind}


async def _start(home: Pass, asked: Asked, request: Children) -> None:
    """Start children. Raises `Permanent` where the server says that they can't be; later passes are told the same, where none is started."""
    started = await home.manner.in_flight(home.manner.call(lambda: home.keeper.children(request)))
    if started.refused is not None:
        home.refused(started.refused)
        message = f"{asked}: workflow {request.workflow} could not be started: {started.refused.message}"
        if request.first == 0:
            failure = Failure(class_=FailureClass.PERMANENT, message=message)
            record = Record(lease_id=request.lease_id, name=asked.name, pos=asked.pos, failure=failure)
            stored = await home.manner.call(lambda: home.keeper.checkpoint(record))
            if stored.refused is not None:
                home.refused(stored.refused)
        raise Permanent(message)


def _raise_refusal(home: Pass, stored: Checkpoint | None) -> None:
    if stored is not None and is_refusal(stored):
        failure = home.give(stored).failure
        assert failure is not None
        raise Permanent(failure.message)


def _until_over(asked: Asked) -> Suspended:
    return Suspended(f"{asked}", [WaitFor(name=asked.name, kind=WaitKind.CHILD, pos=asked.pos)])


def _outcome(child: Any, workflow: Workflow | str, asked: Asked) -> Any:
    """A child's decoded output, or the `ChildFailed` that says why it has none."""
    if child["status"] == RunStatus.SUCCEEDED:
        return result_of_run(workflow).decode(child.get("output"))
    failure = child.get("error")
    why = f": {failure['message']}" if failure else ""
    return ChildFailed(f"{asked}: run {child['run']} of {_name_of(workflow, str(asked))} is {child['status']}{why}", child["run"], failure)


def _check_count(home: Pass, asked: Asked, stored: Checkpoint | None, count: int) -> None:
    if stored is None:
        return
    before = stored.children if stored.is_open or not isinstance(stored.output, list) else len(stored.output)
    if count < before or (not stored.is_open and count != before):
        raise home.broken(Broken(FailureClass.NONDETERMINISM, f"expected {asked} at {asked.pos} with {before} runs, the code asks for {count}"))


def _name_of(workflow: Any, what: str) -> str:
    if isinstance(workflow, Workflow):
        return workflow.name
    if not isinstance(workflow, str) or not workflow:
        raise InvalidArgument("workflow", f"{what}: give a Workflow or its name, not {workflow!r:.80}")
    return workflow
