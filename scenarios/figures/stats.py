"""Percentiles that their samples can carry, medians with their intervals, and fairness. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

RESAMPLES, BOOTSTRAP_SEED = 10_000, 1
"""Of the bootstrap: its bounds move by less than their last shown digit with more [ours]."""
FEWEST = 3
"""Runs that an interval needs."""
QUANTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def percentile(times: pd.Series[Any], q: float) -> int | None:
    """Nearest-rank percentile, or None below 10 / (1 - q) samples: fewer cannot carry it."""
    if len(times) < round(10 / (1 - q)):
        return None
    return int(times.sort_values().iloc[math.ceil(q * len(times)) - 1])


def spread(times: pd.Series[Any]) -> dict[str, int | None]:
    """n, percentiles and maximum of durations, ns."""
    shown = {name: percentile(times, q) for name, q in QUANTILES.items()}
    return {"n": len(times), **shown, "max": int(times.max()) if len(times) else None}


def jain(rates: Sequence[float]) -> float | None:
    """Jain's fairness index: 1 if all are equal, 1/n if one has everything. None without rates, or if all are 0."""
    squares = sum(x * x for x in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else None


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """(low, high): 95 % bootstrap interval of the median, percentile method; None below :data:`FEWEST` values, which cannot carry it.

    The same values give the same interval, in whatever order: the resampling is seeded.
    """
    if len(values) < FEWEST:
        return None
    ordered = np.sort(np.asarray(values, dtype=float))
    drawn = np.random.default_rng(BOOTSTRAP_SEED).integers(0, len(ordered), size=(RESAMPLES, len(ordered)))
    low, high = np.percentile(np.median(ordered[drawn], axis=1), [2.5, 97.5])
    return float(low), float(high)


def medians(trees: Sequence[Any]) -> Any:
    """Of several summaries one whose numbers are the medians; what is no number, or not everywhere, is kept only where all agree."""
    first = trees[0]
    if all(isinstance(tree, dict) for tree in trees):
        return {key: medians([tree[key] for tree in trees]) for key in first if all(key in tree for tree in trees)}
    if isinstance(first, list) and all(isinstance(tree, list) and len(tree) == len(first) for tree in trees):
        return [medians(list(items)) for items in zip(*trees, strict=True)]
    if all(isinstance(tree, (int, float)) and not isinstance(tree, bool) for tree in trees):
        return statistics.median(trees)
    return first if all(tree == first for tree in trees) else None
