"""A stretched scenario is the same network and the same events, slower: nothing that is counted in base RTTs, packets or BDPs changes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import scenarios.schema.scenario as scenario_module
from scenarios.run.simulate import simulate
from scenarios.schema.dilation import slowed
from scenarios.schema.scenario import load_scenario, named_scenarios
from testbed.faults.kinds import read_keys
from tests.scenarios.small import undrawn
from topologies import FabricError, load_fabric, named_fabrics


@pytest.mark.parametrize("name", named_fabrics())
def test_a_slowed_fabric_keeps_its_shape_in_packets(name: str) -> None:
    fabric = load_fabric(name)
    slow = fabric.slowed(2.5)
    assert slow.dilation == pytest.approx(2.5 * fabric.dilation)
    assert slow.base_rtt_ns == pytest.approx(2.5 * fabric.base_rtt_ns, rel=1e-6)
    assert abs(slow.plane_bdp - fabric.plane_bdp) <= 1 and abs(slow.buffer_bytes - fabric.buffer_bytes) <= 8
    scaled = ("nic_rate", "fabric_rate", "delay_ns", "long_haul_rate", "long_haul_delay_ns", "dilation")
    assert slow.with_(**{key: getattr(fabric, key) for key in scaled}) == fabric
    assert fabric.slowed(1) is fabric


def test_a_fabric_too_slow_to_emulate_is_refused() -> None:
    with pytest.raises(FabricError, match="nic_rate"):
        load_fabric("pod64").slowed(100)


EVERYTHING = """
format = 3
fabric = "demo"
timeout = "10s"
[workload]
kind = "flows"
message_bytes = 4096
[[workload.flow]]
src = "h0"
dst = "h4"
start = "80us"
for = "160us"
[[transport]]
kind = "mrc"
[[transport]]
kind = "roce"
options = { reconvergence = "40us", qps = 2, rto_ns = 100000, rnr_ns = 20000, rate_limit = 50000000000 }
fabric_options = { delay = "1.6us" }
[[fault]]
kind = "flap"
on = "p0-t0-0:p0-t1-0"
at = "80us"
for = "160us"
period = "8us"
duty = 0.5
[[fault]]
kind = "silent"
on = "p0-t1-0"
at = "240us"
for = "80us"
reboot = "120us"
[[background]]
tool = "iperf3"
src = "h1"
dst = "h5"
protocol = "udp"
rate = "12.5Gbit"
start = "80us"
for = "160us"
"""


def times_and_rates(data: Any, where: str = "") -> dict[str, float]:
    """Every number of a scenario's plain values that is a time or a rate, by its dotted key."""
    found: dict[str, float] = {}
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        here = f"{where}.{key}" if where else str(key)
        if isinstance(value, (dict, list)):
            found |= times_and_rates(value, here)
        elif value is not None and str(key).endswith(("_ns", "_s", "_rate", "_bps", "_limit")):
            found[here] = float(value)
    return found


def test_every_time_is_stretched_and_every_rate_shrinks(tmp_path: Path) -> None:
    file = tmp_path / "everything.toml"
    file.write_text(EVERYTHING)
    scenario = load_scenario(str(file))
    slow = slowed(scenario, 2)
    was, now = (times_and_rates(json.loads(json.dumps(s.to_dict()))) for s in (scenario, slow))
    assert set(was) == set(now) and len(was) > 15
    for key, value in was.items():
        factor = 0.5 if key.endswith(("_rate", "_bps", "_limit")) else 2
        assert now[key] == pytest.approx(value * factor), key
    flap, silent = (read_keys(fault.kind, fault.keys) for fault in slow.faults)
    assert (flap["period"], flap["duty"], silent["reboot"]) == (200_000_000, 0.5, 3_000_000_000)
    assert slowed(scenario, 1) is scenario
    assert slowed(scenario, 0.5).timeout_ns == scenario.timeout_ns, "patience is not shortened"


def test_a_stretched_run_takes_the_same_number_of_base_rtts(tmp_path: Path) -> None:
    scenario = load_scenario("smoke", overrides=["workload.steps=6", "fault.0.at=10us", "fault.0.for=30us"])

    def run(factor: float) -> dict[str, Any]:
        directory = tmp_path / str(factor)
        directory.mkdir()
        with undrawn():
            return simulate(slowed(scenario, factor), directory)["runs"][0]

    one, three = run(1), run(3)
    assert three["base_rtt_ns"] == pytest.approx(one["base_rtt_ns"], rel=1e-6) and three["dilation"] == 3 * one["dilation"]
    for steps in ([entry["typical_step_ns"] for entry in (one, three)], [entry["step_time_ns"]["max"] for entry in (one, three)]):
        assert steps[1] == pytest.approx(steps[0], rel=0.03)
    assert three["packets"]["lost"] == pytest.approx(one["packets"]["lost"], abs=4)


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        for field in dataclasses.fields(one):
            if field.name != "timeout_ns":  # never gets shorter, and is no time of the network's
                yield from differences(getattr(one, field.name), getattr(other, field.name), f"{path}.{field.name}")
    elif isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from differences(one.get(key, "0ns"), other.get(key, "0ns"), f"{path}.{key}")
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif one != other:
        yield f"{path}: {one!r}, {other!r}"


@pytest.mark.parametrize("name", sorted(named_scenarios()))
def test_a_slowed_scenario_is_the_one_of_a_slowed_fabric(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No time or rate of a scenario is forgotten where the dilation is not the fabric's own."""
    scenario = load_scenario(name)
    slow = slowed(scenario, 2)
    assert [v.settings for v in slow.variants] == [v.settings for v in scenario.variants]
    assert all(v.scenario.fabric.dilation == 2 * scenario.fabric.dilation for v in slow.variants if not v.settings)
    with monkeypatch.context() as patch:
        patch.setattr(scenario_module, "load_fabric", lambda *words: load_fabric(*words).slowed(2))
        assert list(differences(slow, load_scenario(name))) == []
