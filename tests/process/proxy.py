"""A TCP proxy that loses things: the next request of a kind, or the reply to it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes between clients and a server. `lose_request` and `lose_reply` name a path's end, such as `/complete`; each holds once a call."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        assert place.hostname is not None
        self._server = (place.hostname, place.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        self.lost: list[str] = []
        self._requests: list[bytes] = []
        self._replies: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_request(self, path: str, times: int = 1) -> None:
        """Hang up on the next so many requests to that path, which the server never sees."""
        self._requests += [path.encode()] * times

    def lose_reply(self, path: str, times: int = 1) -> None:
        """Pass the next so many requests to that path on, and hang up before their replies."""
        self._replies += [path.encode()] * times

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._server, 10) as server:
            server.settimeout(None)
            mute = threading.Event()
            threading.Thread(target=self._pass_on, args=(server, client, mute), daemon=True).start()
            while chunk := client.recv(65_536):
                line = chunk.split(b"\r\n", 1)[0].removesuffix(b" HTTP/1.1")
                if self._takes(self._requests, line):
                    break
                if self._takes(self._replies, line):
                    mute.set()
                server.sendall(chunk)
            for end in (client, server):  # the thread that waits for replies would keep a socket open that is only closed
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _takes(self, wanted: list[bytes], line: bytes) -> bool:
        for path in wanted:
            if line.startswith((b"POST ", b"GET ")) and line.endswith(path):
                wanted.remove(path)
                self.lost.append(path.decode())
                return True
        return False

    @staticmethod
    def _pass_on(server: socket.socket, client: socket.socket, mute: threading.Event) -> None:
        """Replies, until one is to be lost: the client is hung up on instead."""
        with suppress(OSError):
            while (chunk := server.recv(65_536)) and not mute.is_set():
                client.sendall(chunk)
            client.shutdown(socket.SHUT_RDWR)
