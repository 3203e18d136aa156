"""Pictures: painted, measured, made smaller. Knows files and Pillow, and no workflow; what it does is noted in the album's ledger, last."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw

from . import ledger

WIDTHS: Final = (320, 160, 80, 40)
"""Pixels of the thumbnails that a picture gets, as far as it is larger itself."""


@dataclass(frozen=True, slots=True)
class Size:
    """A thumbnail to be made of the picture at `path`, in pixels."""

    path: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Meta:
    """What a picture is, and the thumbnails it is to have."""

    format: str
    width: int
    height: int
    sizes: list[Size]


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A thumbnail that was made."""

    path: str
    width: int
    height: int


def paint(path: Path, width: int = 640, height: int = 480) -> None:
    """Paint a picture: rings on a ground that fades in each colour another way."""
    fade = Image.linear_gradient("L").resize((width, height))
    picture = Image.merge("RGB", (fade, fade.rotate(180), Image.radial_gradient("L").resize((width, height))))
    pen = ImageDraw.Draw(picture)
    for radius in range(20, min(width, height) // 2, 20):
        pen.ellipse((width // 2 - radius, height // 2 - radius, width // 2 + radius, height // 2 + radius), outline="white", width=3)
    picture.save(path)


def probe(path: str) -> Meta:
    """Measure a picture. Raises `OSError` where there is none."""
    with Image.open(path) as picture:
        width, height = picture.size
        sizes = [Size(path, wide, max(1, round(height * wide / width))) for wide in WIDTHS if wide < width]
        meta = Meta(picture.format or "", width, height, sizes)
    ledger.note(Path(path).parent, f"probe {Path(path).name}")
    return meta


def make_thumbnail(size: Size) -> Thumbnail:
    """Make one thumbnail, beside its picture. A file that is half written never bears its name."""
    source = Path(size.path)
    target = source.with_name(f"{source.stem}-{size.width}{source.suffix}")
    unfinished = target.with_name(f".{target.stem}.{uuid.uuid4().hex}{target.suffix}")
    with Image.open(source) as picture:
        picture.resize((size.width, size.height), Image.Resampling.LANCZOS).save(unfinished)
    unfinished.replace(target)
    ledger.note(source.parent, f"thumbnail {target.name}")
    return Thumbnail(str(target), size.width, size.height)
