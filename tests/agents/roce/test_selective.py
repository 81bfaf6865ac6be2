"""Selective repeat: whatever is lost, repeated or overtaken, every byte arrives exactly once, and
only what was lost is sent again."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.roce.options import Options
from agents.roce.requester import RING
from agents.roce.selective import SelectiveResponder
from agents.roce.wire import KIND_END, KIND_WRITE, RETH, SACK_FRAME
from agents.transport import OK, RECEIVE, Completion
from tests.agents.roce.network import Network, pair
from tests.agents.roce.test_delivery import TINY, exchange, random_loss
from topologies import load_fabric
from topologies.units import NS

RTT = TINY.base_rtt_ps


def write(
    net: Network, packets: int
) -> tuple[Network, list[Completion], dict[str, int], dict[str, int]]:
    """One message of so many packets over ``net``'s pair of endpoints, to its end: (network,
    completions, counters of both)."""
    a, b = net.endpoints.values()
    qa, data = next(iter(a._qps)), random.Random(1).randbytes(packets * TINY.mtu)
    arena = bytearray(len(data))
    region = b.register(arena)
    a.post_write(qa, 1, memoryview(data), region.va, region.rkey, -1)
    net.run()
    assert arena == data
    net.check_books()
    return net, a.completions(), a.counters(), b.counters()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 40_000), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([0, 1, 4]),
    st.sampled_from([0.0, 1.0, 4.0]),
    st.integers(0, 1 << 30),
)
def test_every_byte_arrives_once_and_completions_come_in_order(
    lengths: list[int], loss: float, duplicate: float, jitter: int, reorder: float, seed: int
) -> None:
    made = pair(TINY, seed=seed, duplicate=duplicate, recovery="selective", reorder_rtts=reorder)
    net, a, _, _, _ = made
    net.jitter_ps = jitter * RTT
    random_loss(net, loss, seed)
    exchange(made, lengths, seed)
    assert a.paths()[0]["outstanding"] == 0 and a.windows()[0]["in_flight"] == 0


def test_a_hole_costs_one_packet_and_no_timer() -> None:
    net, a, _, qa, _ = pair(TINY, recovery="selective")
    first = a._qp(qa).tx.una & 0xFFFFFF
    net.lose = lambda s: (
        s.host == 0
        and s.psn == first + 2
        and sum(x.psn == s.psn and x.host == 0 for x in net.sent) == 1
    )
    net, completions, sender, receiver = write(net, 40)
    assert [c.status for c in completions] == [OK]
    assert (
        sender["retransmitted"] == 1
        and sender["rtos"] == 0
        and receiver["rx_out_of_order_dropped"] == 0
    )
    sacks = [s for s in net.sent if s.host == 2 and len(s.frame) == SACK_FRAME]
    assert (
        sacks
        and receiver["naks_tx"] == len(sacks) == sender["naks_rx"] + sender["rx_stale_response"]
    )


def test_a_retransmission_that_is_lost_is_found_by_what_left_after_it() -> None:
    net, a, _, qa, _ = pair(TINY, recovery="selective")
    first = a._qp(qa).tx.una & 0xFFFFFF
    net.lose = lambda s: (
        s.host == 0
        and s.psn == first + 2
        and sum(x.psn == s.psn and x.host == 0 for x in net.sent) <= 2
    )
    _, _, sender, _ = write(net, 400)
    assert sender["retransmitted"] == 2 and sender["rtos"] == 0


def test_packets_that_only_overtake_each_other_are_not_sent_again() -> None:
    net, *_ = pair(TINY, recovery="selective", reorder_rtts=3.0)
    net.jitter_ps = 2 * RTT
    _, completions, sender, receiver = write(net, 300)
    assert completions[0].status == OK and sender["retransmitted"] == 0 and receiver["naks_tx"] > 0
    net, *_ = pair(TINY, recovery="selective")
    net.jitter_ps = 2 * RTT
    assert write(net, 300)[2]["retransmitted"] > 0, "IRN takes what is overtaken for lost"


def test_a_lost_tail_waits_for_the_timer_and_is_sent_alone() -> None:
    net, a, _, qa, _ = pair(TINY, recovery="selective", rto_ns=10 * RTT // NS)
    last = (a._qp(qa).tx.una + 9) & 0xFFFFFF
    net.lose = lambda s: (
        s.host == 0 and s.psn == last and sum(x.psn == last and x.host == 0 for x in net.sent) == 1
    )
    _, completions, sender, _ = write(net, 10)
    assert completions[0].status == OK and sender["rtos"] == 1 and sender["retransmitted"] == 1


def test_an_immediate_without_a_receive_waits_for_one_and_is_not_placed_again() -> None:
    net, a, b, qa, qb = pair(TINY, recovery="selective")
    arena = bytearray(3 * TINY.mtu)
    region = b.register(arena)
    a.post_write(qa, 1, memoryview(bytes([7]) * len(arena)), region.va, region.rkey, 5)
    net.run(until=net.now + 5 * RTT)
    assert b.completions() == [] and a.completions() == []
    b.post_recv(qb, 9)
    net.run(done=lambda: bool(a._completions))
    assert b.completions() == [Completion(qb, 9, RECEIVE, OK, 5, len(arena))] and arena == bytes(
        [7]
    ) * len(arena)
    assert b.counters()["data_rx"] == 3
    net.check_books()


def test_the_window_is_a_bdp_unless_it_is_set() -> None:
    demo = load_fabric("demo-1p")
    assert Options(demo, {"recovery": "selective"}).window == demo.plane_bdp
    assert Options(demo, {"recovery": "selective", "window_bdp": 2.0}).window == 2 * demo.plane_bdp
    assert (
        Options(demo, {"recovery": "selective", "reorder_rtts": 1.5}).reorder_ps
        == 3 * demo.base_rtt_ps // 2
    )


def test_copies_of_an_early_packet_do_not_pile_up() -> None:
    _, _, b, _, qb = pair(TINY, recovery="selective")
    rx = b._qp(qb).rx
    assert isinstance(rx, SelectiveResponder)
    region = b.register(bytearray(TINY.mtu))
    packet = RETH.pack(region.va, region.rkey, TINY.mtu) + bytes(TINY.mtu)
    for _ in range(3 * RING):
        rx.request(
            KIND_WRITE | KIND_END, rx.expected + 5, False, memoryview(packet), 0, len(packet), 0
        )
    assert len(rx.sacks) == RING and list(rx.early) == [rx.expected + 5]
    assert (
        rx.request(
            KIND_WRITE | KIND_END, rx.expected + RING, False, memoryview(packet), 0, len(packet), 0
        )
        == 1
    ), "beyond the ring: dropped"
    assert len(rx.early) == 1
