"""Rounds times to the ps: figures, and all that people read, are in ns with three decimals. Pure."""

from __future__ import annotations

from typing import Any

from testbed.view.clock import PLACES

FORMAT = 4
"""Format of summary.json and the tables. 3: figures are in network time. 4: all is, and ps are kept."""


def rounded(figures: Any) -> Any:
    """Round figures to the ps, after what was computed with them."""
    if isinstance(figures, list):
        return [rounded(value) for value in figures]
    if not isinstance(figures, dict):
        return figures.item() if hasattr(figures, "item") else figures  # of NumPy
    return {key: _round(value) if key.endswith(("_ns", "_bps")) else rounded(value) for key, value in figures.items()}


def _round(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: inner if key == "n" else _round(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_round(inner) for inner in value]
    return round(float(value), PLACES) if isinstance(value, float) else value.item() if hasattr(value, "item") else value
