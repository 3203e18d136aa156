"""Programs in TypeScript: compiles them as the docs say, runs them with Node, hears what they say."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.process.conftest import until

SOURCES = ROOT / "docs" / "workers"
TRIAL = ROOT / "tests" / "api" / "trial.ts"
NEEDS = "is not on this machine; the worker in TypeScript needs Node 18 or newer, and npm: on Debian `apt-get install nodejs npm`"


def run(*arguments: str, cwd: Path) -> None:
    """Run a program to its end; the test fails with all it said where that is not a good one."""
    program = shutil.which(arguments[0])
    if program is None:
        pytest.fail(f"{arguments[0]} {NEEDS}")
    done = subprocess.run([program, *arguments[1:]], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"


def compiled_in(folder: Path) -> Path:
    """Copy the worker of the docs and the tests' own there, and compile them; gives the folder with `quote.js` and `trial.js`."""
    for source in (*SOURCES.glob("*.ts"), *SOURCES.glob("*.json"), TRIAL):
        shutil.copy(source, folder)
    run("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock", cwd=folder)
    run("npm", "run", "build", cwd=folder)
    return folder / "dist"


class Node:
    """One program at work."""

    def __init__(self, program: Path, key: str, log: Path, *arguments: str) -> None:
        self.log = log
        node = shutil.which("node")
        if node is None:
            pytest.fail(f"node {NEEDS}")
        with log.open("wb") as output:
            self.popen = subprocess.Popen([node, str(program), *arguments], env={"WORKFLOWS_API_KEY": key}, stdin=subprocess.PIPE, stdout=output, stderr=output)

    @property
    def output(self) -> str:
        """All it has printed."""
        return self.log.read_text()

    def hears(self, text: str) -> None:
        """Wait until it has said that."""

        def heard() -> bool:
            assert self.popen.poll() is None or text in self.output, self.output
            return text in self.output

        until(heard)

    def say(self, word: str) -> None:
        """A line on its stdin."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(f"{word}\n".encode())
        self.popen.stdin.flush()

    def stop(self) -> None:
        """SIGTERM."""
        self.popen.send_signal(signal.SIGTERM)

    def ends(self, within: float = 20) -> int:
        """Its exit code, once it has ended. Node warns of listeners that pile up, and of promises that nobody waits for."""
        code = self.popen.wait(within)
        assert "Warning" not in self.output, self.output
        return code

    def close(self) -> None:
        """See that it is gone."""
        self.popen.kill()
        self.popen.wait(10)
        if self.popen.stdin is not None:
            self.popen.stdin.close()


class Programs:
    """Starts the compiled programs with one key; none outlives its test."""

    def __init__(self, folder: Path, key: str, logs: Path) -> None:
        self.key = key
        self._folder = folder
        self._logs = logs
        self._started: list[Node] = []

    def start(self, name: str, url: str, grace_ms: int = 20_000) -> Node:
        """Start a program for that server."""
        node = Node(self._folder / f"{name}.js", self.key, self._logs / f"{name}-{len(self._started)}.log", url, "default", str(grace_ms))
        self._started.append(node)
        return node

    def ready(self, name: str, url: str, grace_ms: int = 20_000) -> Node:
        """Start it, and wait until it looks for work."""
        node = self.start(name, url, grace_ms)
        node.hears("ready")
        return node

    def close(self) -> None:
        """End them all."""
        for node in self._started:
            node.close()
