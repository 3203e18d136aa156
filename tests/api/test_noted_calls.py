"""What a suspend gives as `noted` over HTTP: it comes back with every later lease of the step."""

from __future__ import annotations

import pytest

from tests.api.conftest import Caller
from tests.engine.graphs import job

NAP = {"kind": "sleep", "ms": 0}


def test_what_a_suspend_noted_comes_back_with_each_later_lease(api: Caller) -> None:
    session = api.register(job())
    job().start()
    lease = session.take()
    assert lease["noted"] == []
    for place, (noted, back) in enumerate([(["a"], ["a"]), (None, ["a"]), (["b", "a"], ["a", "b"])]):
        body = {"waits": [{"name": f"nap-{place}", **NAP}]} | ({} if noted is None else {"noted": noted})
        assert session.on(lease, "suspend", body).status == 200
        lease = session.take()
        assert lease["noted"] == back


@pytest.mark.parametrize("noted", [[""], ["x" * 65], [1], "a", [None], ["a\0b"]])
def test_what_is_no_short_text_is_refused_by_its_place(api: Caller, noted: object) -> None:
    session = api.register(job())
    job().start()
    lease = session.take()
    told = session.on(lease, "suspend", {"waits": [{"name": "nap", **NAP}], "noted": noted})
    assert told.why == (400, "invalid")
    assert all(field.startswith("noted") for field in told.body["error"]["fields"])
    assert session.on(lease, "complete", {}).status == 200
