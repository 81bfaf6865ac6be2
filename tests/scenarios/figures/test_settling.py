"""When DCQCN's rates count as level."""

from __future__ import annotations

import pandas as pd
import pytest

from scenarios.figures.settling import levels, note
from testbed.results.summary import Dcqcn

LINE = 400_000


def rates(*of_qps: list[float], step_ns: float = 1e5) -> pd.DataFrame:
    """Of queue pairs from host 0: two to host 1, all others to host 2; a value for each part of a
    window."""
    rows = [
        (0, 1 if qp < 2 else 2, qp, k * step_ns, rate)
        for qp, values in enumerate(of_qps)
        for k, rate in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["host", "peer", "qpn", "t_ns", "rate_bps"])


def first(found: pd.Series[bool]) -> float | None:
    return float(found.index[found][0]) if found.any() else None


def test_two_windows_of_a_level_rate_are_needed() -> None:
    assert first(levels(rates([100.0] * 19), LINE)) is None
    assert first(levels(rates([100.0] * 20), LINE)) == 2e6


@pytest.mark.parametrize(
    ("after", "level"), [(121.0, True), (123.0, False), (82.0, True), (81.0, False)]
)
def test_each_window_is_within_a_tenth_of_the_mean_of_both(after: float, level: bool) -> None:
    found = levels(rates([100.0] * 10 + [after] * 10), LINE)
    assert list(found) == [level]


def test_one_rate_that_moves_is_enough_and_line_rate_is_a_rate() -> None:
    still, falls = [100.0] * 40, [0.0] * 10 + [100.0] * 30  # 0: the port's
    assert list(levels(rates(still), LINE)) == [True] * 21
    found = levels(rates(still, still, falls), LINE)
    assert not found.iloc[0] and first(found) == pytest.approx(3e6, abs=2e5)


def test_queue_pairs_between_the_same_hosts_count_together() -> None:
    """Two that take turns are one level flow; to different hosts they would not be."""
    up, down = [100.0] * 10 + [150.0] * 10, [150.0] * 10 + [100.0] * 10
    assert list(levels(rates(up, down), LINE)) == [True]
    assert list(levels(rates([1.0] * 20, [1.0] * 20, up), LINE)) == [False]


def test_what_is_unsettled_is_said_beside_the_figures() -> None:
    assert note(None) == [] == note(Dcqcn(settled_ns=2e6, waited_ns=7e6, level=True))
    (line,) = note(Dcqcn(settled_ns=None, waited_ns=360_000, level=False))
    assert line.startswith("unsettled: ") and "0.4 ms after" in line
