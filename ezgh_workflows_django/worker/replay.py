"""The order in which a body asks for things, held against what the passes before were given. Pure: stores nothing, runs nothing.

The n-th thing of a pass (name and kind) must be the n-th of the passes before; the members of a group share one place, in any order. More may
follow at the end, and only there: nothing new comes at a place that something is stored after. A difference is `Broken`, of class
`nondeterminism`, before anything new is done (cases B24, B46).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ..protocol.durable import Checkpoint
from ..protocol.states import CheckpointKind, FailureClass
from .suspension import Broken

WORDS: Final = {
    CheckpointKind.STEP: "step",
    CheckpointKind.SLEEP: "sleep",
    CheckpointKind.EVENT: "wait",
    CheckpointKind.CHILD: "child run",
    CheckpointKind.BATCH: "batch",
}
"""The kinds, as people name them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One thing that this pass asked for, and its place, from 1."""

    name: str
    kind: CheckpointKind
    pos: int

    def __str__(self) -> str:
        return f"{WORDS[self.kind]} `{self.name}`"


class Late(Broken):
    """Something new is asked for at a place that something is stored after."""


class Order:
    """The places of one pass. `stored` are the checkpoints of the passes before. Not safe from several threads by itself."""

    def __init__(self, stored: Sequence[Checkpoint] = ()) -> None:
        self._stored = {checkpoint.name: checkpoint for checkpoint in stored}
        self._at: dict[int, dict[str, Checkpoint]] = {}
        for checkpoint in stored:
            self._at.setdefault(checkpoint.pos, {})[checkpoint.name] = checkpoint
        self._last = max(self._at, default=0)
        self._left = {pos: dict(there) for pos, there in self._at.items()}
        self._asked: dict[str, int] = {}
        self._count = 0

    def ask(self, name: str, kind: CheckpointKind, pos: int | None = None, *, in_turn: bool = True) -> tuple[Asked, Checkpoint | None]:
        """The next thing, or with `pos` a member of the group at that place; with what is stored of it. Raises `Broken`.

        Raises `Late`, too, where it is asked for `in_turn`, when what was asked for before has been given. What is not may have been at work in a
        pass that died, while something after it was stored.
        """
        asked = Asked(name, kind, self._count + 1 if pos is None else pos)
        self._use(name, asked.pos)
        stored = self._stored.get(name)
        there = self._at.get(asked.pos, {})
        if stored is not None and stored.pos == asked.pos and _is_of(stored, kind):
            there = {} if pos is not None else {other: row for other, row in there.items() if other != name}
            stored_elsewhere = None
        else:
            stored_elsewhere = stored
            there = there if pos is None or stored is not None else {}
        if there:
            raise _difference(there.values(), asked.pos, f"the code asks for {_said(asked, there.values())}")
        if stored_elsewhere is not None:
            raise _broken(f"{_named(stored_elsewhere)} was at {stored_elsewhere.pos}, the code asks for {_said(asked, [stored_elsewhere])} at {asked.pos}")
        self._count = max(self._count, asked.pos)
        if in_turn and stored is None and asked.pos < self._last:
            after = min(pos for pos in self._at if pos > asked.pos)
            rows = list(self._at[after].values())
            raise Late(FailureClass.NONDETERMINISM, f"{_expected(rows, after)}, the code asks for {_said(asked, rows)} at {asked.pos}")
        self._left.get(asked.pos, {}).pop(name, None)
        return asked, stored

    def open_group(self, what: str, name: str | None = None, fits: Callable[[str], bool] | None = None, pos: int | None = None) -> int:
        """The place of a group: the next one, or with `pos` that of the group around it.

        A group with a name has members `name[…]`; `fits` says of a member's name whether this pass will ask for it. Raises `Broken`.
        """
        place = self._count + 1 if pos is None else pos
        if name is not None:
            self._use(name, place)
        if fits is not None:
            there = [row for row in self._at.get(place, {}).values() if pos is None or row.name.startswith(f"{name}[")]
            strangers = [row for row in there if not fits(row.name)]
            if strangers:
                raise _difference(strangers, place, f"the code asks for {what}")
        self._count = max(self._count, place)
        return place

    def has_left(self, pos: int, but: str | None = None) -> bool:
        """Whether something that is stored at that place has not been asked for yet; not counting names that begin with `but`."""
        left = self._left.get(pos, {})
        return bool(left) if but is None else any(not name.startswith(but) for name in left)

    def left(self, pos: int) -> int:
        """How many things that are stored at that place have not been asked for yet."""
        return len(self._left.get(pos, {}))

    def close_group(self, pos: int, what: str) -> None:
        """The group at that place is over. Raises `Broken` where something that is stored there was not asked for."""
        if self.has_left(pos):
            raise _difference(self._left[pos].values(), pos, f"the code does not ask for it in its {what}")

    def finish(self, how: str) -> None:
        """The pass is over: it `how` (returned, …). Raises `Broken` where something that is stored was not asked for."""
        left = next((pos for pos in sorted(self._left) if self._left[pos]), None)
        if left is not None:
            raise _difference(self._left[left].values(), left, f"the code {how} without asking for it")

    def keep(self, checkpoint: Checkpoint) -> None:
        """Something was stored in this pass."""
        self._stored[checkpoint.name] = checkpoint

    def forget(self, names: Iterable[str]) -> None:
        """These will be asked for again, by the same code: it is called once more."""
        for name in names:
            self._asked.pop(name, None)

    def _use(self, name: str, pos: int) -> None:
        if name in self._asked:
            raise _broken(f"the code asks for `{name}` twice, at {self._asked[name]} and at {pos}: give each thing a name of its own")
        self._asked[name] = pos


def _difference(expected: Iterable[Checkpoint], pos: int, said: str) -> Broken:
    return _broken(f"{_expected(list(expected), pos)}, {said}")


def _expected(rows: Sequence[Checkpoint], pos: int) -> str:
    shown = " or ".join(_named(row) for row in rows[:3])
    return f"expected {shown}{' or another' if len(rows) > 3 else ''} at {pos}"


def _is_of(stored: Checkpoint, kind: CheckpointKind) -> bool:
    """Whether this is stored of a thing of that kind; children that could not be started are stored as a step that failed."""
    return stored.kind == kind or (is_refusal(stored) and kind in (CheckpointKind.CHILD, CheckpointKind.BATCH))


def is_refusal(stored: Checkpoint) -> bool:
    """Whether this says, where children were asked for, that they could not be started."""
    return stored.kind == CheckpointKind.STEP and stored.failure is not None and not stored.is_open


def _named(row: Checkpoint) -> str:
    return f"{WORDS[row.kind]} `{row.name}`"


def _said(asked: Asked, expected: Iterable[Checkpoint]) -> str:
    """The thing, with its kind where that is part of the difference."""
    return f"`{asked.name}`" if all(row.kind == asked.kind for row in expected) else str(asked)


def _broken(message: str) -> Broken:
    return Broken(FailureClass.NONDETERMINISM, message)
