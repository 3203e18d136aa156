"""A process that sends events at random small distances: `python -m tests.process.emitter SEED KEY…`. Each key gets one event, which carries it."""

from __future__ import annotations

import random
import sys
import time

import django


def main() -> None:
    """Send them all."""
    django.setup()
    from ezgh_workflows_django import emit

    chance = random.Random(sys.argv[1])
    for key in sys.argv[2:]:
        time.sleep(chance.random() * 0.02)
        emit("stress.go", key=key, payload={"key": key})


if __name__ == "__main__":
    main()
