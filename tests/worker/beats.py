"""Stands in for a server of heartbeats, across processes: `transport` is what the heartbeat process builds, `Desk` what the test holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from queue import Queue
from typing import Any

from ezgh_workflows_django.errors import Rejected
from ezgh_workflows_django.protocol.failures import Refused
from ezgh_workflows_django.protocol.messages import Beat, Extension
from ezgh_workflows_django.testing.scripted import ScriptedTransport
from ezgh_workflows_django.worker.transports.recipe import Recipe

EVERYTHING = "*"
"""What a desk refuses, by this name, it refuses for good: the key, not a lease."""


class Wired(ScriptedTransport):
    """A transport whose heartbeats go to a desk in another process."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._desk = Client(address, "AF_UNIX")

    def heartbeat(self, beats: Sequence[Beat]) -> Sequence[Extension]:
        """Send them to the desk, and refuse what it says."""
        self._desk.send([(beat.lease_id, beat.progress) for beat in beats])
        refused = self._desk.recv()
        if EVERYTHING in refused:
            raise Rejected(refused[EVERYTHING])
        return [
            Extension(lease_id=beat.lease_id, refused=Refused(refused[beat.lease_id], "so says the desk") if beat.lease_id in refused else None)
            for beat in beats
        ]


def transport(address: str) -> Wired:
    """What a recipe of these tests names."""
    return Wired(address)


def late_transport(address: str, gate: str) -> Wired:
    """As `transport`, once the file `gate` is there; leaves a file beside it, `gate.waiting`, as it begins to wait."""
    Path(f"{gate}.waiting").touch()
    while not Path(gate).exists():
        time.sleep(0.01)
    return transport(address)


class Desk:
    """Takes heartbeats in: `beats` gets each call's leases with their progress, `gone` is set when a caller ends."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "desk")
        self.recipe = Recipe(f"{__name__}:transport", {"address": self.address})
        self.refused: dict[str, str] = {}
        self.beats: Queue[dict[str, Any]] = Queue()
        self.gone = threading.Event()
        self._listener = Listener(self.address, "AF_UNIX")
        threading.Thread(target=self._accept, daemon=True).start()

    def next_with(self, lease_id: str) -> dict[str, Any]:
        """The next call that carries that lease."""
        while lease_id not in (leases := self.beats.get(timeout=60)):
            pass
        return leases

    def close(self) -> None:
        """Take no more."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                caller = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: Connection) -> None:
        try:
            while True:
                self.beats.put(dict(caller.recv()))
                caller.send(self.refused)
        except (EOFError, OSError):
            self.gone.set()
