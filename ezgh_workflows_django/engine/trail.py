"""The audit log: who did what to which thing. Rows are added, never changed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db.models import Q

from ..errors import InvalidArgument
from ..models import Trail
from ..protocol import codec
from .transactions import database

SYSTEM = ("system", "engine")

MAX_PAGE: Final = 200
_LONGEST: Final = 255
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR: Final = re.compile(r"([0-9]{1,17})-([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Page:
    """Some entries, the newest first, and where the next older ones begin; None at the end."""

    entries: tuple[Trail, ...]
    cursor: str | None


def record(project_id: int, now: datetime, action: str, *, actor: tuple[str, str], target: tuple[str, str], **data: Any) -> None:
    """Add a row in the caller's transaction. `actor` and `target` are a kind and a name or id; no secret goes into `data`."""
    _entry(project_id, now, action, actor, target, data).save(using=database(), force_insert=True)


def record_once_an_hour(project_id: int, now: datetime, action: str, *, actor: tuple[str, str], target: tuple[str, str], **data: Any) -> bool:
    """As `record`, but one row an hour for that action, actor and target, however many ask at once. Whether this call found none yet.

    One statement where the row is there, two where it is not; a row that comes in between is left alone.
    """
    entry = _entry(project_id, now, action, actor, target, data)
    entry.once = _only(entry)
    entries = Trail.objects.using(database())
    if entries.filter(once=entry.once).exists():
        return False
    entries.bulk_create([entry], ignore_conflicts=True)
    return True


def page(
    project_id: int,
    *,
    action: str | None = None,
    actor: str | None = None,
    target: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page:
    """A project's entries, the newest first: one statement. `actor` and `target` are names or ids; `since` is in, `until` is out.

    Raises `InvalidArgument` for a cursor that no page gave, a limit that is none, a text that can't be stored.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidArgument("limit", f"1 to {MAX_PAGE}, not {limit}")
    wanted = {"action": action, "actor": actor, "target": target, "at__gte": since, "at__lt": until}
    rows = Trail.objects.using(database()).filter(project=project_id, **_asked(wanted))
    if cursor is not None:
        at, pk = _place(cursor)
        rows = rows.filter(Q(at__lt=at) | Q(at=at, pk__lt=pk), at__lte=at)
    found = list(rows.order_by("-at", "-pk")[: limit + 1])
    return Page(tuple(found[:limit]), _cursor(found[limit - 1]) if len(found) > limit else None)


def _entry(project_id: int, now: datetime, action: str, actor: tuple[str, str], target: tuple[str, str], data: Mapping[str, Any]) -> Trail:
    return Trail(
        project_id=project_id,
        at=now,
        action=action,
        actor_kind=actor[0],
        actor=actor[1][:_LONGEST],
        target_kind=target[0],
        target=target[1][:_LONGEST],
        data=codec.dumps(data, limit=None, what="trail"),
    )


def _only(entry: Trail) -> str:
    """What there is one row of: these, in this hour."""
    parts = (entry.project_id, entry.action, entry.actor_kind, entry.actor, entry.target_kind, entry.target, f"{entry.at.astimezone(UTC):%Y-%m-%dT%H}")
    return hashlib.sha256(codec.dumps(parts, limit=None, what="trail").encode()).hexdigest()


def _asked(wanted: Mapping[str, Any]) -> dict[str, Any]:
    for field, value in wanted.items():
        if isinstance(value, str) and (len(value) > _LONGEST or codec.clean_text(value, _LONGEST) != value):
            raise InvalidArgument(field, f"at most {_LONGEST} characters, no NUL and no lone surrogate")
    return {field: value for field, value in wanted.items() if value is not None}


def _cursor(entry: Trail) -> str:
    return f"{(entry.at - _EPOCH) // timedelta(microseconds=1)}-{entry.pk}"


def _place(cursor: str) -> tuple[datetime, int]:
    form = _CURSOR.fullmatch(cursor)
    try:
        if form is not None:
            return _EPOCH + timedelta(microseconds=int(form[1])), int(form[2])
    except OverflowError:
        pass
    raise InvalidArgument("cursor", "not one that a page of this list gave")
