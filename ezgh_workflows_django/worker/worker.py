"""The worker as its users meet it: what it is told before it runs, how it is run, how it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import AlreadyStarted, InvalidArgument, Rejected
from ..protocol.messages import Registration
from .dev import own_app
from .executor import Middleware
from .listener import Listener
from .serving import Serving
from .shift import Shift, Terms
from .shutdown import Cause, Inbox, Word, signals_to
from .transports.base import Transport
from .transports.choice import over_http, refuse_transactions, transport_to
from .transports.recipe import Recipe
from .wear import Limits, Wear

if TYPE_CHECKING:
    from ..definitions.graph import Workflow

_log = logging.getLogger("ezgh_workflows.worker")


class Worker:
    """Takes steps from a server and runs their bodies, until it is stopped.

    The server is reached by `base_url` (where the project includes `ezgh_workflows_django.urls`) and `api_key`, over HTTP, or by a `transport`.
    `organization_id` and `project_id` (ids or slugs) make sure that the key is the one of that project.
    `concurrency` bodies run at once; when it stops they get `grace` seconds. `name` (default `<host>-<pid>`) is on every attempt.
    `middleware` surrounds every body: each is called with the context and gives a context manager. `heartbeat` is "thread" or "process"
    (then `recipe`, or the transport's own, says how to build the transport there). `only` and `except_` narrow what is served, each
    `workflow` or `workflow/step`. With `cron` it wants the schedules of a developer's own app (`dev-…`) fired, too.
    With `until_idle` it ends by itself once there is nothing to do. `listener` hears what happens.
    With more than one of `processes`, as many bodies run at once, each in a process of its own; `home` names the function that gives such a
    process its `body_process.Home`. `limits` say when a process that runs bodies has to be replaced: one of those by itself, else the worker's
    own, which then takes no more work, ends well once what runs has ended, and is `is_spent`.
    """

    def __init__(
        self,
        transport: Transport | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        organization_id: str | None = None,
        project_id: str | None = None,
        app: str = "default",
        workflows: Sequence[Workflow] = (),
        concurrency: int = 10,
        grace: float = 30.0,
        name: str | None = None,
        middleware: Sequence[Middleware] = (),
        heartbeat: str = "thread",
        recipe: Recipe | None = None,
        only: Sequence[str] = (),
        except_: Sequence[str] = (),
        maintenance: bool = True,
        cron: bool = False,
        until_idle: bool = False,
        listener: Listener | None = None,
        processes: int = 1,
        home: Recipe | None = None,
        limits: Limits | None = None,
    ) -> None:
        if concurrency < 1:
            raise InvalidArgument("concurrency", f"{concurrency} bodies at once are none: give 1 or more")
        if not 0 <= grace <= threading.TIMEOUT_MAX:
            raise InvalidArgument("grace", f"{grace} seconds can't be waited: give 0 to {threading.TIMEOUT_MAX:.0f}")
        if heartbeat not in ("thread", "process"):
            raise InvalidArgument("heartbeat", f'{heartbeat!r} is neither "thread" nor "process"')
        if processes < 1:
            raise InvalidArgument("processes", f"{processes} processes run nothing: give 1 or more")
        if processes > 1 and home is None:
            raise InvalidArgument("processes", "bodies in processes of their own need to know what those are to run: give home, as `manage.py runworker` does")
        self.app = app
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.concurrency = processes if processes > 1 else concurrency
        self.cron = cron
        self.serving = Serving(workflows, only=only, except_=except_)
        self._transport = transport_to(transport, base_url, api_key)
        self._grace = grace
        self._middleware = tuple(middleware)
        self._heartbeat = heartbeat
        self._recipe = recipe
        self._maintenance = maintenance
        self._until_idle = until_idle
        self._listener = listener or Listener()
        self.processes = processes
        self._home = home
        self._limits = limits or Limits()
        self.is_spent = False
        self._organization = organization_id
        self._project = project_id
        self._inbox: Inbox = Inbox()
        if limits is not None and processes == 1:
            self._listener = Wear(self._listener, limits, self._spent)
        self._shift: Shift | None = None
        self._refusals: set[str] = set()

    @classmethod
    def dev(cls, *, base_url: str, api_key: str, organization_id: str | None = None, project_id: str | None = None, **options: Any) -> Worker:
        """A worker for an app of one's own, `dev-<user>` with a queue of that name, which is made where it is missing; `options` are the worker's.

        Developers who share a project so never take each other's runs. Making the app needs the permission `workflows.apps.create`.
        """
        transport = over_http(base_url, api_key, makes_app=True)
        return cls(transport, app=own_app(), organization_id=organization_id, project_id=project_id, **options)

    def register(self, workflow: Workflow) -> None:
        """Hold one more workflow. Raises `AlreadyStarted` once the worker runs, `InvalidWorkflow` where it holds another of that name and revision."""
        if self._shift is not None:
            raise AlreadyStarted(f"worker {self.name} runs already: register {workflow.name} before run()")
        self.serving.add(workflow)

    def run_sync(self) -> int:
        """Work until stopped, in the calling thread; gives the exit code: 0 after a clean stop.

        In the main thread SIGTERM and SIGINT stop it; a second one ends it at once. Raises `AlreadyStarted` the second time,
        `InvalidArgument` where `only` or `except_` name nothing, `NotAvailable` where a transactional step is served over HTTP.
        """
        if self._shift is not None:
            raise AlreadyStarted(f"worker {self.name} has run already: make another")
        self.serving.refuse_strangers()
        refuse_transactions(self.serving, self._transport)
        self._shift = Shift(self._transport, self.serving, self._terms(), self._listener, self._inbox)
        with signals_to(self._inbox):
            self._shift.start()
            return self._stand_by(self._shift)

    async def run(self) -> int:
        """As `run_sync`, beside a running event loop. SIGTERM stops it where nobody else handles it, a second one at once; so does cancelling it."""
        with _sigterm_to(self._inbox):
            running = asyncio.get_running_loop().run_in_executor(None, self.run_sync)  # no task: what cancels all tasks would cancel that one, too
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                self.stop()
                await self._until_over(running)
                raise

    def drain(self) -> None:
        """End in order, without haste: no more work, and what runs goes on to its end. Safe from any thread; returns at once."""
        self._inbox.put(Word(Cause.SPENT))

    def stop(self) -> None:
        """Stop in order: no more work, `grace` seconds for what runs. Safe from any thread and from signal handlers; returns at once."""
        self._inbox.put(Word(Cause.STOP))

    @property
    def stuck(self) -> int:
        """How many threads, event loops and coroutines are lost to what ignored its timeout, and are still at it."""
        return self._shift.bodies.stuck if self._shift is not None else 0

    @property
    def occupied(self) -> int:
        """How many bodies are at work now."""
        return self._shift.hands.occupied if self._shift is not None else 0

    async def _until_over(self, running: asyncio.Future[int]) -> None:
        """Wait for the end of a worker that was told to stop; cancelled once more, it ends at once."""
        try:
            await running
        except asyncio.CancelledError:
            for _ in range(2):  # the second one counts, and it has had none
                self._inbox.put(Word(Cause.SIGNAL))
            raise

    def _stand_by(self, shift: Shift) -> int:
        """Wait for a reason to end, then for the end."""
        first = self._first_word(shift)
        code = self._heed(first)
        threading.Thread(target=self._end, args=(shift,), name="workflows-end", daemon=True).start()
        signalled = first.cause is Cause.SIGNAL
        while (word := self._inbox.get()).cause is not Cause.CLOSED:
            if word.cause is Cause.SIGNAL and signalled:
                self._listener.warning("a second signal: ending now; leases still in hand will be reclaimed")
                return 1
            signalled = signalled or word.cause is Cause.SIGNAL
            code = max(code, self._heed(word))
        return code

    def _first_word(self, shift: Shift) -> Word:
        """The first reason to end. Being spent is none yet: what runs goes on to its end first."""
        while (word := self._inbox.get()).cause is Cause.SPENT:
            self.is_spent = True
            shift.drain()
        return word

    def _spent(self, reached: str) -> None:
        self._listener.warning(f"{reached}: this process takes no more work, and is replaced once what runs has ended")
        self._inbox.put(Word(Cause.SPENT))

    def _heed(self, word: Word) -> int:
        """Say what a reason to end is; gives the exit code it asks for."""
        self.is_spent = self.is_spent and word.cause in (Cause.IDLE, Cause.SPENT)  # else somebody wants it to end
        if word.cause is Cause.UNSENT:
            return 1
        if word.cause is not Cause.CRASH:
            return 0
        if isinstance(word.error, Rejected):
            self._refused(str(word.error))
        else:
            _log.error("the worker's own loop failed", exc_info=word.error)
            self._listener.error(f"the worker ends because of an unexpected error: {type(word.error).__name__}: {word.error}")
        return 1

    def _refused(self, reason: str) -> None:
        """Say it once, whichever of the worker's calls have all met it."""
        if reason not in self._refusals:
            self._refusals.add(reason)
            self._listener.error(f"the server refuses this worker: {reason}")

    def _end(self, shift: Shift) -> None:
        try:
            shift.end()
        except BaseException as error:  # noqa: BLE001 - the worker ends with it, and says why
            self._inbox.put(Word(Cause.CRASH, error))
        finally:
            self._inbox.put(Word(Cause.CLOSED))

    def _terms(self) -> Terms:
        registration = Registration(
            worker=self.name,
            app=self.app,
            concurrency=self.concurrency,
            definitions=self.serving.definitions(),
            sdk=f"python/{__version__}",
            host=socket.gethostname(),
            organization=self._organization,
            project=self._project,
            cron=self.cron,
        )
        recipe: Any = self._recipe or getattr(self._transport, "recipe", None)
        return Terms(
            registration=registration,
            grace=self._grace,
            middleware=self._middleware,
            heartbeat=self._heartbeat,
            recipe=recipe,
            maintenance=self._maintenance,
            until_idle=self._until_idle,
            processes=self.processes,
            home=self._home,
            limits=self._limits,
        )


@contextmanager
def _sigterm_to(inbox: Inbox) -> Iterator[None]:
    """Put SIGTERM into the inbox while the event loop runs in the main thread, unless the process has its own mind about that signal."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, inbox.put, Word(Cause.SIGNAL))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
