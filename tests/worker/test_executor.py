"""From a lease to an outcome."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ezgh_workflows_django.definitions.graph import Step, Workflow
from ezgh_workflows_django.errors import Permanent, Retryable, StepFailed, StepFailure
from ezgh_workflows_django.protocol.outcomes import Outcome
from ezgh_workflows_django.protocol.states import LeaseStatus
from ezgh_workflows_django.testing.scripted import lease_of
from ezgh_workflows_django.worker.context import Context, StepInfo, step_info
from ezgh_workflows_django.worker.executor import execute
from ezgh_workflows_django.worker.failures import MAX_MESSAGE, MAX_TRACEBACK


@dataclass
class Image:
    """An input with a type."""

    width: int


def ran(body: Any, input: Any = None, *, middleware: Any = (), scope: Any = None, **fields: Any) -> Outcome:
    """The outcome of one attempt of that body."""
    workflow = Workflow("job", steps=[Step("only", run=body)])
    return execute(lease_of(workflow, "only", input, **fields), workflow.body("only"), middleware=middleware, scope=scope)


def raised(error: BaseException, **fields: Any) -> Outcome:
    """The outcome of a body that raises `error`."""

    def body() -> None:
        raise error

    return ran(body, **fields)


def test_a_body_completes_with_its_output() -> None:
    assert ran(lambda input: {"n": input["n"] + 1}, {"n": 1}) == Outcome.completed({"n": 2})


def test_an_async_body_completes_with_its_output() -> None:
    async def body(input: Any) -> Any:
        await asyncio.sleep(0)
        return input

    assert ran(body, 5).output == 5


def test_a_sync_body_runs_in_the_calling_thread() -> None:
    assert ran(lambda: threading.current_thread().name).output == threading.current_thread().name


def test_a_body_sees_its_step_info() -> None:
    seen: list[StepInfo | None] = []
    ran(lambda: seen.append(step_info()), attempt=3)
    assert [(info.step, info.attempt) for info in seen if info] == [("only", 3)]


def test_state_usage_and_spans_go_into_the_outcome() -> None:
    def body(ctx: Context) -> None:
        ctx.patch_state(done=True)
        with ctx.span("call") as span:
            span.set_usage(tokens=4)

    outcome = ran(body)
    assert (outcome.state, [usage.amount for usage in outcome.usage], [span["name"] for span in outcome.spans]) == ({"done": True}, ["4"], ["call"])


def test_a_plain_exception_has_class_error_and_its_dotted_name() -> None:
    outcome = raised(KeyError("gone"))
    assert (outcome.class_, outcome.type, outcome.message) == ("error", "KeyError", "'gone'")


def test_the_dotted_name_of_an_own_exception_has_its_module() -> None:
    class Odd(Exception):
        pass

    assert str(raised(Odd("x")).type).startswith(f"{__name__}.")


def test_an_exception_without_a_message_is_named() -> None:
    assert raised(ValueError()).message == "ValueError"


def test_retryable_carries_its_wait_in_milliseconds() -> None:
    outcome = raised(Retryable("later", retry_after=1.5), retries=True)
    assert (outcome.class_, outcome.message, outcome.retry_after_ms) == ("retryable", "later", 1_500)


def test_a_retryable_with_no_retry_to_spend_says_so() -> None:
    assert raised(Retryable("later")).message == "later (no retries allowed, give the step a Retry)"


def test_a_retryable_at_the_end_of_its_budget_does_not_ask_for_a_retry_policy() -> None:
    assert raised(Retryable("later"), retries=True, last=True).message == "later"


def test_a_failed_inner_step_is_told_once_to_have_a_retry() -> None:
    message = "later (no retries allowed, give the step a Retry)"
    assert raised(StepFailed(message, step="pay", failure_class="retryable")).message == f"step pay: {message}"


def test_permanent_and_own_classes_are_kept() -> None:
    assert (raised(Permanent("no")).class_, raised(StepFailure("no", kind="card_declined")).class_) == ("permanent", "card_declined")


@pytest.mark.parametrize("kind", ["poison", "returned", "Not Allowed", ""])
def test_a_class_that_is_no_users_becomes_error_and_is_named(kind: str) -> None:
    outcome = raised(StepFailure("no", kind=kind))
    assert outcome.class_ == "error"
    rule = "such a kind matches ^[a-z0-9_]{1,64}$, and is none of the engine's"
    assert outcome.message == f"{kind!r} is not a failure class of a user's own ({rule}): no"


@pytest.mark.parametrize(
    "error", [SystemExit(1), SystemExit(0), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), StopIteration(), MemoryError(), RecursionError()]
)
def test_what_would_end_a_process_fails_the_attempt_only(error: BaseException) -> None:
    outcome = raised(error)
    assert (outcome.status, outcome.class_, outcome.type) == (LeaseStatus.FAILED, "error", str(outcome.type))


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
def test_what_would_end_a_loop_fails_the_attempt_only(error: BaseException) -> None:
    async def body() -> None:
        await asyncio.sleep(0)
        raise error

    assert ran(body).class_ == "error"


def test_sys_exit_is_named_in_the_message() -> None:
    assert raised(SystemExit(3)).message == "the body called sys.exit(3)"


def test_an_exception_that_fails_to_show_itself_is_reported_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "Mute" in str(raised(Mute()).message)


def test_a_message_is_cleaned_and_cut() -> None:
    message = str(raised(ValueError("a\x00b\ud800" + "x" * 20_000)).message)
    assert message.startswith("a\ufffdb\ufffdx")
    assert len(message) == MAX_MESSAGE


def test_the_end_of_the_traceback_is_kept_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="ezgh_workflows.worker"):
        outcome = raised(ValueError("é" * 20_000))
    assert len(str(outcome.traceback).encode()) <= MAX_TRACEBACK
    assert caplog.records[0].exc_info is not None


def test_an_input_that_does_not_decode_fails_permanently_without_the_body() -> None:
    ran_bodies: list[Image] = []

    def body(image: Image) -> None:
        ran_bodies.append(image)

    outcome = ran(body, {"width": "wide"})
    assert (outcome.class_, "width" in str(outcome.message), ran_bodies) == ("permanent", True, [])


def test_an_output_that_cannot_be_stored_fails_permanently_by_path() -> None:
    outcome = ran(lambda: {"n": float("nan")})
    assert (outcome.class_, str(outcome.message).startswith("output.n")) == ("permanent", True)


def test_a_step_that_is_not_held_is_unservable() -> None:
    workflow = Workflow("job", steps=[Step("only", run=lambda: None)])
    assert execute(lease_of(workflow, "only"), None).class_ == "unservable"


def test_middleware_surrounds_the_body_in_order() -> None:
    heard: list[str] = []

    def noting(name: str) -> Any:
        @contextmanager
        def around(ctx: Context) -> Iterator[None]:
            heard.append(f"{name} in")
            yield
            heard.append(f"{name} out")

        return around

    ran(lambda: heard.append("body"), middleware=[noting("a"), noting("b")])
    assert heard == ["a in", "b in", "body", "b out", "a out"]


def test_a_middleware_may_raise_something_else() -> None:
    @contextmanager
    def around(ctx: Context) -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            raise Permanent("no such thing") from error

    assert ran(lambda: vars(Image)["x"], middleware=[around]).class_ == "permanent"


def test_a_middleware_that_swallows_is_found_out() -> None:
    @contextmanager
    def around(ctx: Context) -> Iterator[None]:
        with suppress(KeyError):
            yield

    assert "swallowed" in str(ran(lambda: vars(Image)["x"], middleware=[around]).message)


def test_a_middleware_that_fails_after_the_body_fails_the_attempt() -> None:
    @contextmanager
    def around(ctx: Context) -> Iterator[None]:
        yield
        raise RuntimeError("metrics are down")

    assert ran(lambda: 1, middleware=[around]).message == "metrics are down"


def test_a_scope_that_fails_after_the_body_does_not_undo_it() -> None:
    @contextmanager
    def scope() -> Iterator[None]:
        yield
        raise RuntimeError("the connection would not close")

    assert ran(lambda: 1, scope=scope()).output == 1


def test_a_scope_that_fails_before_the_body_fails_the_attempt() -> None:
    @contextmanager
    def scope() -> Iterator[None]:
        raise RuntimeError("no connection")
        yield

    assert ran(lambda: 1, scope=scope()).message == "no connection"


def test_an_async_scope_surrounds_an_async_body() -> None:
    heard: list[str] = []

    class Scope:
        def __enter__(self) -> None:
            heard.append("sync")

        def __exit__(self, *error: object) -> None: ...

        async def __aenter__(self) -> None:
            heard.append("in")

        async def __aexit__(self, *error: object) -> None:
            heard.append("out")

    async def body() -> None:
        heard.append("body")

    ran(body, scope=Scope())
    assert heard == ["in", "body", "out"]


def test_a_step_runs_where_there_is_no_django() -> None:
    script = """
import sys
sys.modules["django"] = None
from ezgh_workflows_django.definitions.graph import Step, Workflow
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.worker import Worker
job = Workflow("job", steps=[Step("only", run=lambda input: input + 1)])
server = ScriptedTransport(lease_of(job, "only", 1, id="lease"))
code = Worker(server, workflows=[job], until_idle=True).run_sync()
print(code, server.outcomes["lease"][0].output)
"""
    said = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=30)
    assert said.stdout.strip() == "0 2", said.stderr
