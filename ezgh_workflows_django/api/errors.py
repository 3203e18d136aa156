"""Errors over HTTP, in one shape: `{"error": {"code", "message", "fields"?}}`. One table from the package's errors to codes; nothing else answers with one."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, ProgrammingError
from django.http import Http404, HttpResponse
from rest_framework import exceptions
from rest_framework.settings import api_settings

from .. import errors
from ..engine.transactions import LostRace
from .plain_json import TooLarge, to_response
from .received import LengthRequired

logger = logging.getLogger("ezgh_workflows.api")

INVALID: Final = "invalid"
MOST_TOLD: Final = 10
"""How many bad fields the message names; `fields` has them all."""

RETRY_AFTER: Final = 2
"""Seconds that a caller is asked to wait while the database is away."""


_SOON: Final = {"Retry-After": "1"}
"""Where another's transaction is in the way, which is over in a moment."""


@dataclass(frozen=True, slots=True)
class Told:
    """An error as it is answered. `fields` has one text for each bad field."""

    status: int
    code: str
    message: str
    fields: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """The body."""
        told: dict[str, Any] = {"code": self.code, "message": self.message}
        return {"error": told if not self.fields else {**told, "fields": dict(self.fields)}}

    def to_response(self) -> HttpResponse:
        """The answer."""
        return to_response(self.to_json(), self.status, self.headers)


_CODES: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (errors.PayloadTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "payload_too_large"),
    (errors.ExpressionError, HTTPStatus.BAD_REQUEST, INVALID),
    (errors.NotAvailable, HTTPStatus.BAD_REQUEST, "not_available"),
    (errors.UnknownWorkflow, HTTPStatus.NOT_FOUND, "unknown_workflow"),
    (errors.WorkflowNotAnnounced, HTTPStatus.CONFLICT, "workflow_not_announced"),
    (errors.ConcurrencyLimit, HTTPStatus.CONFLICT, "concurrency_limit"),
    (errors.IdempotencyConflict, HTTPStatus.CONFLICT, "idempotency_conflict"),
    (errors.UnknownWorker, HTTPStatus.CONFLICT, "unknown_worker"),
    (errors.UnknownDefinition, HTTPStatus.CONFLICT, "unknown_definition"),
    (errors.UnknownRun, HTTPStatus.NOT_FOUND, "unknown_run"),
    (errors.UnknownStep, HTTPStatus.NOT_FOUND, "unknown_step"),
    (errors.UnknownLease, HTTPStatus.NOT_FOUND, "unknown_lease"),
    (errors.UnknownApp, HTTPStatus.NOT_FOUND, "unknown_app"),
    (errors.UnknownProject, HTTPStatus.NOT_FOUND, "unknown_project"),
    (errors.UnknownSchedule, HTTPStatus.NOT_FOUND, "unknown_schedule"),
    (errors.UnknownKey, HTTPStatus.NOT_FOUND, "unknown_key"),
    (errors.NotFound, HTTPStatus.NOT_FOUND, "not_found"),
    (errors.RunTerminal, HTTPStatus.CONFLICT, "run_terminal"),
    (errors.VerbRefused, HTTPStatus.CONFLICT, "verb_refused"),
    (errors.StartError, HTTPStatus.BAD_REQUEST, INVALID),
)

_OF_DRF: Final[Mapping[int, str]] = {
    HTTPStatus.BAD_REQUEST: INVALID,
    HTTPStatus.UNAUTHORIZED: "unauthenticated",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.NOT_ACCEPTABLE: "not_acceptable",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "unsupported_media_type",
    HTTPStatus.TOO_MANY_REQUESTS: "throttled",
}


def told_of(error: BaseException) -> Told | None:
    """How an error is answered; None for one that nobody raised on purpose."""
    if isinstance(error, errors.WorkflowsError):
        return _of_ours(error)
    if isinstance(error, exceptions.APIException):
        return _of_drf(error)
    if isinstance(error, Http404):
        return Told(HTTPStatus.NOT_FOUND, "not_found", "there is nothing here by that id")
    if isinstance(error, PermissionDenied):
        return Told(HTTPStatus.FORBIDDEN, "forbidden", str(error) or "this is not allowed")
    if isinstance(error, TooLarge | RequestDataTooBig):
        return Told(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "payload_too_large", str(error))
    if isinstance(error, LengthRequired):
        return Told(HTTPStatus.LENGTH_REQUIRED, "length_required", str(error))
    if isinstance(error, LostRace):
        return Told(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "others changed the same rows all the while: the same request again, later", headers=_SOON)
    if isinstance(error, SuspiciousOperation):  # more fields in a query than Django reads
        return Told(HTTPStatus.BAD_REQUEST, INVALID, str(error))
    if isinstance(error, RecursionError):
        return Told(HTTPStatus.BAD_REQUEST, INVALID, "the request's JSON is nested too deep")
    return _of_database(error)


def _of_ours(error: errors.WorkflowsError) -> Told | None:
    if isinstance(error, errors.KeyRefused):
        return Told(HTTPStatus.UNAUTHORIZED, error.code, str(error), headers={"WWW-Authenticate": 'Bearer realm="workflows"'})
    if isinstance(error, errors.NotPermitted):
        return Told(HTTPStatus.FORBIDDEN, error.code, str(error))
    if isinstance(error, errors.AppConflict):
        return Told(HTTPStatus.CONFLICT, error.code, str(error))
    if isinstance(error, errors.StartBusy):
        return Told(HTTPStatus.SERVICE_UNAVAILABLE, "busy", str(error), headers=_SOON)
    if isinstance(error, errors.InvalidWorkflow):
        return Told(HTTPStatus.BAD_REQUEST, INVALID, str(error), {"definitions": str(error)})
    if isinstance(error, errors.InvalidArgument):
        return Told(HTTPStatus.BAD_REQUEST, INVALID, str(error), {error.field: error.reason})
    if isinstance(error, errors.InvalidPayload) and not isinstance(error, errors.PayloadTooLarge):
        return Told(HTTPStatus.BAD_REQUEST, INVALID, str(error), {error.path: error.reason})
    for kind, status, code in _CODES:
        if isinstance(error, kind):
            return Told(status, code, str(error))
    return None


def _of_drf(error: exceptions.APIException) -> Told:
    code = _OF_DRF.get(error.status_code, INVALID)
    if isinstance(error, exceptions.ValidationError):
        fields = dict(_flat(error.detail, ""))
        return Told(error.status_code, code, _in_short(fields), fields)
    headers: dict[str, str] = {}
    if error.status_code == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="workflows"'
    if isinstance(error, exceptions.Throttled):
        headers["Retry-After"] = str(max(1, math.ceil(getattr(error, "wait", None) or 1)))
    return Told(error.status_code, code, str(error.detail), headers=headers)


def _of_database(error: BaseException) -> Told | None:
    """The database is away, read-only, or too busy for all tries; a statement it found wrong is a fault of ours."""
    if isinstance(error, DataError | IntegrityError | ProgrammingError) or not isinstance(error, DatabaseError | InterfaceError):
        return None
    logger.warning("the database could not answer: %s: %s", type(error).__name__, error)
    return Told(
        HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "the database can't answer now: the same request again, later", headers={"Retry-After": str(RETRY_AFTER)}
    )


def _flat(detail: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every bad field by its path, with what is wrong with it."""
    if isinstance(detail, Mapping):
        for name, each in detail.items():
            if name == api_settings.NON_FIELD_ERRORS_KEY:  # the host may call them otherwise
                yield from _flat(each, path)
            else:
                yield from _flat(each, f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}" if path else str(name))
        return
    if any(isinstance(each, Mapping | list) for each in detail):
        for place, each in enumerate(detail):
            if each:
                yield from _flat(each, f"{path}[{place}]")
        return
    yield path or "body", " ".join(str(each) for each in detail)


def _in_short(fields: Mapping[str, str]) -> str:
    """The first bad fields, and how many there are besides."""
    first = "; ".join(f"{name}: {text}" for name, text in list(fields.items())[:MOST_TOLD])
    return first if len(fields) <= MOST_TOLD else f"{first}; and {len(fields) - MOST_TOLD} more"


def in_words(detail: Any) -> str:
    """Every bad field of a shape, in one text."""
    return _in_short(dict(_flat(detail, "")))
