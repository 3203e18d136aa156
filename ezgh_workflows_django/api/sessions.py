"""A worker's first call and its last: `POST workers/register`, `POST workers/{id}/leave`."""

from __future__ import annotations

from dataclasses import replace

from django.http import HttpResponse
from rest_framework.request import Request

from ..engine import permissions, workers
from ..engine.keys import Identity
from ..models import App
from ..protocol import answers_json, calls_json
from ..protocol.messages import Registration
from . import reach, worker_shapes
from .base import WorkerView, caller
from .claims import longest_hold_ms
from .docs import WORKER, call
from .plain_json import to_response
from .worker_answers import RegisteredShape


class RegisterView(WorkerView):
    """A worker session."""

    @call(WORKER, "Register a worker", worker_shapes.Registration, RegisteredShape)
    def post(self, request: Request) -> HttpResponse:
        """Store the definitions (idempotent), announce them, open a session. Definitions need `workflows.apps.sync`. Every fault comes in one 400."""
        registration = calls_json.registration_from_json(self.read(request, worker_shapes.Registration))
        identity = caller(request)
        if registration.definitions:
            identity.need(permissions.SYNC)
        registered = workers.register(registration, app=_app(identity, registration))
        return to_response(answers_json.registered_to_json(replace(registered, max_wait_ms=longest_hold_ms())))


class LeaveView(WorkerView):
    """The end of a worker session."""

    @call(WORKER, "Leave", worker_shapes.Nothing, worker_shapes.Nothing, conflicts="`unknown_worker`")
    def post(self, request: Request, worker_id: str) -> HttpResponse:
        """A clean goodbye: the session's announcements end. Saying it twice changes nothing."""
        reach.check_session(caller(request), worker_id)
        workers.leave(worker_id)
        return to_response({})


def _app(identity: Identity, registration: Registration) -> App:
    """The app that it names. Raises `UnknownProject`, `UnknownApp`: a developer's worker makes its own first, by the call for that."""
    named = {"organization": registration.organization, "project": registration.project}
    return reach.app(identity, registration.app, {name: value for name, value in named.items() if value is not None})
