"""A process that runs maintenance on a clock of its own: `python -m tests.process.ticker FOLDER BEGIN SKEW_MS TICKS STEP_SECONDS`.

It says `ready`, waits for `go`, then ticks; each time it also looks at the schedules by itself, as a tick does that another one has overtaken.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import django


def main() -> None:
    """Tick through it all."""
    django.setup()
    from ezgh_workflows_django.engine import clock, firing, maintenance

    folder, now = Path(sys.argv[1]), datetime.fromisoformat(sys.argv[2]) + timedelta(milliseconds=int(sys.argv[3]))
    clock.freeze(lambda: now)
    (folder / f"ready.{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    for _ in range(int(sys.argv[4])):
        maintenance.tick()
        firing.run_once(now, 10)
        now += timedelta(seconds=int(sys.argv[5]))


if __name__ == "__main__":
    main()
