"""Files are in the real network's time: what is read is that of this machine's clock, ``dilation`` times slower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.schema.dilation import check_emulable, slowed
from scenarios.schema.network_time import on_the_clock
from scenarios.schema.scenario import ScenarioError, load_scenario
from topologies import FabricError, load_fabric
from topologies.structs import Refused

OLD_FABRIC = """# Mine.
planes = 2
t0_per_plane = 2
t1_per_plane = 1
hosts_per_t0 = 2
nic_rate = "8Mbit"   # slow
delay = "10ms"
"""
OLD = """# At 12,500.
fabric = "demo"
timeout = "90s"                  # of this machine

[workload]
kind = "flows"
message_bytes = "64KiB"

[[workload.flow]]
src = "h0"
dst = "h4"
start = 0.5
for = "2s"

[[transport]]
kind = "roce"
options = { reconvergence = "0.5s", rto_ns = 400000000, qps = 2 }
fabric_options = { delay = "12.5ms" }

[[fault]]
name = "at = 3s"                 # a name, no time
kind = "slow"
on = "h0-p0"
rate = 0.5
at = "1s"
for = "0.25s"

[[background]]
tool = "iperf3"
protocol = "udp"
src = "h1"
dst = "h5"
rate = "1Mbit"

[[expect]]
check = "roce.all_on_ns <= 2500000"

[[expect]]
check = "roce.groups.flows.goodput_bps / roce.base_rtt_ns >= 0.8"

[sweep]
"fault.0.for" = ["0.25s", "0.5s"]
"""


def test_times_and_rates_become_those_of_the_clock() -> None:
    table: dict[str, Any] = {
        "nic_rate": "50Gbit", "timeout": "90s", "workload": {"duration": "1ms", "message_bytes": "1MiB", "flow": [{"start": 0}]},
        "transport": [{"options": {"reconvergence": "40us", "rto_ns": 3000, "rnr_ns": -1, "rate_limit": 10**9, "qps": 4}}],
        "fault": [{"kind": "flap", "at": "8us", "period": "soon", "duty": 0.5}, {"kind": "slow", "rate": 0.5, "for": "1us"}],
        "background": [{"rate": "1Gbit"}],
    }  # fmt: skip
    made = on_the_clock(table, 10_000)
    assert (made["nic_rate"], made["timeout"], made["background"][0]["rate"]) == (5_000_000, "90s", 100_000)
    assert made["workload"] == {"duration": "10000000000ns", "message_bytes": "1MiB", "flow": [{"start": 0}]}
    assert made["transport"][0]["options"] == {
        "reconvergence": "400000000ns", "rto_ns": 30_000_000, "rnr_ns": -1, "rate_limit": 100_000, "qps": 4,
    }  # fmt: skip
    assert made["fault"] == [
        {"kind": "flap", "at": "80000000ns", "period": "soon", "duty": 0.5}, {"kind": "slow", "rate": 0.5, "for": "10000000ns"},
    ]  # fmt: skip
    assert table["workload"]["duration"] == "1ms", "what was read stays for the manifest"
    with pytest.raises(Refused, match=r"duration = '10s' takes more than a day of this machine's time, which is 10,000 times slower"):
        on_the_clock({"workload": {"duration": "10s"}}, 10_000)


def test_a_deployed_timer_would_take_hours_here_and_none_where_nobody_waits() -> None:
    real = load_scenario("link-failure", transports=["roce-1p"], overrides=["transport.roce-1p.options.reconvergence=1.07s"])
    with pytest.raises(ScenarioError, match=r"reconvergence of .* lasts 1\.07 s in the network, 3\.7 hours .*--world simulated"):
        check_emulable(real)
    check_emulable(slowed(real, 0.1))
    check_emulable(load_scenario("link-failure"))


def test_what_only_simulated_switches_do_is_refused_in_one_line() -> None:
    with pytest.raises(ScenarioError, match=r"'adaptive' has routing = \"adaptive\".*--world simulated"):
        check_emulable(load_scenario("permutation-baselines", transports=["adaptive"]))
    check_emulable(load_scenario("permutation-baselines", transports=["mrc", "irn", "roce-pfc"]))


def test_every_transport_of_a_scenario_runs_at_one_dilation() -> None:
    made = load_scenario("link-failure", transports=["mrc", "roce-1p"], overrides=["transport.roce-1p.fabric=tiny"])
    mrc, roce = (t.fabric for t in made.transports)
    assert (mrc.name, roce.name, roce.dilation, roce.nic_rate) == ("demo", "tiny", mrc.dilation, 8_000_000)
    assert roce.real == load_fabric("tiny").real


def test_a_fabric_file_has_rates_of_the_network_and_a_dilation(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    shape = "format = 3\nplanes = 2\nt0_per_plane = 2\nt1_per_plane = 1\nhosts_per_t0 = 2\n"
    file.write_text(shape)
    usual = load_fabric(str(file))
    assert (usual.nic_rate, usual.dilation, usual.real.nic_rate) == (10_000_000, 10_000, 10**11)
    file.write_text(f'{shape}nic_rate = "400Gbit"\ndelay = "2us"\ndilation = 20000\n')
    mine = load_fabric(str(file))
    assert (mine.nic_rate, mine.fabric_rate, mine.delay_ns, mine.dilation) == (20_000_000, 20_000_000, 40_000_000, 20_000)
    assert (mine.real.nic_rate, mine.real.delay_ns, mine.real.dilation) == (4 * 10**11, 2000, 1)
    assert mine.slowed(2).real == mine.real
    for line, said in (
        ("dilation = 0.5", "dilation = 0.5 must be a number from 1"),
        ("dilation = true", "dilation = True must be a number"),
        ('nic_rate = "10Mbit"', "nic_rate = '10Mbit' runs at 1000 bit/s with dilation = 10000: links take 100 kbit/s"),
        ("format = 2", "Cannot overwrite"),
    ):
        file.write_text(f"{shape}{line}\n")
        with pytest.raises(FabricError, match=said):
            load_fabric(str(file))
    for text, said in (
        (shape.replace("format = 3\n", ""), "has no format = 3: write"),
        (shape.replace("3", "4", 1), "has format = 4"),
    ):
        file.write_text(text)
        with pytest.raises(FabricError, match=said):
            load_fabric(str(file))
