"""What an operator may do to runs: cancel and retry, each with its permission, a page that asks first, and a report of what came of it.

The engine does it and writes the trail; this asks, hands over who it was, and tells every refusal in the engine's words.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..engine import episodes, runs
from ..engine.runs import Actor
from ..errors import NotFound, VerbRefused
from ..models import Run
from ..protocol.states import RunStatus
from .words import state

MAX_RUNS: Final = 200
"""How many runs one request acts on: each is a transaction of its own."""

MAX_TOLD: Final = 10
"""How many refusals are told one by one: messages may travel in a cookie."""


class CancelForm(forms.Form):
    """Why the runs are cancelled."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"), max_length=500, required=False, help_text=gettext_lazy("Kept with the run, in its journal and in the trail.")
    )


class RetryForm(forms.Form):
    """Where the runs begin again."""

    from_step = forms.CharField(
        label=gettext_lazy("From step"),
        max_length=63,
        required=False,
        help_text=gettext_lazy("Empty: from the steps that failed. What succeeded before keeps its output."),
    )


@dataclass(frozen=True, slots=True)
class RunVerb:
    """One verb: its name (also of its permission and address), its texts, its form, and the engine's function behind it.

    `call` answers with what there is to tell beyond "done", or an empty text.
    """

    name: str
    label: str | Promise
    question: str | Promise
    form: type[forms.Form]
    done: Callable[[int], str]
    call: Callable[[uuid.UUID, Mapping[str, Any], Actor], str]
    offered: Callable[[Run], bool]

    @property
    def permission(self) -> str:
        """What a user needs for it."""
        return f"ezgh_workflows.{self.name}_run"


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a verb: the runs it was done to, what there is to tell of some, and the refusals in the engine's words."""

    done: tuple[Run, ...]
    notes: tuple[str, ...]
    refusals: tuple[str, ...]


def first_of(told: tuple[str, ...]) -> list[str]:
    """The first `MAX_TOLD` of several texts, then how many there are besides."""
    left = len(told) - MAX_TOLD
    more = [ngettext("The same goes for %(count)d more.", "The same goes for %(count)d more.", left) % {"count": left}] if left > 0 else []
    return [*told[:MAX_TOLD], *more]


def carry_out(verb: RunVerb, chosen: Iterable[Run], answers: Mapping[str, Any], username: str) -> Came:
    """Do a verb to each run, each in its own transaction, in the user's name; a refusal stops no other."""
    done: list[Run] = []
    notes: list[str] = []
    refusals: list[str] = []
    for run in chosen:
        try:
            notes.append(verb.call(run.pk, answers, ("user", username)))
            done.append(run)
        except (NotFound, VerbRefused) as error:
            refusals.append(str(error))
    return Came(tuple(done), tuple(filter(None, notes)), tuple(refusals))


def _cancel(run_id: uuid.UUID, answers: Mapping[str, Any], actor: Actor) -> str:
    left_as = runs.cancel(run_id, answers["reason"], actor=actor)
    if left_as == RunStatus.CANCELLED:
        return ""
    return _("Run %(id)s was failing already: its compensation was stopped and it has ended as %(status)s.") % {"id": run_id, "status": state(left_as)}


def _retry(run_id: uuid.UUID, answers: Mapping[str, Any], actor: Actor) -> str:
    episodes.retry(run_id, answers["from_step"] or None, actor=actor)
    return ""


def _cancelled(count: int) -> str:
    return ngettext("%(count)d run was cancelled.", "%(count)d runs were cancelled.", count) % {"count": count}


def _retried(count: int) -> str:
    return ngettext("%(count)d run was begun again.", "%(count)d runs were begun again.", count) % {"count": count}


def too_many() -> str:
    """Why a choice is refused as a whole."""
    return _("At most %(count)d runs at once: choose fewer, or narrow the list by its filters. Nothing was done.") % {"count": MAX_RUNS}


CANCEL: Final = RunVerb(
    name="cancel",
    label=gettext_lazy("Cancel"),
    question=gettext_lazy("Cancel these runs? Their work is stopped; compensation is not run."),
    form=CancelForm,
    done=_cancelled,
    call=_cancel,
    offered=lambda run: not run.is_terminal,
)

RETRY: Final = RunVerb(
    name="retry",
    label=gettext_lazy("Retry"),
    question=gettext_lazy("Begin these runs again? Failed steps and what follows them run once more."),
    form=RetryForm,
    done=_retried,
    call=_retry,
    offered=lambda run: run.is_terminal or run.attention,
)

VERBS: Final = (CANCEL, RETRY)
