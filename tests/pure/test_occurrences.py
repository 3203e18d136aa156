"""The moments of cron lines, against a walker that knows nothing of cronsim: it looks at the clock on the wall every minute (cases B23, B85)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest

from ezgh_workflows_django.definitions import occurrences

ZONES = ("America/New_York", "Europe/Berlin", "America/Santiago", "Africa/Casablanca", "Australia/Lord_Howe", "Asia/Kolkata")
YEAR = (datetime(2024, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC))
MINUTE, QUARTER = timedelta(minutes=1), timedelta(minutes=15)

LINES = ("30 2 * * *", "0 * * * *", "0 0 * * 0", "0 12 11,26 * *", "15,45 0-3 * * *", "*/30 1,2 * * *", "30 */2 * * 7", "0 0 1 * 0", "45 23 * 3,4,9-11 *")
ODD_LINES = ("*/15 * * * *", "7 2 * * *", "*/7 2 * * *", "59 1,2 * * *", "* 0 * * 0", "1 0 * * *", "*/20 23,0,1 * * *", "31 1 * * *", "29,31 * * * *")


def numbers(field: str, least: int, most: int) -> set[int]:
    """The values of a field."""
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        low, _, high = (f"{least}-{most}" if span == "*" else span).partition("-")
        found |= set(range(int(low), int(high or low) + 1, int(step or 1)))
    return found


class Line:
    """A line's five fields: does a time on the wall match?"""

    def __init__(self, text: str) -> None:
        minutes, hours, days, months, weekdays = text.split()
        self.follows_real_time = minutes[0] == "*" or hours[0] == "*"
        self._either = days[0] != "*" and weekdays[0] != "*"
        self._minutes, self._hours, self._months = numbers(minutes, 0, 59), numbers(hours, 0, 23), numbers(months, 1, 12)
        self._days, self._weekdays = numbers(days, 1, 31), {number % 7 for number in numbers(weekdays, 0, 7)}

    def matches(self, wall: datetime) -> bool:
        """Whether it means that minute."""
        if wall.minute not in self._minutes or wall.hour not in self._hours or wall.month not in self._months:
            return False
        by_date, by_weekday = wall.day in self._days, wall.isoweekday() % 7 in self._weekdays
        return by_date or by_weekday if self._either else by_date and by_weekday


def on_the_wall(zone: str, begin: datetime, end: datetime, step: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """Each instant, and what the clock on the wall shows then."""
    moment = begin
    while moment < end:
        yield moment, moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        moment += step


def walked(line: Line, clock: Iterable[tuple[datetime, datetime]], step: timedelta) -> list[datetime]:
    """What a person does who watches that clock: fixed times that it leaves out are made up for at once, those it repeats are not done again."""
    found: list[datetime] = []
    latest: datetime | None = None
    for moment, wall in clock:
        due = line.matches(wall)
        if not line.follows_real_time and latest is not None:
            left_out = [latest + step * number for number in range(1, (wall - latest) // step)]
            due = wall > latest and (due or any(map(line.matches, left_out)))
        latest = wall if latest is None else max(latest, wall)
        if due:
            found.append(moment)
    return found


@cache
def changes(zone: str) -> list[datetime]:
    """When the clocks change there in that year."""
    offsets = [(moment, moment.astimezone(ZoneInfo(zone)).utcoffset()) for moment, _ in on_the_wall(zone, *YEAR, QUARTER)]
    return [moment for (_, before), (moment, now) in pairwise(offsets) if before != now]


def found_after(text: str, zone: str, since: datetime, until: datetime) -> list[datetime]:
    """All moments of a line after one instant and before another."""
    return list(takewhile(lambda moment: moment < until, occurrences.after(text, zone, since)))


@pytest.mark.parametrize("zone", ZONES)
def test_a_year_is_as_a_clock_on_the_wall_shows_it(zone: str) -> None:
    begin, end = YEAR
    clock = list(on_the_wall(zone, begin, end, QUARTER))
    for text in LINES:
        expected = walked(Line(text), clock, QUARTER)
        assert found_after(text, zone, begin - MINUTE, end) == expected, text
        assert occurrences.between(text, zone, begin, end - MINUTE, 100) == expected[-100:], text
        assert all(earlier < later for earlier, later in pairwise(expected))


@pytest.mark.parametrize("zone", ZONES)
def test_a_daily_time_is_met_once_a_day_and_an_hourly_one_every_real_hour(zone: str) -> None:
    daily = found_after("30 2 * * *", zone, *YEAR)
    assert {later - earlier for earlier, later in pairwise(daily)} <= {timedelta(hours=hours) for hours in (22.5, 23, 23.5, 24, 24.5, 25, 25.5)}
    assert len({moment.astimezone(ZoneInfo(zone)).date() for moment in daily}) == len(daily) >= 365
    day = timedelta(days=1)
    for change in changes(zone):
        hourly = {later - earlier for earlier, later in pairwise(found_after("*/30 * * * *", zone, change - day, change + day))}
        assert hourly == {timedelta(minutes=30)}


@pytest.mark.parametrize("zone", [zone for zone in ZONES if changes(zone)])
@pytest.mark.parametrize("text", ODD_LINES)
def test_around_each_change_of_the_clocks_every_minute_is_right_wherever_one_begins(zone: str, text: str) -> None:
    """Begun inside the repeated hour too, on either side of the change, and with seconds on the clock."""
    for change in changes(zone):
        begin, end = change - timedelta(hours=30), change + timedelta(hours=30)
        expected = walked(Line(text), on_the_wall(zone, begin, end, MINUTE), MINUTE)
        for offset in (-90, -60, -31, -1, 0, 1, 30, 45, 60, 90):
            since = change + MINUTE * offset + timedelta(seconds=1)
            assert found_after(text, zone, since, end) == [moment for moment in expected if moment > since], since
            assert occurrences.between(text, zone, begin, since, 10_000) == [moment for moment in expected if moment <= since], since


def test_the_two_rules_by_example() -> None:
    def local(text: str, zone: str, day: str) -> list[str]:
        since = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
        found = found_after(text, zone, since, since + timedelta(days=1))
        return [f"{moment.astimezone(ZoneInfo(zone)):%H:%M%z}" for moment in found]

    assert local("30 2 * * *", "Europe/Berlin", "2024-03-31") == ["03:00+0200"]
    assert local("0,30 2 * * *", "Europe/Berlin", "2024-03-31") == ["03:00+0200"]
    assert local("30 2 * * *", "Europe/Berlin", "2024-10-27") == ["02:30+0200"]
    assert local("0 1-4 * * *", "Europe/Berlin", "2024-10-27") == ["01:00+0200", "02:00+0200", "03:00+0100", "04:00+0100"]
    assert local("0 * * * *", "Europe/Berlin", "2024-10-27")[:4] == ["01:00+0200", "02:00+0200", "02:00+0100", "03:00+0100"]
    assert local("*/30 2 * * *", "Europe/Berlin", "2024-10-27") == ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"]
    assert local("*/30 2 * * *", "Europe/Berlin", "2024-03-31") == []
    assert local("0 0 * * 0", "America/Santiago", "2024-09-07T12:00") == ["01:00-0300"]
    assert local("15 2 * * *", "Australia/Lord_Howe", "2024-10-06") == ["02:30+1100"]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("0 0 13 * 5", ["2024-01-05", "2024-01-12", "2024-01-13", "2024-01-19"]),  # either: a Friday, or a 13th
        ("0 0 13 * *", ["2024-01-13", "2024-02-13"]),
        ("0 0 */10 * 5", ["2024-03-01", "2024-05-31", "2024-06-21", "2024-10-11"]),  # a field that begins with a star: both
        ("0 0 * * 7", ["2024-01-07", "2024-01-14"]),
        ("0 0 * * 0", ["2024-01-07", "2024-01-14"]),
        ("0 0 * * SUN", ["2024-01-07", "2024-01-14"]),
        ("0 0 * * 0-7", ["2024-01-02", "2024-01-03"]),
        ("0 0 29 2 *", ["2024-02-29", "2028-02-29"]),
        ("0 0 L * *", ["2024-01-31", "2024-02-29"]),
        ("0 0 * JAN 1#2", ["2024-01-08", "2025-01-13"]),
        ("0 0 * * 5L", ["2024-01-26", "2024-02-23"]),
        ("0 0 31 * *", ["2024-01-31", "2024-03-31", "2024-05-31"]),
    ],
)
def test_days_are_read_as_cron_reads_them(text: str, days: list[str]) -> None:
    found = islice(occurrences.after(text, "UTC", YEAR[0]), len(days))
    assert occurrences.fault(text) is None
    assert [f"{moment:%Y-%m-%d}" for moment in found] == days


def test_a_step_begins_anew_in_each_hour() -> None:
    found = islice(occurrences.after("*/7 * * * *", "UTC", YEAR[0]), 10)
    assert [moment.minute for moment in found] == [7, 14, 21, 28, 35, 42, 49, 56, 0, 7]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 0 30 2 *", "Bad day-of-month"),
        ("0 0 31 4,6 *", "Bad day-of-month"),
        ("0 0 */20 2 1#5", "means no day that there is"),
        ("60 * * * *", "Bad minute"),
        ("* 24 * * *", "Bad hour"),
        ("* * 0 * *", "Bad day-of-month"),
        ("* * * * 8", "Bad day-of-week"),
        ("*/0 * * * *", "Bad minute"),
        ("5-1 * * * *", "Bad minute"),
        ("@daily", "no five fields"),
        ("0 0 0 * * *", "no five fields"),
        ("", "no five fields"),
        (None, "no five fields"),
        (5, "no five fields"),
        ("9" * 5000 + " * * * *", "at most 255"),
        ("١ * * * *", "Bad minute"),
    ],
)
def test_what_is_no_line_is_refused_by_name_and_in_no_time(text: object, said: str) -> None:
    begun = time.process_time()
    assert said in str(occurrences.fault(text))
    assert time.process_time() - begun < 1  # a look for a day that does not exist ends (case B23)


def test_a_line_that_has_no_moment_left_says_so() -> None:
    assert occurrences.next_after("0 0 */28 2 1#5", "UTC", YEAR[0]) == datetime(2044, 2, 29, tzinfo=UTC)
    assert occurrences.between("0 0 1 1 *", "UTC", datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 12, 31, tzinfo=UTC), 10) == []
