"""Medians over seeds, their intervals, theory beside them, and what is left out: by hand-computed cases."""

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
from scenarios.figures.stats import median_interval
from scenarios.figures.stored import Stored
from scenarios.show.plots.sweep import intervals

THEORY = {"ideal_busbw_bps": 100.0, "degraded_busbw_bps": 75.0, "ideal_step_ns": 10.0, "degraded_step_ns": 13.0}


def entry(transport: str, seed: int, busbw: float | None, verdict: str = "ok", **more: Any) -> dict[str, Any]:
    fixed = {"kind": transport, "fabric": "tiny", "workload": "ring-allreduce", "placement": "packed", "settings": {}, "ranks": 4}
    return {"transport": transport, "seed": seed, **fixed, "busbw_bps": busbw, **THEORY, "verdict": verdict, "wrong": 0, **more}


def frame(*entries: dict[str, Any]) -> pd.DataFrame:
    return table([row(e, "mine") for e in entries])


def one(compared: pd.DataFrame, transport: str, figure: str, **where: Any) -> dict[str, Any]:
    found = compared[(compared["transport"] == transport) & (compared["figure"] == figure)]
    for key, value in where.items():
        found = found[found[key] == value]
    (only,) = found.to_dict("records")
    return {str(key): None if pd.isna(value) else value for key, value in only.items()}


def test_the_interval_of_a_median_is_the_bootstraps() -> None:
    """Of three values the bootstrap's median is the middle one in 13/27, else an end: 7/27 each, so that both ends are inside 95 %."""
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert median_interval([1.0, 2.0]) is None and median_interval([]) is None
    assert median_interval([5.0] * 4) == (5.0, 5.0)
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    exact = sorted(sorted(drawn)[2] for drawn in itertools.product(values, repeat=5))  # all 3125 resamples
    assert median_interval(values) == (exact[int(0.025 * 3125)], exact[int(0.975 * 3125)]) == (1.0, 5.0)
    many = list(np.random.default_rng(3).normal(100, 10, 101))
    low, high = median_interval(many) or (0.0, 0.0)
    assert low < float(np.median(many)) < high and 1.0 < high - low < 8.0, "some 1.25 sigma over the root of n, twice two of them"
    assert median_interval(many[::-1]) == (low, high), "whatever the order"


def test_medians_beside_theory() -> None:
    runs = [entry("mrc", seed, value) for seed, value in enumerate([90.0, 80.0, 70.0, 95.0], 1)]
    compared = compare(frame(*runs, entry("roce", 1, 40.0)))
    mine = one(compared, "mrc", "busbw_bps")
    assert (mine["n"], mine["median"], mine["ideal"], mine["degraded"], mine["unit"]) == (4, 85.0, 100.0, 75.0, "bit/s")
    assert mine["low"] == 70.0 and 92.0 < mine["high"] <= 95.0
    other = one(compared, "roce", "busbw_bps")
    assert (other["n"], other["median"], other["low"], other["high"]) == (1, 40.0, None, None)
    assert list(compared.columns) == ["scenario", "transport", "kind", "fabric", "workload", "placement", *COLUMNS]
    assert one(compared, "mrc", "wrong")["ideal"] == 0.0


def test_failed_runs_are_counted_and_their_figures_left_out() -> None:
    told = [(90.0, "ok"), (1.0, "failed"), (80.0, "not trustworthy"), (2.0, "interrupted")]
    runs = [entry("mrc", seed, value, verdict) for seed, (value, verdict) in enumerate(told, 1)]
    mine = one(compare(frame(*runs, entry("roce", 1, 3.0, "failed"))), "mrc", "busbw_bps")
    assert (mine["n"], mine["median"], mine["failed"], mine["doubtful"]) == (2, 85.0, 2, 1)
    other = one(compare(frame(*runs, entry("roce", 1, 3.0, "failed"))), "roce", "busbw_bps")
    assert (other["n"], other["median"], other["failed"]) == (0, None, 1), "its row is there, and empty"


def test_settings_placements_and_workloads_are_apart() -> None:
    runs = [entry("mrc", s, 10.0 * s * k, settings={"workload.message_bytes": size, "fault.0.probability": 0.5 * k})
            for s in (1, 2, 3) for k, size in ((1, "1KiB"), (2, "2KiB"))]  # fmt: skip
    flows = [{**entry("mrc", 1, None), "workload": "incast", "settings": {}, "groups": {"incast": {"jain": 0.9, "flows": 7}}}]
    compared = compare(frame(*runs, *flows))
    assert one(compared, "mrc", "busbw_bps", **{"workload.message_bytes": "2KiB"})["median"] == 40.0
    assert one(compared, "mrc", "busbw_bps", **{"workload.message_bytes": "1KiB"})["median"] == 20.0
    jain = one(compared, "mrc", "groups.incast.jain")
    assert (jain["workload"], jain["median"], jain["ideal"], jain["workload.message_bytes"]) == ("incast", 0.9, 1.0, None)
    assert not len(compared[(compared["workload"] == "incast") & (compared["figure"] == "busbw_bps")])


@pytest.mark.parametrize(
    ("figure", "unit"),
    [("busbw_bps", "bit/s"), ("step_time_ns.p99", "ns"), ("failure_cost.extra_rtts", "base RTTs"), ("packets.lost", "packets"),
     ("groups.incast.jain", ""), ("failure_cost.extra_percent", "%"), ("groups.x.message_ns.max", "ns"), ("outside_busbw_share", "")],
)  # fmt: skip
def test_units(figure: str, unit: str) -> None:
    assert unit_of(figure) == unit


def test_written_tables_agree_and_no_runs_make_an_empty_one(tmp_path: Path) -> None:
    made = write_comparison(frame(*(entry("mrc", s, 10.0 + s) for s in (1, 2, 3))), tmp_path)
    back = pd.read_parquet(tmp_path / "comparison.parquet")
    assert back.equals(made) and list(pd.read_csv(tmp_path / "comparison.csv")["median"]) == list(made["median"])
    assert len(compare(frame())) == 0


def test_a_plot_finds_the_intervals_of_values_that_a_table_holds_otherwise(tmp_path: Path) -> None:
    """0 and 0.5 swept: the column holds 0.0."""
    runs = [entry("mrc", seed, 10.0 + seed, settings={"fault.0.probability": p}) for seed in (1, 2, 3) for p in (0, 0.5)]
    write_comparison(frame(*runs), tmp_path)
    (tmp_path / "summary.json").write_text(json.dumps({"scenario": "x", "runs": runs, "checks": [], "fabrics": {}, "verdict": "ok"}))
    known = intervals(Stored(tmp_path))
    assert known["mrc", "packed", "busbw_bps", str({"fault.0.probability": "0.0"})] == (11.0, 13.0) and len(known) == 4
