"""A pgbouncer of a test's own, which gives a connection away after each transaction."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.api.cluster import OWNER
from tests.api.server import free_port

SESSIONS = 2
"""Fewer than a server process has threads: they take turns."""


def program() -> str | None:
    """Where it is; None where there is none."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Pooler:
    """In front of a database server; `settings` are Django's of that."""

    def __init__(self, program: str, settings: Mapping[str, Any]) -> None:
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="pooler-"))
        given: dict[str, Any] = {"user": OWNER, "group": OWNER, "extra_groups": []} if os.getuid() == 0 else {}
        if given:  # it refuses to work for root
            shutil.chown(self._folder, OWNER, OWNER)
        password = f" password={settings['PASSWORD']}" if settings["PASSWORD"] else ""
        lines = [
            "[databases]",
            f"* = host={settings['HOST'] or '127.0.0.1'} port={settings['PORT'] or 5432} user={settings['USER']}{password}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = any",
            "pool_mode = transaction",
            f"default_pool_size = {SESSIONS}",
        ]
        (self._folder / "pooler.ini").write_text("\n".join(lines))
        with (self._folder / "log").open("wb") as output:
            self._popen = subprocess.Popen([program, self._folder / "pooler.ini"], cwd="/", stdout=output, stderr=output, **given)
        self._wait_until_up()

    def _wait_until_up(self, seconds: float = 20) -> None:
        until = time.monotonic() + seconds
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert self._popen.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < until, (self._folder / "log").read_text()
                time.sleep(0.05)
            else:
                return

    def close(self) -> None:
        """See that nothing is left of it."""
        self._popen.terminate()
        self._popen.wait(10)
        shutil.rmtree(self._folder)
