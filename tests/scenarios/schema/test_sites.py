"""Two sites in scenarios: what runs there, and one clear line for what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.run.machines import check_on_machines
from scenarios.schema.fabrics import figures, twin_of
from scenarios.schema.scenario import ScenarioError, load_scenario
from scenarios.show.fabric_svg import fabric_svg
from scenarios.show.fabric_text import dot, mermaid
from scenarios.show.plan import fabric_lines
from scenarios.show.simulators import topology
from testbed.errors import UserError
from testbed.faults.kinds import KINDS
from testbed.faults.targets import between_switches
from testbed.fluid.live_links import Cluster
from testbed.machines.reach import Place
from topologies import FabricError, load_fabric

TWO = load_fabric("two-sites")
GOOD = """
format = 3
fabric = "two-sites"
[workload]
kind = "ring-allreduce"
message_bytes = "64KiB"
steps = 2
slices = 2
[[transport]]
kind = "mrc"
"""
"""Also what the fluid world would take on one site."""


def load(tmp_path: Path, text: str) -> None:
    file = tmp_path / "two.toml"
    file.write_text(text)
    load_scenario(str(file))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"ring-allreduce"',
            '"hierarchical-allreduce"\nplacement = "interleaved"',
            (
                "workload.placement : 'interleaved' mixes the sites, whose hosts are the halves "
                "of hierarchical-allreduce: use 'packed'"
            ),
        ),
        (
            'kind = "mrc"',
            'kind = "mrc"\nclustermapper = true',
            "clustermapper probes one site's links: drop it on a fabric of two",
        ),
        (
            'kind = "mrc"',
            'kind = "mrc"\nfabric_options = { routing = "ecmp" }',
            'routing = "ecmp" is not for two sites: drop it',
        ),
        (
            'kind = "mrc"',
            'kind = "roce"\nfabric_options = { pfc = true }',
            "pfc = true is not for two sites",
        ),
        (
            '"two-sites"',
            '"demo"\n[[fault]]\nkind = "link"\non = "p0-t1-0:p0-t1-2"\nat = 0',
            "has no link 'p0-t1-0:p0-t1-2'",
        ),
    ],
)
def test_what_does_not_go_with_two_sites_is_one_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    load(tmp_path, GOOD)
    with pytest.raises((ScenarioError, FabricError)) as error:
        load(tmp_path, GOOD.replace(old, new))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_other_worlds_refuse_it(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(GOOD)
    scenario = load_scenario(str(file))
    with pytest.raises(
        UserError,
        match="fabric 'two-sites' has two sites, and rates without packets know one place",
    ):
        Cluster.of_fabric(TWO)
    with pytest.raises(
        FabricError, match="two sites, which one machine carries alone: give one machine, not 2"
    ):
        check_on_machines(scenario, [Place("a", "10.0.0.1", ()), Place("b", "10.0.0.2", ())])
    with pytest.raises(UserError, match="two sites: htsim's fat trees are one place"):
        topology(TWO)


@pytest.mark.parametrize(
    ("kind", "on", "keys"),
    [
        ("path-loss", "h0>h5@p0/1", {"probability": 1.0}),
        ("destination-loss", "p0-t0-0", {"to": "h5", "probability": 1.0}),
    ],
)
def test_faults_that_need_more_usids_than_a_switch_sees(
    kind: str, on: str, keys: dict[str, object]
) -> None:
    with pytest.raises(FabricError, match="a switch sees three uSIDs ahead, too few to know"):
        KINDS[kind].resolve(TWO, on, keys)


def test_faults_on_a_long_haul_cable() -> None:
    assert KINDS["link"].resolve(TWO, "p0-t1-2:p0-t1-0", {}).links == ("p0-t1-0:p0-t1-2",)
    assert "p0-t1-0:p0-t1-2" in KINDS["switch"].resolve(TWO, "p0-t1-2", {}).links
    assert all(link.kind == "fabric" for link in between_switches(TWO, "fabric")), (
        "what is drawn among T0-T1 links leaves them alone"
    )


def test_the_twin_has_the_same_trunk() -> None:
    twin = twin_of(TWO)
    assert twin.long_haul_rate * twin.planes == TWO.long_haul_rate * TWO.planes
    assert twin.long_haul_delay_ps == TWO.long_haul_delay_ps
    for local in (False, True):  # a full packet takes as long from host to host
        delays = [fabric.local_delay_ps if local else fabric.delay_ps for fabric in (TWO, twin)]
        assert delays[0] + TWO.data_ps(local) == delays[1] + twin.data_ps(local)


def test_drawings_and_words_have_both_sites() -> None:
    cable = "p1-t1-1:p1-t1-3"
    assert (
        f"<title>{cable}</title>" in fabric_svg(TWO)
        and "p1-t1-3 --- p1-t1-1" in mermaid(TWO)
        and '"p1-t1-3" -- "p1-t1-1"' in dot(TWO)
    )
    assert "p1-t1-0:p1-t0-2" not in fabric_svg(TWO) and "p1-t0-2:p1-t1-0" not in fabric_svg(TWO), (
        "no cable to the other site's T0s"
    )
    assert (
        "4 T0 and 4 T1 in two sites" in fabric_lines(TWO)[0]
        and "(1.01 ms between sites)" in fabric_lines(TWO)[1]
    )
    assert figures(TWO)["haul_rtt_ps"] == TWO.haul_rtt_ps and "haul_rtt_ps" not in figures(
        load_fabric("demo")
    )
