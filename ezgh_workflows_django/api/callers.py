"""Who is calling: the bearer of an API key or, for the run endpoints, a person signed in to the Django site as staff.

Both become an `Identity`, which is `request.auth`; what is not in its reach does not exist for it.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.views.decorators.debug import sensitive_variables
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from ..engine import permissions, tenancy
from ..engine.keys import Identity, authenticate
from ..errors import KeyRefused

SCHEME = "Bearer"


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer <key>`. Checked on every request."""

    @sensitive_variables("text")  # an error report shows it not
    def authenticate(self, request: Request) -> tuple[Any, Identity] | None:
        """The key's identity; None without such a header. Raises `KeyRefused`."""
        scheme, _, text = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if not scheme:
            return None
        if scheme.lower() != SCHEME.lower():
            raise KeyRefused("malformed")
        return AnonymousUser(), authenticate(text.strip())

    def authenticate_header(self, request: Request) -> str:
        """What a 401 asks for."""
        return f'{SCHEME} realm="workflows"'


class StaffAuthentication(SessionAuthentication):
    """A session of the Django site, with its CSRF token: for staff, who may do what their model permissions say, in the default project."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """The person's identity; None for who is not staff. Raises `PermissionDenied` without the CSRF token."""
        found = super().authenticate(request)
        if found is None or not found[0].is_staff:
            return None
        user: Any = found[0]
        return user, staff_identity(user)


class Permitted(BasePermission):
    """The caller has what the view says this method needs."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Raises `NotAuthenticated`, `NotPermitted`."""
        if not isinstance(request.auth, Identity):
            raise NotAuthenticated
        request.auth.need(*view.needs.get(request.method, ()))
        return True


def staff_identity(user: Any) -> Identity:
    """What a person of the site is to the engine: their model permissions, in the project of `DEFAULT_APP`."""
    app, _ = tenancy.app_now(None)
    project = app.project
    return Identity(
        prefix=user.get_username(),
        name=user.get_username(),
        project_id=project.pk,
        organization_id=project.organization_id,
        organization=project.organization.slug,
        project=project.slug,
        app_id=None,
        permissions=permissions.of_staff(user.has_perm),
        kind="user",
    )
