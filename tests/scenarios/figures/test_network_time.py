"""Raw files become network time where they are read; what is the machine's own does not; older results are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scenarios.figures.network_time import in_network_time, real
from scenarios.figures.stored import Stored
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from testbed.view.declared import ResultsError
from tests.scenarios.small import undrawn
from topologies import load_fabric


def test_times_shrink_and_rates_grow_and_counts_stay() -> None:
    record = {
        "window": [0, 12_500], "t0": 25_000, "reconvergence_ns": None, "fabric": {"delay_ns": 6}, "watch": {"a_ns": 7}, "cpu": [[8, 0.5]],
        "settings": {"x_ns": 9}, "flows": [{"start_ns": 12_500, "src": 3}], "background": [{"rate_bps": 2}], "options": {"a_ns": ""},
    }  # fmt: skip
    assert in_network_time(record, 12_500) == {
        "window": [0.0, 1.0], "t0": 2.0, "reconvergence_ns": None, "fabric": {"delay_ns": 6}, "watch": {"a_ns": 7}, "cpu": [[8, 0.5]],
        "settings": {"x_ns": 9}, "flows": [{"start_ns": 1.0, "src": 3}], "background": [{"rate_bps": 25_000}], "options": {"a_ns": ""},
    }  # fmt: skip


def test_lines_of_a_log() -> None:
    bytes_in_flight = {"t": 1_000_001, "kind": "srtt", "window": 4096, "srtt_ns": 25_000}
    assert in_network_time(bytes_in_flight, 12_500) == {"t": 80.0, "kind": "srtt", "window": 4096, "srtt_ns": 2.0}
    transfers = {"start_ns": 12_500, "step": 7, "posted": [1, 2, 3, 25_000, 4, 5, 6, -12_500], "arrived": []}
    assert in_network_time(transfers, 12_500) == {"start_ns": 1.0, "step": 7, "posted": [1, 2, 3, 2.0, 4, 5, 6, -1.0], "arrived": []}
    job = {"t": 0, "note": {"step": [1, 2, 3e-6, 4e-6, 1e-9, 5]}}  # its rank counts in s of the network
    assert in_network_time(job, 12_500) == {"t": 0.0, "note": {"step": [1, 2, 3000.0, 4000.0, 1.0, 5]}}


def test_figures_are_rounded_to_the_ps() -> None:
    assert in_network_time({"step_time_ns": {"n": 2, "p50": 0.1 + 0.2, "p99": None}, "outages_ns": [[1.00049, None]], "share": 1 / 3}) == {
        "step_time_ns": {"n": 2, "p50": 0.3, "p99": None}, "outages_ns": [[1.0, None]], "share": 1 / 3,
    }  # fmt: skip


def test_the_network_has_the_base_rtts_and_thresholds_of_the_run() -> None:
    ran = load_fabric("demo")
    network = real(ran)
    assert network.dilation == 1 and network.nic_rate == 10**11 and network.base_rtt_ns == 10_000 != ran.real.base_rtt_ns
    assert network.local_rtt_ns == pytest.approx(ran.local_rtt_ns / ran.dilation, abs=1e-3)
    assert (network.plane_bdp, network.ecn_bytes, network.trim_bytes(True)) == (ran.plane_bdp, ran.ecn_bytes, ran.trim_bytes(True))


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

    (tmp_path / "summary.json").write_text(json.dumps({**summary, "format": 3}))
    with pytest.raises(ResultsError, match=r"summary.json has format 3, this mrcbed reads 4: run the scenario again"):
        Stored(tmp_path).runs  # noqa: B018
