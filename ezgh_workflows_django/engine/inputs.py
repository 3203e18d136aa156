"""What a step is given: the one input rule, applied to stored rows.

A value that a neighbour has already stored is not stored again: a step's `input` column is null where its input is the
run's payload or its one parent's output, unchanged. Both never change while the step can run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..definitions import inputs
from ..definitions.plan import Plan, PlanStep
from ..models import Run, Step
from ..protocol import codec
from ..protocol.states import StepStatus
from . import payloads
from .locking import Held
from .transactions import database


class Names(Mapping[str, Any]):
    """What templates and expressions of one step may name; each is read when it is first asked for."""

    KNOWN = ("payload", "labels", "steps", "state", "run_id")

    def __init__(self, held: Held, step: PlanStep) -> None:
        self._held = held
        self._step = step
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self.KNOWN:
            raise KeyError(name)
        if name not in self._values:
            self._values[name] = self._read(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.KNOWN)

    def __len__(self) -> int:
        return len(self.KNOWN)

    def _read(self, name: str) -> Any:
        run = self._held.run
        if name == "run_id":
            return str(run.pk)
        if name == "steps":
            return outputs_of(self._held, self._held.plan.ancestors(self._step.name))
        return payloads.from_text(getattr(run, name))


def stored_input(held: Held, step: PlanStep) -> str | None:
    """What to keep in the `input` column of a step that opens: its rendered template or its joined parents; else null.

    Raises `ExpressionError` and `InvalidPayload`, which fail the step for good.
    """
    if step.input is not None:
        return payloads.to_text(inputs.render(step.input, Names(held, step)), f"input of step {step.name}")
    if len(step.after) > 1:
        joined = inputs.step_input(step.after, None, outputs_of(held, step.after))
        return codec.dumps(joined, limit=None, what=f"input of step {step.name}")
    return None


def input_text(held: Held, step: Step) -> str | None:
    """The JSON text of a step's input, wherever it is kept; None where the run has no payload or the parent no output."""
    return kept_text(step, held.plan, held.run, lambda parent: held.steps([parent])[0].output)


def kept_text(step: Step, plan: Plan, run: Run, output_of: Callable[[str], str | None]) -> str | None:
    """As `input_text`, without the run's lock; `output_of` reads the JSON text of the output of the step of that name."""
    planned = plan.steps.get(step.name)
    if step.input is not None or planned is None:
        return step.input
    return output_of(planned.after[0]) if planned.after else run.payload


def outputs_of(held: Held, names: tuple[str, ...]) -> dict[str, Any]:
    """The outputs of those of these steps that succeeded, by name."""
    if not names:
        return {}
    held.work.flush()
    rows = Step.objects.using(database()).filter(run=held.run, name__in=names, status=StepStatus.SUCCEEDED).order_by("position")
    return {name: payloads.from_text(text) for name, text in rows.values_list("name", "output")}
