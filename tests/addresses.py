"""A database's settings as the DATABASE_URL that means the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

SCHEMES = {"sqlite3": "sqlite", "postgresql": "postgres", "mysql": "mysql"}


def url_of(database: Mapping[str, Any]) -> str:
    """The URL of the database of a connection's `settings_dict`."""
    scheme = SCHEMES[database["ENGINE"].rpartition(".")[2]]
    if scheme == "sqlite":
        return f"sqlite:///{database['NAME']}"
    user, password = quote(database["USER"], safe=""), quote(database["PASSWORD"], safe="")
    place = f"{database['HOST']}:{database['PORT']}" if database["PORT"] else database["HOST"]
    return f"{scheme}://{user}{':' if password else ''}{password}@{place}/{database['NAME']}"
