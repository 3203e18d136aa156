"""Which steps come before which, read from what each comes after. Linear in edges and without recursion: definitions also come over the network.

Knows names alone; what is wrong with a graph is said by `validation` (case B61).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property


class Ancestry:
    """The steps before each step, of a graph that is given as the parents of each name. Names that are no steps of it count for nothing."""

    def __init__(self, parents: Mapping[str, Sequence[str]]) -> None:
        self._parents = parents

    @cached_property
    def cycle(self) -> list[str] | None:
        """One cycle, each name followed by one that comes after it, the first one again at the end; or None."""
        done: set[str] = set()
        return next((cycle for root in self._parents if root not in done and (cycle := _walk(root, self._parents, done))), None)

    def before(self, name: object) -> Container[str]:
        """The steps that come before that one; all where the graph has a cycle, or that is no name. Costs nothing until it is asked for the first."""
        return _Before(self, name)

    def comes_before(self, name: str, other: str) -> bool:
        """Whether the step `name` comes before the step `other`. In a cycle everything does."""
        return self.cycle is not None or (name in self._bits and bool(self._masks[other] & self._bits[name]))

    @cached_property
    def _bits(self) -> Mapping[str, int]:
        return {name: 1 << place for place, name in enumerate(self._parents)}

    @cached_property
    def _masks(self) -> Mapping[str, int]:
        """The steps before each, one bit for each: sets of names would be quadratic in what they hold."""
        masks: dict[str, int] = {}
        for name in self._order():
            masks[name] = 0
            for parent in self._parents[name]:
                masks[name] |= masks.get(parent, 0) | self._bits.get(parent, 0)
        return masks

    def _order(self) -> Iterator[str]:
        """All names, parents first. There is no cycle."""
        children: dict[str, list[str]] = {name: [] for name in self._parents}
        missing: dict[str, int] = {}
        for name, parents in self._parents.items():
            known = {parent for parent in parents if parent in children}
            missing[name] = len(known)
            for parent in known:
                children[parent].append(name)
        ready = [name for name, count in missing.items() if not count]
        for name in ready:  # grows while it is walked
            yield name
            for child in children[name]:
                missing[child] -= 1
                if not missing[child]:
                    ready.append(child)


class _Before:
    def __init__(self, ancestry: Ancestry, name: object) -> None:
        self._ancestry = ancestry
        self._name = name

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (not isinstance(self._name, str) or self._ancestry.comes_before(name, self._name))


def _walk(root: str, parents: Mapping[str, Sequence[str]], done: set[str]) -> list[str] | None:
    path, places = [root], {root: 0}
    pending: list[Iterator[str]] = [iter(parents[root])]
    while pending:
        parent = next(pending[-1], None)
        if parent is None:
            pending.pop()
            done.add(path[-1])
            del places[path.pop()]
        elif parent in places:
            return [parent, *reversed(path[places[parent] :])]
        elif parent in parents and parent not in done:
            places[parent] = len(path)
            path.append(parent)
            pending.append(iter(parents[parent]))
    return None
