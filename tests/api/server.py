"""A real server in a process of its own, on the test's database."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
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
        with log.open("wb") as output:
            self.popen = subprocess.Popen([sys.executable, "-m", *self._program(), *flags], cwd=ROOT, env=dict(env), stdout=output, stderr=output)

    def _program(self) -> list[str]:
        return ["uvicorn", "testproject.asgi:application", "--port", str(self.port), "--log-level", "info"]

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


class AsgiGunicorn(Server):
    """gunicorn with one worker of its own ASGI kind."""

    def _program(self) -> list[str]:
        return ["gunicorn", "testproject.asgi:application", "--worker-class", "asgi", "--workers", "1", *self._flags()]

    def close(self) -> None:
        """As any server's; its workers go too."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGQUIT)
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(10)
        super().close()

    def _flags(self) -> list[str]:
        return ["--bind", f"127.0.0.1:{self.port}", "--no-control-socket", "--worker-tmp-dir", "/dev/shm", "--access-logfile", "-"]


class SyncGunicorn(AsgiGunicorn):
    """gunicorn with two sync workers, each of which serves one request at a time."""

    def _program(self) -> list[str]:
        return ["gunicorn", "testproject.wsgi:application", "--worker-class", "sync", "--workers", "2", *self._flags()]
