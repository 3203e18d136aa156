"""A scripted server at an address: HTTP in front of a `ScriptedTransport`, so that one suite of the worker's behaviour runs over HTTP, too."""

from __future__ import annotations

import json
import re
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ezgh_workflows_django.errors import Rejected, SessionLost, Unavailable
from ezgh_workflows_django.protocol import answers_json, calls_json
from ezgh_workflows_django.protocol.durable import Record
from ezgh_workflows_django.protocol.outcomes import Report
from ezgh_workflows_django.testing.scripted import ScriptedTransport

KEY = "ezw_test_0123456789abcdef"


@dataclass(frozen=True)
class Said:
    """One answer: status, JSON body, headers. `body` may also be bytes, which go out as they are."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


def refused(status: int, code: str, message: str = "so the script says", **more: Any) -> Said:
    """A refusal in the server's one shape."""
    return Said(status, {"error": {"code": code, "message": message, **more}})


class Served:
    """The address, what was asked there, and answers that are given instead of the script's. A held claim whose client has gone interrupts the script."""

    def __init__(self, script: ScriptedTransport) -> None:
        self.script = script
        self.asked: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.peers: list[int] = []
        self.gone = threading.Event()
        self.parts: dict[str, Any] = {}
        self._instead: dict[str, deque[Said | Callable[[Any], None]]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/workflows/"

    def instead(self, call: str, *answers: Said | Callable[[Any], None]) -> None:
        """Give these to the next calls whose path ends so, one each; a callable is given the connection, to do with it what it likes."""
        self._instead.setdefault(call, deque()).extend(answers)

    def close(self) -> None:
        """Be there no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def answer(self, path: str, body: Any, connection: socket.socket) -> Said:
        """What the script says to a call."""
        for pattern, call in _CALLS:
            if found := re.fullmatch(pattern, path):
                try:
                    return call(self, body, *found.groups(), **({"connection": connection} if call is _claim else {}))
                except Unavailable as error:
                    return Said(503, refused(503, "unavailable", str(error)).body, {} if error.retry_after is None else {"Retry-After": str(error.retry_after)})
                except SessionLost as error:
                    return refused(409, "unknown_worker", str(error))
                except Rejected as error:
                    return refused(403, "forbidden", str(error))
        return refused(404, "not_found")

    def planned(self, path: str) -> Said | Callable[[Any], None] | None:
        """What is to be said instead."""
        for call, answers in self._instead.items():
            if path.endswith(call) and answers:
                return answers.popleft()
        return None

    @contextmanager
    def watching(self, connection: socket.socket) -> Iterator[None]:
        """Interrupt the script where the client goes away meanwhile."""
        over = threading.Event()

        def watch() -> None:
            while not over.is_set():
                readable, _, _ = select.select([connection], [], [], 0.02)
                with suppress(OSError):
                    if readable and not over.is_set() and connection.recv(1, socket.MSG_PEEK) == b"":
                        self.gone.set()
                        self.script.interrupt()
                        return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(5)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.answer()

            def do_GET(self) -> None:
                self.answer()

            def answer(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.removeprefix("/workflows/v1/api/")
                body = json.loads(text or "null")
                served.asked.append((path, body))
                served.headers.append(dict(self.headers.items()))
                served.peers.append(self.client_address[1])
                instead = served.planned(path)
                if callable(instead):
                    instead(self.connection)
                    self.close_connection = True
                    return
                if instead is None and self.headers.get("Authorization") != f"Bearer {KEY}":
                    instead = refused(401, "unauthenticated", "no such key")
                self.say(instead or served.answer(path, body, self.connection))

            def say(self, said: Said) -> None:
                body = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
                with suppress(OSError):
                    self.send_response(said.status)
                    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **said.headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler


def _register(served: Served, body: Any) -> Said:
    return Said(200, answers_json.registered_to_json(served.script.register(calls_json.registration_from_json(body))))


def _claim(served: Served, body: Any, *, connection: socket.socket) -> Said:
    with served.watching(connection):
        return Said(200, answers_json.claimed_to_json(served.script.claim(calls_json.claim_from_json(body))))


def _started(served: Served, body: Any) -> Said:
    return Said(200, {"leases": [answers_json.extension_to_json(each) for each in served.script.started(body["leases"])]})


def _heartbeat(served: Served, body: Any) -> Said:
    answers = served.script.heartbeat([calls_json.beat_from_json(each) for each in body["leases"]])
    return Said(200, {"leases": [answers_json.extension_to_json(each) for each in answers]})


def _outcomes(served: Served, body: Any) -> Said:
    told = [(each["id"], *next((call, each[call]) for call in ("complete", "fail", "suspend") if call in each)) for each in body["outcomes"]]
    answers = served.script.report([Report(lease_id, calls_json.outcome_from_json(call, value)) for lease_id, call, value in told])
    return Said(200, {"outcomes": [answers_json.answer_to_json(each) for each in answers]})


def _leave(served: Served, body: Any, worker_id: str) -> Said:
    served.script.leave(worker_id)
    return Said(200, {})


def _part(served: Served, body: Any, lease_id: str, reference: str) -> Said:
    return Said(200, served.parts[reference]) if reference in served.parts else refused(404, "unknown_lease")


def _one(served: Served, body: Any, lease_id: str, call: str) -> Said:
    """A call on one lease: as the entry of a group, its refusal as a status."""
    if call == "started":
        [told] = _started(served, {"leases": [lease_id]}).body["leases"]
    elif call == "heartbeat":
        [told] = _heartbeat(served, {"leases": [{"id": lease_id, **body}]}).body["leases"]
    elif call == "checkpoint":
        record: Record = calls_json.record_from_json(lease_id, body)
        [stored] = served.script.checkpoint([record])
        told = answers_json.stored_to_json(stored)
    elif call == "children":
        started = served.script.children(calls_json.children_from_json(lease_id, body))
        told = {"error": answers_json.refused_to_json(started.refused)} if started.refused else answers_json.started_to_json(started)
    else:
        [told] = _outcomes(served, {"outcomes": [{"id": lease_id, call: body}]}).body["outcomes"]
    if "error" not in told:
        return Said(200, told)
    return Said(_STATUSES.get(told["error"]["code"], 409), {"error": told["error"]})


_STATUSES = {"unknown_lease": 404, "invalid": 400, "payload_too_large": 413, "too_large": 413}

_CALLS: tuple[tuple[str, Callable[..., Said]], ...] = (
    (r"workers/register", _register),
    (r"workers/([^/]+)/leave", _leave),
    (r"steps/claim", _claim),
    (r"steps/started", _started),
    (r"steps/heartbeat", _heartbeat),
    (r"steps/outcomes", _outcomes),
    (r"steps/([^/]+)/parts/(.+)", _part),
    (r"steps/([^/]+)/(\w+)", _one),
)
