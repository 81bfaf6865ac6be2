"""Where rotations over planes begin: dealt evenly at senders and at receivers, whatever the length
of messages."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from agents.mrc.paths.rotation import Deal, Wishes
from tests.agents.mrc.crowd import Crowd
from tests.fabrics import near
from topologies.clos import Fabric


def apart(counts: list[int]) -> int:
    return max(counts) - min(counts)


def test_each_round_deals_each_number_once_and_rounds_differ() -> None:
    deal = Deal(8, Random(1))
    rounds = [[deal.next() for _ in range(8)] for _ in range(20)]
    assert all(sorted(numbers) == list(range(8)) for numbers in rounds)
    assert len({tuple(numbers) for numbers in rounds}) > 15


def test_a_wish_is_granted_once_a_round() -> None:
    deal = Deal(4, Random(1))
    first = [deal.next(2), deal.next(2), deal.next(2), deal.next(2)]
    assert first[0] == 2 and sorted(first) == [0, 1, 2, 3]
    assert deal.next(2) == 2


def spread_fabric(planes: int, hosts: int) -> Fabric:
    return near(Fabric("made", planes, 2, 2, hosts // 2))


@pytest.mark.parametrize("planes", range(1, 17))
@pytest.mark.parametrize("hosts", [12, 20])
def test_wishes_of_an_all_to_all_are_even_at_both_ends(planes: int, hosts: int) -> None:
    fabric = spread_fabric(planes, hosts)
    wishes = [Wishes(fabric, host, 1) for host in range(hosts)]
    for host in range(hosts):
        out = [wishes[host].plane((host + k) % hosts, 0) for k in range(1, hosts)]
        assert apart([out.count(p) for p in range(planes)]) <= 1
        into = Counter(wishes[sender].plane(host, 0) for sender in range(hosts) if sender != host)
        # Senders from this host down to 0 and from the last one down to this one are two rows, in
        # blocks of as many as there are planes.
        assert apart([into[p] for p in range(planes)]) <= 4
    # In a ring every host has one queue pair: they must not all begin on one plane.
    ring = Counter(wishes[host].plane((host + 1) % hosts, 0) for host in range(hosts))
    assert max(ring.values()) <= max(2, -(-2 * hosts // planes))


@pytest.mark.parametrize(
    ("planes", "t0s", "hosts", "packets"), [(4, 2, 4, 5), (3, 2, 5, 1), (5, 4, 2, 7)]
)
def test_an_all_to_all_loads_all_planes_alike_whatever_the_length_of_messages(
    planes: int, t0s: int, hosts: int, packets: int
) -> None:
    fabric = near(Fabric("made", planes, t0s, 4, hosts))
    n = fabric.host_count
    pairs = [(a, (a + k) % n) for a in range(n) for k in range(1, n)]
    crowd = Crowd(fabric, pairs, size=packets * fabric.mtu, endless=False)
    assert crowd.run(200, until_done=True)
    total = [0] * planes
    for host, engine in enumerate(crowd.engines):
        books = engine.rotation()
        rounds, rest = divmod(n - 1, planes)
        assert books["unsure"] == 0 and set(books["first"]) <= {rounds, rounds + 1}, (host, books)
        assert books["first"].count(rounds + 1) == rest
        lap = packets % planes
        assert apart(books["due"]) <= min(rest, planes - rest, lap, planes - lap)
        assert apart(books["sent"]) <= apart(books["due"]) + books["passed"]
        assert sum(books["sent"]) == (n - 1) * packets
        total = [a + b for a, b in zip(total, books["sent"], strict=True)]
    assert apart(total) <= max(0.02 * sum(total) / planes, n)


def test_a_retransmission_takes_no_new_packets_turn() -> None:
    fabric = near(Fabric("made", 4, 2, 4, 2))
    crowd = Crowd(
        fabric, [(0, 3)], size=199 * fabric.mtu, endless=False, options={"ev_min_active": 16}
    )
    drop = Random(3)
    crowd.net.fate = lambda frame, link, now: len(frame) < 1000 or drop.random() > 0.02
    assert crowd.run(2000, until_done=True)
    books = crowd.engines[0].rotation()
    assert crowd.total("retransmitted") >= 5
    assert all(
        abs(a - b) <= books["passed"] for a, b in zip(books["sent"], books["due"], strict=True)
    ), books


def test_queue_pairs_take_turns_in_the_order_in_which_they_are_posted_to() -> None:
    """By peer number, every host of an all-to-all would send to the same peer at the same
    moment."""
    fabric = near(Fabric("made", 4, 2, 4, 3))
    crowd = Crowd(fabric, [(2, 0), (2, 1), (2, 3), (2, 4)], size=fabric.mtu, endless=False)
    order: list[int] = []

    def trace(now: int, port: str, frame: bytes) -> None:
        if port.startswith("h2-") and len(frame) > fabric.mtu:
            order.append(frame[93] - 1)  # the last byte of the inner destination

    crowd.net.trace = trace
    crowd.run(50, until_done=True)
    assert order == [0, 1, 3, 4]
    for again in ([3, 4, 1, 0], [4, 0], [1, 3, 0, 4]):  # as their places in the list change
        order.clear()
        for peer in again:
            flow = next(f for f in crowd.flows if f.dst == peer)
            flow.done = 0
            flow.post()
        crowd.run(50, until_done=False)
        assert order == again


def test_control_packets_of_many_queue_pairs_begin_on_all_planes() -> None:
    fabric = near(Fabric("made", 4, 2, 4, 5))
    crowd = Crowd(fabric, [(a, 9) for a in range(8)], size=fabric.mtu, endless=False)
    begun: dict[int, int] = {}

    def trace(now: int, port: str, frame: bytes) -> None:
        if port.startswith("h9-"):
            begun.setdefault(frame[93] - 1, int(port[-1]))

    crowd.net.trace = trace
    assert crowd.run(50, until_done=True)
    assert sorted(begun.values()) == [0, 0, 1, 1, 2, 2, 3, 3]
