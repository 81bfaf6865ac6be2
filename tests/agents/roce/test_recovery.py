"""Go-back-N, the timer and re-routing, at exact times."""

from __future__ import annotations

import pytest

from agents.roce.endpoint import Endpoint
from agents.roce.wire import ACKNOWLEDGE
from agents.transport import FLUSHED, NEVER, OK, RETRY_EXCEEDED, WRITE, Completion, Event
from tests.agents.roce.network import Network, pair
from tests.fabrics import near
from topologies import load_fabric
from topologies.addressing import path_address
from topologies.paths import evs_over, path_evs, path_links
from topologies.units import NS, US

TINY = near(load_fabric("tiny"))
RTO = 1235 * NS


def kinds(events: list[Event]) -> list[str]:
    return [kind for _, kind, _ in events]


def lose_nth(net: Network, *places: int) -> None:
    """The n-th data packets (from 0, retransmissions counted) are lost."""
    count = iter(range(1 << 30))
    net.lose = lambda sent: not sent.high and next(count) in places


def syndromes(net: Network, host: int) -> list[int]:
    return [s.frame[114] for s in net.sent if s.host == host and s.opcode == ACKNOWLEDGE]


def test_a_hole_costs_one_nak_and_everything_from_it_again() -> None:
    net, a, b, qa, _ = pair(TINY, window=10 * 4230, ack_every=4)
    region = b.register(bytearray(20 * 4096))
    first = a._qp(qa).tx.una & 0xFFFFFF
    lose_nth(net, 3)
    a.post_write(qa, 1, memoryview(bytes(20 * 4096)), region.va, region.rkey, -1)
    net.run(done=lambda: bool(a._completions))
    assert syndromes(net, 2).count(0x60) == 1
    nak_at = next(s.at for s in net.sent if s.host == 2 and s.frame[114] == 0x60)
    out = [s for s in net.sent if s.host == 0]
    psns = [(s.psn - first) & 0xFFFFFF for s in out]
    turn = next(i for i in range(1, len(psns)) if psns[i] <= psns[i - 1])
    assert psns[turn:] == list(range(3, 20)), "all from the hole on, in order, once"
    wire = 4214 * 80
    # packet 4, the fifth, is the first to show the gap
    hole_passed = 16 * 80 + 5 * wire + net.delay_ps
    assert nak_at == hole_passed
    heard = nak_at + 122 * 80 + net.delay_ps
    events = a.events()
    assert kinds(events) == ["loss", "rtx"]
    at, _, fields = events[0]
    assert at == heard
    assert fields == {
        "peer": 2,
        "ev": a.paths()[0]["ev"],
        "psn": (first + 3) & 0xFFFFFF,
        "rule": "nak",
        "sent_ps": out[3].at,
    }
    assert events[1] == (
        heard,
        "rtx",
        {"peer": 2, "ev": fields["ev"], "psn": fields["psn"], "count": turn - 3},
    )
    assert heard <= out[turn].at <= heard + wire
    assert a.counters()["retransmitted"] == turn - 3
    assert b.counters()["rx_out_of_order_dropped"] == turn - 4
    assert a.counters()["rtos"] == 0
    net.check_books()


def test_a_second_hole_at_the_same_place_waits_for_the_timer() -> None:
    """The responder is silent until the expected PSN comes; so a lost retransmission costs an
    RTO."""
    net, a, b, qa, _ = pair(TINY, window=4 * 4230, rto_ns=10 * TINY.base_rtt_ps // NS)
    region = b.register(bytearray(4 * 4096))
    first = a._qp(qa).tx.una & 0xFFFFFF
    net.lose = lambda s: (
        s.host == 0
        and s.psn == first
        and sum(x.psn == first and x.host == 0 for x in net.sent) <= 2
    )
    a.post_write(qa, 1, memoryview(bytes(4 * 4096)), region.va, region.rkey, -1)
    net.run(done=lambda: bool(a._completions))
    assert syndromes(net, 2).count(0x60) == 1
    events = a.events()
    assert kinds(events) == ["loss", "rtx", "rto", "loss", "rtx"]
    sent = [s.at for s in net.sent if s.psn == first and s.host == 0]
    assert len(sent) == 3
    assert events[2][0] == sent[1] + 10 * TINY.base_rtt_ps, (
        "armed by the retransmission of the oldest"
    )


def test_the_packet_that_fills_the_window_asks_for_an_ack() -> None:
    """Else a window shorter than the ACK interval would open only by the timer."""
    net, a, b, qa, _ = pair(TINY, window=3 * 4230, ack_every=200)
    region = b.register(bytearray(20 * 4096))
    a.post_write(qa, 1, memoryview(bytes(20 * 4096)), region.va, region.rkey, -1)
    net.run()
    assert (a.counters()["rtos"], b.counters()["acks_tx"]) == (0, 7)


def test_a_copied_nak_does_not_go_back_twice() -> None:
    net, a, b, qa, _ = pair(TINY, window=10 * 4230, duplicate=1.0)
    net.lose = lambda s: s.host == 0 and len(net.sent) == 1
    region = b.register(bytearray(20 * 4096))
    a.post_write(qa, 1, memoryview(bytes(20 * 4096)), region.va, region.rkey, -1)
    net.run(done=lambda: bool(a._completions))
    assert a.counters()["go_backs"] == 1
    assert a.counters()["rx_stale_response"] >= 1


def test_the_timer_is_fixed_and_endless() -> None:
    net, a, b, qa, _ = pair(TINY, rto_ns=RTO // NS)
    region = b.register(bytearray(100))
    net.lose = lambda s: s.host == 0
    a.post_write(qa, 1, memoryview(bytes(100)), region.va, region.rkey, -1)
    net.run(until=100 * RTO + 1)
    assert [s.at for s in net.sent] == [i * RTO for i in range(101)]
    firings = [(at, e["firing"]) for at, kind, e in a.events() if kind == "rto"]
    assert firings == [(i * RTO, i) for i in range(1, 101)]
    assert a.completions() == [] and a.paths()[0]["qp_state"] == "RTS"
    net.lose = lambda s: False
    net.run()
    assert a.completions() == [Completion(qa, 1, WRITE, OK, -1, 100)]


@pytest.mark.parametrize("recovery", ["go-back-n", "selective"])
def test_an_adaptive_timeout_doubles_up_to_its_bound_and_returns_to_its_base(recovery: str) -> None:
    net, a, b, qa, _ = pair(TINY, rto="adaptive", rto_ns=1235, rto_most_ns=5000, recovery=recovery)
    region = b.register(bytearray(100))
    net.lose = lambda s: s.host == 0
    a.post_write(qa, 1, memoryview(bytes(100)), region.va, region.rkey, -1)
    net.run(until=20_000 * NS)
    assert [s.at // NS for s in net.sent] == [0, 1235, 3705, 8645, 13_645, 18_645], (
        "1235, twice, four times, then 5000"
    )
    net.lose = lambda s: False
    net.run(done=lambda: bool(a._completions))
    lose_nth(net, 0, 1)
    start = net.now
    before = len(net.sent)
    a.post_write(qa, 2, memoryview(bytes(100)), region.va, region.rkey, -1)
    net.run(done=lambda: len(a._completions) == 2)
    assert [(s.at - start) // NS for s in net.sent[before:] if s.host == 0] == [0, 1235, 3705], (
        "from its base again"
    )
    net.check_books()


def test_the_user_of_a_queue_pair_bounds_its_adaptive_timeout() -> None:
    net, a, b, qa, _ = pair(TINY, rto="adaptive", rto_ns=1235)
    a.start_qp(0, qa, 7, 3000 * NS, 2)
    region = b.register(bytearray(100))
    net.lose = lambda s: s.host == 0
    a.post_write(qa, 1, memoryview(bytes(100)), region.va, region.rkey, -1)
    net.run()
    assert [s.at // NS for s in net.sent] == [0, 1235, 3705, 6705]
    assert net.now == 9705 * NS and a.completions() == [
        Completion(qa, 1, WRITE, RETRY_EXCEEDED, -1, 100)
    ]


def test_progress_resets_firing_and_rearms_the_timer() -> None:
    net, a, b, qa, _ = pair(TINY, rto_ns=RTO // NS, retry_count=2)
    region = b.register(bytearray(300))
    lose_nth(net, 0, 1, 3, 4)  # each message is lost twice, which two retries allow
    for i in range(2):
        a.post_write(qa, i, memoryview(bytes(100)), region.va, region.rkey, -1)
        net.run(done=lambda: bool(a._completions))
        assert a.completions() == [Completion(qa, i, WRITE, OK, -1, 100)]
    assert a.counters()["rtos"] == 4


def test_retries_exhausted_end_the_queue_pair() -> None:
    net, a, b, qa, qb = pair(TINY, rto_ns=RTO // NS, retry_count=3)
    region = b.register(bytearray(100))
    net.lose = lambda s: True
    for i in range(3):
        a.post_write(qa, i, memoryview(bytes(100)), region.va, region.rkey, -1)
    a.post_recv(qa, 77)
    net.run()
    assert net.now == 4 * RTO
    done = a.completions()
    assert [(c.wr_id, c.status) for c in done] == [
        (0, RETRY_EXCEEDED),
        (1, FLUSHED),
        (2, FLUSHED),
        (77, FLUSHED),
    ]
    assert a.events()[-1] == (
        4 * RTO,
        "qp",
        {"peer": 2, "qpn": qa, "state": "ERROR", "cause": "retries exhausted"},
    )
    assert a.deadline() == NEVER
    # the peer, whose own retries never end, is told when it next asks
    net.lose = lambda s: False
    ra = a.register(bytearray(10))
    b.post_write(qb, 9, memoryview(b"0123456789"), ra.va, ra.rkey, -1)
    net.run()
    assert [c.wr_id for c in b.completions()] == [9]
    assert b.paths()[0]["qp_state"] == "ERROR"
    net.check_books()


def test_a_refused_send_is_a_loss() -> None:
    _, a, b, qa, _ = pair(TINY, rto_ns=RTO // NS)
    region = b.register(bytearray(100))
    a.post_write(qa, 1, memoryview(bytes(100)), region.va, region.rkey, -1)
    port = a.transmit(0)
    a.sent(0, port, False)
    a.port_state(0, port, False)
    assert a.paths()[0]["dead"] is True
    assert a.counters()["tx_refused"] == 1
    assert a.deadline() == RTO
    a.timer(RTO - 1)
    assert a.transmit(RTO - 1) == -1
    a.timer(RTO)
    assert a.transmit(RTO) == port
    a.port_state(RTO, port, True)
    assert a.paths()[0]["dead"] is False


def test_a_dead_path_stalls_until_the_network_reroutes() -> None:
    net, a, b, qa, _ = pair(TINY)
    old = a.paths()[0]["ev"]
    cable = next(li.name for li in path_links(TINY, 0, 2, old) if li.kind == "fabric")
    dead = {
        path_address(TINY, s, d, ev)
        for s, d in ((0, 2), (2, 0))
        for ev in evs_over(TINY, s, d, cable)
    }
    region = b.register(bytearray(1_000_000))
    a.post_write(qa, 1, memoryview(bytes(1_000_000)), region.va, region.rkey, -1)
    cut, reconvergence = 10 * US, 200 * US
    net.run(until=cut)
    net.lose = lambda s: s.outer in dead
    placed = b.counters()["data_rx"]
    net.run(until=cut + reconvergence)
    arrived = b.counters()["data_rx"] - placed
    assert arrived <= 2, "only what was already handed out at the cut"
    assert all(s.outer in dead for s in net.sent if s.host == 0), "one path, whatever happens on it"
    a.events()
    for e in (a, b):
        e.reroute(net.now, [cable])
    (event,) = a.events()
    new = a.paths()[0]["ev"]
    assert event[:2] == (net.now, "reroute")
    assert event[2].pop("last_data_ps") in {s.at for s in net.sent if s.host == 0}
    assert event[2] == {"peer": 2, "ev": new, "old": old}
    assert cable not in {li.name for li in path_links(TINY, 0, 2, new)}
    start = net.now
    net.run(done=lambda: bool(a._completions))
    assert a.completions()[0].status == OK
    first = next(s for s in net.sent if s.host == 0 and s.at >= start)
    assert first.outer == path_address(TINY, 0, 2, new)
    assert first.at <= start + a._options.rto_ps, "it leaves with the next firing of the timer"
    for e in (a, b):
        e.reroute(net.now, [])
    assert a.paths()[0]["ev"] == old, "healed: back to where the hash points"
    net.check_books()


def test_rerouting_moves_only_the_flows_it_must_and_a_cut_off_pair_stays() -> None:
    demo = near(load_fabric("demo"))
    e = Endpoint(demo, 0, {}, 7)
    qpns = [e.create_qp(4)["qpn"] for _ in range(400)]
    before = {row["qpn"]: row["ev"] for row in e.paths()}
    spread = [list(before.values()).count(ev) for ev in path_evs(demo, 0, 4)]
    assert min(spread) >= 8 and max(spread) <= 50  # 25 +- 3.5 sigma: a hash that clusters fails
    cable = "p1-t0-0:p1-t1-2"
    e.reroute(5, [cable])
    over = set(evs_over(demo, 0, 4, cable))
    for row in e.paths():
        assert row["ev"] not in over
        assert (row["ev"] == before[row["qpn"]]) == (before[row["qpn"]] not in over)
    moved = [f for _, kind, f in e.events() if kind == "reroute"]
    assert len(moved) == sum(before[q] in over for q in qpns) == e.counters()["reroutes"] > 0
    assert not any(row["dead"] for row in e.paths())
    e.reroute(6, [f"h0:p{p}-t0-0" for p in range(4)])
    assert all(row["dead"] for row in e.paths())
    e.reroute(7, [])
    assert {row["qpn"]: row["ev"] for row in e.paths()} == before


def test_a_queued_flow_moves_to_its_new_port() -> None:
    net, a, b, qa, _ = pair(TINY)
    old_port = a.paths()[0]["plane"]
    region = b.register(bytearray(1_000_000))
    a.post_write(qa, 1, memoryview(bytes(1_000_000)), region.va, region.rkey, -1)
    net.run(until=US)
    a.reroute(net.now, [f"h0:p{old_port}-t0-0"])
    assert a.paths()[0]["plane"] != old_port
    count = len(net.sent)
    net.run(done=lambda: bool(a._completions))
    assert a.completions()[0].status == OK
    assert {s.port for s in net.sent[count:] if s.host == 0} == {1 - old_port}


def test_acks_take_the_responders_own_hashed_path() -> None:
    seen: set[tuple[int, int]] = set()
    for seed in range(40):
        net, a, b, qa, _ = pair(TINY, seed=seed)
        region = b.register(bytearray(10))
        a.post_write(qa, 1, memoryview(bytes(10)), region.va, region.rkey, -1)
        net.run()
        ack = next(s for s in net.sent if s.host == 2)
        assert ack.high and ack.outer == path_address(TINY, 2, 0, b.paths()[0]["ev"])
        seen.add((a.paths()[0]["ev"], b.paths()[0]["ev"]))
    assert any(x != y for x, y in seen)


def test_at_rest_no_data_leaves_though_more_is_posted() -> None:
    """What a run that was stopped in the middle has in flight drains, and can be counted. Nor is
    anything sent again by the timer."""
    net, a, b, qa, _ = pair(TINY, window=10 * 4230)
    region = b.register(bytearray(40 * 4096))
    lose_nth(net, 8)
    a.post_write(qa, 1, memoryview(bytes(40 * 4096)), region.va, region.rkey, -1)
    net.run(done=lambda: a.counters()["data_tx"] == 12)
    for side in (a, b):
        side.quiesce()
    before = len(net.sent)
    net.run()  # to quiet: no timer is left
    assert a.counters()["data_tx"] == 12 and not a._completions
    assert {sent.host for sent in net.sent[before:]} == {2}, "what was in flight is answered"
    a.reroute(net.now, [])
    assert a.deadline() == NEVER
    net.check_books()
