"""The raw files of a run count in ps; figures, and all that people read, in ns with three decimals, which is to the ps. Pure."""

from __future__ import annotations

from typing import Any

from topologies.units import NS

FORMAT = 4
"""Format of summary.json and the tables. 3: figures are in network time. 4: all is, and ps are kept."""
PLACES = 3
"""Decimal places of a time in ns: to the ps."""
_TIMES = {"window": (0, 1), "posted": (3, 4), "arrived": (3, 4)}
"""Lists with times: the place of the first, and from there every how many."""
_WITHIN = {"cpu": 1, "gaps": 2}
"""Lists of rows that begin with so many times."""


def in_ns(tree: Any) -> Any:
    """A record, or a line of a log: its ``t``, ``t0``, and each value of a key that ends in ``_ps``, under a name that says so, in ns."""
    if isinstance(tree, list):
        return [in_ns(value) for value in tree]
    if not isinstance(tree, dict):
        return tree
    made = {}
    for key, value in tree.items():
        if key.endswith("_ps"):
            made[f"{key[:-3]}_ns"] = _divided(value)
        elif key in ("t", "t0"):
            made[key] = _divided(value)
        elif key in _TIMES and isinstance(value, list):
            first, every = _TIMES[key]
            value[first::every] = _divided(value[first::every])
            made[key] = value
        elif key in _WITHIN and isinstance(value, list):
            made[key] = [[*_divided(row[: _WITHIN[key]]), *row[_WITHIN[key] :]] for row in value]
        elif key == "step" and isinstance(value, list):  # of a job: two numbers, three times in seconds, one number
            made[key] = [*value[:2], *(round(seconds * 1e9, PLACES) for seconds in value[2:5]), *value[5:]]
        else:
            made[key] = value if key == "fabric" else in_ns(value)
    return made


def rounded(figures: Any) -> Any:
    """Figures whose times are to the ps again, after what was computed with them."""
    if isinstance(figures, list):
        return [rounded(value) for value in figures]
    if not isinstance(figures, dict):
        return figures
    return {key: _round(value) if key.endswith(("_ns", "_bps")) else rounded(value) for key, value in figures.items()}


def _divided(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_divided(inner) for inner in value]
    return round(value / NS, PLACES) if isinstance(value, (int, float)) else value


def _round(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: inner if key == "n" else _round(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_round(inner) for inner in value]
    return round(value, PLACES) if isinstance(value, float) else value
