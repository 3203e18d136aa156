"""The keys that only code can compute: which a definition has, and what computes them. Calls none of them, finds no code by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .plan import Plan

if TYPE_CHECKING:
    from .graph import Workflow


@dataclass(frozen=True, slots=True)
class CodeKey:
    """A callable key of a workflow: of the wait of that step, or (None) of the bucket its runs are counted in."""

    workflow: str
    revision: str
    step: str | None

    @property
    def fault(self) -> str:
        """What is told where there is no code for it."""
        return f"workflow {self.workflow}, {'concurrency' if self.step is None else f'step {self.step}'}: a callable key stays on the server; use key_expr"

    def __str__(self) -> str:
        return f"{self.workflow}/{'concurrency' if self.step is None else self.step}"

    def held_by(self, code: Workflow | None) -> Callable[..., Any] | None:
        """The callable of that code; None where it has another key there, or none."""
        policy = None if code is None else code.concurrency if self.step is None else _waits(code).get(self.step)
        return policy.key if policy is not None and callable(policy.key) else None


def code_keys(plan: Plan) -> list[CodeKey]:
    """Every callable key that a definition has."""
    waits = [step.name for step in plan.steps.values() if step.wait is not None and step.wait.callable_key]
    bucket = [None] if plan.concurrency is not None and plan.concurrency.get("key_callable") else []
    return [CodeKey(plan.name, plan.revision, step) for step in (*waits, *bucket)]


def _waits(code: Workflow) -> dict[str, Any]:
    return {step.name: step.wait for step in code.steps}
