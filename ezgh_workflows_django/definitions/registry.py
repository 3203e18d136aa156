"""The workflows whose code this process holds, by name and revision. Finds no modules by itself and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType

from ..errors import InvalidWorkflow, UnknownWorkflow
from .graph import Workflow
from .revisions import oldest_first
from .sameness import is_same


class Registry:
    """Workflows by name and revision, each with the place it was found at. It gives older revisions of a name before newer ones."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[Workflow, str]] = {}

    def __iter__(self) -> Iterator[Workflow]:
        return iter(oldest_first(workflow for workflow, _ in self._found.values()))

    def __len__(self) -> int:
        return len(self._found)

    def add(self, workflow: Workflow, place: str | None = None) -> None:
        """Take a workflow in. Raises `InvalidWorkflow`, naming both places, where another one has its name and revision.

        The same object again is no other workflow, nor is the same line imported anew, with the same code (`sameness`).
        """
        place = place or workflow.place
        key = (workflow.name, workflow.revision)
        held, held_place = self._found.get(key, (workflow, place))
        if held is not workflow and not (held.place == workflow.place and is_same(held, workflow)):
            raise InvalidWorkflow([self._clash(workflow, held_place, place)])
        self._found[key] = (workflow, held_place)

    def put(self, workflow: Workflow, place: str) -> None:
        """Take a workflow in, in place of the one of its name and revision: for what is made anew from settings."""
        self._found[workflow.name, workflow.revision] = (workflow, place)

    def collect(self, module: ModuleType) -> None:
        """Take in every workflow bound at a module's top level. Raises `InvalidWorkflow` with every clash."""
        faults: list[str] = []
        for name, value in vars(module).items():
            if isinstance(value, Workflow):
                try:
                    self.add(value, f"{module.__name__}.{name}")
                except InvalidWorkflow as error:
                    faults += error.faults
        if faults:
            raise InvalidWorkflow(faults)

    def get(self, name: str, revision: str | None = None) -> Workflow:
        """The workflow of that name: of that revision, else of the newest, which is the highest (`revisions`). Raises `UnknownWorkflow`."""
        found = [workflow for workflow in self if workflow.name == name and revision in (None, workflow.revision)]
        if not found:
            wanted = name if revision is None else f"{name} revision {revision}"
            raise UnknownWorkflow(f"no workflow {wanted} is known to this process: it knows {', '.join(sorted({w.name for w in self})) or 'none'}")
        return found[-1]

    def place_of(self, workflow: Workflow) -> str:
        """Where that workflow was found, as `module.name` or `module:line`."""
        held = self._found.get((workflow.name, workflow.revision))
        return held[1] if held is not None else workflow.place

    def swap(self, workflows: Mapping[tuple[str, str], tuple[Workflow, str]] | None = None) -> Mapping[tuple[str, str], tuple[Workflow, str]]:
        """Put other content in, give back what was there: for tests, which put it back."""
        before, self._found = self._found, dict(workflows or {})
        return before

    @staticmethod
    def _clash(workflow: Workflow, held_place: str, place: str) -> str:
        return (
            f"workflow {workflow.name} revision {workflow.revision} is defined twice, at {held_place} and at {place}: rename one, or give it another revision"
        )


registry = Registry()
"""The one of this process."""
