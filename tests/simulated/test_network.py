"""Time on simulated links, cables that go, and hosts: every figure computed by hand."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from agents.packets import dscp
from agents.process.control import AgentError
from testbed.dataplane.counters import books
from testbed.errors import UserError
from testbed.simulated.cluster import SimulatedCluster
from testbed.simulated.frame import Frame
from testbed.simulated.port import SimPort
from tests.simulated.test_queue import TINY, UPLINK, Bench, frame
from topologies.clos import SACK_BYTES
from topologies.units import BYTE, US

PS = BYTE // TINY.nic_rate
"""Of a byte on a link of tiny."""


def test_an_idle_path_takes_its_links_and_the_delay() -> None:
    bench = Bench()
    there = bench.net.time
    assert bench.one(frame(TINY.frame_bytes)) is not None
    ((data, _),) = bench.got
    begun = bench.net.time
    assert bench.one(frame(SACK_BYTES, dscp.CONTROL)) is not None
    ((sack, _),) = bench.got
    assert (data - there) + (sack - begun) == TINY.base_rtt_ps
    assert data - there == TINY.data_ps(local=False) + TINY.delay_ps


def test_a_link_spaces_frames_by_their_time_on_the_wire() -> None:
    bench = Bench()
    for _ in range(5):
        bench.net.send(0, 0, frame(1000))
    bench.net.run(bench.net.time + 100 * US)
    times = [t for t, _ in bench.got]
    assert [b - a for a, b in pairwise(times)] == [1000 * PS] * 4


def test_the_high_class_goes_first_and_has_half_the_rate_once_its_bucket_is_used_up() -> None:
    port = SimPort(TINY, 0, 0, TINY.nic_rate, 1)
    for _ in range(100):
        assert port.offer(Frame(frame(500, dscp.CONTROL)))
    for _ in range(40):
        assert port.offer(Frame(frame(500, dscp.NO_TRIM)))
    now, high, data = 0, [], []
    while port.waits():
        took = port.take(now)
        if not took:
            assert port.data.first is None and port.high_at() > now  # it waits for its bucket alone
            now = port.high_at()
            continue
        assert took == 500 * PS
        assert port.wire is not None
        (high if port.wire.klass() == dscp.CONTROL else data).append(now)
        now += took
    bucket = 2000 // 500  # 160 ns at the port's rate
    assert high[:bucket] == [k * 500 * PS for k in range(bucket)] and data[0] > high[bucket]
    spaced = [b - a for a, b in pairwise(high[20:])]
    assert set(spaced) == {2 * 500 * PS}
    assert len(data) == 40 and all(b - a in (500 * PS, 1000 * PS) for a, b in pairwise(data))


def test_what_a_cable_held_goes_with_it_and_is_counted() -> None:
    bench = Bench(cut_through=False)
    link = TINY.link("p0-t0-0:p0-t1-0")
    for _ in range(10):
        bench.net.send(0, 0, frame(4000, dscp.NO_TRIM))
    # the second frame is on the uplink's wire by half
    bench.net.run(bench.net.time + 2 * 4000 * PS + 4000 * PS // 2)
    bench.net.set_link(link, up=False)
    bench.net.run(bench.net.time + 20 * US)
    row = bench.row(UPLINK)
    assert (row["flushed_packets"], row["flushed_bytes"], row["drop_link_down_packets"]) == (
        1,
        4000,
        8,
    )
    assert len(bench.got) == 1 and books(bench.net.rows()) == []
    bench.net.set_link(link, up=True)
    bench.net.send(0, 0, frame(4000))
    bench.net.run(bench.net.time + 20 * US)
    assert len(bench.got) == 2 and bench.net.quiet() and books(bench.net.rows()) == []


def test_a_slow_port_is_slow_and_mends(tmp_path: Path) -> None:
    cluster = SimulatedCluster(TINY)

    def rates() -> dict[int, int]:
        ports = cluster.network.ports
        return {port.number: port.rate for port in ports if port.rate != TINY.nic_rate}

    numbers = {port.name: port.number for port in TINY.ports}
    first = cluster.inject("slow", "p0-t0-0:p0-t1-0", rate=0.5)
    second = cluster.inject("slow", "p0-t0-0:p0-t1-0", rate=0.25, direction="up")
    assert rates() == {numbers[UPLINK]: 25 * 10**9, numbers["p0-t1-0-d0"]: 50 * 10**9}
    cluster.clear(second.number)
    assert rates() == {numbers[UPLINK]: 50 * 10**9, numbers["p0-t1-0-d0"]: 50 * 10**9}
    cluster.clear(first.number)
    assert rates() == {}


def test_faults_come_and_go_by_themselves_in_virtual_time() -> None:
    cluster = SimulatedCluster(TINY)
    cluster.inject("flap", "p0-t0-0:p0-t1-0", period="100us", duty=0.4)
    begun = cluster.clock.now()
    cluster.clock.sleep(250 * US)
    told = [(event.t - begun, event.phase) for event in cluster.fault_events()]
    assert told == [
        (0, "begin"),
        (0, "down"),
        (40 * US, "up"),
        (100 * US, "down"),
        (140 * US, "up"),
        (200 * US, "down"),
        (240 * US, "up"),
    ]
    silent = cluster.inject("silent", "p1-t1-0", reboot="30us")
    cluster.clear(silent.number)
    assert [event.phase for event in cluster.fault_events()] == ["begin", "reboot"]
    cluster.clock.sleep(30 * US)
    assert [event.phase for event in cluster.fault_events()][-1] == "heal"
    cluster.heal()
    assert all(cluster.link_states().values()) and cluster.faults() == []


def test_hosts_answer_and_refuse_as_processes_do(tmp_path: Path) -> None:
    with SimulatedCluster(TINY) as cluster:
        with pytest.raises(UserError, match="is not a key: did you mean"):
            cluster.start_agents("mrc", {"no_such": 1}, tmp_path, 1)
        cluster.start_agents("mrc", {}, tmp_path, 1)
        with pytest.raises(AgentError, match="h1: prepare: prepare comes after setup and connect"):
            cluster.agents[1].call("prepare", collective="ring-allreduce", message_bytes=64)
        with pytest.raises(AgentError, match="knows no request 'dance'"):
            cluster.agents[1].call("dance")
        cluster.inject("kill", "h1")
        assert cluster.agents[1].closed
        with pytest.raises(AgentError, match="the agent of h1 is gone"):
            cluster.agents[1].call("counters")
        with pytest.raises(UserError, match="the agent of h1 was killed"):
            cluster.check()
        with pytest.raises(UserError, match="there is no controller running"):
            cluster.inject("kill", "controller")


def test_the_controllers_policy_reaches_the_agents_in_the_same_moment(tmp_path: Path) -> None:
    with SimulatedCluster(TINY) as cluster:
        cluster.start_agents("mrc", {}, tmp_path, 1, "denylist")
        cluster.deny("p1-t1-1", "somebody said so")
        at = cluster.set_link("p0-t0-0:p0-t1-0", False)
        cluster.clock.sleep(US)
        assert cluster.agents[0].call("denied") == ["p1-t1-1", "p0-t0-0:p0-t1-0"]
        cluster.set_link("p0-t0-0:p0-t1-0", True)
        cluster.clock.sleep(US)
        assert cluster.agents[3].call("denied") == ["p1-t1-1"]
        told = [
            entry for entry in cluster.controller_journal(0) if entry["event"] == "denylist-pushed"
        ]
        assert [entry["agents"] for entry in told] == [4, 4, 4] and told[1]["effect_ps"] == told[1][
            "heard_ps"
        ] == at
        assert cluster.allow("p1-t1-1") and cluster.denied() == []
