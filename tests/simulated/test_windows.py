"""Windows of one delay: where they end, who acts when, and that no port wins all ties."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.collectives.steer import connect, wait_for_all
from agents.packets import dscp
from testbed.dataplane.counters import books
from testbed.simulated.cluster import SimulatedCluster
from testbed.simulated.network import Network, Station
from testbed.simulated.port import SimPort
from tests.simulated.test_queue import TINY, frame
from topologies.units import BYTE, MS

DELAY = TINY.local_delay_ps
INNER_SOURCE_END = 54 + 8 + 15


class Acting(Station):
    """A host that does one thing when it is woken, or when a frame comes."""

    def __init__(self, network: Network, number: int) -> None:
        self.network, self.number = network, number
        self.seen: list[tuple[int, str]] = []
        self.senders: list[int] = []  # last byte of their addresses
        network.stations[number] = self

    def take(self, plane: int, made: bytes) -> None:
        self.seen.append((self.network.time, "frame"))
        self.senders.append(made[INNER_SOURCE_END])

    def wake(self, at: int, halts: bool) -> None:
        self.seen.append((self.network.time, "wake"))
        self.network.halted |= halts

    def wake_at(self, at: int, halts: bool = False) -> None:
        self.network.wake(self.number, at, self.wake, at, halts)


def test_what_a_host_tells_ends_its_window_not_more() -> None:
    network = Network(TINY)
    host, other = Acting(network, 0), Acting(network, 1)
    begin = network.time
    host.wake_at(begin + 10, halts=True)
    for at in (begin + 10 + DELAY - 1, begin + 10 + DELAY):
        other.wake_at(at)
    assert network.run(begin + 5) and network.time == begin + 5 and not host.seen  # nothing yet
    assert not network.run(begin + 10 * DELAY)
    assert network.time == begin + 10 + DELAY - 1  # a window begins at an event and lasts one delay
    assert [at for at, _ in other.seen] == [network.time]
    assert network.run(begin + 10 * DELAY) and network.time == begin + 10 * DELAY
    assert len(other.seen) == 2


def test_a_window_ends_where_the_caller_wants_to_look() -> None:
    network = Network(TINY)
    host = Acting(network, 0)
    host.wake_at(network.time + 10, halts=True)
    until = network.time + 20
    assert not network.run(until) and network.time == until


def test_with_a_reach_of_one_who_steers_hears_at_once() -> None:
    network = Network(TINY)
    network.reach = 1
    host = Acting(network, 0)
    at = network.time + 10
    host.wake_at(at, halts=True)
    assert not network.run(at + DELAY) and network.time == at


def test_who_steers_comes_before_all_else_of_that_time() -> None:
    network = Network(TINY)
    host = Acting(network, 0)
    at = network.time + 10
    host.wake_at(at)
    host.wake_at(at - 1)
    network.at(at, lambda *_: host.seen.append((network.time, "first")))
    network.at(at, lambda *_: host.seen.append((network.time, "second")))
    assert network.run(at)
    assert host.seen == [(at - 1, "wake"), (at, "first"), (at, "second"), (at, "wake")]


def test_a_host_does_not_steer() -> None:
    network = Network(TINY)
    network.wake(0, network.time + 1, lambda *_: network.at(network.time, lambda *_: None))
    with pytest.raises(RuntimeError, match="cannot steer the network"):
        network.run(network.time + 2)


def test_a_frame_comes_before_a_wake_up_of_the_same_time() -> None:
    network = Network(TINY)
    sender, receiver = Acting(network, 0), Acting(network, 2)
    assert network.send(sender.number, 0, frame(1000, dscp.NO_TRIM))
    network.run(network.time + 100 * DELAY)
    ((at, _),) = receiver.seen
    again = Network(TINY)
    receiver = Acting(again, 2)
    receiver.wake_at(at)
    again.send(0, 0, frame(1000, dscp.NO_TRIM))
    again.run(again.time + 100 * DELAY)
    assert receiver.seen == [(at, "frame"), (at, "wake")]


def test_no_port_wins_all_ties_and_the_draws_follow_the_seed() -> None:
    def wins(seed: int) -> list[bool]:
        a, b = (SimPort(TINY, number, 0, TINY.nic_rate, 1) for number in (4, 17))
        for port in (a, b):
            port.describe(TINY, seed)
        return [a.next_order() < b.next_order() for _ in range(1000)]

    first, second = wins(1), wins(2)
    # 4.4 standard deviations of a fair coin
    assert 430 < sum(first) < 570 and 430 < sum(second) < 570
    assert first == wins(1) and first != second
    longest = max(
        len(run)
        for run in "".join("ab"[win] for win in first)
        .replace("ab", "a b")
        .replace("ba", "b a")
        .split()
    )
    assert longest < 25  # nor for long


def test_two_senders_at_the_same_moments_share_the_last_place_of_a_queue() -> None:
    """Both frames of each pair are at the T0 at the same time, and its uplink has room for one: by
    a fixed order, one sender lost all."""
    network = Network(TINY.with_(trimming=False, ecn=False))
    network.describe(network.fabric, 1)
    receiver = Acting(network, 2)
    for _ in range(2000):
        for host in (0, 1):
            assert network.send(host, 0, frame(4242, dscp.NO_TRIM, src=host))
        network.run(network.time + 4242 * BYTE // TINY.nic_rate)
    network.run(network.time + 100 * DELAY)
    assert books(network.rows()) == []
    dropped = next(row for row in network.rows() if row["port"] == "p0-t0-0-u0")[
        "drop_tail_packets"
    ]
    assert dropped > 1000 and len(receiver.senders) == 4000 - dropped
    assert 0.4 < receiver.senders.count(receiver.senders[0]) / len(receiver.senders) < 0.6


def test_without_delay_hosts_talk_in_one_process(tmp_path: Path) -> None:
    fabric = TINY.with_(delay_ps=0)
    with SimulatedCluster(fabric) as cluster:
        cluster.start_agents("mrc", {}, tmp_path, 1)
        hosts = list(range(fabric.host_count))
        connect(cluster.agents, hosts, "ring-allreduce")
        for agent in cluster.agents:
            agent.call(
                "start", collective="ring-allreduce", message_bytes=64 << 10, steps=2, seed=1
            )
        notes: list[dict[str, object]] = []
        assert wait_for_all(
            cluster.agents, lambda rank, note: notes.append(note), lambda: None, MS, cluster.clock
        )
        assert [note["wrong"] for note in notes if note["event"] == "done"] == [0] * len(hosts)
