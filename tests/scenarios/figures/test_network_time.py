"""Figures are told in network time, once; what is the machine's own is not; older results are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scenarios.figures.network_time import told
from scenarios.figures.stored import Stored
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from testbed.view.declared import ResultsError
from tests.scenarios.small import undrawn


def test_times_shrink_and_rates_grow_and_counts_stay() -> None:
    run = {
        "base_rtt_ns": 40_000_000, "busbw_bps": 8e6, "steps": 19, "step_time_ns": {"n": 19, "p50": 1_000_001, "p99": None},
        "failovers": [{"at_ns": 5, "outages_ns": [[12_500, None]], "lost": 3}], "groups": {"a": {"goodput_bps": 2, "message_ns": {"n": 2}}},
        "fidelity": {"lag_p99_ns": 7}, "killed": [{"ended_wall_ns": 8}], "settings": {"x_ns": 9}, "dilation": 12_500.0, "none_ns": None,
    }  # fmt: skip
    assert told(run, 12_500) == {
        "base_rtt_ns": 3200, "busbw_bps": 1e11, "steps": 19, "step_time_ns": {"n": 19, "p50": 80.0, "p99": None},
        "failovers": [{"at_ns": 0.0, "outages_ns": [[1.0, None]], "lost": 3}],
        "groups": {"a": {"goodput_bps": 25_000, "message_ns": {"n": 2}}},
        "fidelity": {"lag_p99_ns": 7}, "killed": [{"ended_wall_ns": 8}], "settings": {"x_ns": 9}, "dilation": 12_500.0, "none_ns": None,
    }  # fmt: skip


def test_results_are_in_network_time_and_those_of_before_are_refused(tmp_path: Path) -> None:
    with undrawn():
        summary = simulate(load_scenario("smoke", overrides=["workload.steps=6", "fault=[]", "expect=[]"]), tmp_path)
    now = Stored(tmp_path)
    (run,) = now.runs
    steps, comparison, fabric = now.step_times(run)[""], now.table("comparison"), now.fabric(run)
    assert run["dilation"] == now.dilation == 10_000 and fabric.nic_rate == 10**11 and now.manifest["fabrics"]["tiny"]["nic_rate"] == 10**7
    assert steps.max() == pytest.approx(run["step_time_ns"]["max"])
    bandwidth = comparison.set_index("figure").loc["busbw_bps", "median"]
    assert bandwidth == pytest.approx(run["busbw_bps"]) and 1e10 < bandwidth < 2e11

    (tmp_path / "summary.json").write_text(json.dumps({**summary, "format": 2}))
    with pytest.raises(ResultsError, match=r"summary.json has format 2, this mrcbed reads 3: run the scenario again"):
        Stored(tmp_path).runs  # noqa: B018
