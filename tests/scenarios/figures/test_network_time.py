"""Raw files count in ps; what is read is in ns, and to the ps again after figures were made of it; older results are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scenarios.figures.network_time import rounded
from scenarios.figures.stored import Stored
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from testbed.results.reading import ResultsError
from testbed.view.clock import in_ns
from tests.scenarios.small import undrawn
from topologies.structs import plain


def test_times_are_named_by_their_unit_and_what_is_no_time_stays() -> None:
    record = {
        "window": [0, 12_500], "t0": 25_001, "reconvergence_ps": None, "fabric": {"delay_ps": 6}, "cpu": [[8, 0.5]],
        "watch": {"gaps": [[1000, 2000, 3000]], "wall_window_ns": 7}, "flows": [{"start_ps": 12_500, "src": 3}], "rate_bps": 2,
    }  # fmt: skip
    assert in_ns(record) == {
        "window": [0.0, 12.5], "t0": 25.001, "reconvergence_ns": None, "fabric": {"delay_ps": 6}, "cpu": [[0.008, 0.5]],
        "watch": {"gaps": [[1.0, 2.0, 3000]], "wall_window_ns": 7}, "flows": [{"start_ns": 12.5, "src": 3}], "rate_bps": 2,
    }  # fmt: skip


def test_lines_of_a_log() -> None:
    assert in_ns({"t": 1_000_001, "window": 4096, "srtt_ps": 25_000}) == {"t": 1000.001, "window": 4096, "srtt_ns": 25.0}
    transfers = {"start_ps": 12_500, "step": 7, "posted": [1, 2, 3, 25_000, 4, 5, 6, -12_500], "arrived": []}
    assert in_ns(transfers) == {"start_ns": 12.5, "step": 7, "posted": [1, 2, 3, 25.0, 4, 5, 6, -12.5], "arrived": []}
    job = {"t": 0, "note": {"step": [1, 2, 3e-6, 4e-6, 1e-9, 5]}}  # its rank counts in seconds
    assert in_ns(job) == {"t": 0.0, "note": {"step": [1, 2, 3000.0, 4000.0, 1.0, 5]}}


def test_figures_are_rounded_to_the_ps() -> None:
    assert rounded({"step_time_ns": {"n": 2, "p50": 0.1 + 0.2, "p99": None}, "outages_ns": [[1.00049, None]], "share": 1 / 3}) == {
        "step_time_ns": {"n": 2, "p50": 0.3, "p99": None}, "outages_ns": [[1.0, None]], "share": 1 / 3,
    }  # fmt: skip


def test_results_are_in_network_time_and_those_of_before_are_refused(tmp_path: Path) -> None:
    with undrawn():
        summary = simulate(load_scenario("smoke", overrides=["workload.steps=6", "fault=[]", "expect=[]"]), tmp_path)
    now = Stored(tmp_path)
    (run,) = now.runs
    steps, comparison = now.step_times(run)[""], now.table("comparison")
    assert now.fabric(run).nic_rate == now.manifest["fabrics"]["tiny"]["nic_rate"] == 10**11
    assert steps.max() == pytest.approx(run["step_time_ns"]["max"]) and run["base_rtt_ns"] == 10_000
    bandwidth = comparison.set_index("figure").loc["busbw_bps", "median"]
    assert bandwidth == pytest.approx(run["busbw_bps"]) and 1e10 < bandwidth < 2e11

    (tmp_path / "summary.json").write_text(json.dumps({**plain(summary), "format": 3}))
    with pytest.raises(ResultsError, match=r"summary.json has format 3, this mrcbed reads 4: run the scenario again"):
        Stored(tmp_path).runs  # noqa: B018
