"""What breaks, what works, and what senders believe meanwhile. Times are of the test's own traffic."""

from __future__ import annotations

import pytest

from testbed.dataplane.layout import SWITCH_SILENT, SWITCH_WORKS
from testbed.fluid.network import BEGIN_NS, Cable, Network
from testbed.fluid.senders import Loss
from topologies import Fabric
from topologies.clos import t0_name, t1_name

FABRIC = Fabric("f", planes=2, t0_per_plane=2, t1_per_plane=3, hosts_per_t0=2)
CABLE: Cable = (1, 0, 2)
NAME = f"{t0_name(1, 0)}:{t1_name(1, 2)}"
VERDICT_NS = 1000


class Traffic:
    """Uses every path; notes what it is told, with the time."""

    def __init__(self, network: Network, over: bool = True) -> None:
        self.network, self.over = network, over
        self.heard: list[tuple[int, str, object]] = []
        network.user = self

    def note(self, what: str, of: object = None) -> None:
        self.heard.append((self.network.time - BEGIN_NS, what, of))

    def settle(self) -> None: ...
    def changed(self) -> None: ...

    def hit(self, cable: Cable) -> Loss | None:
        self.note("hit", cable)
        return Loss(1, 2, VERDICT_NS, 4, 5) if self.over else None

    def left(self, cable: Cable) -> None:
        self.note("left", cable)

    def returned(self, cable: Cable) -> None:
        self.note("returned", cable)

    def port(self, plane: int, host: int, up: bool) -> None:
        self.note(f"port {'up' if up else 'down'}", (plane, host))


@pytest.fixture
def network() -> Network:
    return Network(FABRIC)


def cut(network: Network, at: int, up: bool = False, name: str = NAME) -> None:
    network.at(BEGIN_NS + at, lambda: network.set_link(FABRIC.link(name), up))


def test_a_cable_dies_unseen_and_returns_when_probes_came_back(network: Network) -> None:
    traffic = Traffic(network)
    cut(network, 5)
    cut(network, 50_000_000, up=True)
    network.run(BEGIN_NS + 5)
    assert not network.works.up[CABLE] and network.used.up[CABLE]
    network.run(BEGIN_NS + 10**9)
    back = network.senders.readmitted_ns(BEGIN_NS + 5 + VERDICT_NS, BEGIN_NS + 50_000_000, 1) - BEGIN_NS
    assert traffic.heard == [(5, "hit", CABLE), (5 + VERDICT_NS, "left", CABLE), (back, "returned", CABLE)]
    assert back > 50_000_000 and network.used.up.all()


def test_an_outage_shorter_than_the_verdict_still_costs_the_path(network: Network) -> None:
    traffic = Traffic(network)
    cut(network, 5)
    cut(network, 6, up=True)
    network.run(BEGIN_NS + VERDICT_NS + 4)
    assert network.used.up[CABLE]
    network.run(BEGIN_NS + VERDICT_NS + 5)
    assert not network.used.up[CABLE] and network.works.up[CABLE]
    network.run(BEGIN_NS + 10**9)
    assert [what for _, what, _ in traffic.heard] == ["hit", "left", "returned"]


def test_a_path_that_dies_again_before_it_is_back_stays_out(network: Network) -> None:
    traffic = Traffic(network)
    cut(network, 0)
    cut(network, 2_000, up=True)
    cut(network, 3_000)
    network.run(BEGIN_NS + 10**9)
    assert [what for _, what, _ in traffic.heard] == ["hit", "left"] and not network.used.up[CABLE]


def test_nobody_leaves_a_cable_without_traffic_until_there_is_some(network: Network) -> None:
    traffic = Traffic(network, over=False)
    cut(network, 0)
    network.run(BEGIN_NS + 10**9)
    assert network.used.up[CABLE] and [what for _, what, _ in traffic.heard] == ["hit"]
    traffic.over = True
    network.meet()
    network.run(BEGIN_NS + 2 * 10**9)
    assert not network.used.up[CABLE]


def test_a_nic_port_is_told_half_an_rtt_later_and_opens_after_a_hold_down(network: Network) -> None:
    traffic = Traffic(network)
    name = f"h1:{t0_name(0, 0)}"
    cut(network, 0, name=name)
    cut(network, 300_000_000, up=True, name=name)
    network.run(BEGIN_NS + 10**10)
    down, up = FABRIC.base_rtt_ns // 2, 300_000_000 + network.senders.port_back_ns(1)
    assert traffic.heard == [(down, "port down", (0, 1)), (up, "port up", (0, 1))]


def test_a_silent_switch_takes_its_paths_though_no_cable_is_down(network: Network) -> None:
    traffic = Traffic(network)
    network.set_switch(t1_name(0, 1), SWITCH_SILENT)
    network.run(BEGIN_NS)
    assert sorted(str(of) for _, what, of in traffic.heard if what == "hit") == ["(0, 0, 1)", "(0, 1, 1)"]
    assert int((~network.works.up).sum()) == 2
    network.set_switch(t1_name(0, 1), SWITCH_WORKS)
    network.run(BEGIN_NS + 10**10)
    assert network.works.up.all() and network.used.up.all()


def test_a_silent_t0_is_found_by_losses_not_by_a_carrier(network: Network) -> None:
    traffic = Traffic(network)
    network.set_switch(t0_name(0, 0), SWITCH_SILENT)
    network.run(BEGIN_NS + FABRIC.base_rtt_ns)
    assert not network.works.port[0, :2].any() and network.used.port.all()
    network.run(BEGIN_NS + 10**10)
    assert {of for _, what, of in traffic.heard if what == "port down"} == {(0, 0), (0, 1)}
    assert not network.used.port[0, :2].any()


def test_a_halt_stops_time_at_its_event(network: Network) -> None:
    def halt() -> None:
        network.halted = True

    network.at(BEGIN_NS + 7, halt)
    assert not network.run(BEGIN_NS + 9) and network.time == BEGIN_NS + 7
    assert network.run(BEGIN_NS + 9) and network.time == BEGIN_NS + 9
