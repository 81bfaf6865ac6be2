"""Rounds times to the ps: figures are in ns with three decimals."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from testbed.view.clock import PLACES

FORMAT = 4
"""Format of summary.json and the tables. 3: figures in network time. 4: all is, and ps are kept."""
T = TypeVar("T", bound=msgspec.Struct)
_ENDINGS = ("_ns", "_bps")


def rounded(figures: T, times: bool = False) -> T:
    """Round times and rates, told by the ends of names, to the ps; all numbers with ``times``."""
    for name in figures.__struct_fields__:
        setattr(figures, name, _rounded(getattr(figures, name), times or name.endswith(_ENDINGS)))
    return figures


def _rounded(value: object, times: bool) -> object:
    if isinstance(value, msgspec.Struct):
        return rounded(value, times)
    if isinstance(value, dict):
        return {
            key: _rounded(inner, times or key.endswith(_ENDINGS)) for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return type(value)(_rounded(inner, times) for inner in value)
    if isinstance(value, float):  # NumPy's is one, too
        return float(round(value, PLACES) if times else value)
    return value
