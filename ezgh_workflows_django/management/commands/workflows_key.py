"""`manage.py workflows_key create|list|revoke`: API keys. `engine.keys` makes, checks and revokes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.management.base import CommandParser

from ...engine import keys, permissions, tenancy
from ...errors import InvalidArgument
from ...models import ApiKey
from ..tenants import TenantCommand, add_project, project_of

BY: Final = ("command", "workflows_key")
MOST_DAYS: Final = 36_500
NEVER: Final = "never"


def create(command: TenantCommand, options: dict[str, Any]) -> None:
    """Make a key, and print it: the only time."""
    project = project_of(options)
    app = None if options["app"] is None else tenancy.find_app(project, options["app"])
    key, text = keys.create(options["name"], options["permission"], by=BY, project=project, app=app, lasts=_lasts(options["expires_in"]))
    reach = f"app {app.name}" if app is not None else f"project {project.slug}"
    said = f'{text}\n\nKey "{key.name}" of {reach}: {", ".join(keys.grants_of(key))}. It is shown this once: nobody can look it up again.'
    command.say(options, {**facts(key), "key": text}, said)


def show(command: TenantCommand, options: dict[str, Any]) -> None:
    """Print the project's keys, the newest first, never a secret."""
    found = [facts(key) for key in keys.keys_of(project_of(options).pk)]
    command.say(options, found, "\n".join(map(_line, found)) or "no keys")


def revoke(command: TenantCommand, options: dict[str, Any]) -> None:
    """End a key at once."""
    key = keys.revoke(options["prefix"], by=BY, project_id=project_of(options).pk)
    command.say(options, facts(key), f'key {key.prefix} "{key.name}" is revoked')


def facts(key: ApiKey) -> dict[str, Any]:
    """What may be told of a key."""
    return {
        "prefix": key.prefix,
        "name": key.name,
        "app": None if key.app is None else key.app.name,
        "permissions": list(keys.grants_of(key)),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "used_at": key.used_at,
    }


class Command(TenantCommand):
    """Creates, lists and revokes API keys."""

    help = "API keys for workers and callers outside: create one (its secret is printed once), list them, revoke one."
    actions = {"create": create, "list": show, "revoke": revoke}

    def add_arguments(self, parser: CommandParser) -> None:
        """The actions and their flags."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="create|list|revoke")
        making = actions.add_parser("create", help="Make a key and print it.")
        making.add_argument("name", help="Whose key it is, such as the bot's name.")
        scopes = ", ".join(policy.scope for policy in permissions.POLICIES)
        making.add_argument(
            "--permission", action="append", default=[], metavar="NAME", help=f"A permission, a policy, or a scope ({scopes}). May be repeated."
        )
        making.add_argument("--app", metavar="NAME", help="Only this app, by name or id (default: all apps of the project).")
        making.add_argument("--expires-in", type=float, metavar="DAYS", help="Days until it ends (default: it does not).")
        listing = actions.add_parser("list", help="The project's keys, never a secret.")
        ending = actions.add_parser("revoke", help="End a key at once.")
        ending.add_argument("prefix", help="What stands between the underscores of the key.")
        for each in (making, listing, ending):
            add_project(each)


def _lasts(days: float | None) -> timedelta | None:
    if days is None:
        return None
    if not 0 < days <= MOST_DAYS:
        raise InvalidArgument("--expires-in", f"more than 0 and at most {MOST_DAYS:,} days")
    return timedelta(days=days)


def _line(told: Mapping[str, Any]) -> str:
    state = "revoked" if told["revoked_at"] else f"ends {_moment(told['expires_at'])}"
    reach = "all apps" if told["app"] is None else f"app {told['app']}"
    return f"{told['prefix']}  {told['name']}  {reach}  {', '.join(told['permissions'])}  {state}  used {_moment(told['used_at'])}"


def _moment(moment: datetime | None) -> str:
    return NEVER if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"
