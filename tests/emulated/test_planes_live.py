"""What must not depend on who forwards, eBPF or Open vSwitch: link events, books, queues, faults,
captures, the controller's death.

That both forward the same frames alike is in test_planes.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
from collections.abc import Iterator

import pytest

from agents.packets import dscp
from testbed.controller.client import ControllerClient
from testbed.dataplane.counters import totals
from testbed.emulated.cluster import Cluster
from tests.emulated.frames import Wire, arrived, at_rest, mrc, wires_of
from tests.emulated.ring import quiet, wait_until
from topologies import addressing, load_fabric
from topologies.addressing import ev
from topologies.fabrics import DILATION
from topologies.paths import path_evs

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed"
    ),
]
PLANES = ("ebpf", "ovs")


@pytest.fixture(scope="module", params=PLANES)
def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """`tiny` at 1 Mb/s with the controller, one link captured."""
    fabric = load_fabric("tiny").with_(nic_rate=10**10, fabric_rate=10**10)
    where = tmp_path_factory.mktemp("pcap")
    with Cluster(
        fabric,
        dilation=DILATION,
        switch=request.param,
        pcap_links=["p0-t0-0:p0-t1-0"],
        pcap_dir=where,
    ) as cluster:
        yield cluster


@pytest.fixture
def wires(live: Cluster) -> Iterator[list[Wire]]:
    with wires_of(live) as made:
        yield made


@pytest.mark.parametrize("link", ["p0-t0-0:p0-t1-0", "h1:p1-t0-0"])
@pytest.mark.quiet
def test_link_events_reach_the_controller(live: Cluster, link: str) -> None:
    controller = ControllerClient(live.rest_url)
    took = []
    for up in (False, True, False, True):
        told = live.set_link(link, up)
        assert wait_until(lambda wanted=not up: (link in controller.get("failed-links")) == wanted)  # type: ignore[misc]
        event = controller.get("events")[-1]
        assert (event["link"], event["up"]) == (link, up)
        took.append(event["handled_ps"] - told)
    assert min(took) > 0 and statistics.median(took) < live.clock.patience(0.1), (
        "a single one may have to wait for a core"
    )
    assert all(table["as_computed"] for table in controller.get("tables").values())


def test_what_meets_a_dead_cable_is_in_the_books(live: Cluster, wires: list[Wire]) -> None:
    out, into = wires[0], wires[2]
    frame = mrc(0, 2, addressing.path_address(live.fabric, 0, 2, ev(0, 1)), bytes(100))
    before = {row["port"]: row["drop_link_down_packets"] for row in live.counters()}
    live.set_link("p0-t0-0:p0-t1-1", False)
    for _ in range(40):
        assert out.send(0, frame)
    assert quiet(live) and into.receive(1, timeout=0.3) == []
    live.set_link("p0-t0-0:p0-t1-1", True)
    for _ in range(10):
        out.send(0, frame)
    assert len(arrived(into)) == 10
    rows = live.counters()
    assert {
        r["port"]: n for r in rows if (n := r["drop_link_down_packets"] - before[r["port"]])
    } == {"p0-t0-0-u1": 40}


def test_the_queue_marks_and_trims(live: Cluster, wires: list[Wire]) -> None:
    """Two senders into one uplink: it fills, marks, trims, and every frame is accounted for."""
    before = totals(live.counters())
    for _ in range(30):
        for host in (0, 1):
            where = addressing.path_address(live.fabric, host, 2, ev(1, 0))
            frame = mrc(host, 2, where, bytes(4096), dscp_class=dscp.TRIMMABLE)
            assert wires[host].send(1, frame[:15] + bytes([frame[15] | 2 << 4]) + frame[16:])
    got = arrived(wires[2])
    moved = {key: value - before[key] for key, value in totals(live.counters()).items()}
    assert len(got) == 60
    assert moved["trimmed"] >= 10 and moved["marked"] >= 5
    assert sum(len(g.frame) == 142 for g in got) == moved["trimmed"]
    assert sum(g.frame[15] >> 4 & 3 == 3 for g in got) == moved["marked"]


def test_a_silent_switch_swallows_with_its_links_up(live: Cluster, wires: list[Wire]) -> None:
    out, into = wires[0], wires[2]
    frame = mrc(0, 2, addressing.path_address(live.fabric, 0, 2, ev(0, 0)), bytes(100))
    before = totals(live.counters())["drop_silent"]
    fault = live.inject("silent", "p0-t1-0")
    for _ in range(5):
        assert out.send(0, frame)
    assert arrived(into) == []
    assert all(live.link_states().values())
    assert totals(live.counters())["drop_silent"] - before == 5
    live.clear(fault.number)
    assert out.send(0, frame)
    assert len(into.receive(1)) == 1
    assert at_rest(live)


def test_a_lossy_link_loses_before_the_switch_has_it(live: Cluster, wires: list[Wire]) -> None:
    out, into = wires[0], wires[2]
    fault = live.inject("loss", "p0-t0-0:p0-t1-0", probability=0.3, seed=7)
    for number in range(100):
        assert out.send(
            0, mrc(0, 2, addressing.path_address(live.fabric, 0, 2, ev(0, 0)), b"%03d" % number)
        )
    got = arrived(into)
    live.clear(fault.number)
    assert 50 <= len(got) <= 85
    assert [g.frame[-3:] for g in got] == sorted(g.frame[-3:] for g in got)
    assert at_rest(live)


def test_a_byte_changed_on_the_cable_is_what_the_switch_forwards(
    live: Cluster, wires: list[Wire]
) -> None:
    out, into = wires[0], wires[2]
    frame = mrc(0, 2, addressing.path_address(live.fabric, 0, 2, ev(0, 0)), bytes(500))
    before = totals(live.counters())["corrupted"]
    fault = live.inject("corrupt", "p0-t0-0:p0-t1-0", probability=0.5, direction="up", seed=3)
    for _ in range(40):
        assert out.send(0, frame)
    got = arrived(into)
    live.clear(fault.number)
    whole = got[0].frame[:54] + frame[54:]
    changed = [sum(a != b for a, b in zip(g.frame, whole, strict=True)) for g in got]
    assert len(got) == 40 and set(changed) == {0, 1}
    assert sum(changed) == totals(live.counters())["corrupted"] - before


def test_a_capture_has_every_frame_once(live: Cluster, wires: list[Wire]) -> None:
    out, into = wires[0], wires[2]
    bodies = [b"captured %03d" % number for number in range(20)]
    for body in bodies:
        assert out.send(0, mrc(0, 2, addressing.path_address(live.fabric, 0, 2, ev(0, 0)), body))
    for body in bodies:
        assert into.send(
            0, mrc(2, 0, addressing.path_address(live.fabric, 2, 0, ev(0, 0)), body[::-1])
        )
    assert len(into.receive(20)) == 20 and len(out.receive(20)) == 20
    wanted = [*bodies, *(body[::-1] for body in bodies)]
    assert wait_until(lambda: all(body in live.captures[0].path.read_bytes() for body in wanted))
    text = live.captures[0].path.read_bytes()
    assert [text.count(body) for body in bodies] == [1] * 20
    assert [text.count(body[::-1]) for body in bodies] == [1] * 20


def test_the_controllers_death_stops_nothing(live: Cluster, wires: list[Wire]) -> None:
    """The last test of the module with each plane: it takes the controller away."""
    os.kill(live.controller_pid, signal.SIGKILL)
    assert wait_until(lambda: not live.controller_alive)
    out, into = wires[1], wires[3]
    for value in path_evs(live.fabric, 1, 3):
        assert out.send(
            value >> 16, mrc(1, 3, addressing.path_address(live.fabric, 1, 3, value), b"on")
        )
    assert len(into.receive(4)) == 4
    live.check()
