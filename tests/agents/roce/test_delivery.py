"""Invariant: whatever the network loses or repeats, every posted byte arrives exactly once, in
order, and no other byte changes."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.roce.endpoint import Endpoint
from agents.transport import FLUSHED, OK, RECEIVE, WRITE, Completion
from tests.agents.roce.network import Network, pair
from tests.fabrics import near
from topologies import load_fabric
from topologies.units import BYTE, US, wire_time

TINY = near(load_fabric("tiny"))
GUARD = 64


def random_loss(net: Network, rate: float, seed: int) -> None:
    rng = random.Random(seed)
    net.lose = lambda sent: rng.random() < rate


def exchange(
    made: tuple[Network, Endpoint, Endpoint, int, int], lengths: list[int], seed: int
) -> int:
    """Write messages of these lengths, every other one with an immediate, to their end, and check
    memory, completions and books. Returns how many packets that are."""
    net, a, b, qa, qb = made
    rng = random.Random(seed)
    arena = bytearray(rng.randbytes(sum(lengths) + GUARD * (len(lengths) + 1)))
    expected = bytearray(arena)
    outside = bytearray(rng.randbytes(4096))  # never registered
    outside_before = bytes(outside)
    region = b.register(arena)
    at = GUARD
    for i, length in enumerate(lengths):
        data = rng.randbytes(length)
        expected[at : at + length] = data
        imm = i if i % 2 == 0 else -1
        if imm >= 0:
            b.post_recv(qb, 100 + i)
        a.post_write(qa, i, memoryview(data), region.va + at, region.rkey, imm)
        at += length + GUARD
    net.run()
    assert arena == expected
    assert outside == outside_before
    assert a.completions() == [Completion(qa, i, WRITE, OK, -1, n) for i, n in enumerate(lengths)]
    assert b.completions() == [
        Completion(qb, 100 + i, RECEIVE, OK, i, n) for i, n in enumerate(lengths) if i % 2 == 0
    ]
    packets = sum(max(1, -(-n // TINY.mtu)) for n in lengths)
    assert b.counters()["data_rx"] == packets, "each packet is placed once"
    assert b.counters()["rx_payload_bytes"] == sum(lengths)
    net.check_books()
    return packets


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 20_000), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    st.sampled_from([0.0, 0.2]),
    st.integers(0, 1 << 30),
)
def test_every_byte_arrives_once_in_order_and_nothing_else_changes(
    lengths: list[int], loss: float, duplicate: float, seed: int
) -> None:
    made = pair(TINY, seed=seed, duplicate=duplicate)
    net, a, b, _, _ = made
    random_loss(net, loss, seed)
    packets = exchange(made, lengths, seed)
    plane = a.paths()[0]["plane"]  # retransmissions and duplicates are no goodput
    assert a.goodput() == ([sum(lengths) * (p == plane) for p in range(2)], [0, 0])
    assert b.goodput() == ([0, 0], [sum(lengths) * (p == plane) for p in range(2)])
    assert a.counters()["data_tx"] == packets + a.counters()["retransmitted"]


def test_both_directions_and_psn_wrap() -> None:
    """With 24-bit PSNs about to wrap on one side."""
    net, a, b, qa, qb = pair(TINY)
    first = (1 << 24) - 3
    a._qp(qa).tx.una = a._qp(qa).tx.nxt = a._qp(qa).tx.high = a._qp(qa).tx.end = first
    b._qp(qb).rx.expected = first
    random_loss(net, 0.05, 3)
    ma, mb = bytearray(100_000), bytearray(100_000)
    ra, rb = a.register(ma), b.register(mb)
    da, db = random.Random(1).randbytes(100_000), random.Random(2).randbytes(100_000)
    a.post_write(qa, 1, memoryview(da), rb.va, rb.rkey, -1)
    b.post_write(qb, 2, memoryview(db), ra.va, ra.rkey, -1)
    net.run()
    assert (mb, ma) == (da, db)
    assert b._qp(qb).rx.expected == (first + 25) & 0xFFFFFF
    net.check_books()


@pytest.mark.parametrize("congestion", ["dcqcn", "fixed"])
def test_one_flow_fills_its_plane_and_never_more(congestion: str) -> None:
    """No window, or 1.5 BDP and an ACK for every fifth packet, keep the path full; the port never
    exceeds its rate."""
    net, a, b, qa, _ = pair(TINY, congestion=congestion)
    net.delay_ps = (TINY.base_rtt_ps - wire_time(TINY.frame_bytes, TINY.nic_rate)) // 2
    region = b.register(bytearray(2_000_000))
    a.post_write(qa, 1, memoryview(bytes(2_000_000)), region.va, region.rkey, -1)
    net.run(done=lambda: bool(a._completions))
    rate = 2_000_000 * BYTE / net.now
    ideal = TINY.nic_rate * 4096 / 4214
    assert 0.97 * ideal < rate <= ideal
    # windows of whole packets: between any k+2 departures lies the wire time of at least k packets
    out = [s for s in net.sent if s.host == 0]
    for k in (5, 50, 200):
        for i in range(0, len(out) - k - 2, 7):
            wire = wire_time(sum(len(s.frame) for s in out[i + 1 : i + k]), TINY.nic_rate)
            assert out[i + k + 1].at - out[i].at >= wire


def test_queue_pairs_of_a_port_take_turns() -> None:
    one_plane = near(load_fabric("demo-1p").with_(t1_per_plane=1))
    net, a, b, qa, _ = pair(one_plane, (0, 4))
    more = [a.create_qp(4) for _ in range(2)]
    back = [b.create_qp(0) for _ in range(2)]
    for pa, pb in zip(more, back, strict=True):
        a.connect_qp(0, pa["qpn"], pb)
        b.connect_qp(0, pb["qpn"], pa)
    region = b.register(bytearray(400_000))
    qpns = [qa] + [p["qpn"] for p in more]
    for q in qpns:
        a.post_write(q, q, memoryview(bytes(400_000)), region.va, region.rkey, -1)
    net.run(until=20 * US)
    sent = [a._qp(q).tx_packets for q in qpns]
    assert min(sent) > 20
    assert max(sent) - min(sent) <= 1


@pytest.mark.parametrize("congestion", ["dcqcn", "fixed"])
def test_rate_limit_of_a_queue_pair(congestion: str) -> None:
    net, a, b, qa, _ = pair(TINY, rate_limit=10**10, congestion=congestion)
    region = b.register(bytearray(100_000))
    a.post_write(qa, 1, memoryview(bytes(100_000)), region.va, region.rkey, -1)
    net.run(done=lambda: bool(a._completions))
    out = [s for s in net.sent if s.host == 0]
    for before, after in itertools.pairwise(out):
        assert after.at - before.at == len(before.frame) * 800


def test_receiver_not_ready_waits_and_delivers_once_ready() -> None:
    net, a, b, qa, qb = pair(TINY)
    memory = bytearray(8)
    region = b.register(memory)
    a.post_write(qa, 1, memoryview(b"12345678"), region.va, region.rkey, 9)
    net.run(until=33 * US)
    assert memory == bytearray(8), "placed before there was a receive request"
    assert [s.at // US for s in net.sent if s.host == 0] == [0, 10, 20, 30], (
        "the shortest wait that a NAK can name, on top of a round trip"
    )
    assert b.counters()["rx_receiver_not_ready"] == 4
    assert a.completions() == []
    b.post_recv(qb, 5)
    net.run()
    assert memory == b"12345678"
    assert b.completions() == [Completion(qb, 5, RECEIVE, OK, 9, 8)]
    assert a.completions() == [Completion(qa, 1, WRITE, OK, -1, 8)]
    net.check_books()


def test_verbs_refuse_what_cannot_be() -> None:
    _, a, _b, qa, _ = pair(TINY)
    with pytest.raises(ValueError, match="writable"):
        a.register(memoryview(b"abc"))
    with pytest.raises(ValueError, match="no peer 0"):
        a.create_qp(0)
    with pytest.raises(ValueError, match="no peer 4"):
        a.create_qp(4)
    fresh = a.create_qp(2)
    with pytest.raises(ValueError, match="INIT"):
        a.post_write(fresh["qpn"], 1, memoryview(b"x"), 0, 0, -1)
    for bad in ({}, {**fresh, "psn": "1"}, {**fresh, "host": 3}, {**fresh, "host": 2, "mtu": 1024}):
        with pytest.raises(ValueError, match="connection parameters"):
            a.connect_qp(0, fresh["qpn"], bad)
    with pytest.raises(ValueError, match="do not fit"):
        a.post_write(qa, 1, memoryview(b"x"), 1 << 64, 0, -1)
    with pytest.raises(ValueError, match="only one in INIT"):
        a.connect_qp(0, qa, fresh)
    with pytest.raises(ValueError, match="did you mean 'rto_ns'"):
        type(a)(TINY, 0, {"rto_n": 5}, 0)
    with pytest.raises(ValueError, match="rto_ns = 0"):
        type(a)(TINY, 0, {"rto_ns": 0}, 0)


def test_posts_to_an_errored_queue_pair() -> None:
    net, a, _b, qa, _ = pair(TINY)
    a.post_write(qa, 1, memoryview(b"x"), 0, 0, -1)  # no such rkey
    net.run()
    a.completions()
    with pytest.raises(ValueError, match="ERROR"):
        a.post_write(qa, 2, memoryview(b"x"), 0, 0, -1)
    a.post_recv(qa, 3)
    assert a.completions() == [Completion(qa, 3, RECEIVE, FLUSHED, -1, 0)]


def test_two_runs_of_one_seed_are_the_same() -> None:
    def trace(seed: int) -> list[tuple[int, bytes]]:
        net, a, b, qa, _ = pair(TINY, seed=seed)
        random_loss(net, 0.1, 5)
        region = b.register(bytearray(50_000))
        a.post_write(qa, 1, memoryview(bytes(50_000)), region.va, region.rkey, -1)
        net.run()
        return [(s.at, s.frame) for s in net.sent]

    assert trace(4) == trace(4)
    assert trace(4) != trace(5)
