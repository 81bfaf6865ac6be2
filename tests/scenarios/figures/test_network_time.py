"""Raw files count in ps; what is read is in ns, and to the ps again after figures were made of it;
older results are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scenarios.figures.network_time import rounded
from scenarios.figures.stored import Stored
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from testbed.results.reading import ResultsError
from testbed.results.summary import Failover, Spread
from testbed.view.clock import in_ns
from tests.made import made
from tests.scenarios.small import undrawn
from topologies.structs import plain


def test_times_are_named_by_their_unit_and_what_is_no_time_stays() -> None:
    assert in_ns(
        {
            "reconvergence_ps": None,
            "srtt_ps": 25_001,
            "window": 4096,
            "keys": {"outage_ps": 12_500},
            "rate_bps": 2,
        }
    ) == {
        "reconvergence_ns": None,
        "srtt_ns": 25.001,
        "window": 4096,
        "keys": {"outage_ns": 12.5},
        "rate_bps": 2,
    }


def test_figures_are_rounded_to_the_ps() -> None:
    spread = Spread(n=2, p50=0.1 + 0.2, p99=None, p999=None, max=float(np.float64(1) / 3))
    made_row = rounded(
        made(Failover, outages_ns=[(1.00049, None)], kept_after=1 / 3, srtt_ns=2 / 3)
    )
    assert (made_row.outages_ns, made_row.kept_after, made_row.srtt_ns) == (
        [(1.0, None)],
        1 / 3,
        0.667,
    )
    assert rounded(spread, times=True) == Spread(n=2, p50=0.3, p99=None, p999=None, max=0.333)


def test_results_are_in_network_time_and_those_of_before_are_refused(tmp_path: Path) -> None:
    with undrawn():
        summary = simulate(
            load_scenario("smoke", overrides=["workload.steps=6", "fault=[]", "expect=[]"]),
            tmp_path,
        )
    now = Stored(tmp_path)
    (run,) = now.runs
    steps, comparison = now.step_times(run)[""], now.table("comparison")
    assert now.fabric(run).nic_rate == now.manifest["fabrics"]["tiny"]["nic_rate"] == 10**11
    assert steps.max() == pytest.approx(run["step_time_ns"]["max"]) and run["base_rtt_ns"] == 10_000
    bandwidth = comparison.set_index("figure").loc["busbw_bps", "median"]
    assert bandwidth == pytest.approx(run["busbw_bps"]) and 1e10 < bandwidth < 2e11

    (tmp_path / "summary.json").write_text(json.dumps({**plain(summary), "format": 3}))
    with pytest.raises(
        ResultsError,
        match=r"summary.json has format 3, this mrcbed reads 4: run the scenario again",
    ):
        Stored(tmp_path).runs  # noqa: B018
