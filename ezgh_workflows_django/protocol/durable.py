"""What a durable function's calls carry: its stored results, its children, what it parks on (spec: protocol.md).

Values are plain JSON values here, durations milliseconds, moments aware datetimes in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from .failures import Failure, Refused
from .notes import Usage
from .states import CheckpointKind, WaitKind

MAX_NAME: Final = 255
"""Characters of a checkpoint's or a wait's name."""

MAX_WAITS: Final = 10_000
"""How many waits one suspend may have."""

MAX_NOTED: Final = 100_000
"""How many texts a suspend may give as `noted`."""

MAX_NOTED_EACH: Final = 64
"""Characters of one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One thing that a durable function asked for, as it is stored; a lease carries them in the order of `pos`.

    `pos` is its place among the things the function asks for, from 1; the members of a `map`, `gather`, `wait_any` or `wait_all` share one.
    `is_open` says that it has no result yet: a wait that is not met, children that are not over, a step that is to be tried again at `retry_at`
    after `failures` failures (`failure` is then the last one). `at` is when the result was stored, None while it is open.

    The result is `output`, `failure`, or `timed_out` (an event's wait). For a `child` it is `{"run", "status", "output"?, "error"?}`, for a
    `batch` a list of those in the order of their payloads; `children` is how many of them have been started.
    """

    name: str
    pos: int
    kind: CheckpointKind
    output: Any = None
    failure: Failure | None = None
    timed_out: bool = False
    at: datetime | None = None
    is_open: bool = False
    failures: int = 0
    retry_at: datetime | None = None
    children: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """One thing a step parks on. Durations are milliseconds.

    A `sleep` ends `ms` after it was first asked for, or at `until`. An `event` takes one of that name and key; `timeout_ms`, `on_timeout` and
    `lookback_ms` (None: nothing before it was first asked for) are those of a graph's wait. A `child` waits for the runs that `children` started
    under its name, a `retry` for the next try of the checkpoint of its name; its `until`, when that is due, is for the worker alone and not sent.
    What is stored first for a name wins.
    """

    name: str
    kind: WaitKind
    pos: int | None = None
    ms: int | None = None
    until: datetime | None = None
    event: str = ""
    key: str = ""
    timeout_ms: int | None = None
    on_timeout: str = "fail"
    lookback_ms: int | None = 0
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A call to store a checkpoint: a result, or a failure with the policy (wire form) that says whether it is tried again.

    `retry_after_ms` is the least rest before that. `state` is a patch of top-level keys, stored once with the checkpoint. `failures` is how often
    it had failed before this try, as the worker was told: so a failure whose answer was lost is known again, and counted once.
    """

    lease_id: str
    name: str
    pos: int
    kind: CheckpointKind = CheckpointKind.STEP
    output: Any = None
    failure: Failure | None = None
    retry: Mapping[str, Any] | None = None
    retry_after_ms: int | None = None
    failures: int | None = None
    state: Mapping[str, Any] | None = None
    usage: tuple[Usage, ...] = ()
    spans: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The answer to a `Record`: what is stored under its name (the first write wins), or the refusal.

    With `retry_at`, the failure is not final: the step parks on a `retry` of that name. `repeated` says that it had been stored before.
    """

    lease_id: str
    name: str
    output: Any = None
    failure: Failure | None = None
    at: datetime | None = None
    retry_at: datetime | None = None
    repeated: bool = False
    refused: Refused | None = None

    @property
    def is_final(self) -> bool:
        """Whether nothing more will come of this checkpoint."""
        return self.retry_at is None and self.refused is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """A call to start child runs, once per name: one for each payload, the first of them the child number `first` of that name.

    A long batch goes in several calls, in order. `payloads` are plain JSON values; an empty batch is allowed.
    """

    lease_id: str
    name: str
    pos: int
    workflow: str
    payloads: tuple[Any, ...]
    first: int = 0
    kind: CheckpointKind = CheckpointKind.CHILD
    has_payload: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The answer to `Children`: the runs, in the order of their payloads, or the refusal."""

    lease_id: str
    name: str
    runs: tuple[str, ...] = ()
    refused: Refused | None = None
