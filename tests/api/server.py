"""A real ASGI server in a process of its own, on the test's database."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

from tests.conftest import ROOT


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """uvicorn with the test project; `url` is where it answers."""

    def __init__(self, env: Mapping[str, str], log: Path, *flags: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        arguments = [sys.executable, "-m", "uvicorn", "testproject.asgi:application", "--port", str(self.port), "--log-level", "info", *flags]
        with log.open("wb") as output:
            self.popen = subprocess.Popen(arguments, cwd=ROOT, env=dict(env), stdout=output, stderr=output)

    def wait_until_up(self, seconds: float = 60) -> None:
        """Until it answers."""
        until = time.monotonic() + seconds
        while True:
            try:
                httpx.get(f"{self.url}/v1/api/health", timeout=5)
            except httpx.TransportError:
                assert self.popen.poll() is None, self.log.read_text()
                assert time.monotonic() < until, self.log.read_text()
                time.sleep(0.05)
            else:
                return

    def stop(self, seconds: float = 30) -> int:
        """SIGTERM, and its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(seconds)

    def close(self) -> None:
        """See that it is gone."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait(10)
