"""The parent of a worker that reloads, with children that are small programs: whenever it is told to stop, it does, and with code 0."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ezgh_workflows_django.management.reloading import Reloader

pytestmark = pytest.mark.process

SLEEPS = "import time; time.sleep(60)"
STOPS_ITS_PARENT = """
import os, signal, sys, time
from pathlib import Path

def stop(number, frame):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second signal would end it, as it ends a worker
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(0.5)
    Path(sys.argv[1] + ".ended").touch()
    os._exit(0)

signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, signal.SIG_IGN)
Path(sys.argv[1]).touch()
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The handlers of this process are as before afterwards; a test that hangs is told to end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_during_the_first_look_at_the_files_is_not_lost() -> None:
    def files() -> list[Path]:
        os.kill(os.getpid(), signal.SIGTERM)
        return []

    assert Reloader([sys.executable, "-c", SLEEPS], grace=0.0, files=files, say=lambda text: None).run() == 0


def test_a_signal_during_a_restart_ends_it_well_and_counts_once(tmp_path: Path) -> None:
    up, code = tmp_path / "up", tmp_path / "code.py"
    code.touch()
    said: list[str] = []

    def files() -> list[Path]:
        if up.exists():
            os.utime(code, ns=(1, 1))
        return [code]

    reloader = Reloader([sys.executable, "-c", STOPS_ITS_PARENT, str(up)], grace=10.0, files=files, say=said.append)
    assert reloader.run() == 0
    assert (len(said), Path(f"{up}.ended").exists()) == (1, True)
