"""The registry: every figure of the paper that is reproduced here, in the paper's order."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from scenarios.sets.paper import (
    collectives,
    failures,
    incast,
    lossless,
    nic_ports,
    one_path,
    operations,
    pairs,
    point_to_point,
    send_recv,
    sizing,
)
from scenarios.sets.paper.figure import PaperFigure
from testbed.errors import UserError

ORDER = (
    "sizing",
    "ecmp",
    "4",
    "planes",
    "operations",
    "5-7",
    "8",
    "9a",
    "9b",
    "9c",
    "9d",
    "10",
    "11",
    "5.2.1",
    "12",
    "13",
    "14",
    "15",
    "16",
    "17",
    "18",
    "19",
    "20",
    "21",
    "22",
)
_BY_ID = {
    f.id: f
    for module in (sizing, operations, one_path, failures, nic_ports, pairs, point_to_point, send_recv, collectives, incast, lossless)
    for f in module.FIGURES
}
FIGURES: tuple[PaperFigure, ...] = tuple(_BY_ID[id] for id in ORDER)


def chosen(ids: Sequence[str]) -> list[PaperFigure]:
    """Return the named figures in the paper's order, or all if there are no names. ``9`` means 9a to 9d, ``6`` means 5-7.

    Raises :class:`testbed.errors.UserError`, which names the nearest figure.
    """
    if not ids:
        return list(FIGURES)
    selected: set[str] = set()
    for text in ids:
        id = text.lower().removeprefix("fig").lstrip(" .-")
        matches = [f.id for f in FIGURES if f.id == id or (f.id[:-1] == id and f.id[-1].isalpha()) or id in _range(f.id)]
        if not matches:
            nearest = difflib.get_close_matches(id, ORDER, n=1)
            hint = f", did you mean {nearest[0]}?" if nearest else ""
            raise UserError(f"there is no figure {text!r} here: there are {', '.join(ORDER)}{hint}")
        selected |= set(matches)
    return [f for f in FIGURES if f.id in selected]


def _range(id: str) -> set[str]:
    """``5-7`` -> 5, 6, 7."""
    found = re.fullmatch("([0-9]{1,2})-([0-9]{1,2})", id)
    return {str(n) for n in range(int(found[1]), int(found[2]) + 1)} if found else set()
