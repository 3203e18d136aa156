"""The moments of a cron line: which instants its times on the wall are, in its time zone. Pure; asks no clock.

A line is five fields, read as Debian's cron reads them; cronsim walks its times on the wall, and knows no time zone here. Two rules
make them instants where the clocks change (spec: engine.md "Cron, concurrency"; cases B23, B85):

- a line whose minutes or hours begin with `*` follows real time: every instant whose time on the wall matches is meant, so one that the
  clocks repeat is meant twice, and one that they leave out never;
- any other line names fixed times: one that does not exist is the next minute that does, one that exists twice is meant the first time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

MAX_LENGTH: Final = 255
"""The most characters of a line: what its column holds."""

_MINUTE: Final = timedelta(minutes=1)
_NONE: Final = timedelta(0)
_SOME_DAY: Final = datetime(2024, 1, 1)  # noqa: DTZ001 - a time on the wall has no zone


def fault(expression: object) -> str | None:
    """What is wrong with a line, or None. One that means no moment at all, such as 30 February, is wrong: a look over 50 years finds none."""
    if not isinstance(expression, str) or len(expression.split()) != 5:
        return f"{expression!r} is no five fields of cron, such as 0 9 * * 1-5"
    if len(expression) > MAX_LENGTH:
        return f"it has {len(expression)} characters, at most {MAX_LENGTH} are allowed"
    try:
        first = next(CronSim(expression, _SOME_DAY), None)
    except CronSimError as error:
        return f"{expression!r}: {error}"
    return None if first is not None else f"{expression!r} means no day that there is"


def next_after(expression: str, timezone: str, moment: datetime) -> datetime | None:
    """The first moment after `moment`; None where 50 years have none."""
    return next(after(expression, timezone, moment), None)


def after(expression: str, timezone: str, moment: datetime) -> Iterator[datetime]:
    """The moments after `moment`, in order, in UTC. Raises `zoneinfo.ZoneInfoNotFoundError` for a zone that this machine does not know."""
    wall, repeated = _on_the_wall(moment, zone := ZoneInfo(timezone))
    # From the first time that the clocks repeat: its second reading may be still to come.
    return (found for found in _walk(expression, zone, wall - repeated, backwards=False) if found > moment)


def between(expression: str, timezone: str, since: datetime, until: datetime, most: int) -> list[datetime]:
    """The moments from `since` to `until`, both included, in order; only the last `most` of them. Costs what these cost, however long that is."""
    wall, repeated = _on_the_wall(until, zone := ZoneInfo(timezone))
    walked = (found for found in _walk(expression, zone, wall + repeated + _MINUTE, backwards=True) if found <= until)
    return list(islice(takewhile(lambda found: found >= since, walked), most))[::-1]


def _walk(expression: str, zone: ZoneInfo, begin: datetime, *, backwards: bool) -> Iterator[datetime]:
    """All moments from a time on the wall on, strictly in order; a few from before it may come first.

    Where a time has two readings, what the clocks repeat is passed twice: the later reading waits until those of other times are through.
    """
    readings = _all_readings if follows_real_time(expression) else _one_reading
    waiting: deque[datetime] = deque()
    last: datetime | None = None
    for wall in CronSim(expression, begin, backwards):
        found = readings(wall, zone)[:: -1 if backwards else 1]
        while waiting and found and (waiting[0] > found[0] if backwards else waiting[0] < found[0]):
            yield waiting.popleft()
        waiting.extend(found[1:])
        if found and found[0] != last:  # fixed times that do not exist are all the same minute
            yield (last := found[0])
    yield from waiting


def follows_real_time(expression: str) -> bool:
    """Whether a line keeps its distances through a change of the clocks, rather than its times of day."""
    minutes, hours, *_ = expression.split()
    return minutes.startswith("*") or hours.startswith("*")


def _all_readings(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """The instants at which clocks in the zone show that time: one, two where they are put back, none where they are put forward."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first > second:  # it is left out: both readings are off, to either side
        return ()
    return (first,) if first == second else (first, second)


def _one_reading(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    while not (found := _all_readings(wall, zone)):
        wall += _MINUTE
    return found[:1]


def _on_the_wall(moment: datetime, zone: ZoneInfo) -> tuple[datetime, timedelta]:
    """What clocks in the zone show at that moment, and how much of the past they are about to show again, or have just repeated."""
    local = moment.astimezone(zone)
    first, second = (local.replace(fold=fold).utcoffset() or _NONE for fold in (0, 1))
    return local.replace(tzinfo=None, fold=0), max(_NONE, first - second)
