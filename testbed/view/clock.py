"""Converts times of a run from ps, as its raw files count, to ns, as people read them. Pure."""

from __future__ import annotations

from typing import Any

from topologies.units import NS

PLACES = 3
"""Decimal places of a time in ns: to the ps."""
_TIMES = {"window": (0, 1), "posted": (3, 4), "arrived": (3, 4)}
"""Lists with times: the place of the first time, and the step from there to the next."""
_ROWS = {"cpu": 1, "gaps": 2}
"""Lists of rows that begin with this number of times."""


def in_ns(tree: Any, places: int | None = PLACES) -> Any:
    """Return a record, or a line of a log, with its ``t``, ``t0``, and each value of a key that ends in ``_ps`` in ns, under a name that
    says so. ``places``: decimal places, None: whole ns."""

    def ns(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [ns(inner) for inner in value]
        return round(value / NS, places) if isinstance(value, (int, float)) else value

    made = {}
    for key, value in tree.items():
        if key.endswith("_ps"):
            made[f"{key[:-3]}_ns"] = ns(value)
        elif key in ("t", "t0"):
            made[key] = ns(value)
        elif isinstance(value, dict):
            made[key] = value if key == "fabric" else in_ns(value, places)
        elif not isinstance(value, (list, tuple)) or not value:
            made[key] = value
        elif key in _TIMES:
            first, every = _TIMES[key]
            made[key] = [*value]
            made[key][first::every] = ns(value[first::every])
        elif key in _ROWS:
            made[key] = [[*ns(row[: _ROWS[key]]), *row[_ROWS[key] :]] for row in value]
        elif key == "step":  # of a job: two numbers, three times in seconds, one number
            made[key] = [*value[:2], *(round(seconds * 1e9, places) for seconds in value[2:5]), *value[5:]]
        else:
            made[key] = [in_ns(row, places) for row in value] if isinstance(value[0], dict) else value
    return made
