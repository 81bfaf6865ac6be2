"""The two worlds part in rings because emulated ports that pause catch up: simulated ones that do
so as well take as long."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from scenarios.sets.validation.cases import HERE
from tests.simulated.buckets import BucketNetwork

EMULATED_US = {"128KiB": 18.24, "256KiB": 23.57}
"""Median steps of rings on a fabric with short cables, where what a port catches up weighs most;
docs/why/fidelity.md has them."""
SHORT = ("delay=992.48ns", "hop_delay=0ns", "cut_through=false")


@pytest.mark.parametrize("size", EMULATED_US)
def test_ports_that_catch_up_make_a_ring_as_fast_as_the_emulated_one(
    size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [
        "workload.steps=12",
        f"workload.message_bytes={size}",
        *(f"transport.mrc.fabric_options.{key}" for key in SHORT),
    ]
    scenario = load_scenario(
        str(HERE / "ring.toml"), transports=["mrc"], overrides=changes, seeds=[1]
    )

    def step_us(name: str) -> float:
        (tmp_path / name).mkdir()
        (entry,) = simulate(scenario, tmp_path / name, figures=False)["runs"]
        assert entry["verdict"] == "ok"
        return float(entry["typical_step_ns"]) / 1e3

    on_wires = step_us("wires")
    monkeypatch.setattr("testbed.simulated.cluster.Network", BucketNetwork)
    with_buckets = step_us("buckets")
    assert with_buckets < on_wires
    assert abs(with_buckets / EMULATED_US[size] - 1) < 0.05
