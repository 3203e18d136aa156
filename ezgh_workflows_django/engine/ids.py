"""Identifiers made by this process: run ids that sort by time, lease ids that can't be guessed."""

from __future__ import annotations

import hashlib
import os
import time
import uuid

_RANDOM_BITS = 74
_LOW_BITS = 62


def run_id() -> uuid.UUID:
    """A UUID version 7 (RFC 9562): 48 bits of milliseconds, then random ones, so rows of a time lie together."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10)) >> (80 - _RANDOM_BITS)
    high, low = random >> _LOW_BITS, random & ((1 << _LOW_BITS) - 1)
    return uuid.UUID(int=(milliseconds << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low)


def lease_id() -> uuid.UUID:
    """An unguessable UUID: whoever knows it may write the lease's outcome."""
    return uuid.uuid4()


def trace_id() -> str:
    """A W3C trace id: 32 hex digits, not all zero."""
    return uuid.uuid4().hex


def span_id(run: uuid.UUID, step: str = "") -> str:
    """The span of a run's step, or of the run itself: the same for every attempt, known without being stored."""
    return hashlib.blake2b(f"{run}:{step}".encode(), digest_size=8).hexdigest()
