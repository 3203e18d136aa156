"""Lies: what stands between a client and our server, and falsifies what is asked or told in one way. For tests that see a lie found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import httpx
from django.test import Client


class Told(NamedTuple):
    """An answer on its way."""

    status: int
    value: Any

    def but(self, **fields: Any) -> Told:
        """The same with other fields."""
        return Told(self.status, {**self.value, **fields})

    @property
    def code(self) -> str | None:
        """The code of a refusal."""
        return self.value["error"]["code"] if self.status >= 400 else None


Forward = Callable[[str, Any], Told]
Lie = Callable[[str, Any, Forward], Told]
"""Gives the answer to a request, from its path, its body and the way on to the server."""


Send = Callable[[str, str, bytes, Mapping[str, str]], Told]
"""Asks the server: method, path, content, headers."""


class Falsified(httpx.BaseTransport):
    """A server behind a lie."""

    def __init__(self, lie: Lie, send: Send) -> None:
        self._lie = lie
        self._send = send

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        def forward(path: str, body: Any) -> Told:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            return self._send(request.method, path, content, {"authorization": request.headers["authorization"]})

        told = self._lie(request.url.path, _read(request.read()), forward)
        return httpx.Response(told.status, json=told.value)


def in_process(method: str, path: str, content: bytes, headers: Mapping[str, str]) -> Told:
    """Ask our server in this process, in the test's own transaction."""
    answer = Client(raise_request_exception=False).generic(method, path, content, "application/json", headers=dict(headers))
    return Told(answer.status_code, json.loads(answer.content or b"null"))


def over_http(client: httpx.Client) -> Send:
    """Ask the server at the other end of that client."""

    def send(method: str, path: str, content: bytes, headers: Mapping[str, str]) -> Told:
        answer = client.request(method, path, content=content, headers=dict(headers))
        return Told(answer.status_code, answer.json())

    return send


def _read(content: bytes) -> Any:
    try:
        return json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return content


# --- kinds of lies


def asked(call: str, change: Callable[[Any], Any]) -> Lie:
    """Something else is asked, in calls whose path ends so."""
    return lambda path, body, forward: forward(path, change(body) if path.endswith(call) and isinstance(body, dict) else body)


def told(call: str, change: Callable[[Told], Told]) -> Lie:
    """Something else is told of what went well, by calls whose path ends so."""

    def lie(path: str, body: Any, forward: Forward) -> Told:
        answer = forward(path, body)
        return change(answer) if path.endswith(call) and answer.status < 300 else answer

    return lie


def each_lease(change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Lie:
    """Some fields of each lease are something else, made of the lease as it is."""
    return told("/claim", lambda answer: answer.but(leases=[{**lease, **change(lease)} for lease in answer.value["leases"]]))


def leases(**fields: Callable[[Any], Any]) -> Lie:
    """These fields of each lease are something else, made of what they are."""
    return each_lease(lambda lease: {name: make(lease[name]) for name, make in fields.items()})


def checkpoints_without(*fields: str) -> Lie:
    """Fields are left out of each checkpoint of each lease."""
    return each_lease(lambda lease: {"checkpoints": [without(*fields)(each) for each in lease["checkpoints"]]})


def refused(code: str | None, instead: Told, call: str = "") -> Lie:
    """Another answer instead of refusals with that code, or of all."""

    def lie(path: str, body: Any, forward: Forward) -> Told:
        answer = forward(path, body)
        return instead if path.endswith(call) and answer.status >= 400 and code in (None, answer.code) else answer

    return lie


def statuses(status: int, instead: int) -> Lie:
    """Another status, the same body."""

    def lie(path: str, body: Any, forward: Forward) -> Told:
        answer = forward(path, body)
        return Told(instead, answer.value) if answer.status == status else answer

    return lie


def second_time(call: str, instead: Told) -> Lie:
    """Another answer to the same path again."""
    calls: Counter[str] = Counter()

    def lie(path: str, body: Any, forward: Forward) -> Told:
        calls[path] += 1
        return instead if path.endswith(call) and calls[path] > 1 else forward(path, body)

    return lie


def throttled(call: str, most: int) -> Lie:
    """So many calls whose path ends so are answered, and then no more."""
    calls: Counter[str] = Counter()

    def lie(path: str, body: Any, forward: Forward) -> Told:
        calls[call] += path.endswith(call)
        return refusal(429, "throttled") if path.endswith(call) and calls[call] > most else forward(path, body)

    return lie


def unheard(call: str, answer: Told) -> Lie:
    """An answer to calls that nothing is done for."""
    return lambda path, body, forward: answer if path.endswith(call) else forward(path, body)


def without(*fields: str) -> Callable[[Any], Any]:
    """An object without these fields."""
    return lambda value: {name: each for name, each in value.items() if name not in fields}


def with_fields(**fields: Any) -> Callable[[Any], Any]:
    """An object with these fields."""
    return lambda value: {**value, **fields}


def stuck(call: str, field: str) -> Lie:
    """The first value of a field is told again and again, once it is not empty."""
    first: list[Any] = []

    def change(answer: Told) -> Told:
        if answer.value.get(field):
            first.append(answer.value[field])
        return answer.but(**{field: first[0]}) if first else answer

    return told(call, change)


def together(*lies: Lie) -> Lie:
    """Several lies, the first next to the client."""

    def lie(path: str, body: Any, forward: Forward) -> Told:
        for inner in lies[:0:-1]:
            forward = _through(inner, forward)
        return lies[0](path, body, forward)

    return lie


def _through(lie: Lie, forward: Forward) -> Forward:
    return lambda path, body: lie(path, body, forward)


def told_without(call: str, *fields: str) -> Lie:
    """Fields are left out of an answer."""
    return told(call, lambda answer: Told(answer.status, without(*fields)(answer.value)))


def always(value: Any) -> Callable[[Any], Any]:
    """That value, whatever was there."""
    return lambda _: value


def refusal(status: int, code: str) -> Told:
    """A refusal in the shape of errors."""
    return Told(status, {"error": {"code": code, "message": "no"}})


YES = Told(200, {"step": "succeeded", "run": "succeeded"})
EMPTY = Told(200, {"leases": []})
NEVER = "2001-01-01T00:00:00Z"


# --- lies of their own kind


def started_by_itself(path: str, body: Any, forward: Forward) -> Told:
    """Whoever completes is taken to have started."""
    if path.endswith("/complete"):
        forward(path.removesuffix("complete") + "started", {})
    return forward(path, body)


def class_is_another(of: str, instead: str) -> Lie:
    """A failure of one class is taken as one of another."""
    return asked("/fail", lambda body: {**body, "class": instead} if body.get("class") == of else body)


def refuses_what_it_does_not_know(path: str, body: Any, forward: Forward) -> Told:
    """A field too many is a fault."""
    return refusal(400, "invalid") if "conformance_unknown" in body else forward(path, body)


def last_write_wins(path: str, body: Any, forward: Forward) -> Told:
    """A checkpoint is answered with what was sent."""
    answer = forward(path, body)
    return answer.but(output=body.get("output")) if path.endswith("/checkpoint") and answer.status == 200 else answer


def lease_ids_shown() -> Lie:
    """The run endpoints show the last lease."""
    seen: list[str] = []

    def lie(path: str, body: Any, forward: Forward) -> Told:
        answer = forward(path, body)
        if path.endswith("/claim") and answer.status == 200:
            seen.extend(each["id"] for each in answer.value["leases"])
        return answer.but(lease=seen[-1:]) if "/runs/" in path and isinstance(answer.value, dict) else answer

    return lie
