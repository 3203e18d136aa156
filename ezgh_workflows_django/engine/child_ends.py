"""Which children are over, and by which of their ends. Reads only; writes nothing.

A child that somebody opens again, once its parent was told of it, must stay what it was told as: a checkpoint that is met never changes. What
children came to is not copied for that. A met checkpoint says which episode of each child it was met with, where that was not the first, and a
child that is opened again keeps how it had ended (`engine.children`). Neither locks the other's run, so what each sees of the other may be old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Case, Exists, IntegerField, OuterRef, Value, When

from ..models import Checkpoint, Run
from ..protocol import codec
from . import payloads
from .transactions import database

_FIRST_ENDS, _LATER_ENDS, _AT_WORK = range(3)


@dataclass(frozen=True, slots=True)
class Ends:
    """What one look has seen of the children of some checkpoints, given by their keys."""

    at_work: frozenset[int]
    again: Mapping[int, Mapping[str, int]]

    def episodes(self, checkpoint: int) -> str | None:
        """What the checkpoint keeps of it when it is met: the episodes of children that were opened again, by their numbers; None where none was."""
        episodes = self.again.get(checkpoint)
        return None if episodes is None else codec.dumps(episodes, limit=None, what="episodes")


def look(checkpoints: Sequence[int]) -> Ends:
    """What is seen of their children now: one statement, a second where one of them was opened again, none where there are no checkpoints."""
    if not checkpoints:
        return Ends(frozenset(), {})
    children = Run.objects.using(database()).filter(parent_checkpoint=OuterRef("pk"))
    stand = Case(
        When(Exists(children.filter(ended_at=None)), then=Value(_AT_WORK)),
        When(Exists(children.filter(episode__gt=1)), then=Value(_LATER_ENDS)),
        default=Value(_FIRST_ENDS),
        output_field=IntegerField(),
    )
    stands = dict(Checkpoint.objects.using(database()).filter(pk__in=checkpoints).annotate(stand=stand).values_list("pk", "stand"))
    return _episodes_of([pk for pk, stand in stands.items() if stand == _LATER_ENDS], {pk for pk, stand in stands.items() if stand == _AT_WORK})


def met_with(row: Checkpoint) -> Mapping[str, int]:
    """The episodes of children that a met checkpoint was met with, by their numbers, where those were not the first."""
    return payloads.from_text(row.episodes) or {}


def episode_of(run: Run, episodes: Mapping[str, int]) -> int:
    """Which episode of a child its parent was told of."""
    return episodes.get(str(run.parent_index), 1)


def _episodes_of(checkpoints: Sequence[int], at_work: set[int]) -> Ends:
    again: dict[int, dict[str, int]] = {}
    rows = Run.objects.using(database()).filter(parent_checkpoint__in=checkpoints, episode__gt=1)
    for run in rows.only("parent_checkpoint", "parent_index", "episode", "ended_at") if checkpoints else ():
        if run.parent_checkpoint is not None:
            again.setdefault(run.parent_checkpoint, {})[str(run.parent_index)] = run.episode
            at_work |= {run.parent_checkpoint} if run.ended_at is None else set()  # it was opened between the two statements
    return Ends(frozenset(at_work), again)
