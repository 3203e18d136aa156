"""What was really done for an album, an entry each: the record that a durable function can't make look better than it is.

An inner step may be tried again where its worker died between the deed and its storing. An entry's name is the step's idempotency key, so a deed
that is done again finds itself entered, as it would with any payment service that takes such a key.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path
from typing import Final

from ezgh_workflows_django import step_info

FOLDER: Final = "ledger"


def note(album: Path, line: str) -> None:
    """Enter a deed, once for each inner step."""
    info = step_info()
    key = line if info is None else f"{info.idempotency_key} {line}"
    folder = album / FOLDER
    folder.mkdir(exist_ok=True)
    draft = folder / f".{uuid.uuid4().hex}"
    draft.write_text(line)
    try:
        os.link(draft, folder / hashlib.sha256(key.encode()).hexdigest())
    except FileExistsError:
        return
    finally:
        draft.unlink()


def lines(album: Path) -> list[str]:
    """All that was done, in alphabetical order."""
    return sorted(entry.read_text() for entry in (album / FOLDER).glob("[!.]*"))
