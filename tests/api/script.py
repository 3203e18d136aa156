"""A server that answers as a test tells it, for what a real one does only by chance."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Script:
    """Answers each path of `v1/api/` with what it was told for it, in order, and remembers what it was asked.

    Where nothing is left for a path, a claim that may be held is held, another one is empty, a heartbeat lands; any other call is answered 418,
    which ends a worker.
    """

    def __init__(self) -> None:
        self.holds = threading.Event()
        self._answers: dict[str, list[tuple[int, Any]]] = {}
        self._calls: list[tuple[str, Any]] = []
        self._closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._serving = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._serving.start()

    def answers(self, answers: Mapping[str, list[tuple[int, Any]]]) -> None:
        """What to answer: status and JSON, path by path."""
        self._answers = {path: list(told) for path, told in answers.items()}

    def then(self, path: str, status: int, told: Any) -> None:
        """One more answer; a call that is held already does not get it."""
        self._answers.setdefault(path, []).append((status, told))

    def asked(self, path: str) -> list[Any]:
        """The bodies that came for that path, in order."""
        return [body for called, body in self._calls if called == path]

    def close(self) -> None:
        """Answer nobody any more."""
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._serving.join(10)

    def _answer(self, path: str, content: bytes) -> tuple[int, Any] | None:
        body = json.loads(content) if content else {}
        self._calls.append((path, body))
        if self._answers.get(path):
            return self._answers[path].pop(0)
        if path.endswith("/heartbeat"):
            return 200, {}
        if "wait_ms" not in body:
            return 418, {"error": {"code": "unplanned", "message": f"the test has no answer for {path}"}}
        if body["wait_ms"] == 0:
            return 200, {"leases": []}
        self.holds.set()
        self._closed.wait(60)
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = answer(self.path.removeprefix("/v1/api/"), self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                if told is None:
                    return
                content = json.dumps(told[1]).encode()
                self.send_response(told[0])
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler
