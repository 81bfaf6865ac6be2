"""Computes percentiles with enough samples, medians with intervals, and fairness."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pandas as pd

from testbed.results.summary import Spread

CONFIDENCE = 0.95  # of an interval that holds the median
FEWEST = 6  # The range of five values holds the median with 93.75 %, of six with 96.9 %.
QUANTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def percentile(times: pd.Series[Any], q: float) -> float | None:
    """Compute a nearest-rank percentile; None below 10 / (1 - q) samples, which are too few for
    it."""
    if len(times) < round(10 / (1 - q)):
        return None
    return float(times.sort_values().iloc[math.ceil(q * len(times)) - 1])


def spread(times: pd.Series[Any]) -> Spread:
    percentiles = {name: percentile(times, q) for name, q in QUANTILES.items()}
    return Spread(n=len(times), **percentiles, max=float(times.max()) if len(times) else None)


def whole_steps(steps: pd.DataFrame, ranks: Collection[int]) -> pd.DataFrame:
    own = steps[steps["rank"].isin(ranks)]
    return own[own.groupby("step")["rank"].transform("count") == len(ranks)]


def slowest(steps: pd.DataFrame) -> pd.Series[Any]:
    """Return the slowest rank's time by ``step``, in the unit of ``start_ns``."""
    return (steps["end_ns"] - steps["start_ns"]).groupby(steps["step"]).max()


def beside(steps: pd.DataFrame, jobs: Sequence[Collection[int]]) -> list[pd.DataFrame]:
    """Return each job's rows of :func:`whole_steps` that ended before the first job was through."""
    last = pd.Series([steps.loc[steps["rank"].isin(ranks), "end_ns"].max() for ranks in jobs]).min()
    return [whole_steps(steps[steps["end_ns"] <= last], ranks) for ranks in jobs]


def jain(rates: Sequence[float]) -> float | None:
    """Return Jain's index: 1 if all rates are equal, 1/n if one of n has everything."""
    squares = sum(x * x for x in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else None


def coverage(n: int, cut: int = 0) -> float:
    """Compute the probability that the range of ``n`` values, without the ``cut`` least and ``cut``
    largest, holds the median. Exact for any continuous distribution: each value is above the median
    with probability 1/2, so this is 1 - 2 P(Binomial(n, 1/2) <= cut)."""
    return 1.0 - 2 * sum(math.comb(n, i) for i in range(cut + 1)) / float(2**n)


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return (low, high), two of ``values`` that form an interval around their median; None below
    two values.

    From :data:`FEWEST` values on it is the narrowest order-statistic interval that holds the median
    with 95 % or more: the range of 6 to 8 values (96.9, 98.4, 99.2 %), without one value at each
    end for 9 to 11 (96.1, 97.9, 98.8 %), and so on. Below that it is the range, with 50, 75, 87.5
    and 93.75 % for 2 to 5 values.
    """
    n = len(values)
    if n < 2:
        return None
    ordered, cut = sorted(values), 0
    while coverage(n, cut + 1) >= CONFIDENCE:
        cut += 1
    return float(ordered[cut]), float(ordered[n - 1 - cut])


def interval_name(n: int) -> str:
    return "95 % interval" if n >= FEWEST else "range"


def interval_note(counts: Iterable[int]) -> str:
    names = {interval_name(n) for n in counts if n > 1}
    return (
        f"95 % interval (range below {FEWEST} seeds)" if len(names) > 1 else next(iter(names), "")
    )


def medians(trees: Sequence[Any], missing: float = math.inf) -> Any:
    """Merge summaries into one of medians; other values stay only if all agree. A number that one
    lacks counts as ``missing``: infinity, of the worse sign. An infinite median, if half or more
    lack the number, is None."""
    first = trees[0]
    if all(isinstance(tree, dict) for tree in trees):
        return {
            key: medians([tree[key] for tree in trees], missing)
            for key in first
            if all(key in tree for tree in trees)
        }
    if isinstance(first, list) and all(
        isinstance(tree, list) and len(tree) == len(first) for tree in trees
    ):
        return [medians(list(items), missing) for items in zip(*trees, strict=True)]
    # NumPy's float64 is a float, too.
    numbers = [
        missing if tree is None else tree
        for tree in trees
        if isinstance(tree, (int, float, type(None))) and type(tree) is not bool
    ]
    if len(numbers) == len(trees) and any(tree is not None for tree in trees):
        median = statistics.median(numbers)
        return median if math.isfinite(median) else None
    return first if all(tree == first for tree in trees) else None
