"""What a server's HTTP replies mean to a worker: an answer, a refusal of one lease, or one of the transport's errors. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from ...errors import Rejected, SessionLost, TransportError, Unavailable
from ...protocol.failures import Refused

UNKNOWN_LEASE: Final = "unknown_lease"

_LATER: Final = frozenset({408, 425, 429})
"""Refusals that say nothing of the request itself: the same one may be sent again."""

_SESSION_CODES: Final = frozenset({"unknown_worker", "unknown_definition"})
_UNFIT_CODES: Final[Mapping[int, str]] = {400: "invalid", 413: "payload_too_large"}
_MOVED: Final = range(300, 400)
_BETWEEN: Final = "something between the worker and the server, such as a proxy with a bound on the size of requests, did not let it through: HTTP status"

_ADVICE: Final[Mapping[str, str]] = {
    "unauthenticated": "make a key with `manage.py workflows_key create`, and give the worker that",
    "forbidden": "the key has to be given what the message names; `worker` is the scope that a worker needs",
    "unknown_app": "`manage.py workflows_app create` makes one, on the server; or name another one, that this key reaches",
    "unknown_project": "give the worker a key of that project, or leave organization and project away: the key decides",
}
"""What a worker is to do about a refusal, by its code."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. `call` names what was asked, `value` is its JSON body (None where it has none), `retry_after` is in seconds."""

    call: str
    status: int
    value: Any = None
    retry_after: float | None = None

    @property
    def error(self) -> Mapping[str, Any] | None:
        """The `error` of a refusal that comes from this project's server, and from nothing in between."""
        error = self.value.get("error") if isinstance(self.value, dict) else None
        return error if isinstance(error, dict) and isinstance(error.get("code"), str) else None

    @property
    def text(self) -> str:
        """What it says, in words: status, code, message, and each bad field."""
        error = self.error
        if error is None:
            return f"{self.call} was answered with HTTP status {self.status}"
        fields = error.get("fields")
        named = "; ".join(f"{field}: {_flat(said)}" for field, said in fields.items()) if isinstance(fields, dict) else ""
        return f"{self.call} was answered {self.status} {error['code']}: {error.get('message', '')}{f' ({named})' if named else ''}"

    @property
    def is_unfit(self) -> bool:
        """Whether it says that what was sent can't be taken as it is."""
        return self.status in _UNFIT_CODES


class Unfit(Rejected):
    """The server can't take what was sent: too much of it, or something wrong in it."""


class Absent(Rejected):
    """The server has nothing of the name that was sent."""


def accepted(reply: Reply) -> Any:
    """The value of a reply that says yes. Raises `Unavailable`, `SessionLost`, `Rejected` (of which `Unfit` and `Absent` are kinds) for the others."""
    if 200 <= reply.status < 300:
        return reply.value
    raise failure(reply)


def failure(reply: Reply, advice: Mapping[str, str] = _ADVICE) -> TransportError:
    """What a reply that says no means for the worker as a whole. `advice` by code is what to do about it, for another caller than a worker."""
    if reply.status in _LATER or reply.status >= 500:
        return Unavailable(reply.text, reply.retry_after)
    if reply.error is not None and reply.status == 409 and reply.error["code"] in _SESSION_CODES:
        return SessionLost(reply.text)
    if reply.status in _MOVED or (reply.status == 404 and reply.error is None):
        return Rejected(f"{reply.text}: the base URL has to be the place where the project includes `ezgh_workflows_django.urls`")
    kind = Unfit if reply.is_unfit else Absent if reply.status == 404 else Rejected
    do_this = advice.get(reply.error["code"]) if reply.error is not None else None
    return kind(f"{reply.text}: {do_this}" if do_this else reply.text)


def refusal(reply: Reply, *, unfit: bool = False) -> Refused | None:
    """The refusal of one lease that a reply is, or None where it is none.

    With `unfit`, what the server, or a proxy before it, can't take as it is counts as one, too.
    """
    error = reply.error
    if unfit and reply.is_unfit:
        return Refused(_UNFIT_CODES[reply.status], str((error or {}).get("message") or f"{_BETWEEN} {reply.status}"))
    if error is None or error["code"] in _SESSION_CODES:
        return None
    message = str(error.get("message") or reply.text)
    if reply.status == 404:
        return Refused(UNKNOWN_LEASE if error["code"] == "not_found" else error["code"], message)
    if reply.status == 409:
        return Refused(error["code"], message, error.get("outcome"))
    return None


def of_leases(reply: Reply) -> Reply:
    """The reply to a call on leases, as it is.

    Raises `Unavailable` for a refusal that is not the server's own: the URL and the key are right, as there is a session with them, so a
    proxy that redirects, has no place or asks for a name speaks of a while, and no work is lost by it.
    """
    if 300 <= reply.status < 500 and reply.error is None and not reply.is_unfit:
        raise Unavailable(f"{reply.text}, which is not the server's own: something between the worker and the server spoke", reply.retry_after)
    return reply


def seconds_of(retry_after: str | None, now: datetime | None = None) -> float | None:
    """A `Retry-After` in seconds from now, which says a number of seconds or a date; None where it says neither."""
    if not retry_after:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def _flat(said: Any) -> str:
    return ", ".join(map(str, said)) if isinstance(said, list) else str(said)
