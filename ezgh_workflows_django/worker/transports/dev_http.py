"""The HTTP transport of a developer's worker: makes his app where the server does not have it."""

from __future__ import annotations

from typing import Final

from ...errors import Rejected
from ...protocol.messages import Registered, Registration
from .over_http import HttpTransport
from .replies import Absent, accepted

DEFAULT: Final = "default"
"""The slug of the organization, and of the project, that are meant where none is named."""

_ADVICE: Final = "say which project the key is for, by organization_id and project_id (--organization and --project of `runworker`)"


class DevHttpTransport(HttpTransport):
    """`HttpTransport` whose registration makes its app where it is missing; the key needs `workflows.apps.create` for that."""

    def register(self, registration: Registration) -> Registered:
        """See `Transport`."""
        try:
            return super().register(registration)
        except Absent as absent:
            self._make(registration, absent)
        return super().register(registration)

    def _make(self, registration: Registration, absent: Absent) -> None:
        project = f"v1/organizations/{registration.organization or DEFAULT}/projects/{registration.project or DEFAULT}"
        reply = self._line.call("POST", f"{project}/apps", {"name": registration.app, "kind": "pull", "queue": registration.app})
        if reply.status == 409:
            return  # another one of this developer's workers was faster
        try:
            accepted(reply)
        except Absent as error:
            raise Rejected(f"{absent}; and it could not be made: {error}: {_ADVICE}") from None
        except Rejected as error:
            raise Rejected(f"{absent}; and it could not be made: {error}") from None
