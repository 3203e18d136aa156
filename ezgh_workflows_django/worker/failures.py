"""From what a body raised to a failed outcome: which class, which message, what of the traceback. Decides no retries."""

from __future__ import annotations

import traceback
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from ..definitions.durations import in_words
from ..definitions.names import CLASS_PATTERN, matches
from ..errors import InvalidPayload, NotAvailable, Retryable, StepError, StepFailed, StepFailure
from ..protocol import codec
from ..protocol.failures import Failure
from ..protocol.messages import Lease
from ..protocol.outcomes import Outcome
from ..protocol.states import FailureClass

if TYPE_CHECKING:
    from .context import Context

MAX_MESSAGE: Final = 8_000
"""Characters of a failure's message that are kept."""

MAX_TRACEBACK: Final = 8 * 1024
"""Bytes of a traceback's end that are kept, where tracebacks are kept at all."""

MAX_RETRY_AFTER: Final = timedelta(days=3_650)

_OWN_KINDS: Final = frozenset(FailureClass) - {FailureClass.RETRYABLE, FailureClass.PERMANENT, FailureClass.ERROR, FailureClass.TIMEOUT}
"""Classes with a meaning to the engine that a body's exception must not claim for itself."""


def failed(error: BaseException, lease: Lease, context: Context) -> Outcome:
    """The outcome of an attempt whose body, or whose input or output, raised `error`."""
    failure = failure_of(error, last=lease.last, retries=lease.retries)
    return Outcome.failed(
        failure.class_,
        failure.message,
        type=failure.type,
        traceback=traceback_of(error),
        keeps_traceback=context.keeps_traceback,
        retry_after_ms=retry_after_ms(error),
        usage=context.usage,
        spans=context.spans,
    )


def failure_of(error: BaseException, *, last: bool, retries: bool) -> Failure:
    """Class, message and type of what was raised. `last` says that no retry is left, `retries` that there ever was one."""
    class_, message = _class_of(error), message_of(error)
    if class_ is None:
        rule = f"such a kind matches {CLASS_PATTERN}, and is none of the engine's"
        class_, message = FailureClass.ERROR, f"{_class_text(error)} is not a failure class of a user's own ({rule}): {message}"
    spent = class_ == FailureClass.RETRYABLE and last and not retries
    # A failed inner step has been told so of its own Retry.
    advice = " (no retries allowed, give the step a Retry)" if spent and not isinstance(error, StepFailed) else ""
    # A failed inner step that nobody caught is told as what its function raised.
    type_ = error.type if isinstance(error, StepFailed) and error.type else dotted_name(type(error))
    return Failure(class_=class_, message=codec.clean_text(message + advice, MAX_MESSAGE), type=codec.clean_text(type_, 200))


def timed_out(lease: Lease, *, body_ended: bool, context: Context | None = None) -> Outcome:
    """The outcome of an attempt whose time was up."""
    message = f"attempt {lease.attempt} timed out after {in_words(lease.timeout_ms or 0)}"
    usage, spans = (context.usage, context.spans) if context is not None else ((), ())
    return Outcome.failed(FailureClass.TIMEOUT, message, body_ended=body_ended, usage=usage, spans=spans)


def retry_after_ms(error: BaseException) -> int | None:
    """The least rest that the exception asks for, in milliseconds."""
    if not isinstance(error, Retryable) or error.retry_after is None:
        return None
    wait = min(max(error.retry_after, timedelta(0)), MAX_RETRY_AFTER)
    return -(-(wait // timedelta(microseconds=1)) // 1000)


def message_of(error: BaseException) -> str:
    """What the exception says; its name where it says nothing, or fails to say it."""
    if isinstance(error, SystemExit):
        return f"the body called sys.exit({error.code!r})"
    return codec.clean_text(error, MAX_MESSAGE) or type(error).__name__


def traceback_of(error: BaseException) -> str:
    """The end of the exception's traceback, at most `MAX_TRACEBACK` bytes."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception as second:  # noqa: BLE001 - a user's exception may fail to show itself
        text = f"the traceback could not be formatted: {type(second).__name__}"
    tail = codec.clean_text(text[-MAX_TRACEBACK:], MAX_TRACEBACK).encode()[-MAX_TRACEBACK:]
    return tail.decode(errors="ignore")


def dotted_name(cls: type[BaseException]) -> str:
    """`package.module.Class`; a builtin's name stands alone."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _class_of(error: BaseException) -> str | None:
    """The failure class, or None where the exception names one it may not."""
    if isinstance(error, (InvalidPayload, NotAvailable)):
        return FailureClass.PERMANENT
    if not isinstance(error, StepError):
        return FailureClass.ERROR
    claimed = error.failure_class
    if not matches(CLASS_PATTERN, claimed):
        return None
    return None if isinstance(error, StepFailure) and claimed in _OWN_KINDS else claimed


def _class_text(error: BaseException) -> str:
    return codec.clean_text(repr(getattr(error, "failure_class", None)), 100)
