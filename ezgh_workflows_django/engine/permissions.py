"""What a key or a person may do: the one table of permissions, and the policies that bundle them. Data; it asks no database.

A permission is `workflows.<noun>.<verb>`. Keys are given permissions singly, or by the name of a policy or of its scope
(`docs/permissions.md` lists which call needs which).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ..errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Permission:
    """One thing that may be allowed. `staff` is the model permission that gives it to a person of the Django site; None: only keys have it."""

    name: str
    allows: str
    staff: str | None = None

    @property
    def is_read(self) -> bool:
        """Whether it lets one look only."""
        return self.name.endswith(".read")


@dataclass(frozen=True, slots=True)
class Policy:
    """Permissions under one name. `scope` is its short name."""

    name: str
    scope: str
    permissions: frozenset[str]
    line: str


POLL: Final = "workflows.workers.poll"
SYNC: Final = "workflows.apps.sync"
CREATE_KEYS: Final = "workflows.keys.create"
REVOKE_KEYS: Final = "workflows.keys.revoke"
READ_RUNS: Final = "workflows.runs.read"

PERMISSIONS: Final[tuple[Permission, ...]] = (
    Permission(POLL, "Be a worker: register, claim, start, heartbeat and end leases."),
    Permission("workflows.workers.read", "See worker sessions."),
    Permission(SYNC, "Store and announce definitions."),
    Permission("workflows.apps.create", "Create apps."),
    Permission("workflows.apps.update", "Let an app's partitions grow."),
    Permission("workflows.apps.pause", "Let claims of an app, or of one of its workflows, answer empty."),
    Permission("workflows.apps.resume", "End such a pause."),
    Permission("workflows.apps.read", "See apps, their queues and the workflows announced there."),
    Permission("workflows.runs.start", "Start runs.", "ezgh_workflows.add_run"),
    Permission("workflows.runs.signal", "Send signals to runs.", "ezgh_workflows.change_run"),
    Permission("workflows.runs.cancel", "Cancel runs.", "ezgh_workflows.cancel_run"),
    Permission("workflows.runs.retry", "Open a new episode of ended runs.", "ezgh_workflows.retry_run"),
    Permission("workflows.runs.pause", "Pause runs.", "ezgh_workflows.change_run"),
    Permission("workflows.runs.resume", "Resume paused runs.", "ezgh_workflows.change_run"),
    Permission("workflows.runs.resolve", "End a step or wait by hand.", "ezgh_workflows.change_run"),
    Permission("workflows.runs.migrate", "Move runs to another version.", "ezgh_workflows.change_run"),
    Permission(READ_RUNS, "See runs with their payloads, steps, journals and results.", "ezgh_workflows.view_run"),
    Permission("workflows.events.emit", "Emit events.", "ezgh_workflows.add_event"),
    Permission("workflows.events.read", "See events.", "ezgh_workflows.view_event"),
    Permission("workflows.definitions.read", "See stored definitions.", "ezgh_workflows.view_definition"),
    Permission("workflows.schedules.update", "Pause, resume and fire schedules."),
    Permission("workflows.schedules.read", "See schedules."),
    Permission("workflows.prices.update", "Change the price book."),
    Permission("workflows.prices.read", "See the price book."),
    Permission(CREATE_KEYS, "Create keys, none stronger than the one that creates it."),
    Permission(REVOKE_KEYS, "Revoke keys."),
    Permission("workflows.keys.read", "See keys, never their secrets."),
    Permission("workflows.trails.read", "See the trail."),
    Permission("workflows.metrics.read", "Scrape the metrics."),
)

BY_NAME: Final[Mapping[str, Permission]] = {permission.name: permission for permission in PERMISSIONS}

_ALL: Final = frozenset(BY_NAME)
_WORKER: Final = frozenset({POLL, SYNC})
_EXECUTE: Final = frozenset({f"workflows.runs.{verb}" for verb in ("start", "signal", "cancel", "retry", "pause", "resume")} | {"workflows.events.emit"})
_READ: Final = frozenset(permission.name for permission in PERMISSIONS if permission.is_read)

POLICIES: Final[tuple[Policy, ...]] = (
    Policy("WorkflowsWorkerAccess", "worker", _WORKER, "What a worker needs."),
    Policy("WorkflowsExecuteAccess", "execute", _EXECUTE, "Starting and steering runs, emitting events."),
    Policy("WorkflowsReadAccess", "read", _READ, "Seeing everything: `workflows.*.read`."),
    Policy("WorkflowsWriteAccess", "write", _WORKER | _EXECUTE, "`worker` and `execute`."),
    Policy("WorkflowsAdminAccess", "admin", _ALL, "Everything."),
)

READ_PATTERN: Final = "workflows.*.read"

_POLICY_OF: Final[Mapping[str, Policy]] = {
    **{policy.name: policy for policy in POLICIES},
    **{policy.scope: policy for policy in POLICIES},
    READ_PATTERN: next(policy for policy in POLICIES if policy.scope == "read"),
}


def canonical(grants: Iterable[str]) -> tuple[str, ...]:
    """What was asked for, each once: a scope by its policy's name, permissions as they are. Raises `InvalidArgument` for a name that is none."""
    asked = list(dict.fromkeys(grants))
    unknown = [name for name in asked if name not in BY_NAME and name not in _POLICY_OF]
    if unknown:
        known = ", ".join(policy.scope for policy in POLICIES)
        raise InvalidArgument("permissions", f"no permission, policy or scope is named {', '.join(map(_cut, unknown))}; the scopes are {known}")
    if not asked:
        raise InvalidArgument("permissions", "at least one is needed: a key without any can do nothing")
    return tuple(dict.fromkeys(_POLICY_OF[name].name if name in _POLICY_OF else name for name in asked))


def expanded(grants: Iterable[str]) -> frozenset[str]:
    """The permissions behind these names. A name that means nothing here, such as one of a later version, gives nothing."""
    found: set[str] = set()
    for name in grants:
        policy = _POLICY_OF.get(name)
        found |= policy.permissions if policy is not None else _ALL & {name}
    return frozenset(found)


def given_on(grants: Collection[str], held: Collection[str]) -> tuple[str, ...]:
    """Canonical names as a key that holds `held` may store them for another one: a policy that it lacks as such is written out.

    A policy can grow with a later version; nobody gets more by it than the key that gave it.
    """
    names: list[str] = []
    for name in grants:
        names += [name] if name in held or name in BY_NAME else sorted(expanded([name]))
    return tuple(dict.fromkeys(names))


def of_staff(has_permission: Callable[[str], bool]) -> frozenset[str]:
    """What a person of the Django site may do, given the question for model permissions: `user.has_perm`."""
    return frozenset(each.name for each in PERMISSIONS if each.staff is not None and has_permission(each.staff))


def _cut(name: str) -> str:
    return ascii(name if len(name) <= 80 else name[:80] + "…")
