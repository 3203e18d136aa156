"""System checks: one function and one stable id for each way to misconfigure the app. They report; they change nothing.

Only `asked_isolation_level` asks the database, and only where Django was told to (`check --database`, `migrate`).
`E008`, two workflows of one name and revision, is raised by `apps` at start-up: no check runs after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.core.management import find_commands
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.urls import NoReverseMatch, reverse
from django.utils.module_loading import import_string

from .conf import BY_NAME, DICT, LONGEST, SETTINGS, Kind, Setting, app_settings, given
from .engine.apps import APP_NAME, name_fault

TAG: Final = "ezgh_workflows"
WORKER_TAG: Final = "ezgh_workflows_worker"
"""Of the checks that a worker makes as it starts: all but those of what serves the API, which it never imports."""

COMMAND: Final = "runworker"
ISOLATION: Final = "read committed"

# MariaDB's older versions have the one name, newer ones and MySQL the other.
_LEVEL_QUERIES: Final = {
    "postgresql": "SHOW transaction_isolation",
    "mysql": "SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')",
}

SQLITE_LINES: Final = (
    "In settings.py, below DATABASES:\n"
    'DATABASES["default"].setdefault("OPTIONS", {})["transaction_mode"] = "IMMEDIATE"\n'
    'DATABASES["default"]["OPTIONS"]["init_command"] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"'
)


@register(TAG, WORKER_TAG)
def is_a_dict(**_: Any) -> list[CheckMessage]:
    """E009: the setting itself is no dict."""
    value = getattr(settings, DICT, {})
    if isinstance(value, Mapping):
        return []
    return [Error(f"{DICT} is {_cut(value)}, but must be a dict.", hint=f"{DICT} = {{}} takes every default.", id="ezgh_workflows.E009")]


@register(TAG, WORKER_TAG)
def unknown_keys(**_: Any) -> list[CheckMessage]:
    """E001: a key that is no setting."""
    return [Error(f"{DICT} has no setting {key!r}.", hint=_nearest(key), id="ezgh_workflows.E001") for key in given() if key not in BY_NAME]


@register(TAG, WORKER_TAG)
def bad_values(**_: Any) -> list[CheckMessage]:
    """E002: a value of another type than the setting's. E003: one below the least."""
    return [fault for setting, value in _known() if (fault := _fault(setting, value)) is not None]


@register(TAG, WORKER_TAG)
def heartbeat_outlasts_lease(**_: Any) -> list[CheckMessage]:
    """E004: a lease would end between two heartbeats."""
    if any(_fault(setting, value) for setting, value in _known() if setting.name in ("HEARTBEAT", "LEASE_TTL")):
        return []
    if app_settings.HEARTBEAT < app_settings.LEASE_TTL:
        return []
    told = f"HEARTBEAT ({_seconds(app_settings.HEARTBEAT)}) must be shorter than LEASE_TTL ({_seconds(app_settings.LEASE_TTL)})"
    return [Error(f"{told}: every lease would end between two heartbeats.", hint="Two thirds of LEASE_TTL is usual.", id="ezgh_workflows.E004")]


@register(TAG, WORKER_TAG)
def naive_datetimes(**_: Any) -> list[CheckMessage]:
    """E005: without time zones a stored moment means nothing."""
    if settings.USE_TZ:
        return []
    return [Error("USE_TZ is off: leases and timers need moments with a time zone.", hint="Set USE_TZ = True.", id="ezgh_workflows.E005")]


@register(TAG, WORKER_TAG)
def missing_database(**_: Any) -> list[CheckMessage]:
    """E006: `DATABASE` names no database."""
    alias = app_settings.DATABASE
    if alias in connections:
        return []
    known = ", ".join(sorted(connections))
    return [Error(f"{DICT}['DATABASE'] is {alias!r}, but DATABASES has only {known}.", hint="Name one of these.", id="ezgh_workflows.E006")]


@register(TAG, WORKER_TAG)
def database_without_router(**_: Any) -> list[CheckMessage]:
    """W004: the workflows are in a database of their own, and no router makes their tables there alone."""
    alias = app_settings.DATABASE
    if alias == DEFAULT_DB_ALIAS or alias not in connections:
        return []
    made_in = sorted(each for each in connections if router.allow_migrate(each, "ezgh_workflows"))
    if made_in == [alias]:
        return []
    told = f"{DICT}['DATABASE'] is {alias!r}, but `migrate` would make the workflow tables in {', '.join(made_in) or 'none'}."
    hint = 'DATABASE_ROUTERS = ["ezgh_workflows_django.routers.WorkflowsRouter"]'
    return [Warning(told, hint=hint, id="ezgh_workflows.W004")]


@register(TAG, WORKER_TAG)
def starts_after_the_commit(**_: Any) -> list[CheckMessage]:
    """I001: a start inside a transaction of the default database is sent after its commit, because the workflows are elsewhere."""
    alias = app_settings.DATABASE
    if alias == DEFAULT_DB_ALIAS or alias not in connections:
        return []
    told = (
        f"The workflows are in the database {alias!r}: a start inside atomic() of another one is sent after its commit, "
        "and lost where the process dies between the two."
    )
    hint = "Give such starts an idempotency key, and start again what must not be lost; or keep the workflows in the database they start from."
    return [Info(told, hint=hint, id="ezgh_workflows.I001")]


@register(TAG, WORKER_TAG)
def configured_isolation_level(**_: Any) -> list[CheckMessage]:
    """E007: settings that ask for another isolation level than READ COMMITTED."""
    return _isolation_faults(_configured_level(database)) if (database := _database()) is not None else []


@register(Tags.database)
def asked_isolation_level(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """E007: a server, role or connection whose own default is another isolation level."""
    alias = app_settings.DATABASE
    if alias not in (databases or ()) or alias not in connections or _isolation_faults(_configured_level(connections[alias])):
        return []
    return _isolation_faults(_asked_level(connections[alias]))


@register(TAG, WORKER_TAG)
def slow_sqlite(**_: Any) -> list[CheckMessage]:
    """W002: a SQLite file on which writers get "database is locked"."""
    database = _database()
    if database is None or database.vendor != "sqlite" or database.is_in_memory_db():
        return []
    options = database.settings_dict["OPTIONS"]
    is_immediate = str(options.get("transaction_mode", "")).upper() == "IMMEDIATE"
    is_wal = "journal_mode=wal" in str(options.get("init_command", "")).replace(" ", "").lower()
    lacking = [name for name, is_set in (("IMMEDIATE transactions", is_immediate), ("write-ahead logging", is_wal)) if not is_set]
    if not lacking:
        return []
    told = f"The SQLite database {database.alias!r} is used without {' and '.join(lacking)}: readers and writers get in each other's way."
    return [Warning(told, hint=SQLITE_LINES.replace('"default"', f'"{database.alias}"'), id="ezgh_workflows.W002")]


@register(TAG)
def bare_asgi_application(**_: Any) -> list[CheckMessage]:
    """W003: the ASGI application that the settings name is not `bounded`."""
    path = getattr(settings, "ASGI_APPLICATION", None)
    if not path or not _serves_api():
        return []
    try:
        application = import_string(path)
    except Exception:  # noqa: BLE001 - the project's own code may need what only its server has, and whoever serves it says so
        return []
    if getattr(application, "is_bounded", False):
        return []
    told = f"{path} is not `bounded`: large requests are read before they are refused, and what is held ends slowly when the server does."
    hint = "In asgi.py, last: from ezgh_workflows_django.api.asgi import bounded; application = bounded(application)"
    return [Warning(told, hint=hint, id="ezgh_workflows.W003")]


@register(TAG, WORKER_TAG)
def taken_command(**_: Any) -> list[CheckMessage]:
    """W001: another installed app has a `runworker` too, and the first app in INSTALLED_APPS wins."""
    others = [config.name for config in apps.get_app_configs() if config.label != TAG and _has_command(config)]
    hint = "Run `manage.py workflows_worker`: the same command under a name that no other app takes."
    return [Warning(f"{other} has a command `{COMMAND}` too; the app listed first wins.", hint=hint, id="ezgh_workflows.W001") for other in others]


def _serves_api() -> bool:
    """Whether the project's URLs include the API's; a project of workers only may have neither these nor what they need."""
    try:
        reverse("ezgh_workflows:claim")
    except (NoReverseMatch, ImproperlyConfigured, AttributeError, ImportError):
        return False
    return True


def _known() -> Iterator[tuple[Setting, Any]]:
    """The settings that are given, with their values."""
    values = given()
    return ((setting, values[setting.name]) for setting in SETTINGS if setting.name in values)


def _nearest(key: object) -> str:
    matches = get_close_matches(str(key).upper(), BY_NAME, n=1, cutoff=0.5)
    return f"Did you mean {matches[0]!r}?" if matches else f"Settings are {', '.join(sorted(BY_NAME))}."


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _is_duration(value: Any) -> bool:
    return isinstance(value, timedelta) or (_is_number(value) and abs(value) <= timedelta.max.total_seconds())


_KINDS: Final[Mapping[Kind, tuple[str, Callable[[Any], bool]]]] = {
    "text": ("a text that is not empty", _is_text),
    "optional text": ("a text that is not empty, or None", lambda value: value is None or _is_text(value)),
    "app": (f"an app's name: {APP_NAME}", lambda value: name_fault(value) is None),
    "duration": ("a timedelta or a number of seconds", _is_duration),
    "count": ("a whole number", _is_count),
    "bytes": ("a whole number of bytes", _is_count),
    "switch": ("True or False", lambda value: isinstance(value, bool)),
    "names": ("a list of texts", lambda value: isinstance(value, list | tuple) and all(map(_is_text, value))),
}


def _fault(setting: Setting, value: Any) -> CheckMessage | None:
    """What is wrong with a value, or None."""
    wanted, is_right = _KINDS[setting.kind]
    hint = f"{setting.line} The default is {_shown(setting.default)}."
    if not is_right(value):
        return Error(f"{DICT}['{setting.name}'] is {_cut(value)}, but must be {wanted}.", hint=hint, id="ezgh_workflows.E002")
    size = value.total_seconds() if isinstance(value, timedelta) else value
    if setting.kind in ("duration", "count", "bytes") and size < setting.least:
        told = f"{DICT}['{setting.name}'] is {_shown(value)}, but must be at least {setting.least:g}{_unit(setting)}."
        return Error(told, hint=hint, id="ezgh_workflows.E003")
    if setting.kind == "duration" and size > LONGEST.total_seconds():
        told = f"{DICT}['{setting.name}'] is {_shown(value)}, but must be at most {LONGEST.days:,} days."
        return Error(told, hint=hint, id="ezgh_workflows.E003")
    return None


def _cut(value: Any) -> str:
    return f"{value!r:.80}"


def _unit(setting: Setting) -> str:
    return {"duration": " s", "bytes": " bytes"}.get(setting.kind, "")


def _shown(value: Any) -> str:
    return _seconds(value) if isinstance(value, timedelta) else repr(value)


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"


def _database() -> Any:
    """The connection of the workflows' database, or None where `DATABASE` names none."""
    alias = app_settings.DATABASE
    return connections[alias] if alias in list(connections) else None


def _configured_level(database: Any) -> str:
    """The level that settings ask for, as words; where they ask for none, the one Django or the server is known to take."""
    level = database.settings_dict["OPTIONS"].get("isolation_level", ISOLATION)
    if database.vendor == "postgresql" and level is not None and level != ISOLATION:
        from psycopg import IsolationLevel  # only where the driver is in use

        try:
            level = IsolationLevel(level).name
        except ValueError:
            level = repr(level)  # none that there is: Django can't connect with it
    return _words(level or ("repeatable read" if database.vendor == "mysql" else ISOLATION))


def _asked_level(database: Any) -> str:
    """The level that a transaction of this connection has."""
    if database.vendor not in _LEVEL_QUERIES:
        return ISOLATION
    with database.cursor() as cursor:
        cursor.execute(_LEVEL_QUERIES[database.vendor])
        return _words(cursor.fetchone()[-1])


def _words(level: str) -> str:
    return level.lower().replace("_", " ").replace("-", " ")


def _isolation_faults(level: str) -> list[CheckMessage]:
    if level == ISOLATION:
        return []
    told = f"The database {app_settings.DATABASE!r} works at isolation level {level.upper()}: claims would deadlock, and verbs decide on old rows."
    return [Error(told, hint="Use READ COMMITTED: leave `isolation_level` out of OPTIONS, and the server's default alone.", id="ezgh_workflows.E007")]


def _has_command(config: AppConfig) -> bool:
    return COMMAND in find_commands(str(Path(config.path) / "management"))
