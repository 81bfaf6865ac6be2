"""What the files of a run count in ps, in ns: converted here, when it is read, for people and for what computes figures for them. Pure."""

from __future__ import annotations

from typing import Any

from topologies.units import NS


def in_ns(read: dict[str, Any], digits: int | None = None) -> dict[str, Any]:
    """A line or a record with its own times (not those of tables in it) in ns, under names that say so; ``digits``: decimal places, of 3
    none is lost. None: whole ns."""
    made = {}
    for key, value in read.items():
        if key == "t" or key.endswith("_ps"):
            key = key if key == "t" else f"{key[:-3]}_ns"
            value = value if value is None else round(value / NS, digits)
        made[key] = value
    return made
