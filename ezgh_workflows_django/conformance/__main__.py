"""`python -m ezgh_workflows_django.conformance`: arguments and exit codes only.

Ends with 0 where no promise was broken, 1 where one was, 2 where nothing could be checked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Final, TextIO

from ..errors import InvalidArgument
from ..worker.transports.choice import line_to
from . import reporting
from .catalogue import CHECKS
from .runner import OWN_APP, PATIENCE, Asked, Report, Unusable, run

CONFORMING: Final = 0
BROKEN: Final = 1
UNUSABLE: Final = 2

KEY_VARIABLE: Final = "EZGH_WORKFLOWS_API_KEY"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the server that the arguments name; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        _write(sys.stdout, reporting.to_markdown(CHECKS.values()))
        return CONFORMING
    if not options.url or not options.key:
        parser.error(f"--url and --key are needed; the key may come from the environment as {KEY_VARIABLE}")
    try:
        report = _checked(options)
    except (InvalidArgument, Unusable) as error:
        _write(sys.stderr, f"nothing was checked: {error}")
        return UNUSABLE
    _write(sys.stdout, json.dumps(reporting.to_json(report), indent=2, ensure_ascii=False) if options.json else reporting.to_text(report))
    return CONFORMING if report.is_conforming else BROKEN


def _checked(options: argparse.Namespace) -> Report:
    line = line_to(options.url, options.key)
    asked = Asked(options.app, options.organization, options.project, tuple(options.only), options.timeout, options.slow)
    try:
        return run(line, lambda key: line_to(options.url, key), asked, lambda result: _write(sys.stderr, reporting.line_of(result)))
    finally:
        line.close()


def _write(stream: TextIO, text: str) -> None:
    stream.write(f"{text}\n")
    stream.flush()


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 3600:
        raise ValueError
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ezgh_workflows_django.conformance", description="Check a server of the worker protocol, over HTTP.")
    parser.add_argument("--url", help="where the server has its v1/api/, as a worker is given it")
    parser.add_argument("--key", default=os.environ.get(KEY_VARIABLE), help=f"an API key; better in the environment, as {KEY_VARIABLE}")
    parser.add_argument("--app", help=f"the app to work in; without, one named {OWN_APP} is made")
    parser.add_argument("--organization", help="the key's organization, where it is not the default one")
    parser.add_argument("--project", help="the key's project, where it is not the default one")
    parser.add_argument("--only", action="append", default=[], metavar="CHECK", help="this check only, or all that a pattern means (claim-*); may be repeated")
    parser.add_argument("--slow", action="store_true", help="make the checks that have to wait, too, however long this server's durations are")
    parser.add_argument("--timeout", type=_seconds, default=PATIENCE, help="how many seconds an answer is waited for (%(default)g)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, with all that was sent and came")
    parser.add_argument("--list", action="store_true", help="print the table of checks, and ask no server")
    return parser


if __name__ == "__main__":
    sys.exit(main())
