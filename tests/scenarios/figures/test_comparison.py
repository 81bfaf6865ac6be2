"""Medians over seeds, their intervals, theory beside them, and what is left out: by hand-computed
cases."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from scenarios.figures.comparison import COLUMNS, compare, unit_of, write_comparison
from scenarios.figures.rows import row, table
from scenarios.figures.stats import (
    CONFIDENCE,
    FEWEST,
    coverage,
    interval_name,
    interval_note,
    median_interval,
)
from scenarios.figures.stored import Stored
from scenarios.show.plots.sweep import intervals
from testbed.results.summary import Run, Summary
from tests.made import made
from topologies.structs import plain

THEORY = {
    "ideal_busbw_bps": 100.0,
    "degraded_busbw_bps": 75.0,
    "ideal_step_ns": 10.0,
    "degraded_step_ns": 13.0,
}


def entry(
    transport: str, seed: int, busbw: float | None, verdict: str = "ok", **more: Any
) -> dict[str, Any]:
    fixed = {
        "kind": transport,
        "fabric": "tiny",
        "workload": "ring-allreduce",
        "placement": "packed",
        "settings": {},
        "ranks": 4,
    }
    return {
        "transport": transport,
        "seed": seed,
        **fixed,
        "busbw_bps": busbw,
        **THEORY,
        "verdict": verdict,
        "wrong": 0,
        **more,
    }


def frame(*entries: dict[str, Any]) -> pd.DataFrame:
    return table([row(made(Run, **e), "mine") for e in entries])


def one(compared: pd.DataFrame, transport: str, figure: str, **where: Any) -> dict[str, Any]:
    found = compared[(compared["transport"] == transport) & (compared["figure"] == figure)]
    for key, value in where.items():
        found = found[found[key] == value]
    (only,) = found.to_dict("records")
    return {str(key): None if pd.isna(value) else value for key, value in only.items()}


def test_the_range_of_few_values_holds_the_median_with_an_exact_probability() -> None:
    """Each value is above the median or below it: the range misses it in 2 of 2^n cases, all above
    or all below."""
    for n in range(2, 9):
        sides = list(itertools.product((0, 1), repeat=n))
        assert coverage(n) == sum(0 < sum(above) < n for above in sides) / len(sides)
    assert coverage(5) == 0.9375 and coverage(6) == 0.96875, "so 95 % takes six"
    assert coverage(9, 1) == pytest.approx(0.9609, abs=1e-4) and coverage(8, 1) < CONFIDENCE


def test_the_interval_of_a_median_is_of_order_statistics() -> None:
    assert median_interval([]) is None and median_interval([1.0]) is None
    assert median_interval([3.0, 1.0]) == (1.0, 3.0) and median_interval([5.0] * 4) == (5.0, 5.0)
    ends = {
        n: median_interval([float(i) for i in range(1, n + 1)]) for n in (3, 5, 6, 8, 9, 11, 12, 20)
    }
    assert [ends[n] for n in (3, 5, 6, 8)] == [(1, n) for n in (3, 5, 6, 8)], "the range"
    assert (ends[9], ends[11], ends[12], ends[20]) == ((2, 8), (2, 10), (3, 10), (6, 15)), (
        "as in tables of the sign test"
    )
    many = list(np.random.default_rng(3).normal(100, 10, 101))
    low, high = median_interval(many) or (0.0, 0.0)
    assert low < float(np.median(many)) < high and 1.0 < high - low < 8.0, (
        "some 1.25 sigma over the root of n, twice two of them"
    )
    assert median_interval(many[::-1]) == (low, high), "whatever the order"


def test_intervals_hold_the_median_as_often_as_they_promise() -> None:
    drawn = np.random.default_rng(1).exponential(size=(4000, 12))
    inside = sum(
        low <= np.log(2) <= high
        for low, high in (median_interval(list(values)) or (0.0, 0.0) for values in drawn)
    )
    assert (
        inside / len(drawn) == pytest.approx(coverage(12, 2), abs=0.012)
        and coverage(12, 2) >= CONFIDENCE
    )


def test_an_interval_of_fewer_than_six_is_called_a_range() -> None:
    assert [interval_name(n) for n in (2, FEWEST - 1, FEWEST)] == [
        "range",
        "range",
        "95 % interval",
    ]
    assert (interval_note([1, 3]), interval_note([6, 9]), interval_note([1])) == (
        "range",
        "95 % interval",
        "",
    )
    assert interval_note([3, 6]) == "95 % interval (range below 6 seeds)"


def test_medians_beside_theory() -> None:
    runs = [entry("mrc", seed, value) for seed, value in enumerate([90.0, 80.0, 70.0, 95.0], 1)]
    compared = compare(frame(*runs, entry("roce", 1, 40.0)))
    mine = one(compared, "mrc", "busbw_bps")
    assert (mine["n"], mine["median"], mine["ideal"], mine["degraded"], mine["unit"]) == (
        4,
        85.0,
        100.0,
        75.0,
        "bit/s",
    )
    assert mine["low"] == 70.0 and 92.0 < mine["high"] <= 95.0
    other = one(compared, "roce", "busbw_bps")
    assert (other["n"], other["median"], other["low"], other["high"]) == (1, 40.0, None, None)
    assert list(compared.columns) == [
        "scenario",
        "transport",
        "kind",
        "fabric",
        "workload",
        "placement",
        *COLUMNS,
    ]
    assert one(compared, "mrc", "wrong")["ideal"] == 0.0


def test_failed_runs_are_counted_and_their_figures_left_out() -> None:
    told = [(90.0, "ok"), (1.0, "failed"), (80.0, "not trustworthy"), (2.0, "interrupted")]
    runs = [entry("mrc", seed, value, verdict) for seed, (value, verdict) in enumerate(told, 1)]
    mine = one(compare(frame(*runs, entry("roce", 1, 3.0, "failed"))), "mrc", "busbw_bps")
    assert (mine["n"], mine["median"], mine["failed"], mine["doubtful"]) == (2, 85.0, 2, 1)
    other = one(compare(frame(*runs, entry("roce", 1, 3.0, "failed"))), "roce", "busbw_bps")
    assert (other["n"], other["median"], other["failed"]) == (0, None, 1), (
        "its row is there, and empty"
    )


def test_settings_placements_and_workloads_are_apart() -> None:
    runs = [
        entry(
            "mrc",
            s,
            10.0 * s * k,
            settings={"workload.message_bytes": size, "fault.0.probability": 0.5 * k},
        )
        for s in (1, 2, 3)
        for k, size in ((1, "1KiB"), (2, "2KiB"))
    ]
    flows = [
        {
            **entry("mrc", 1, None),
            "workload": "incast",
            "settings": {},
            "groups": {"incast": {"jain": 0.9, "flows": 7}},
        }
    ]
    compared = compare(frame(*runs, *flows))
    assert one(compared, "mrc", "busbw_bps", **{"workload.message_bytes": "2KiB"})["median"] == 40.0
    assert one(compared, "mrc", "busbw_bps", **{"workload.message_bytes": "1KiB"})["median"] == 20.0
    jain = one(compared, "mrc", "groups.incast.jain")
    assert (jain["workload"], jain["median"], jain["ideal"], jain["workload.message_bytes"]) == (
        "incast",
        0.9,
        1.0,
        None,
    )
    assert not len(
        compared[(compared["workload"] == "incast") & (compared["figure"] == "busbw_bps")]
    )


@pytest.mark.parametrize(
    ("figure", "unit"),
    [
        ("busbw_bps", "bit/s"),
        ("step_time_ns.p99", "ns"),
        ("failure_cost.extra_rtts", "base RTTs"),
        ("packets.lost", "packets"),
        ("groups.incast.jain", ""),
        ("failure_cost.extra_percent", "%"),
        ("groups.x.message_ns.max", "ns"),
        ("outside_busbw_share", ""),
    ],
)
def test_units(figure: str, unit: str) -> None:
    assert unit_of(figure) == unit


def test_written_tables_agree_and_no_runs_make_an_empty_one(tmp_path: Path) -> None:
    made = write_comparison(frame(*(entry("mrc", s, 10.0 + s) for s in (1, 2, 3))), tmp_path)
    back = pd.read_parquet(tmp_path / "comparison.parquet")
    assert back.equals(made) and list(pd.read_csv(tmp_path / "comparison.csv")["median"]) == list(
        made["median"]
    )
    assert len(compare(frame())) == 0


def test_a_plot_finds_the_intervals_of_values_that_a_table_holds_otherwise(tmp_path: Path) -> None:
    """0 and 0.5 swept: the column holds 0.0."""
    runs = [
        entry("mrc", seed, 10.0 + seed, settings={"fault.0.probability": p})
        for seed in (1, 2, 3)
        for p in (0, 0.5)
    ]
    write_comparison(frame(*runs), tmp_path)
    summary = made(
        Summary, format=4, runs=[{**run, "run": f"mrc-{number}"} for number, run in enumerate(runs)]
    )
    (tmp_path / "summary.json").write_text(json.dumps(plain(summary)))
    known = intervals(Stored(tmp_path))
    assert known["mrc", "packed", "busbw_bps", str({"fault.0.probability": "0.0"})] == (11.0, 13.0)
    assert len([key for key in known if key[2] == "busbw_bps"]) == 2
