"""A report as text for people, as JSON for programs, and the table of checks as the docs have it. Prints nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .. import __version__
from .catalogue import Check
from .findings import Outcome, Result
from .runner import Report

_HEADS: Final = ("result", "check", "promise, or why not")


def to_text(report: Report) -> str:
    """What failed, in full; then a table of all checks, what is left behind, and the counts."""
    failed = [_failure(result) for result in report.results if result.outcome is Outcome.FAILED]
    left = ["Left behind:", *(f"  {line}" for line in report.left)]
    return "\n".join([*failed, *_table(report.results), "", *left, "", _counts(report)])


def to_json(report: Report) -> dict[str, Any]:
    """All of it, with everything each check judged."""
    return {
        "version": __version__,
        "server": report.server,
        "app": report.app,
        "conforming": report.is_conforming,
        "counts": {outcome.value.replace(" ", "_"): report.count(outcome) for outcome in Outcome},
        "checks": [_result(result) for result in report.results],
        "left": list(report.left),
    }


def line_of(result: Result) -> str:
    """One result as it is told while the checks go on."""
    return f"{result.outcome.value}: {result.check.name}" + (f" ({result.reason})" if result.reason else "")


def to_markdown(checks: Iterable[Check]) -> str:
    """The table of checks."""
    rows = (f"| `{each.name}` | {each.promise} | {each.page} |" for each in checks)
    return "\n".join(["| check | what the protocol promises | page |", "| --- | --- | --- |", *rows])


def _failure(result: Result) -> str:
    lines = [f"FAILED {result.check.name}", f"  promise   {result.check.promise} ({result.check.page})"]
    if result.seen:
        last = result.seen[-1]
        lines += [f"  sent      {last.sent}", f"  expected  {last.expected}", f"  came      {last.came}"]
    return "\n".join([*lines, f"  why       {result.reason}", ""])


def _table(results: Iterable[Result]) -> list[str]:
    rows = [_HEADS, *((each.outcome.value, each.check.name, each.reason or each.check.promise) for each in results)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"{outcome:<{widths[0]}}  {name:<{widths[1]}}  {text}" for outcome, name, text in rows]


def _counts(report: Report) -> str:
    return ", ".join(f"{report.count(outcome)} {outcome.value}" for outcome in Outcome)


def _result(result: Result) -> Mapping[str, Any]:
    return {
        "name": result.check.name,
        "promise": result.check.promise,
        "page": result.check.page,
        "result": result.outcome.value,
        "reason": result.reason,
        "seconds": result.seconds,
        "seen": [{"sent": each.sent, "expected": each.expected, "came": each.came} for each in result.seen],
    }
