"""PFC on emulated switches: RoCE's data loses nothing to congestion, pauses spread to the senders,
and nobody stays paused."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.collectives.steer import connect, wait_for_all
from agents.packets import dscp
from testbed.dataplane import layout
from testbed.dataplane.counters import books
from testbed.emulated import netlink
from testbed.emulated.cluster import Cluster
from testbed.emulated.pauser import rows_of
from testbed.errors import UserError
from tests.emulated.frames import Got, Wire, at_rest, mrc, wires_of
from tests.emulated.ring import PATIENCE_S, wait_until
from topologies import load_fabric
from topologies.addressing import SWITCH_MAC, ev, path_address
from topologies.clos import Fabric
from topologies.fabrics import DILATION
from topologies.units import NS, wire_time

pytestmark = [pytest.mark.sandbox, pytest.mark.quiet]
SMALL = load_fabric("tiny").with_(pfc=True, pfc_xoff_bdp=0.5, buffer_bdp=2.0)
"""Two hosts under each T0; a full packet takes 3.4 ms."""


RACK = load_fabric("demo-1p").with_(
    name="rack",
    nic_rate=25 * 10**9,
    fabric_rate=25 * 10**9,
    delay_ps=3400 * NS,
    pfc=True,
    pfc_xoff_bdp=0.5,
    buffer_bdp=2.0,
)
"""Four hosts under each of two T0s, four T1s, one plane. A full packet takes 14 ms; a pause may be
that late without a loss."""


BURST = 150
NICS = ("h0-p0", "h1-p0")
UPLINK = "p0-t0-0:p0-t1-0"
BODY = 4096
ATTEMPTS = 8
"""What holds for pauses that come in time is asserted where all did. A fabric that another sandbox
builds meanwhile has the kernel's lock on interfaces, and a pause, or its end, waits for it: up to
17 ms on busy cores."""
BURSTS = 3
"""Ends of pauses are not counted; late ones show in how long the uplink stood still."""


@pytest.fixture(scope="module")
def small() -> Iterator[Cluster]:
    with Cluster(SMALL, dilation=DILATION, controller=False) as cluster:
        yield cluster


@pytest.fixture
def wires(small: Cluster) -> Iterator[list[Wire]]:
    """Whatever a test did, everything is let go of after it."""
    with wires_of(small) as made:
        yield made
    assert at_rest(small) and books(small.counters()) == []
    assert let_go(small)


def data(src: int, dscp_class: int = dscp.ROCE, size: int = BODY) -> bytes:
    """A frame to h2 by plane 0 and its first uplink."""
    return mrc(src, 2, path_address(SMALL, 0, 2, ev(0, 0)), bytes(size), dscp_class=dscp_class)


def burst(wires: list[Wire]) -> None:
    """Two full-rate senders on one uplink of that rate."""
    for _ in range(BURST):
        for host in (0, 1):
            assert wires[host].send(0, data(host))


def burst_that_pauses(cluster: Cluster, wires: list[Wire]) -> None:
    """Returns as soon as it has paused the first sender."""
    before = row(cluster, NICS[0])["pauses"]
    burst(wires)
    assert wait_until(lambda: row(cluster, NICS[0])["pauses"] > before)


def row(cluster: Cluster, port: str) -> dict[str, Any]:
    return next(r for r in cluster.counters() if r["port"] == port)


def total(cluster: Cluster, key: str) -> int:
    return sum(r[key] for r in cluster.counters())


def in_time(fabric: Fabric, rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether every pause since forget_longest() took effect before headroom was full."""
    return all(r["longest_pause_reaction_ps"] <= fabric.pfc_ps for r in rows)


def burst_in_time(
    cluster: Cluster, wires: list[Wire]
) -> tuple[list[Got], dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """What h2 got of a burst, and all ports' counters before and after it."""
    for _ in range(ATTEMPTS):
        before = {r["port"]: r for r in cluster.counters()}
        cluster.net.counters.forget_longest()
        burst(wires)
        got = wires[2].receive(2 * BURST)
        after = {r["port"]: r for r in cluster.counters()}
        if in_time(SMALL, after.values()):
            return got, before, after
        assert at_rest(cluster) and let_go(cluster)
    pytest.fail(f"a pause came too late in each of {ATTEMPTS} bursts")


def let_go(cluster: Cluster) -> bool:
    """Whether no switch holds anything and no port is paused, by the books and by the kernel."""
    held, pauses = (
        rows_of("port_held", len(layout.HELD_WORDS)),
        rows_of("port_pause", len(layout.PAUSE_WORDS)),
    )

    def nothing() -> bool:
        return not np.any(held[:, 0] - held[:, 1] - pauses[:, 0]) and not np.any(
            pauses[:, layout.PAUSE_WORDS.index("since_ns")]
        )

    return wait_until(nothing, 5.0) and all(
        rate == netlink.GOES_ON for rate in kernel_rates(cluster)
    )


def kernel_rates(cluster: Cluster) -> list[int]:
    """Bytes/s of the token bucket below the data class of every port."""
    rates = []
    for node in cluster.net.namespaces:
        command = [
            "nsenter",
            f"--net={cluster.net.path_of(node)}",
            "--",
            "tc",
            "-j",
            "qdisc",
            "show",
        ]
        shown = json.loads(
            subprocess.run(command, capture_output=True, check=True, text=True).stdout
        )
        rates += [int(q["options"]["rate"]) for q in shown if q["kind"] == "tbf"]
    assert len(rates) == len(cluster.fabric.ports)
    return rates


def test_two_senders_on_one_uplink_lose_nothing_and_share_it_by_pauses_that_come_as_over_a_cable(
    small: Cluster, wires: list[Wire]
) -> None:
    for _ in range(BURSTS):
        got, before, after = burst_in_time(small, wires)
        assert len(got) == 2 * BURST and not [
            name
            for name in after
            if after[name]["drop_tail_packets"] > before[name]["drop_tail_packets"]
        ]
        frame_ps = wire_time(SMALL.frame_bytes, SMALL.nic_rate)
        for nic in NICS:
            paused = after[nic]
            count = paused["pauses"] - before[nic]["pauses"]
            assert count >= 2 and paused["paused_ps"] >= paused["longest_pause_ps"] > 0
            mean = (paused["pause_reaction_ps"] - before[nic]["pause_reaction_ps"]) / count
            assert SMALL.pfc_ps - frame_ps <= mean < SMALL.pfc_ps, (
                "the last frame leaves when the pause takes effect"
            )
        assert after["p0-t0-0-u0"]["pauses"] == 0
        # two full queues took turns: the uplink never waited for a sender that was told too late to
        # go on, as this machine may tell it now and then
        took = (got[-1].at - got[0].at) / DILATION
        at_line_rate = (2 * BURST - 1) * len(got[0].frame) * 8 / SMALL.nic_rate
        if took == pytest.approx(at_line_rate, rel=0.03):
            return
        assert at_rest(small) and let_go(small)
    pytest.fail(f"the uplink stood still in each of {BURSTS} bursts, {took} s of {at_line_rate}")


def test_a_paused_port_stands_still_and_lets_control_pass(
    small: Cluster, wires: list[Wire]
) -> None:
    """A look counts only if the switch had not let go of the port after it; and a burst only if
    there is data left to be overtaken, which on a busy machine may all have gone before this
    process looks."""
    number, far = (
        next(port.number for port in SMALL.ports if port.name == name)
        for name in (NICS[0], "p0-t0-0-d0")
    )
    held, pauses = (
        rows_of("port_held", len(layout.HELD_WORDS)),
        rows_of("port_pause", len(layout.PAUSE_WORDS)),
    )
    since, lost = layout.PAUSE_WORDS.index("since_ns"), layout.PAUSE_WORDS.index("lost_bytes")
    _, xon = SMALL.pfc_bytes

    def paused(begun: int) -> bool:
        holds = int(held[far, 0]) - int(held[far, 1]) - int(pauses[far, lost])
        return holds > xon and int(pauses[number, since]) == begun

    looks, moved = 0, 0

    def control_overtakes() -> bool:
        nonlocal looks, moved
        small.net.counters.forget_longest()
        burst(wires)
        assert wait_until(lambda: pauses[number, since] or small.backlog(NICS[0]) == 0)
        begun, first = int(pauses[number, since]), row(small, "p0-t0-0-d0")["arrived_packets"]
        if begun and paused(begun):
            assert wires[0].send(0, data(0, dscp.CONTROL, 8))
            behind = small.backlog(NICS[0])
            while paused(begun):
                last = row(small, "p0-t0-0-d0")["arrived_packets"]
                if paused(begun):
                    looks, moved = looks + 1, max(moved, last - first)
                time.sleep(0.001)
        else:
            behind = 0
        assert at_rest(small)
        got = wires[2].receive(1 << 30, timeout=0.05)
        if behind < 40 * len(data(0)) or not in_time(SMALL, small.counters()):
            return False
        assert len(got) == 2 * BURST + 1
        place = next(i for i, g in enumerate(got) if len(g.frame) < 200)
        assert place < 2 * BURST - 20, "control stood behind data"
        return looks > 5

    assert wait_until(control_overtakes)
    assert moved <= 2, "one frame may follow a pause, and no more; the other is control"


def test_a_cable_that_goes_down_lets_go_of_all_that_waited_for_it(
    small: Cluster, wires: list[Wire]
) -> None:
    burst_that_pauses(small, wires)
    small.net.faults.set_link(UPLINK, False)
    assert at_rest(small)
    assert (
        row(small, "p0-t0-0-u0")["flushed_packets"] > 0
        and row(small, "p0-t0-0-u0")["drop_link_down_packets"] > 0
    )
    assert let_go(small)
    small.net.faults.set_link(UPLINK, True)
    wires[2].receive(1 << 30, timeout=0.2)
    for _ in range(5):
        assert wires[0].send(0, data(0))
    assert len(wires[2].receive(5)) == 5


def test_a_paused_port_whose_cable_is_pulled_is_not_paused_when_it_is_back(
    small: Cluster, wires: list[Wire]
) -> None:
    """Five times: the pauser changes the port's queue just when the kernel should empty it, and the
    cable is back at once."""
    for _ in range(5):
        burst_that_pauses(small, wires)
        small.net.faults.set_link("h0:p0-t0-0", False)
        small.net.faults.set_link("h0:p0-t0-0", True)
        assert at_rest(small) and let_go(small)
    wires[2].receive(1 << 30, timeout=0.2)
    for _ in range(5):
        assert wires[0].send(0, data(0))
    assert len(wires[2].receive(5)) == 5


def test_a_silent_switch_takes_nothing_for_good(small: Cluster, wires: list[Wire]) -> None:
    burst(wires)
    number = list(SMALL.switches).index("p0-t1-0")
    small.net.counters.set_switch(number, layout.SWITCH_SILENT)
    try:
        assert at_rest(small) and let_go(small)
        assert row(small, "p0-t1-0-d0")["drop_silent"] > 0
    finally:
        small.net.counters.set_switch(number, layout.SWITCH_WORKS)


def test_no_host_gives_back_the_room_of_another(small: Cluster, wires: list[Wire]) -> None:
    """Source MACs that name a switch's port: the first switch does not believe them, and the
    fixture finds nothing held."""
    for port in SMALL.ports:
        forged = bytearray(data(0))
        forged[6:12] = SWITCH_MAC + port.number.to_bytes(2, "big")
        assert wires[0].send(0, bytes(forged))
    assert len(wires[2].receive(len(SMALL.ports))) == len(SMALL.ports)


def test_what_is_not_in_the_lossless_class_is_dropped_as_ever(
    small: Cluster, wires: list[Wire]
) -> None:
    before, pauses = total(small, "drop_tail_packets"), total(small, "pauses")
    for _ in range(6 * BURST):
        for host in (0, 1):
            wires[host].send(0, data(host, dscp.NO_TRIM))
    assert at_rest(small)
    assert total(small, "drop_tail_packets") > before and total(small, "pauses") == pauses


def incast(dilation: float, log: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """Seven to one, over RoCE with windows that no buffer holds: ports' counters by name, and what
    all agents' rings dropped."""
    notes: list[dict[str, Any]] = []
    flows = [{"name": f"h{h}", "src": h, "dst": 7, "messages": 2} for h in range(7)]
    with Cluster(RACK, dilation=dilation, controller=False) as cluster:
        # A timeout of 20 s or more, above what these queues delay: should a pause come too late, it
        # is over in this test's time.
        cluster.start_agents(
            "roce",
            {"congestion": "fixed", "window_bdp": 8.0, "rto_ns": 600 * RACK.delay_ps // NS},
            log,
            1,
            alone=False,
        )
        hosts = list(range(8))
        connect(cluster.agents, hosts, "flows", 1, 4, flows)
        at = cluster.clock.now() + cluster.clock.patience(0.5)
        for agent in cluster.agents:
            agent.call(
                "start", collective="flows", message_bytes=160_000, seed=3, outstanding=4, at=at
            )
        assert wait_for_all(
            cluster.agents,
            lambda rank, note: notes.append(note),
            cluster.check,
            cluster.clock.patience(3 * PATIENCE_S),
            cluster.clock,
        )
        assert at_rest(cluster)
        agents = [agent.call("counters") for agent in cluster.agents]
        ports = {r["port"]: r for r in cluster.counters()}
        assert let_go(cluster)
    ends = [n for n in notes if n["event"] == "flow"]
    assert sorted(n["bytes"] for n in ends) == [320_000] * 7 and all(
        n["wrong"] == 0 for n in notes if n["event"] == "done"
    )
    return ports, sum(a["rx_ring_drops"] for a in agents)


def test_seven_to_one_loses_nothing_and_pauses_spread_to_the_senders(tmp_path: Path) -> None:
    for slower in range(5):  # some rate is right for any machine
        ports, ring_drops = incast(DILATION * 2**slower, tmp_path / str(slower))
        if in_time(RACK, ports.values()):
            break
    else:
        pytest.fail("a pause came too late at every rate")
    lost = {
        (name, key): r[key]
        for name, r in ports.items()
        for key in r
        if key.startswith(("drop_", "flushed_")) and r[key]
    }
    # RoCE may send again on a busy machine, where frames can overtake each other (docs/why/roce.md)
    assert (lost, ring_drops) == ({}, 0)
    assert ports["p0-t0-1-d3"]["backlog_peak_bytes"] > RACK.buffer_bytes, (
        "what a buffer without PFC would have dropped"
    )
    paused = {name for name, r in ports.items() if r["pauses"]}
    assert any(name.startswith("p0-t1-") and name.endswith("-d1") for name in paused), (
        "the last T0 pauses T1s,"
    )
    assert any(name.startswith("p0-t0-0-u") for name in paused), "they pause the senders' T0,"
    assert any(name in paused for name in ("h0-p0", "h1-p0", "h2-p0", "h3-p0")), (
        "and it pauses senders"
    )
    assert not any("-d" in name for name in paused if name.startswith("p0-t0-")), (
        "hosts take everything at once"
    )
    # A paused engine holds its data back: a pause lasts for dozens of packets, and the port's own
    # queue has a few.
    nics = {
        name: r["backlog_peak_bytes"]
        for name, r in ports.items()
        if name.startswith("h") and name in paused
    }
    assert max(nics.values()) <= 20 * RACK.frame_bytes, nics


def test_open_vswitch_has_no_pfc() -> None:
    with (
        pytest.raises(UserError, match="pfc = true is for eBPF switches"),
        Cluster(SMALL, dilation=DILATION, controller=False, switch="ovs"),
    ):
        pass
