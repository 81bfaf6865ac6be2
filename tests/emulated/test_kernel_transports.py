"""Collectives over the kernel's TCP and MPTCP on a real fabric: right sums, spread flows, late
re-routing, lost NIC ports, nothing left."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents.collectives.steer import connect, wait_for_all
from agents.process.control import AgentError
from scenarios.figures.books import books
from testbed.emulated.cluster import Cluster
from testbed.emulated.kernel_paths import MPTCP_SYSCTLS, SEED, SYSCTLS
from tests.emulated.ring import PATIENCE_S, Ring, accounts, logged, paths, quiet, wait_until
from topologies.fabrics import DILATION
from topologies.paths import path_links

pytestmark = pytest.mark.sandbox

SYSCTL_FILES = " ".join(f"/proc/sys/{name}" for name in (*SYSCTLS, *MPTCP_SYSCTLS, SEED))


def state(cluster: Cluster) -> list[str]:
    """Everything that a kernel transport changes in the hosts."""
    words = (
        "ip -6 route show table all; ip link show; ip -6 addr show dev lo; ip mptcp endpoint; ip "
        "mptcp limits; ss -Htan"
    )
    return [host.cmd(f"{words}; cat {SYSCTL_FILES}") for host in cluster.net.hosts]


def quickest_rtts(cluster: Cluster) -> list[int]:
    """Of every connection, ps."""
    told = [
        ms
        for host in cluster.net.hosts
        for ms in re.findall(r"\bminrtt:([\d.]+)", host.cmd("ss -Htin"))
    ]
    return [cluster.clock.patience(float(ms) / 1e3) for ms in told]


def carried(cluster: Cluster, before: list[dict[str, Any]]) -> dict[str, int]:
    """Port -> bytes it sent since."""
    old = {row["port"]: row["admitted_bytes"] for row in before}
    return {row["port"]: row["admitted_bytes"] - old[row["port"]] for row in cluster.counters()}


@pytest.mark.parametrize("kind", ["tcp", "mptcp"])
def test_a_ring_is_right_and_nothing_is_left(tiny: Cluster, tmp_path: Path, kind: str) -> None:
    clean, before = state(tiny), tiny.counters()
    tiny.start_agents(kind, {}, tmp_path, 3)
    assert state(tiny) != clean
    ring = Ring(tiny)
    assert ring.run(3) and ring.all_right()
    used = carried(tiny, before)
    rows = [row for row in paths(tiny) if row["data_tx"] > 2]
    expected = {(row["host"], row["plane"]) for row in rows}
    size = 2 * 3 * (1 << 16) * 3 // 4  # what each rank sends
    for host in range(4):
        ports = [used[f"h{host}-p{plane}"] for plane in range(2)]
        assert size < sum(ports) < 1.3 * size
        for plane in range(2):
            row_bytes = 4096 * sum(
                row["data_tx"] for row in rows if (row["host"], row["plane"]) == (host, plane)
            )
            assert (ports[plane] > 40_000) == ((host, plane) in expected and row_bytes > 40_000), (
                "data took the paths that were told"
            )
    told = [
        words
        for host in tiny.net.hosts
        for words in re.findall(r"\brto:(\d+) rtt:([\d.]+)/", host.cmd("ss -Htin"))
    ]
    timers = [float(rto) - float(rtt) for rto, rtt in told]
    assert 16e-3 * DILATION <= min(timers) < 200, (
        "rto_min follows the dilation; the kernel's own is 200 ms"
    )
    if kind == "mptcp":
        assert expected == {(host, plane) for host in range(4) for plane in range(2)}
    record = accounts(tiny, before, kind)
    packets = books(record)
    assert packets.unexplained == 0 and packets.sent > 4 * size // 4200 and not packets.rejected
    told = [agent.call("counters") for agent in tiny.agents]
    # Two queue pairs a host, of MPTCP with one subflow per plane: not one more.
    assert [c["subflows"] for c in told] == [2 if kind == "tcp" else 4] * 4
    assert all(c["delayed"] > 0 and c["delay_refused"] == 0 for c in told)
    assert min(quickest_rtts(tiny)) >= 2 * tiny.fabric.delay_ps, (
        "round trips have the fabric's delay"
    )
    # And no more: a segment may wait for a core, but not every one, however busy the machine is.
    assert wait_until(
        lambda: min(quickest_rtts(tiny)) < 2 * tiny.fabric.base_rtt_ps or (ring.run(1) and False)
    )
    tiny.stop_agents()
    assert state(tiny) == clean
    assert not logged(tmp_path, "qp", "failed"), "the end was meant"
    goodput = logged(tmp_path, "goodput")
    for side in ("tx", "rx"):
        assert sum(sum(line[side]) for line in goodput) == 4 * size * (len(ring.ends) // 4) // 3


def test_tcp_flows_take_many_paths_and_agents_know_which(tiny: Cluster, tmp_path: Path) -> None:
    """The kernel's hash, asked beforehand, and the ports' counters agree for every flow."""
    tiny.start_agents("tcp", {}, tmp_path, 5)
    with pytest.raises(AgentError, match="no raw sockets"):
        tiny.agents[0].call("mapper_start", seed=1)
    before = tiny.counters()
    agents = [tiny.agents[0], tiny.agents[2]]
    made = [
        a.call("setup", collective="send-recv", ranks=[0, 2], rank=i, qps=12)
        for i, a in enumerate(agents)
    ]
    for i, agent in enumerate(agents):
        agent.call("connect", remotes={str(1 - i): made[1 - i]["qps"][str(i)]})
    told = agents[0].call("paths")
    evs = [row["ev"] for row in told]
    assert len(evs) == 12 and len(set(evs)) >= 3, (
        "12 flows over 4 paths: fewer than 3 is one seed in thousands"
    )
    for agent in agents:
        agent.call(
            "start",
            collective="send-recv",
            message_bytes=1 << 18,
            dtype="int32",
            steps=2,
            warmup=0,
            seed=1,
        )
    done: set[int] = set()

    def both() -> bool:
        for i, agent in enumerate(agents):
            done.update(
                i for note in agent.notifications() if note["event"] == "done" and not note["wrong"]
            )
        return done == {0, 1}

    assert wait_until(both, 2 * PATIENCE_S) and quiet(tiny)
    rows = agents[0].call("paths")
    assert [row["ev"] for row in rows] == evs
    used = carried(tiny, before)
    for plane in range(2):
        for uplink in range(2):
            # A flow that had nothing to carry sent its greeting alone, a small segment, and on a
            # busy machine again.
            busy = [row for row in rows if row["data_tx"] - row["retransmitted"] > 1]
            segments = sum(
                row["data_tx"] for row in busy if (row["plane"], row["uplink"]) == (plane, uplink)
            )
            port = used[f"p{plane}-t0-0-u{uplink}"]
            assert abs(port - segments * 4100) < 0.25 * port + 20_000
    tiny.stop_agents()


def pulled_and_rerouted(
    cluster: Cluster, link: str, late: float
) -> list[tuple[float, Callable[[], object]]]:
    """A cable goes at 0.4 s and the network finds out ``late`` seconds after."""

    def converge() -> None:
        cluster.reroute([link])
        for agent in cluster.agents:
            agent.call("reroute", dead_links=[link])

    return [(0.4, functools.partial(cluster.set_link, link, False)), (0.4 + late, converge)]


def longest_step(ring: Ring, begun: int) -> float:
    """Seconds of wall time from the end of a step, or from the begin, to the next one's; a step
    ends with its last rank."""
    ends = [begun] + [
        max(t for t, number, _ in ring.ends if number == step)
        for step in sorted({number for _, number, _ in ring.ends})
    ]
    return ring.cluster.clock.wall_s(max(b - a for a, b in itertools.pairwise(ends)))


def test_tcp_stalls_until_the_network_has_re_routed_and_its_timer_fires(
    tiny: Cluster, tmp_path: Path
) -> None:
    tiny.start_agents("tcp", {}, tmp_path, 7)
    ring = Ring(tiny)
    row = next(r for r in paths(tiny) if r["host"] == ring.hosts[0] and r["peer"] == ring.hosts[1])
    link = next(
        li.name
        for li in path_links(tiny.fabric, row["host"], row["peer"], row["ev"])
        if li.kind == "fabric"
    )
    before, begun = tiny.counters(), tiny.clock.now()
    try:
        assert ring.run(6, pulled_and_rerouted(tiny, link, 0.8), size=1 << 17) and ring.all_right()
        assert longest_step(ring, begun) > 0.8, "nothing went on before the network re-routed"
        moved = next(
            r for r in paths(tiny) if r["host"] == row["host"] and r["peer"] == row["peer"]
        )
        assert moved["ev"] != row["ev"]
        assert link not in {
            li.name for li in path_links(tiny.fabric, row["host"], row["peer"], moved["ev"])
        }
        record = accounts(tiny, before, "tcp")
        assert books(record).unexplained == 0
    finally:
        tiny.heal()
        tiny.stop_agents()
    fired = [line for line in logged(tmp_path, "rto") if line["host"] == row["host"]]
    assert fired and sum(line["count"] for line in logged(tmp_path, "rtx")) > 0


def test_mptcp_goes_on_without_a_nic_port(tiny: Cluster, tmp_path: Path) -> None:
    """What was under way on it goes again on the other plane's subflow, long before the network
    knows."""
    host = 0
    tiny.start_agents("mptcp", {}, tmp_path, 7)
    ring = Ring(tiny)
    link = "h0:p1-t0-0"
    before: list[dict[str, Any]] = []

    def pull() -> None:
        tiny.set_link(link, False)
        before.extend(tiny.counters())

    try:
        assert ring.run(8, [(0.4, pull)], size=1 << 17), (ring.failures, ring.ends)
        assert ring.all_right()
        used = carried(tiny, before)
        assert used["h0-p1"] == 0 and used["h0-p0"] > 100_000
    finally:
        tiny.heal()
        tiny.stop_agents()
    assert {line["host"] for line in logged(tmp_path, "rto")} & {host, *ring.hosts}


def test_corrupted_segments_are_refused_and_sent_again(tiny: Cluster, tmp_path: Path) -> None:
    tiny.start_agents("tcp", {}, tmp_path, 2)
    before = tiny.counters()
    try:
        ring = Ring(tiny)
        row = next(
            r for r in paths(tiny) if r["host"] == ring.hosts[0] and r["peer"] == ring.hosts[1]
        )
        link = path_links(tiny.fabric, row["host"], row["peer"], row["ev"])[-1].name
        tiny.inject("corrupt", link, probability=0.1)
        assert ring.run(2) and ring.all_right()
        packets = books(accounts(tiny, before, "tcp"))
        assert packets.corrupted > 0 and packets.rejected == {"rx_bad_icrc": packets.corrupted}
        assert packets.unexplained == 0 and packets.retransmitted > 0
    finally:
        tiny.heal()
        tiny.stop_agents()


def test_the_fabric_queues_what_tcp_sends(tiny: Cluster, tmp_path: Path) -> None:
    """Three senders at one receiver: frames that were charged to their sockets until they arrive
    would wait in the sockets instead."""
    tiny.start_agents("tcp", {}, tmp_path, 4)
    try:
        flows = [{"name": f"f{src}", "src": src, "dst": 3, "messages": 8} for src in range(3)]
        connect(tiny.agents, [0, 1, 2, 3], "flows", 2, 4, flows)
        t0 = tiny.clock.now() + tiny.clock.patience(0.05)
        for agent in tiny.agents:
            agent.call(
                "start", collective="flows", message_bytes=1 << 17, seed=3, outstanding=4, at=t0
            )
        notes: list[dict[str, Any]] = []
        assert wait_for_all(
            tiny.agents,
            lambda rank, note: notes.append(note),
            tiny.check,
            tiny.clock.patience(2 * PATIENCE_S),
            tiny.clock,
        )
        assert all(note.get("wrong", 0) == 0 for note in notes)
        peaks = {row["port"]: row["backlog_peak_bytes"] for row in tiny.counters()}
        assert max(peaks[f"p{plane}-t0-1-d1"] for plane in range(2)) > 100_000, (
            "far above two segments of each connection"
        )
    finally:
        tiny.stop_agents()
