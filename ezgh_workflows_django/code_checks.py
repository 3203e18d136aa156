"""System checks of the workflows that this project's code has. They report; they run nothing of them.

What a definition says is judged where it is made, and two of one name and revision are refused by `apps` at start-up. What its bodies'
annotations say can be read only once all modules are imported, as they may name what is defined below them: that is judged here.
"""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, register

from .checks import TAG, WORKER_TAG
from .definitions.registry import registry
from .errors import InvalidWorkflow

HINT = "Import the name where the module is run, not only for type checkers; give the input, and the result, a type that JSON can be decoded into."


@register(TAG, WORKER_TAG)
def unreadable_annotations(**_: Any) -> list[CheckMessage]:
    """E010: a body whose input is annotated with what can't be resolved, or its input or result with what can't be decoded."""
    found: list[CheckMessage] = []
    for workflow in registry:
        try:
            workflow.input_schemas()
        except InvalidWorkflow as error:
            found += [Error(fault, hint=HINT, obj=registry.place_of(workflow), id="ezgh_workflows.E010") for fault in error.faults]
    return found
