"""A PostgreSQL server of a test's own, which may be killed. Never the machine's."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.api.server import free_port

OWNER = "postgres"
"""Who runs it where the tests are run by root, as whom PostgreSQL refuses to work."""


def programs() -> Path | None:
    """Where PostgreSQL's own programs are, the newest first; None where there are none."""
    on_path = shutil.which("pg_ctl")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: float(path.parts[-3]))
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class Cluster:
    """One server on a port of its own, with one database."""

    def __init__(self, bin_: Path) -> None:
        self._bin = bin_
        self._is_root = os.getuid() == 0
        self.port = free_port()
        self.url = f"postgres://{OWNER}@127.0.0.1:{self.port}/postgres"
        self._folder = Path(tempfile.mkdtemp(prefix="cluster-"))
        if self._is_root:
            shutil.chown(self._folder, OWNER, OWNER)
        self._run("initdb", "--pgdata", self._folder / "data", "--username", OWNER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")

    def control(self, action: str, *flags: str) -> None:
        """`pg_ctl` with that action; returns once it is done."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
        self._run("pg_ctl", action, "--pgdata", self._folder / "data", "--wait", "--log", self._folder / "log", "--options", options, *flags)

    def start(self) -> None:
        """Start it."""
        self.control("start")

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does."""
        self.control("stop", "--mode", "immediate")

    def close(self) -> None:
        """See that nothing is left of it."""
        if (self._folder / "data" / "postmaster.pid").exists():
            self.kill()
        shutil.rmtree(self._folder)

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first value of a statement's first row."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute(sql, parameters).fetchone()
        return None if row is None else row[0]

    def _run(self, program: str, *arguments: Any) -> None:
        given: dict[str, Any] = {"user": OWNER, "group": OWNER, "extra_groups": []} if self._is_root else {}
        # To a file: a server that pg_ctl leaves behind would keep a pipe open.
        with (self._folder / f"{program}.out").open("ab") as output:
            done = subprocess.run([self._bin / program, *arguments], cwd="/", stdout=output, stderr=output, timeout=60, check=False, **given)
        assert done.returncode == 0, (self._folder / f"{program}.out").read_text()
