"""Writes orders.csv: `python -m testproject.shop.make_orders`. The same seed gives the same file; some rows are broken on purpose, each in its own way."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from io import StringIO
from typing import Final

from .rows import HEADER, ORDERS, VAT

COUNT: Final = 1_000
SEED: Final = 20240101

Fields = dict[str, str]

_FIRST: Final = ("Ada", "Björn", "Chloé", "Dunja", "Emil", "Fatma", "Giulia", "Hugo", "Ines", "Jörg", "Łucja", "Noor", "Óscar", "Zoë")
_LAST: Final = ("Almeida", "Brandt", "Costa", "Dubois", "Eriksen", "Fischer", "Garcia", "Hofer", "Jansen", "Kowalska", "Moreau", "Novak", "Rossi", "Visser")
_ITEMS: Final = ("KT-104", "KT-220", "LN-007", "RL-310", "RL-311", "TL-042")

BROKEN: Final[Mapping[int, Callable[[Fields], Fields]]] = {
    38: lambda row: row | {"quantity": "three"},
    97: lambda row: row | {"email": row["email"].replace("@", " at ")},
    171: lambda row: row | {"ordered_on": "2024-02-30"},
    246: lambda row: row | {"unit_price": row["unit_price"].replace(".", ",")},
    333: lambda row: row | {"quantity": "0"},
    402: lambda row: row | {"country": "XX"},
    489: lambda row: row | {"customer": ""},
    575: lambda row: row | {"ordered_on": "13/05/2024"},
    660: lambda row: row | {"quantity": "-2"},
    741: lambda row: row | {"number": ""},
    828: lambda row: {name: value for name, value in row.items() if name in HEADER[:5]},
    934: lambda row: row | {"surplus": "gift wrap"},
}
"""What is wrong with which line of the file; line 1 is the header."""


def text() -> str:
    """The whole file."""
    chance = random.Random(SEED)  # noqa: S311 - made-up orders
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    for line in range(2, COUNT + 2):
        row = _order(chance, line)
        writer.writerow((BROKEN[line](row) if line in BROKEN else row).values())
    return out.getvalue()


def _order(chance: random.Random, line: int) -> Fields:
    first, last = chance.choice(_FIRST), chance.choice(_LAST)
    return {
        "number": f"S-{10_000 + line - 1}",
        "customer": f"{last}, {first}",
        "email": f"{last.lower()}.{line}@example.org",
        "country": chance.choice(list(VAT)),
        "item": chance.choice(_ITEMS),
        "quantity": str(chance.choice((1, 1, 1, 2, 2, 3, 4, 6, 10, 25))),
        "unit_price": f"{chance.randrange(199, 25_000) / 100:.2f}",
        "ordered_on": (date(2024, 1, 1) + timedelta(days=chance.randrange(366))).isoformat(),
    }


if __name__ == "__main__":
    ORDERS.write_text(text(), encoding="utf-8", newline="")
    print(f"{COUNT} orders in {ORDERS.name}, {len(BROKEN)} of them broken")
