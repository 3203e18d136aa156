"""`runworker --reload`, for development: the worker as a child of this process, and another one whenever the project's code changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Final

from django.apps import apps
from django.utils.autoreload import iter_all_python_module_files

CHILD_VARIABLE: Final = "EZGH_WORKFLOWS_RELOADS"
"""In the environment of the child, so that it works instead of starting another one."""

LOOK_EVERY: Final = 0.5
PATIENCE: Final = 5.0
"""Seconds, over its grace period, after which a child that was told to stop is killed."""

_INSTALLED: Final = ("site-packages", "dist-packages")
_STANDARD: Final = sysconfig.get_path("stdlib")


class Reloader:
    """Runs `command` again and again. `files` gives what is watched, `say` tells the developer what happens."""

    def __init__(self, command: list[str], *, grace: float, files: Callable[[], Iterable[Path]], say: Callable[[str], object]) -> None:
        self._command = command
        self._grace = grace
        self._files = files
        self._say = say
        self._child: subprocess.Popen[bytes] | None = None
        self._is_told_to_stop = False
        self._is_child_told = False

    def run(self) -> int:
        """Work until stopped, in the main thread; gives the exit code. A child that fails is started again once the code has changed."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        code: int | None = None
        while not self._is_told_to_stop:
            seen = _moments(self._files())
            code = self._work(seen)
            if code == 0:
                return 0
            if code is not None and not self._is_told_to_stop:
                self._say(f"the worker ended with code {code}; it starts again when the code has changed")
                self._wait_for_change(seen)
        return code or 0

    def _work(self, seen: Mapping[Path, int]) -> int | None:
        """One child, from its beginning to its end: its exit code, or None after a change, for which it was stopped."""
        self._is_child_told = False
        self._child = child = subprocess.Popen(self._command, env={**os.environ, CHILD_VARIABLE: "1"})
        if self._is_told_to_stop and not self._is_child_told:  # while there was no child yet to pass it on to
            child.terminate()
        try:
            return self._watch(child, seen)
        finally:
            self._child = None

    def _watch(self, child: subprocess.Popen[bytes], seen: Mapping[Path, int]) -> int | None:
        while True:
            try:
                return self._code(child.wait(LOOK_EVERY))
            except subprocess.TimeoutExpired:
                changed = self._change(seen)
            if changed is not None and not self._is_told_to_stop:
                self._say(f"{changed} has changed: starting again")
                self._end(child)
                return None

    def _code(self, returned: int) -> int:
        """A child's exit code. One that a signal ended before it could listen to any had nothing in hand: it stopped as it was told."""
        is_as_told = self._is_told_to_stop and returned in (-signal.SIGTERM, -signal.SIGINT)
        return 0 if is_as_told else abs(returned)

    def _wait_for_change(self, seen: Mapping[Path, int]) -> None:
        while not self._is_told_to_stop and self._change(seen) is None:
            time.sleep(LOOK_EVERY)

    def _change(self, seen: Mapping[Path, int]) -> Path | None:
        now = _moments(self._files())
        return next((path for path in {**seen, **now} if seen.get(path) != now.get(path)), None)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Stop it in order, so that what it has in hand goes back at once."""
        self._is_child_told = True
        child.terminate()
        try:
            child.wait(self._grace + PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        is_first, self._is_told_to_stop = not self._is_told_to_stop, True
        if self._child is None or (is_first and self._is_child_told):  # a child that ends for a change must not take this for a second signal
            return
        self._is_child_told = True
        if not (number == signal.SIGINT and _is_in_foreground()):
            self._child.send_signal(number)


def is_child() -> bool:
    """Whether this process is the child of a reloader."""
    return CHILD_VARIABLE in os.environ


def same_command() -> list[str]:
    """What starts this process's program again."""
    return [sys.executable, *sys.orig_argv[1:]]


def project_files() -> set[Path]:
    """The Python files of the project: every module that is loaded, and whatever lies beside them in its apps; nothing that is installed."""
    folders = {Path(config.path) for config in apps.get_app_configs()}
    beside = {path for folder in folders if _is_own(folder) for path in folder.rglob("*.py")}
    return beside | {path for path in map(Path, iter_all_python_module_files()) if _is_own(path)}


def _is_own(path: Path) -> bool:
    return not any(part in _INSTALLED for part in path.parts) and not path.is_relative_to(_STANDARD)


def _is_in_foreground() -> bool:
    """Whether a Ctrl-C of the terminal goes to the child by itself: told twice, it would not stop in order."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _moments(files: Iterable[Path]) -> dict[Path, int]:
    moments: dict[Path, int] = {}
    for path in files:
        try:
            moments[path] = path.stat().st_mtime_ns
        except OSError:
            continue  # it has just been deleted, or is being replaced
    return moments
