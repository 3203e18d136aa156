"""Runs the checks: finds its place on the server, makes each check alone, puts away what it left, and gives a report."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from . import checks  # noqa: F401 - registers them
from .answers import Answer
from .bench import Bench, Left, Site, project_path
from .catalogue import Check, chosen
from .findings import Mismatch, NotApplicable, Outcome, Result
from .shapes import Durations
from .wire import Wire

if TYPE_CHECKING:
    from ..worker.transports.http import Line

OWN_APP: Final = "conformance"
"""The app that the checks work in, where nobody names another."""

SHORT_ENOUGH: Final = 10.0
"""Seconds that a check may wait without being asked for."""

PATIENCE: Final = 10.0


class Unusable(Exception):
    """No check can be made: the server does not answer, or has no use for this key."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be checked, and where. `only` are names or patterns of checks; `timeout` is how many seconds an answer is waited for."""

    app: str | None = None
    organization: str | None = None
    project: str | None = None
    only: Sequence[str] = ()
    timeout: float = PATIENCE
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it. `left` says what stays on the server, a line each."""

    server: str
    app: str
    results: tuple[Result, ...]
    left: tuple[str, ...]

    def count(self, outcome: Outcome) -> int:
        """How many checks ended so."""
        return sum(result.outcome is outcome for result in self.results)

    @property
    def is_conforming(self) -> bool:
        """Whether no promise was broken."""
        return self.count(Outcome.FAILED) == 0


def run(line: Line, connect: Callable[[str], Line], asked: Asked, told: Callable[[Result], object] = lambda result: None) -> Report:
    """Make the checks on the server at the end of `line`; `connect` gives a line with another key, `told` hears of each result as it comes.

    Those that wait go on side by side, after the others. Raises `Unusable`, and `InvalidArgument` for a check that is not there.
    """
    wanted = chosen(asked.only)
    site, is_made = _find_site(line, connect, asked)
    quick = [each for each in wanted if each.takes is None]
    slow = [each for each in wanted if each.takes is not None]
    made = [_make(site, each, asked.slow, told) for each in quick]
    if slow:
        with ThreadPoolExecutor(len(slow), thread_name_prefix="conformance") as pool:
            made += pool.map(lambda each: _make(site, each, asked.slow, told), slow)
    return Report(str(line.url), site.app, _in_order(wanted, [result for result, _ in made]), _in_words(site, is_made, [left for _, left in made]))


def _make(site: Site, check: Check, is_slow_wanted: bool, told: Callable[[Result], object]) -> tuple[Result, Left]:
    """One check, and what it left behind."""
    bench, begun = Bench(site, check.name), time.monotonic()
    reason = _too_long(check, site.durations, is_slow_wanted)
    try:
        outcome, reason = (Outcome.NOT_APPLICABLE, reason) if reason else _judge(check, bench)
    finally:
        left = bench.tidy()
    result = Result(check, outcome, tuple(bench.seen), reason, round(time.monotonic() - begun, 3))
    told(result)
    return result, left


def _judge(check: Check, bench: Bench) -> tuple[Outcome, str]:
    try:
        check.body(bench)
    except Mismatch as error:
        return Outcome.FAILED, f"expected {error}"
    except NotApplicable as error:
        return Outcome.NOT_APPLICABLE, str(error)
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # reading an answer that has not the form it should have
        return Outcome.FAILED, f"the answer can't be read: {type(error).__name__}: {error}"
    return Outcome.PASSED, ""


def _too_long(check: Check, durations: Durations, is_slow_wanted: bool) -> str:
    seconds = 0.0 if check.takes is None else check.takes(durations)
    return "" if is_slow_wanted or seconds <= SHORT_ENOUGH else f"takes {seconds:g} s on this server: ask for it by --slow"


def _find_site(line: Line, connect: Callable[[str], Line], asked: Asked) -> tuple[Site, bool]:
    """Where the checks are to work, and whether its app was made for them. Raises `Unusable`."""
    path = project_path(asked.organization, asked.project)
    made = None if asked.app is not None else Wire(line, [], asked.timeout).call("POST", f"{path}/apps", {"name": OWN_APP, "kind": "pull"})
    prefix = f"conformance-{uuid.uuid4().hex[:8]}"
    site = Site(line, connect, asked.app or OWN_APP, asked.organization, asked.project, prefix, asked.timeout, Durations())
    bench = Bench(site, "site")
    told = bench.register(bench.job())
    bench.tidy()
    if made is not None and told.status == 404 and told.code is not None:
        raise Unusable(f"there is no app {OWN_APP}, and it can't be made under {path} ({made.came}): name an app by --app, or --organization and --project")
    _refuse_unusable(told)
    return replace(site, durations=Durations.of(told.value)), made is not None and made.status == 201


def _refuse_unusable(told: Answer) -> None:
    """Raises `Unusable` where a registration was not answered with a yes."""
    if told.status == 200:
        return
    if told.status in (401, 403):
        raise Unusable(f"the server refuses this key: {told.came}")
    if told.status is not None and (300 <= told.status < 400 or (told.status == 404 and told.code is None)):
        raise Unusable(f"a registration was answered {told.status}: the URL has to be the place where the server has its `v1/api/`")
    raise Unusable(f"a registration was not answered with 200: {told.came}")


def _in_order(wanted: Sequence[Check], results: Iterable[Result]) -> tuple[Result, ...]:
    by_name = {result.check.name: result for result in results}
    return tuple(by_name[each.name] for each in wanted)


def _in_words(site: Site, is_made: bool, left: Sequence[Left]) -> tuple[str, ...]:
    """What stays on the server, a line each."""
    said = [f"app {site.app}" + (", made for this" if is_made else ""), f"definitions of workflows named {site.prefix}.…, announced by nobody"]
    said.append(f"{sum(each.ended for each in left)} runs of them, all over")
    said += [f"run {run}, which could not be ended" for each in left for run in each.open_runs]
    said += [f"key {prefix}, which could not be revoked" for each in left for prefix in each.keys]
    return tuple(said)
