"""Tells figures in the real network's time: what was measured on this machine's clock, ``dilation`` times slower, divided by it.

Everything is figured in the clock's ns and bit/s, and becomes network time in one place, here, on its way into ``summary.json``
and from Parquet tables to plots. What is the machine's own stays as it is. Pure; docs/time.md explains dilation.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

FORMAT = 3
"""Format of summary.json: its times and rates are the network's."""
OF_THE_MACHINE = ("fidelity", "settings", "killed")
"""Keys of a run whose content is not in network time: how the machine did, what a file says, and how soon processes ended."""
PLACES = 3
"""Decimal places of a time in ns: to the ps."""


def told(figures: Any, dilation: float) -> Any:
    """A copy of figures with every value under a key that ends in ``_ns`` divided by ``dilation``, and of ``_bps`` multiplied."""
    if isinstance(figures, dict):
        return {key: value if key in OF_THE_MACHINE else _told(key, value, dilation) for key, value in figures.items()}
    return [told(value, dilation) for value in figures] if isinstance(figures, list) else figures


def _told(key: str, value: Any, dilation: float) -> Any:
    if key.endswith("_ns"):
        return _scaled(value, 1 / dilation)
    return _scaled(value, dilation) if key.endswith("_bps") else told(value, dilation)


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, dict):
        return {key: inner if key == "n" else _scaled(inner, factor) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_scaled(inner, factor) for inner in value]
    return value if value is None else round(value * factor, PLACES)


def told_rows(frame: pd.DataFrame, dilation: float) -> pd.DataFrame:
    """A Parquet table of a run with its times and rates in network time."""
    times = {column: frame[column] / dilation for column in frame.columns if column.endswith("_ns")}
    rates = {column: frame[column] * dilation for column in frame.columns if column.endswith("_bps")}
    return frame.assign(**times, **rates)
