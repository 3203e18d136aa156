"""`GET runs/{id}/events`: a run's journal as server-sent events, resumed by the `seq` of the last one that was seen.

Under ASGI a stream hangs on the process's `Holds`. Where nothing can be held it has what there is, and its client comes again by itself.
A stream keeps no entries: it reads the next ones once its client has taken those before, so a slow client costs no memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from ..errors import InvalidArgument
from ..models import Run
from ..protocol.states import TERMINAL_RUN
from . import errors, reach, run_answers, run_shapes, run_told, threads
from .base import caller
from .docs import RUNS, call
from .endings import Watcher
from .fields import MAX_INT
from .holds import Holds, holds
from .runs import ReadView

logger = logging.getLogger("ezgh_workflows.api")

EVENT_STREAM: Final = "text/event-stream"
LAST_EVENT_ID: Final = "Last-Event-ID"

LAST_SEEN: Final = OpenApiParameter(
    LAST_EVENT_ID,
    {"type": "string", "pattern": "^[0-9]{0,10}$"},
    OpenApiParameter.HEADER,
    description="`seq` of the last entry that was seen; it counts more than `after`.",
)

AT_ONCE: Final = 200
"""Entries that are read, and written, in one go."""

HEARTBEAT: Final = 15.0
"""Seconds of silence after which a comment is sent, so that what is in between does not hang up, and a client that has gone is noticed."""

LONGEST: Final = 600.0
"""Seconds that a stream lasts. Its client comes again by itself, to a process that may be younger, and shows its key anew."""

PATIENCE: Final = 15.0
"""Seconds beyond that after which a stream is cut off whose client, by taking nothing, keeps it from ending."""

RETRY_MS: Final = 1_000
"""How long a client is to wait before it comes again."""

RETRY_ENDED_MS: Final = 60_000
"""The same after the end of a run, for clients that can't be told to stay away."""

COMMENT: Final = ": nothing new\n\n"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Entries in order. `seq` is the last that is known with them; `ended_as` is the run's status where it is over and nothing follows them."""

    run_id: str
    seq: int
    entries: tuple[dict[str, Any], ...] = ()
    has_more: bool = False
    ended_as: str | None = None

    def to_text(self) -> str:
        """The events."""
        told = [_event(entry, f"id: {entry['seq']}\n") for entry in self.entries]
        if self.ended_as is not None:
            told.append(_event({"id": self.run_id, "status": self.ended_as}, f"event: end\nretry: {RETRY_ENDED_MS}\n"))
        return "".join(told)


class StreamView(ReadView):
    """A run's journal as it grows."""

    @call(
        RUNS,
        "Stream a run's journal",
        None,
        run_told.StreamedEvent,
        query=run_shapes.StreamQuery,
        media=EVENT_STREAM,
        headers=[LAST_SEEN],
    )
    async def get(self, request: Request, run_id: str) -> HttpResponse | StreamingHttpResponse:
        """Server-sent events: each entry of the journal, with its `seq` as `id`, and `end` once the run is over. A stream may end earlier: ask again."""
        held = holds() if threads.is_async(request._request) else None
        run, first = await self.work(request, lambda: self._open(request, run_id))
        if held is None:
            return _answer(_retry(RETRY_MS) + first.to_text())
        return _answer(self._stream(request, held, run, first))

    def _open(self, request: Request, run_id: str) -> tuple[Run, Stretch]:
        after = _last_seen(request, self.read_query(request, run_shapes.StreamQuery)["after"])
        run = self.seen(request, run_id)
        return run, stretch(run, after)

    async def _stream(self, request: Request, held: Holds, run: Run, told: Stretch) -> AsyncIterator[str]:
        """The text of the stream, from what was read at its opening to its end."""
        opening = _retry(RETRY_MS) + told.to_text()
        if not held.has_room:
            yield opening
            return
        until = time.monotonic() + LONGEST
        with _place(held, run, told.seq) as watcher:
            yield opening
            while told.ended_as is None and time.monotonic() < until:
                is_woken = told.has_more or await watcher.wait(HEARTBEAT)
                if held.is_closing:
                    return
                if not is_woken:
                    yield COMMENT
                    continue
                found = await self._next(request, told)
                if found is None:
                    return
                told, watcher.after = found, found.seq
                if text := told.to_text():
                    yield text

    async def _next(self, request: Request, told: Stretch) -> Stretch | None:
        """What follows: nothing, to be looked for again, while the database is away; None where its client may read the run no more, or it is gone."""
        try:
            return await self.work_again(request, lambda: stretch(reach.run(caller(request), told.run_id), told.seq))
        except Exception as error:
            answer = errors.told_of(error)
            if answer is None:
                raise
            return Stretch(told.run_id, told.seq) if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR else None


def stretch(run: Run, after: int) -> Stretch:
    """The entries beyond that `seq`, at most `AT_ONCE`: one statement. `run` was read before."""
    told = run_answers.journal(run, after, AT_ONCE)
    entries = tuple(told["entries"])
    seq = entries[-1]["seq"] if entries else after
    # Entries beyond the run's own count came after it was read: it may be alive again.
    is_over = run.status in TERMINAL_RUN and (not entries or seq == run.journal_seq)
    return Stretch(str(run.pk), seq, entries, told["next"] is not None, run.status if is_over else None)


def _last_seen(request: Request, after: int) -> int:
    """The `seq` after which the stream begins. Raises `InvalidArgument`."""
    told = request.headers.get(LAST_EVENT_ID, "").strip()
    if not told:
        return after
    if not (told.isascii() and told.isdigit() and len(told) <= len(str(MAX_INT)) and int(told) <= MAX_INT):
        raise InvalidArgument(LAST_EVENT_ID, "the `seq` of an entry is needed: the `id` of the last event that was seen")
    return int(told)


def _event(value: dict[str, Any], fields: str) -> str:
    return f"{fields}data: {json.dumps(value, separators=(',', ':'))}\n\n"  # JSON has no bare line ends


def _retry(milliseconds: int) -> str:
    return f"retry: {milliseconds}\n\n"


def _answer(told: str | AsyncIterator[str]) -> HttpResponse | StreamingHttpResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the second is for nginx, which would keep events back
    kind = HttpResponse if isinstance(told, str) else StreamingHttpResponse
    return kind(told, content_type=EVENT_STREAM, headers=headers)


@contextmanager
def _place(held: Holds, run: Run, seq: int) -> Iterator[Watcher]:
    """A place among what is held, let go of with the task that sends the stream at the latest.

    A stream that is cut off while it sends is left to the garbage collector by Django, and a client that takes nothing would keep it sending for ever.
    """
    task = asyncio.current_task()
    assert task is not None
    with ExitStack() as place:
        task.add_done_callback(lambda _: place.close())
        place.callback(asyncio.get_running_loop().call_later(LONGEST + PATIENCE, task.cancel).cancel)
        yield place.enter_context(held.watch_runs().watch(run.pk, seq))
