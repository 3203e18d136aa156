"""A developer's own app, `dev-<user>`, by its name: developers who share a project never take each other's runs."""

from __future__ import annotations

import getpass
import re
from typing import Final

from ..errors import InvalidArgument

PREFIX: Final = "dev-"
MAX_APP_NAME: Final = 63


def dev_app(user: str) -> str:
    """The name of a developer's own app: lower case, other characters as `-`, at most 63 characters."""
    return (PREFIX + re.sub(r"[^a-z0-9]", "-", user.lower()))[:MAX_APP_NAME]


def own_app() -> str:
    """The app of whoever runs this process. Raises `InvalidArgument` where the system has no name for him."""
    try:
        return dev_app(getpass.getuser())
    except (OSError, KeyError, ImportError) as error:  # which of them depends on Python's version
        raise InvalidArgument("dev", "this system has no name for you: set the environment variable USER") from error
