"""A worker session as a check drives it, by hand: claims, and calls on the leases it was given."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from .answers import Answer
from .shapes import Durations, Shape, faults, moment
from .wire import Wire
from .workflows import Spec, serve

PATIENCE: Final = 10.0
"""Seconds within which a step that can be claimed has to be offered: a server may admit runs and fire timers a moment late."""

LOOK_MS: Final = 500
"""How long one of the claims that wait for a step asks to be held."""

REST_MS: Final = 20


class Lease:
    """One lease in the hands of a check. `lease["input"]` is a field of it, which has to be there."""

    def __init__(self, wire: Wire, given: Mapping[str, Any], answer: Answer) -> None:
        self._wire = wire
        self.given = given
        self.answer = answer
        self.id = str(given["id"])

    def __getitem__(self, field: str) -> Any:
        self.answer.expect(field in self.given, f"`{field}` in the lease")
        return self.given[field]

    def shaped(self, shape: Shape) -> Lease:
        """Expect these fields of it. Returns itself."""
        self.answer.expect(not (wrong := faults(self.given, shape)), "in the lease: " + ("; ".join(wrong) or f"the fields {', '.join(shape)}"))
        return self

    def post(self, call: str, body: Mapping[str, Any] | None = None) -> Answer:
        """A call on it."""
        return self._wire.post(f"steps/{self.id}/{call}", body)

    def started(self) -> Lease:
        """Say that its body is about to run, which the server has to accept."""
        self.post("started").ok()
        return self

    def complete(self, output: Any = None, **more: Any) -> Answer:
        """Its body returned `output`."""
        return self.post("complete", {"output": output, **more})

    def fail(self, class_: str, message: str = "as the check wants it", **more: Any) -> Answer:
        """Its body failed."""
        return self.post("fail", {"class": class_, "message": message, **more})

    def suspend(self, *waits: Mapping[str, Any], mode: str = "all", **more: Any) -> Answer:
        """Its body parks on these waits."""
        return self.post("suspend", {"waits": list(waits), "mode": mode, **more})

    def checkpoint(self, name: str, pos: int, **more: Any) -> Answer:
        """An inner step of its body has a result: `output`, or `error` and `retry`."""
        return self.post("checkpoint", {"name": name, "pos": pos, "kind": "step", **more})

    def children(self, name: str, pos: int, workflow: Spec, payloads: Sequence[Any]) -> Answer:
        """Its body starts child runs."""
        return self.post("children", {"name": name, "pos": pos, "workflow": workflow["name"], "payloads": list(payloads)})

    def server_time(self) -> datetime:
        """The moment at the server, which a heartbeat tells."""
        told = self.post("heartbeat").ok()
        return moment(told["expires_at"]) - timedelta(milliseconds=told["expires_in_ms"])

    def brought(self, name: str) -> Mapping[str, Any]:
        """Its checkpoint of that name, which it has to carry."""
        found = [each for each in self["checkpoints"] if isinstance(each, dict) and each.get("name") == name]
        self.answer.expect(len(found) == 1, f"one checkpoint named {name} in the lease")
        return dict(found[0])


class Session:
    """One worker session. Without `serves` of its own a claim serves the workflows that it was opened with."""

    def __init__(self, wire: Wire, told: Answer, workflows: Sequence[Spec]) -> None:
        self.wire = wire
        self.told = told
        self.id = str(told["worker_id"])
        self.durations = Durations.of(told.value)
        self.serves = [serve(spec) for spec in workflows]

    def claim(self, **rest: Any) -> Answer:
        """One claim, for one lease and not held unless it is said otherwise."""
        asked = {"worker_id": self.id, "claim_id": uuid.uuid4().hex, "max": 1, "wait_ms": 0, "serves": self.serves, **rest}
        hold = asked["wait_ms"] / 1000 if isinstance(asked["wait_ms"], int) else 0.0
        return self.wire.post("steps/claim", asked, hold=min(hold, self.durations.max_wait / 1000))

    def leases(self, **rest: Any) -> list[Lease]:
        """The leases of one claim, which the server has to answer."""
        answer = self.claim(**rest).ok()
        given = answer["leases"]
        answer.expect(isinstance(given, list) and all(isinstance(each, dict) and each.get("id") for each in given), "`leases`: a list of leases with their ids")
        return [Lease(self.wire, each, answer) for each in given]

    def gives_nothing(self, **rest: Any) -> None:
        """Expect that a claim brings no lease."""
        answer = self.claim(**rest).ok()
        answer.expect(answer["leases"] == [], "no lease")

    def lease(self, run: str, seconds: float = PATIENCE, **rest: Any) -> Lease:
        """The next lease of a run, which has to be offered within so many seconds."""
        return self.collect(1, seconds, run=run, **rest)[0]

    def collect(self, count: int, seconds: float = PATIENCE, **rest: Any) -> list[Lease]:
        """So many leases, from as many claims as it takes; within so many seconds they have to be offered."""
        until = time.monotonic() + seconds
        found: list[Lease] = []
        while True:
            answer = self.claim(**{"max": count - len(found), "wait_ms": LOOK_MS, **rest}).ok()
            found += [Lease(self.wire, each, answer) for each in answer["leases"]]
            if len(found) >= count:
                return found
            answer.expect(time.monotonic() < until, f"{count} lease(s) within {seconds:g} s, not {len(found)}")
            rest_for(answer)

    def take(self, run: str, **rest: Any) -> Lease:
        """The next lease of a run, started."""
        return self.lease(run, **rest).started()

    def ends(self, run: str, seconds: float = PATIENCE) -> None:
        """Expect that a run comes to its end within so many seconds, without another lease: a claim for it is then refused `run_terminal`."""
        until = time.monotonic() + seconds
        while (answer := self.claim(run=run, wait_ms=LOOK_MS)).status == 200:
            answer.expect(answer["leases"] == [], "no other lease of the run")
            answer.expect(time.monotonic() < until, f"the end of the run within {seconds:g} s")
            rest_for(answer)
        answer.refused(409, "run_terminal")

    def leave(self) -> Answer:
        """Say goodbye."""
        return self.wire.post(f"workers/{self.id}/leave")


def rest_for(answer: Answer) -> None:
    """Rest as the answer to an empty claim asks for, at most as long as a claim would have been held."""
    after = answer.value.get("retry_after_ms")
    time.sleep(min(after if isinstance(after, int) else REST_MS, LOOK_MS) / 1000)


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON text: the order of keys counts, and 1 is not 1.0."""
    return json.dumps(one) == json.dumps(other)
