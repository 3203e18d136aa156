"""API keys: making, checking, revoking them. A key is `ezw_<prefix>_<secret>`; its secret leaves this file once, when it is made.

Only a hash of the secret is stored, and a fast one. Slow hashes are for passwords, which people choose and others can guess;
a secret of 256 random bits can't be guessed at any speed, and a worker shows its key with every call. The hash is keyed with
the prefix: one that is moved to another row fits nothing there.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db.models import Q, QuerySet
from django.views.decorators.debug import sensitive_variables

from ..errors import InvalidArgument, KeyRefused, NotPermitted, UnknownKey
from ..models import ApiKey, App, Project
from ..protocol import codec
from . import permissions, trail
from .clock import Now, read_at
from .transactions import database, verb

USED_EVERY: Final = timedelta(minutes=1)
MAX_NAME: Final = 100
ACTOR: Final = "key"
"""The kind of a key in the trail; its prefix is the name."""

_ALPHABET: Final = string.ascii_lowercase + string.digits
_PREFIX_LENGTH: Final = 12
_SECRET_BYTES: Final = 32
_PREFIX: Final = re.compile(rf"[a-z0-9]{{{_PREFIX_LENGTH}}}")
_WITHIN: Final = re.compile(rf"ezw_([a-z0-9]{{{_PREFIX_LENGTH}}})_[0-9a-f]*")
_FORM: Final = re.compile(rf"ezw_([a-z0-9]{{{_PREFIX_LENGTH}}})_([0-9a-f]{{{2 * _SECRET_BYTES}}})")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is calling, how far it reaches, and what it may do there. `app_id` None: every app of its project.

    `kind` is `key`, or `user` for a person of the Django site; then `prefix` is the user's name.
    """

    prefix: str
    name: str
    project_id: int
    organization_id: int
    organization: str
    project: str
    app_id: int | None
    permissions: frozenset[str]
    grants: tuple[str, ...] = ()
    expires_at: datetime | None = None
    kind: str = field(default=ACTOR)

    def may(self, permission: str) -> bool:
        """Whether it has that permission."""
        return permission in self.permissions

    def need(self, *needed: str) -> None:
        """Raises `NotPermitted` naming each of these permissions that it lacks."""
        missing = [permission for permission in needed if permission not in self.permissions]
        if missing:
            raise NotPermitted(missing)

    def reaches(self, app: App) -> bool:
        """Whether that app exists for it."""
        return app.project_id == self.project_id and self.app_id in (None, app.pk)

    @property
    def actor(self) -> tuple[str, str]:
        """Its kind and name in the trail."""
        return self.kind, self.prefix


Caller = Identity | tuple[str, str]
"""Who asks for a change: somebody with limits, or the kind and name of somebody trusted, such as a command."""


def actor_of(by: Caller) -> tuple[str, str]:
    """Their kind and name in the trail."""
    return by.actor if isinstance(by, Identity) else by


@sensitive_variables()  # an error report shows none of them
def authenticate(text: str) -> Identity:
    """The identity behind a key: one statement, and at most once a minute a second one that notes its use.

    Raises `KeyRefused`, which tells why to us and not to the bearer. Unknown keys take as long as known ones with a wrong secret.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise KeyRefused("malformed")
    prefix, secret = form.groups()
    keys = ApiKey.objects.using(database()).select_related("project__organization").annotate(now=Now())
    key = keys.filter(prefix=prefix).first()
    if not hmac.compare_digest(_hash(prefix, secret), "" if key is None else key.secret_hash) or key is None:
        raise KeyRefused("unknown")
    now = read_at(key)
    if key.revoked_at is not None:
        raise KeyRefused("revoked", prefix=prefix, project_id=key.project_id)
    if key.expires_at is not None and key.expires_at <= now:
        raise KeyRefused("expired", prefix=prefix, project_id=key.project_id)
    if key.used_at is None or now - key.used_at >= USED_EVERY:
        ApiKey.objects.using(database()).filter(pk=key.pk).update(used_at=now)
    return identity_of(key)


def good() -> QuerySet[ApiKey]:
    """The keys that open something now."""
    return ApiKey.objects.using(database()).filter(Q(expires_at=None) | Q(expires_at__gt=Now()), revoked_at=None)


def masked(text: str) -> str:
    """The text with the prefix of each key in it, and nothing of its secret."""
    return _WITHIN.sub(r"ezw_\1_…", text)


def identity_of(key: ApiKey) -> Identity:
    """What a key stands for, whether or not it is good any more."""
    grants = grants_of(key)
    return Identity(
        prefix=key.prefix,
        name=key.name,
        project_id=key.project_id,
        organization_id=key.project.organization_id,
        organization=key.project.organization.slug,
        project=key.project.slug,
        app_id=key.app_id,
        permissions=permissions.expanded(grants),
        grants=grants,
        expires_at=key.expires_at,
    )


def grants_of(key: ApiKey) -> tuple[str, ...]:
    """The permissions and policies it was given, by name."""
    return tuple(json.loads(key.grants))


@verb
@sensitive_variables()
def create(
    name: str,
    grants: Sequence[str],
    *,
    by: Caller,
    project: Project,
    app: App | None = None,
    expires_at: datetime | None = None,
    lasts: timedelta | None = None,
) -> tuple[ApiKey, str]:
    """Make a key; returns its row, and the whole key, which nobody can ask for again.

    `grants` are permissions, policies or scopes by name. A caller with limits gives only what it has, in its own scope or narrower,
    and nothing that outlives it (without an end: its own). `lasts` says the end from now. Raises `NotPermitted` naming what the giver lacks, `InvalidArgument`.
    """
    app = _own_app(project, app)
    now = _now_of(project)
    granted = permissions.canonical(grants)
    expires_at = expires_at if lasts is None else now + lasts
    if isinstance(by, Identity):
        expires_at = _checked_giver(by, granted, project, app, expires_at)
        granted = permissions.given_on(granted, by.grants)
    expires_at = _checked_end(expires_at, now)
    prefix = "".join(secrets.choice(_ALPHABET) for _ in range(_PREFIX_LENGTH))
    secret = secrets.token_hex(_SECRET_BYTES)
    key = ApiKey.objects.using(database()).create(
        prefix=prefix,
        name=_checked_name(name),
        project=project,
        app=app,
        secret_hash=_hash(prefix, secret),
        grants=codec.dumps(granted, limit=None, what="grants"),
        created_at=now,
        created_by=":".join(actor_of(by))[:255],
        expires_at=expires_at,
    )
    told = {"name": key.name, "permissions": granted, "app": None if app is None else app.name, "expires_at": expires_at}
    trail.record(project.pk, now, "CreateKey", actor=actor_of(by), target=(ACTOR, prefix), **{what: value for what, value in told.items() if value is not None})
    return key, f"ezw_{prefix}_{secret}"


@verb
def revoke(prefix: str, *, by: Caller, project_id: int) -> ApiKey:
    """End a key at once; one that was revoked before stays as it is. Raises `UnknownKey`, `NotPermitted`. Locks the key's row."""
    if isinstance(by, Identity):
        by.need(permissions.REVOKE_KEYS)
    reached = keys_of(project_id) if not isinstance(by, Identity) else keys_of(by.project_id, by.app_id).filter(project=project_id)
    key = reached.annotate(now=Now()).filter(prefix=prefix).first() if _PREFIX.fullmatch(prefix) else None
    if key is None:
        raise UnknownKey(f"the project has no key {prefix[:32]!a}")
    now = read_at(key)
    if ApiKey.objects.using(database()).filter(pk=key.pk, revoked_at=None).update(revoked_at=now):
        key.revoked_at = now
        trail.record(project_id, now, "RevokeKey", actor=actor_of(by), target=(ACTOR, prefix), name=key.name)
    return key


def keys_of(project_id: int, app_id: int | None = None) -> QuerySet[ApiKey]:
    """A project's keys, or those of one app, the newest first, without their hashes."""
    keys = ApiKey.objects.using(database()).filter(project=project_id).select_related("app").defer("secret_hash").order_by("-pk")
    return keys if app_id is None else keys.filter(app=app_id)


def _checked_giver(by: Identity, grants: Collection[str], project: Project, app: App | None, expires_at: datetime | None) -> datetime | None:
    """Refuse what a giver can't give; returns when the new key ends."""
    by.need(permissions.CREATE_KEYS)
    missing = sorted(permissions.expanded(grants) - by.permissions)
    if missing:
        raise NotPermitted(missing, f"a key gives only what it has, and this one lacks {', '.join(missing)}")
    if project.pk != by.project_id or by.app_id not in (None, None if app is None else app.pk):
        raise NotPermitted([permissions.CREATE_KEYS], "a key gives keys in its own scope or narrower: this one belongs to one app of its project")
    if by.expires_at is None:
        return expires_at
    if expires_at is not None and expires_at > by.expires_at:
        raise InvalidArgument("expires_at", f"a key can't outlive the one that gives it, which ends {by.expires_at:%Y-%m-%dT%H:%M:%SZ}")
    return expires_at or by.expires_at


def _checked_end(expires_at: datetime | None, now: datetime) -> datetime | None:
    """The end of a key in UTC, as it is stored and shown."""
    if expires_at is None:
        return None
    if expires_at.tzinfo is None:
        raise InvalidArgument("expires_at", "an aware datetime is needed: 09:00 of which time zone?")
    if expires_at <= now:
        raise InvalidArgument("expires_at", "a moment to come is needed: such a key would never be good")
    try:
        return expires_at.astimezone(UTC)
    except OverflowError:
        raise InvalidArgument("expires_at", "no moment that a database can hold: leave it out for a key without an end") from None


def _own_app(project: Project, app: App | None) -> App | None:
    if app is not None and app.project_id != project.pk:
        raise InvalidArgument("app", f'app "{app.name}" belongs to another project')
    return app


def _checked_name(name: str) -> str:
    if not name.strip() or len(name) > MAX_NAME or codec.clean_text(name, MAX_NAME) != name:
        raise InvalidArgument("name", f"a key's name has 1 to {MAX_NAME} characters, no NUL and no lone surrogate")
    return name


def _now_of(project: Project) -> datetime:
    return read_at(Project.objects.using(database()).annotate(now=Now()).get(pk=project.pk))


@sensitive_variables()
def _hash(prefix: str, secret: str) -> str:
    return hmac.digest(f"ezgh_workflows.key.{prefix}".encode(), secret.encode(), "sha256").hex()
