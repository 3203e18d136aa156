"""Does what the README's quickstart says, in the current directory: runs its shell blocks, adds its Python blocks to the files they name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+)\n")


def main(readme: str) -> None:
    """Follow the steps in order. A command that fails ends it, non-zero."""
    _, _, rest = Path(readme).read_text().partition("<!-- quickstart begins -->")
    quickstart, _, _ = rest.partition("<!-- quickstart ends -->")
    blocks = BLOCK.findall(quickstart)
    if len(blocks) != 5:
        sys.exit(f"the quickstart has {len(blocks)} blocks of code, not five")
    for language, text in blocks:
        {"sh": run, "python": write}[language](text)


def run(commands: str) -> None:
    """Run a shell block, as typed."""
    subprocess.run(["bash", "-ec", commands], check=True)  # noqa: S607 - the reader's own shell


def write(text: str) -> None:
    """Add a block to the end of the file that its first line names."""
    named = FILE.match(text)
    if named is None:
        sys.exit(f"a block of Python does not name its file: {text!r}")
    with Path(named[1]).open("a") as file:
        file.write("\n" + text)


if __name__ == "__main__":
    main(*sys.argv[1:])
