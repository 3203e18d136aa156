"""W3C trace context: what is well formed is read, what is not counts as none, and both sides of a lease say the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ezgh_workflows_django.protocol import leases_json, tracing
from ezgh_workflows_django.protocol.tracing import TraceContext
from ezgh_workflows_django.testing.scripted import lease_of
from tests.worker.bench import one_step

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("traceparent", "is_sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
    ],
)
def test_a_span_is_read(traceparent: str, is_sampled: bool) -> None:
    assert tracing.read(traceparent) == TraceContext(TRACE, SPAN, is_sampled)


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        "",
        1,
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{TRACE}-{SPAN}",
    ],
)
def test_what_is_malformed_counts_as_none(traceparent: Any) -> None:
    assert tracing.read(traceparent) is None


@pytest.mark.parametrize("is_sampled", [True, False])
def test_a_lease_tells_whether_its_trace_is_recorded(is_sampled: bool) -> None:
    lease = replace(lease_of(one_step(print), "only"), trace_id=TRACE, span_id=SPAN, is_sampled=is_sampled)
    told = leases_json.to_json(lease)
    assert told["traceparent"] == TraceContext(TRACE, SPAN, is_sampled).to_text()
    assert leases_json.from_json(told) == lease
