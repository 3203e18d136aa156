"""Why something failed, and why a call on a lease was refused, as both sides of the protocol say it (spec: protocol.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .states import FailureClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt, a step or a run failed.

    `class_` is what retry policies look at, `type` the exception's dotted name where there was one.
    """

    class_: str
    message: str
    type: str | None = None
    step: str | None = None
    attempt: int | None = None
    attempts: int | None = None

    @property
    def timed_out(self) -> bool:
        """Whether a timeout or a deadline is what ended it."""
        return self.class_ in (FailureClass.TIMEOUT, FailureClass.DEADLINE)

    def to_json(self) -> dict[str, Any]:
        """The wire form; keys without a value are left out."""
        pairs = {"class": self.class_, "message": self.message, "type": self.type, "step": self.step, "attempt": self.attempt, "attempts": self.attempts}
        return {key: value for key, value in pairs.items() if value is not None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Failure:
        """Read the wire form back; unknown keys are ignored."""
        return cls(
            class_=value["class"],
            message=value["message"],
            type=value.get("type"),
            step=value.get("step"),
            attempt=value.get("attempt"),
            attempts=value.get("attempts"),
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a call on a lease was refused. `reason` is one of the four, or a code such as `unknown_lease` or `invalid`."""

    reason: str
    message: str
    outcome: Mapping[str, Any] | None = None
