"""The registry: every figure of the paper that is looked at here, in the paper's order."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from scenarios.sets.paper import collectives, failures, incast, nic_ports, one_path, point_to_point, send_recv, sizing
from scenarios.sets.paper.figure import PaperFigure
from testbed.errors import UserError

ORDER = (
    "sizing",
    "4",
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
)
_MADE = {
    f.id: f for module in (sizing, one_path, failures, nic_ports, point_to_point, send_recv, collectives, incast) for f in module.FIGURES
}
FIGURES: tuple[PaperFigure, ...] = tuple(_MADE[id] for id in ORDER)


def chosen(ids: Sequence[str]) -> list[PaperFigure]:
    """Those asked for, in the paper's order; all of them without any. ``9`` means 9a to 9d, ``6`` the figure that holds it.

    Raises :class:`testbed.errors.UserError` naming the nearest.
    """
    if not ids:
        return list(FIGURES)
    wanted: set[str] = set()
    for asked in ids:
        id = asked.lower().removeprefix("fig").lstrip(" .-")
        found = [f.id for f in FIGURES if f.id == id or (f.id[:-1] == id and f.id[-1].isalpha()) or id in _range(f.id)]
        if not found:
            near = difflib.get_close_matches(id, ORDER, n=1)
            hint = f", did you mean {near[0]}?" if near else ""
            raise UserError(f"there is no figure {asked!r} here: there are {', '.join(ORDER)}{hint}")
        wanted |= set(found)
    return [f for f in FIGURES if f.id in wanted]


def _range(id: str) -> set[str]:
    """``5-7`` -> 5, 6, 7."""
    first, dash, last = id.partition("-")
    return {str(n) for n in range(int(first), int(last) + 1)} if dash and first.isdigit() and last.isdigit() else set()
