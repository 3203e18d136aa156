"""A durable function whose worker is killed after every single thing that is stored of it does each of its deeds once, by a ledger that forgives nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from ezgh_workflows_django import RunHandle, Workflow, emit
from ezgh_workflows_django.engine import tenancy
from ezgh_workflows_django.engine.invariants import violations
from ezgh_workflows_django.models import Checkpoint, JournalEntry, Run
from ezgh_workflows_django.protocol.states import RunStatus
from testproject.gallery import pictures
from testproject.gallery.workflows import Image, resize, resize_async

from .conftest import Fleet, Process, until
from .workers.reborn import DEEDS

pytestmark = pytest.mark.process

TIMES = {"LEASE_TTL": 2, "RECOVERY_WINDOW": 4, "HEARTBEAT": 1, "OFFER_TTL": 2}

THUMBNAILS = [f"thumbnails[{index}]" for index in range(4)]
STORED = ["probe", *THUMBNAILS]
MET = ["cool-off", "approval", "bill", "notify"]
KILLED_AFTER = [*(f"checkpoint {name}" for name in STORED), *(f"park {name}" for name in MET), "children bill", "children notify"]
DONE = ["charge", "probe", "tell", "tell", "thumbnail", "thumbnail", "thumbnail", "thumbnail"]


@dataclass(frozen=True)
class Life:
    """A run in an app of its own, its album, and the process whose lives lead it to its end."""

    run: RunHandle
    album: Path
    process: Process

    def deaths(self) -> Counter[str]:
        """After what its workers were killed."""
        return Counter(re.findall(r"^killed after (.+)$", self.process.output, re.MULTILINE))

    def deeds(self) -> list[str]:
        """All that was done, in alphabetical order, without its details."""
        return sorted(line.split()[0] for line in (self.album / DEEDS).read_text().splitlines())

    def told(self, *kinds: str) -> Counter[str]:
        """The names in the journal's rows of these kinds."""
        rows = JournalEntry.objects.filter(run__pk=self.run.id, kind__in=kinds).values_list("data", flat=True)
        return Counter(json.loads(data)["name"] for data in rows)


def begin(fleet: Fleet, folder: Path, function: Workflow) -> Life:
    """Start a run of which all that it will wait for is there already."""
    app = tenancy.create_app(function.name.replace("_", "-")).name
    album = folder / app
    album.mkdir()
    pictures.paint(album / "kite.png")
    run = function.start(Image("A-1", str(album / "kite.png"), cool_off_seconds=0.2), app=app)
    emit("image.approved", key="A-1", payload={"users": ["ada", "bob"]}, app=app)
    emit("payment.succeeded", key="A-1", app=app)
    return Life(run, album, fleet.program("-m", "tests.process.workers.reborn", app, **TIMES))


def is_over(life: Life) -> bool:
    """Whether its run has ended; the process that leads it there must not have, before."""
    ended = life.run.status != RunStatus.RUNNING
    assert ended or life.process.is_alive, life.process.output
    return ended


@pytest.mark.long
@pytest.mark.timeout(240)
def test_killed_after_every_stored_thing_each_deed_is_done_once_and_the_journal_is_one_story(fleet: Fleet, tmp_path: Path) -> None:
    lives = [begin(fleet, tmp_path, function) for function in (resize, resize_async)]
    until(lambda: all(is_over(life) for life in lives), 110)

    for life in lives:
        came = life.run.result(timeout=0)
        assert (came["outcome"], came["receipt"], came["told"]) == ("paid", "receipt for A-1: 100 cents", ["ada", "bob"])
        parks_on_outcome = {death for death in life.deaths() if death.startswith("park outcome")}
        assert life.deaths() == Counter([*KILLED_AFTER, *parks_on_outcome])
        assert len(parks_on_outcome) == 1
        assert life.deeds() == DONE
        assert life.told("checkpoint.stored") == Counter(STORED)
        assert life.told("checkpoint.met") - Counter(MET) == Counter(["outcome[paid]"])
        assert life.told("children.started") == Counter(["bill", "notify"])
        assert {each.name for each in Checkpoint.objects.filter(run__pk=life.run.id)} == {*STORED, *MET, "outcome[paid]", "outcome[cancelled]"}
        assert Run.objects.filter(parent__pk=life.run.id).count() == 3
    assert violations() == []
