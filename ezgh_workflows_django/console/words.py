"""The words for states, moments and spans, in the reader's language. Knows no page and asks no database."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..definitions.durations import in_words
from ..engine.reading import WaitingFor
from ..models import Lease
from ..protocol.failures import Failure
from ..protocol.states import LeaseStatus

EXPIRED: Final = "expired"
LIVE: Final = "live"
ATTENTION: Final = "attention"

STATES: Final[dict[str, str | Promise]] = {
    "queued": gettext_lazy("queued"),
    "running": gettext_lazy("running"),
    "paused": gettext_lazy("paused"),
    "failing": gettext_lazy("failing"),
    "succeeded": gettext_lazy("succeeded"),
    "failed": gettext_lazy("failed"),
    "cancelled": gettext_lazy("cancelled"),
    "timed_out": gettext_lazy("timed out"),
    "retrying": gettext_lazy("retrying"),
    "waiting": gettext_lazy("waiting"),
    "sleeping": gettext_lazy("sleeping"),
    "blocked": gettext_lazy("blocked"),
    "ready": gettext_lazy("ready"),
    "leased": gettext_lazy("leased"),
    "offered": gettext_lazy("offered"),
    "started": gettext_lazy("started"),
    "orphaned": gettext_lazy("orphaned"),
    "completed": gettext_lazy("completed"),
    "suspended": gettext_lazy("suspended"),
    "returned": gettext_lazy("returned"),
    "unservable": gettext_lazy("unservable"),
    "reclaimed": gettext_lazy("reclaimed"),
    EXPIRED: gettext_lazy("expired"),
    LIVE: gettext_lazy("live"),
    ATTENTION: gettext_lazy("needs attention"),
    "here": gettext_lazy("here"),
    "silent": gettext_lazy("silent"),
    "left": gettext_lazy("left"),
}
"""Every state a page names: of runs and their phases, steps, leases, workers."""


def state(name: str) -> str:
    """A state in words; its own name where it is none of ours."""
    return str(STATES.get(name, name))


def badge(name: str) -> SafeString:
    """A state as a coloured word; the colour says nothing that the word does not."""
    return format_html('<span class="ezw-badge ezw-{}">{}</span>', name, state(name))


def lease_state(lease: Lease, now: datetime) -> str:
    """A lease's status, but `expired` from its last moment on, before maintenance has looked at it."""
    waits_for_life = lease.status in (LeaseStatus.OFFERED, LeaseStatus.STARTED)
    return EXPIRED if waits_for_life and lease.expires_at <= now else lease.status


def moment(at: datetime | None) -> str:
    """A moment to the second, in the reader's time zone; a dash for none."""
    return "-" if at is None else f"{localtime(at):%Y-%m-%d %H:%M:%S}"


def span(begin: datetime | None, end: datetime | None) -> str:
    """The time between two moments, as `3m4s`; a dash where one is missing. Seconds are whole from a minute on."""
    if begin is None or end is None:
        return "-"
    length = max(end - begin, timedelta(0))
    unit = timedelta(milliseconds=1) if length < timedelta(minutes=1) else timedelta(seconds=1)
    return in_words(length // unit * (unit // timedelta(milliseconds=1)))


def waiting(wait: WaitingFor) -> str:
    """What one open wait waits for, as a sentence."""
    if not wait.step:
        told = {"what": wait.event, "key": wait.key}
        return _("It waits for %(what)s, key %(key)s.") % told if wait.key else _("It waits for %(what)s.") % told
    told = {"step": wait.step, "event": wait.event, "key": wait.key, "until": moment(wait.until)}
    if wait.key and wait.until:
        return _("%(step)s waits for the event %(event)s, key %(key)s, until %(until)s") % told
    if wait.key:
        return _("%(step)s waits for the event %(event)s, key %(key)s") % told
    if wait.until:
        return _("%(step)s waits for the event %(event)s until %(until)s") % told
    return _("%(step)s waits for the event %(event)s") % told


def failure(failed: Failure) -> str:
    """Why something failed: the class, the exception's type, the message."""
    named = f"{failed.class_} ({failed.type})" if failed.type else failed.class_
    return f"{named}: {failed.message}"
