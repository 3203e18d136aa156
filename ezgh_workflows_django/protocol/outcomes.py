"""How a pass of a body ended, as it is reported, and what is answered (spec: protocol.md).

Values are plain JSON values here, durations milliseconds, moments aware datetimes in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from .durable import WaitFor
from .failures import Refused
from .notes import Usage
from .states import FailureClass, LeaseStatus, Mode

_ENDS_AS: Final[Mapping[str, LeaseStatus]] = {
    FailureClass.RETURNED: LeaseStatus.RETURNED,
    FailureClass.UNSERVABLE: LeaseStatus.UNSERVABLE,
    FailureClass.TIMEOUT: LeaseStatus.TIMED_OUT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a pass of a body ended. Made by `completed`, `failed`, `suspended` or `returned`, so that its fields always agree."""

    status: LeaseStatus
    output: Any = None
    state: Mapping[str, Any] | None = None
    class_: str | None = None
    message: str | None = None
    type: str | None = None
    traceback: str | None = None
    keeps_traceback: bool = False
    retry_after_ms: int | None = None
    body_ended: bool = True
    waits: tuple[WaitFor, ...] = ()
    mode: Mode = Mode.ALL
    usage: tuple[Usage, ...] = ()
    spans: tuple[Mapping[str, Any], ...] = ()
    noted: tuple[str, ...] = ()

    @property
    def ends_as(self) -> LeaseStatus:
        """The status that this outcome leaves its lease in."""
        return _ENDS_AS.get(self.class_ or "", self.status)

    @classmethod
    def completed(
        cls, output: Any = None, *, state: Mapping[str, Any] | None = None, usage: tuple[Usage, ...] = (), spans: tuple[Mapping[str, Any], ...] = ()
    ) -> Outcome:
        """The body returned `output`; `state` is a patch of top-level keys."""
        return cls(status=LeaseStatus.COMPLETED, output=output, state=state, usage=usage, spans=spans)

    @classmethod
    def failed(
        cls,
        class_: str,
        message: str,
        *,
        type: str | None = None,
        traceback: str | None = None,
        keeps_traceback: bool = False,
        retry_after_ms: int | None = None,
        body_ended: bool = True,
        usage: tuple[Usage, ...] = (),
        spans: tuple[Mapping[str, Any], ...] = (),
    ) -> Outcome:
        """The body raised, timed out, or was never run (`returned`, `unservable`).

        `body_ended` is False where the body may still be at work (a timeout whose body will not stop):
        an at-most-once step is then never run again. `keeps_traceback`: the traceback is kept whatever the setting says.
        """
        return cls(
            status=LeaseStatus.FAILED,
            class_=class_,
            message=message,
            type=type,
            traceback=traceback,
            keeps_traceback=keeps_traceback,
            retry_after_ms=retry_after_ms,
            body_ended=body_ended,
            usage=usage,
            spans=spans,
        )

    @classmethod
    def suspended(
        cls,
        waits: tuple[WaitFor, ...],
        mode: Mode = Mode.ALL,
        *,
        state: Mapping[str, Any] | None = None,
        usage: tuple[Usage, ...] = (),
        spans: tuple[Mapping[str, Any], ...] = (),
        noted: tuple[str, ...] = (),
    ) -> Outcome:
        """The body parks: the step is ready again, in the same attempt, when its waits are met.

        `noted` is given back in each later lease of the step: by it the body's worker knows which of its notes have been sent.
        """
        return cls(status=LeaseStatus.SUSPENDED, waits=waits, mode=mode, state=state, usage=usage, spans=spans, noted=noted)

    @classmethod
    def returned(cls, message: str, *, usage: tuple[Usage, ...] = (), spans: tuple[Mapping[str, Any], ...] = ()) -> Outcome:
        """The lease is handed back: the body did not run, or was stopped on purpose."""
        return cls.failed(FailureClass.RETURNED, message, usage=usage, spans=spans)


@dataclass(frozen=True, slots=True)
class Report:
    """An outcome, addressed to its lease."""

    lease_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one reported outcome: the statuses it left, or the refusal."""

    lease_id: str
    step: str | None = None
    run: str | None = None
    retry_at: datetime | None = None
    refused: Refused | None = None
