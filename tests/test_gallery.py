"""The gallery's durable functions on real pictures, in a lab."""

from __future__ import annotations

from pathlib import Path

import PIL.Image
import pytest

from ezgh_workflows_django import Workflow, emit
from ezgh_workflows_django.testing import Lab, assert_replays, record
from testproject.gallery import ledger, pictures
from testproject.gallery.workflows import Image, billing, notify, resize, resize_async

DEEDS = ["charge A-1 100", "probe kite.png", "tell ada", "tell bob", *(f"thumbnail kite-{width}.png" for width in (160, 320, 40, 80))]


@pytest.mark.django_db
@pytest.mark.parametrize("function", [resize, resize_async], ids=["sync", "async"])
def test_a_picture_is_made_small_and_sold(function: Workflow, tmp_path: Path) -> None:
    path = tmp_path / "kite.png"
    pictures.paint(path)
    with Lab(workflows=[function, billing, notify]) as lab:
        run = function.start(Image("A-1", str(path)))
        lab.advance(hours=1)
        emit("image.approved", key="A-1", payload={"users": ["ada", "bob"]})
        lab.advance(days=2)
        assert run.phase == "waiting"
        emit("payment.succeeded", key="A-1")
        lab.run_until_idle()
        came = run.result()
        assert (came["outcome"], came["receipt"], came["told"]) == ("paid", "receipt for A-1: 100 cents", ["ada", "bob"])
        for thumbnail in came["thumbnails"]:
            with PIL.Image.open(thumbnail["path"]) as image:
                assert (image.width, image.height) == (thumbnail["width"], thumbnail["height"])
        assert ledger.lines(tmp_path) == DEEDS
        assert_replays(function, record(run), exactly=True)
        assert lab.invariants() == []
        assert ledger.lines(tmp_path) == DEEDS
