"""Many requests at once over raw sockets: a crowd of clients that costs the test next to nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Heard:
    """What one of the crowd was answered, and when (monotonic seconds)."""

    status: int
    body: Any
    at: float


class Crowd:
    """Requests on connections of their own. `async with`; all connections are closed at its end."""

    def __init__(self, url: str, key: str) -> None:
        place = urlsplit(url)
        self._host, self._port = str(place.hostname), place.port
        self.key = key
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Crowd:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.hang_up()

    async def hang_up(self) -> None:
        """Close every connection."""
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*[writer.wait_closed() for writer in self._writers], return_exceptions=True)

    async def ask(self, method: str, path: str, bodies: Sequence[Any], at_once: int = 50) -> list[asyncio.Task[Heard]]:
        """Send one request for each body (None for none), `at_once` connections at a time. Each answer is a task."""
        gate = asyncio.Semaphore(at_once)
        readers = await asyncio.gather(*[self._send(gate, method, path, body) for body in bodies])
        return [asyncio.create_task(_heard(reader)) for reader in readers]

    async def _send(self, gate: asyncio.Semaphore, method: str, path: str, body: Any) -> asyncio.StreamReader:
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} /v1/api/{path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {self.key}\r\nContent-Length: {len(content)}\r\n\r\n"
        async with gate:
            reader, writer = await asyncio.open_connection(self._host, self._port)
            self._writers.append(writer)
            writer.write(head.encode() + content)
            await writer.drain()
        return reader


async def _heard(reader: asyncio.StreamReader) -> Heard:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    [length] = [int(line.partition(":")[2]) for line in head.split("\r\n") if line.startswith("content-length:")]
    content = await reader.readexactly(length)
    return Heard(int(head.split()[1]), json.loads(content), time.monotonic())
