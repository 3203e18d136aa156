"""Which steps this worker holds the code of, and which of them it offers to serve. Fixed once the worker runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..definitions.plan import ON_FAILURE
from ..definitions.revisions import oldest_first
from ..definitions.sameness import is_same
from ..errors import InvalidArgument, InvalidWorkflow, UnknownStep
from ..protocol.messages import Lease, Serve

if TYPE_CHECKING:
    from ..definitions.bodies import Body
    from ..definitions.graph import Workflow


@dataclass(frozen=True, slots=True)
class Holding:
    """A step's body, the names of the steps its input is made of (none where a template renders it), and whether it runs in one transaction."""

    body: Body
    parents: tuple[str, ...] = ()
    transactional: bool = False


class Serving:
    """The workflows of one worker. `only` and `except_` narrow what it serves: each a workflow's name, or `name/step`."""

    def __init__(self, workflows: Iterable[Workflow] = (), *, only: Sequence[str] = (), except_: Sequence[str] = ()) -> None:
        self._only = frozenset(only)
        self._except = frozenset(except_)
        self._workflows: dict[tuple[str, str], Workflow] = {}
        self._holdings: dict[tuple[str, str, str], Holding] = {}
        for workflow in workflows:
            self.add(workflow)

    def add(self, workflow: Workflow) -> None:
        """Hold one more workflow. Raises `InvalidWorkflow`, naming both places, where another one has its name and revision: other content or code."""
        key = (workflow.name, workflow.revision)
        held = self._workflows.setdefault(key, workflow)
        if not is_same(held, workflow):
            raise InvalidWorkflow([f"workflow {key[0]} revision {key[1]} is defined twice, at {held.place} and at {workflow.place}: raise one's revision"])
        self._holdings |= {(*key, step): holding for step, holding in _holdings(workflow).items() if self._is_wanted(workflow.name, step)}

    def definitions(self) -> tuple[Mapping[str, Any], ...]:
        """The wire forms, for a registration: older revisions first, so that the newest is stored last. Raises `InvalidWorkflow` with every fault."""
        specs: list[Mapping[str, Any]] = []
        faults: list[str] = []
        for workflow in oldest_first(self._workflows.values()):
            try:
                specs.append(workflow.to_spec())
            except InvalidWorkflow as error:
                faults += error.faults
        if faults:
            raise InvalidWorkflow(faults)
        return tuple(specs)

    def workflows(self) -> tuple[Workflow, ...]:
        """What this worker holds, in the order it was given."""
        return tuple(self._workflows.values())

    def serves(self) -> tuple[Serve, ...]:
        """What a claim may bring. Every step is named: a stored version of the same revision may have steps that are not held here."""
        steps: dict[tuple[str, str], set[str]] = {}
        for name, revision, step in self._holdings:
            steps.setdefault((name, revision), set()).add(step)
        return tuple(Serve(name, revision, frozenset(held)) for (name, revision), held in steps.items())

    def find(self, lease: Lease) -> Holding | None:
        """The body for a lease, or None where this worker does not serve its step."""
        return self._holdings.get((lease.workflow, lease.revision, lease.step))

    def transactional(self) -> tuple[str, ...]:
        """The steps served that run in one transaction with their result, as `workflow/step`."""
        return tuple(sorted({f"{name}/{step}" for (name, _, step), held in self._holdings.items() if held.transactional}))

    def refuse_strangers(self) -> None:
        """Raise `InvalidArgument` where `only` or `except_` names nothing that is held: a typing error would serve nothing, silently."""
        known = {workflow.name for workflow in self._workflows.values()}
        known |= {f"{workflow.name}/{step}" for workflow in self._workflows.values() for step in _holdings(workflow)}
        for field, names in (("only", self._only), ("except", self._except)):
            for name in sorted(names - known):
                raise InvalidArgument(field, f"this worker holds no {name}; it holds {', '.join(sorted(known)) or 'nothing'}")

    def _is_wanted(self, workflow: str, step: str) -> bool:
        names = {workflow, f"{workflow}/{step}"}
        return (not self._only or not self._only.isdisjoint(names)) and self._except.isdisjoint(names)


def _holdings(workflow: Workflow) -> dict[str, Holding]:
    """The bodies of a workflow by step; steps whose code is elsewhere are left out."""
    parents = {step.name: () if step.input is not None else tuple(step.after) for step in workflow.steps if step.run is not None}
    if workflow.on_failure is not None:
        parents[ON_FAILURE] = ()
    transactional = {step.name for step in workflow.steps if step.transactional}
    return {step: Holding(body, parents[step], step in transactional) for step in parents if (body := _body(workflow, step)) is not None}


def _body(workflow: Workflow, step: str) -> Body | None:
    try:
        return workflow.body(step)
    except UnknownStep:
        return None
