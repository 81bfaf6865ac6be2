"""Converts times of a run from ps to ns, as people read them."""

from __future__ import annotations

from typing import Any

from topologies.units import NS

PLACES = 3


def in_ns(tree: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            made[key] = in_ns(value)
        elif key.endswith("_ps"):
            made[f"{key[:-3]}_ns"] = (
                round(value / NS, PLACES) if isinstance(value, (int, float)) else value
            )
        else:
            made[key] = value
    return made


def whole_ns(ps: int) -> int:
    return round(ps / NS)
