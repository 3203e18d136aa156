"""Every setting: its name, type, default and one line. Read live from the one dict `EZGH_WORKFLOWS`.

A value is read when it is first used and kept until a setting changes, so `override_settings` works and a reading is cheap.
It judges no value: `checks.py` says what is wrong with one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from django.conf import settings
from django.core.signals import setting_changed

DICT: Final = "EZGH_WORKFLOWS"

Kind = Literal["text", "optional text", "app", "duration", "count", "bytes", "switch", "names"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the dict. Durations are a timedelta or seconds, and are read as timedeltas.

    `least` is the least value allowed, `LONGEST` the longest duration.
    """

    name: str
    kind: Kind
    default: Any
    line: str
    least: float = 0


_SECOND: Final = 1.0

LONGEST: Final = timedelta(days=36_500)
"""A century is for ever, and any moment of today can be put off by it. Seconds past it are no date at all."""

SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("DEFAULT_APP", "app", "default", "The app that starts, events and workers use when they name none."),
    Setting("DATABASE", "text", "default", "The alias of the database that holds the workflow tables."),
    Setting("LEASE_TTL", "duration", timedelta(seconds=30), "How long a started lease lives without a heartbeat.", _SECOND),
    Setting("RECOVERY_WINDOW", "duration", timedelta(seconds=30), "How long an orphaned lease may come back before it is reclaimed.", _SECOND),
    Setting("OFFER_TTL", "duration", timedelta(seconds=10), "How long an offered lease waits for `started` or a heartbeat.", _SECOND),
    Setting("HEARTBEAT", "duration", timedelta(seconds=20), "How often workers are asked to send heartbeats; shorter than LEASE_TTL.", _SECOND),
    Setting("REQUEST_TIMEOUT", "duration", timedelta(seconds=30), "How long a request may take here; a claim is held at most four fifths of it.", _SECOND),
    Setting("MAX_CLAIM", "count", 100, "The most leases one claim may ask for.", 1),
    Setting("MAX_HELD", "count", 2_000, "The most requests (claims, event streams, waits for a run) that one server process holds open.", 1),
    Setting(
        "MAX_PAYLOAD_BYTES",
        "bytes",
        1024 * 1024,
        "The largest payload, output, state or event, as JSON text. With MariaDB less than half of its `max_allowed_packet`.",
        1024,
    ),
    Setting("MAX_LEASE_BYTES", "bytes", 8 * 1024 * 1024, "The largest answer to a claim; larger parts go by reference.", 1024),
    Setting("MAX_REQUEST_BYTES", "bytes", 16 * 1024 * 1024, "The largest request that is read.", 1024),
    Setting("KEY_RATE", "count", 200, "How many starts and reads one API key may make a second in one server process; 0 for no limit."),
    Setting("KEEP_TRACEBACKS", "switch", False, "Whether the direct transport keeps the last 8 KB of a failure's stack trace."),
    Setting("MAX_RECLAIMS", "count", 5, "How many workers a step may lose before it fails as poison."),
    Setting("ANNOUNCEMENT_TTL", "duration", timedelta(minutes=10), "How long a worker that is not heard of still counts as there.", _SECOND),
    Setting("RETENTION", "duration", timedelta(days=30), "How long a run is kept after its end."),
    Setting("EVENT_RETENTION", "duration", timedelta(days=30), "How long an event is kept."),
    Setting("IDEMPOTENCY_TTL", "duration", timedelta(days=7), "How long a run with an idempotency key is kept after its end, at least."),
    Setting("CURRENCY", "text", "USD", "The currency of every price and cost, as it is shown."),
    Setting("LISTEN_DSN", "optional text", None, "A direct PostgreSQL connection for LISTEN, where DATABASE goes through a pooler."),
    Setting("REDACT", "names", ("password", "secret", "token", "api_key", "authorization"), "Keys whose values the console masks."),
)

BY_NAME: Final[Mapping[str, Setting]] = {setting.name: setting for setting in SETTINGS}


class AppSettings:
    """The settings as attributes: `app_settings.LEASE_TTL`. Raises `AttributeError` for a name that is none."""

    LEASE_TTL: timedelta
    RECOVERY_WINDOW: timedelta
    OFFER_TTL: timedelta
    HEARTBEAT: timedelta
    REQUEST_TIMEOUT: timedelta
    ANNOUNCEMENT_TTL: timedelta
    RETENTION: timedelta
    EVENT_RETENTION: timedelta
    IDEMPOTENCY_TTL: timedelta
    DEFAULT_APP: str
    DATABASE: str
    CURRENCY: str
    LISTEN_DSN: str | None
    MAX_CLAIM: int
    MAX_HELD: int
    MAX_PAYLOAD_BYTES: int
    MAX_LEASE_BYTES: int
    MAX_REQUEST_BYTES: int
    MAX_RECLAIMS: int
    KEY_RATE: int
    KEEP_TRACEBACKS: bool
    REDACT: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        setting = BY_NAME.get(name)
        if setting is None:
            raise AttributeError(f"{DICT} has no setting {name}")
        value = read(setting, given().get(name, setting.default))
        self.__dict__[name] = value  # until a setting changes
        return value

    def forget(self) -> None:
        """Read everything again when it is next asked for."""
        self.__dict__.clear()


def given() -> Mapping[str, Any]:
    """The project's dict as it stands; empty where there is none, or where it is no dict (check E009 says so)."""
    values = getattr(settings, DICT, {})
    return values if isinstance(values, Mapping) else {}


def read(setting: Setting, value: Any) -> Any:
    """A value as it is used: seconds become a timedelta, a list of names a tuple."""
    if setting.kind == "duration" and not isinstance(value, timedelta):
        return timedelta(seconds=value)
    return tuple(value) if setting.kind == "names" else value


app_settings = AppSettings()


def _forget(*, setting: str, **_: Any) -> None:
    if setting == DICT:
        app_settings.forget()


setting_changed.connect(_forget, dispatch_uid="ezgh_workflows.conf")
