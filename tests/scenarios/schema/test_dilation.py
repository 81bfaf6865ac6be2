"""What machines can run of a scenario at a dilation; the scenario itself, and its network, are the
same at every one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scenarios.schema.dilation import at_dilation, check_emulable, check_rates
from scenarios.schema.scenario import ScenarioError, load_scenario
from topologies import FabricError, load_fabric
from topologies.fabrics import usual_dilation
from topologies.units import MAX_TIME, NS, US, S

TIMED = """
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
kind = "roce"
options = { reconvergence = "40us", rto_ns = 100000, rate_limit = 50000000000 }
fabric_options = { delay = "1.6us" }
[[fault]]
kind = "flap"
on = "p0-t0-0:p0-t1-0"
at = "80us"
for = "160us"
period = "8us"
duty = 0.5
[[background]]
tool = "iperf3"
src = "h1"
dst = "h5"
protocol = "udp"
rate = "12.5Gbit"
start = "80us"
for = "160us"
"""


def test_a_scenario_is_the_network_whatever_the_dilation_of_its_fabric(tmp_path: Path) -> None:
    file, fabric = tmp_path / "timed.toml", tmp_path / "slower.toml"
    file.write_text(TIMED)
    usual = load_scenario(str(file))
    (flow,), (transport,), (fault,), (background,) = (
        usual.workload.flows,
        usual.transports,
        usual.faults,
        usual.backgrounds,
    )
    assert (flow.start_ps, flow.for_ps, transport.reconvergence_ps, transport.fabric.delay_ps) == (
        80 * US,
        160 * US,
        40 * US,
        1600 * NS,
    )
    assert (transport.options["rto_ns"], transport.options["rate_limit"]) == (100_000, 50 * 10**9)
    assert (fault.at_ps, fault.for_ps, fault.keys["period"], fault.keys["duty"]) == (
        80 * US,
        160 * US,
        8 * US,
        0.5,
    )
    assert (background.rate_bps, background.start_ps, background.for_ps) == (
        12_500_000_000,
        80 * US,
        160 * US,
    )
    assert (usual.timeout_s, usual.dilation, usual_dilation("demo")) == (10.0, 12_500.0, 12_500.0)
    shape = Path(load_fabric.__code__.co_filename).with_name("demo.toml").read_text()
    fabric.write_text(shape.replace("dilation = 12500", "dilation = 50000") + 'name = "demo"\n')
    slower = load_scenario(str(file), fabric=str(fabric))
    assert slower.dilation == 50_000 and replace(slower, dilation=usual.dilation) == usual


def test_a_run_that_is_stretched_further_gets_more_time_and_never_less() -> None:
    swept = load_scenario("failure-rate")
    longer = at_dilation(swept, 3 * swept.dilation)
    assert longer.timeout_s == 3 * swept.timeout_s
    assert all(
        a.scenario.timeout_s == 3 * b.scenario.timeout_s
        for a, b in zip(longer.swept, swept.swept, strict=True)
    )
    assert (
        {variant.scenario.dilation for variant in longer.swept}
        == {longer.dilation}
        == {3 * swept.dilation}
    )
    assert at_dilation(swept, 0.5 * swept.dilation).timeout_s == swept.timeout_s
    assert at_dilation(swept, 1e9 * swept.dilation).timeout_s == MAX_TIME / S


def test_links_have_a_rate_that_the_kernel_keeps() -> None:
    check_rates(load_fabric("pod64"), 100_000)
    with pytest.raises(
        FabricError,
        match=r"nic_rate = 100 Gbit/s runs at 50,000 bit/s at a dilation of 2,000,000: links take "
        r"100 kbit/s",
    ):
        check_rates(load_fabric("pod64"), 2_000_000)
    with pytest.raises(FabricError, match="long_haul_rate"):
        check_rates(
            load_fabric("demo", None).with_(t0_per_plane=2, sites=2, long_haul_rate=10**9), 12_500
        )


def test_a_deployed_timer_would_take_hours_here_and_none_where_nobody_waits() -> None:
    real = load_scenario(
        "link-failure",
        transports=["roce-1p"],
        overrides=["transport.roce-1p.options.reconvergence=1.07s"],
    )
    with pytest.raises(
        ScenarioError,
        match=r"reconvergence of .* lasts 1\.07 s in the network, 3\.7 hours .*--world simulated",
    ):
        check_emulable(real, 12_500)
    check_emulable(real, 1250)
    check_emulable(load_scenario("link-failure"), 12_500)


def test_a_cycle_is_longer_than_this_machines_scheduling(tmp_path: Path) -> None:
    file = tmp_path / "timed.toml"
    file.write_text(TIMED)
    scenario = load_scenario(str(file))
    check_emulable(scenario, 250)
    with pytest.raises(
        ScenarioError,
        match=r"fault 'flap .*period = 8.00 µs takes less than 2 ms of this machine at a dilation "
        r"of 249",
    ):
        check_emulable(scenario, 249)


def test_what_only_simulated_switches_do_is_refused_in_one_line() -> None:
    with pytest.raises(
        ScenarioError, match=r"'adaptive' has routing = \"adaptive\".*--world simulated"
    ):
        check_emulable(load_scenario("permutation-baselines", transports=["adaptive"]), 12_500)
    with pytest.raises(
        ScenarioError,
        match=r"'roce-8' has pool_mb_per_tbps = 2\.5, which only simulated .*--world simulated",
    ):
        check_emulable(load_scenario("shared-buffer", transports=["roce-8"]), 250_000)
    check_emulable(
        load_scenario("permutation-baselines", transports=["mrc", "irn", "roce-pfc"]), 12_500
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("planes = 2", "has no format = 3: write"),
        ("format = 4", "has format = 4"),
        ("format = 3\nformat = 2", "Cannot overwrite"),
    ],
)
def test_a_fabric_file_says_whose_times_it_has(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(FabricError, match=said):
        load_fabric(str(file))
