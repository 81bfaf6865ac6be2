"""Marks become CNPs, CNPs become a rate, the rate becomes gaps between packets: whole endpoints, at
exact times."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agents import roce
from agents.roce.endpoint import Endpoint
from agents.roce.wire import CNP, CNP_FRAME
from agents.transport import NEVER, OK
from tests.agents.roce.network import Network, Sent, pair
from tests.agents.roce.test_hostile import TINY, Victim, _parts, data_frame, reference_icrc, reth
from topologies.units import NS, US, S

CNP_PS = 50 * US


def start(size: int, **options: Any) -> tuple[Network, Endpoint, Endpoint, int, int]:
    net, a, b, qa, qb = pair(TINY, **options)
    region = b.register(bytearray(size))
    a.post_write(qa, 1, memoryview(bytes(size)), region.va, region.rkey, -1)
    return net, a, b, qa, qb


def cnps(net: Network) -> list[Sent]:
    return [s for s in net.sent if s.opcode == CNP]


def test_every_mark_is_counted_and_cnps_keep_their_distance() -> None:
    net, a, b, _, _ = start(2_000_000)
    net.mark = lambda s: True
    net.run()
    sent = cnps(net)
    assert len(sent) > 3
    assert all(y.at - x.at >= CNP_PS for x, y in itertools.pairwise(sent))
    assert b.counters()["marked_rx"] == a.counters()["data_tx"]
    assert b.counters()["cnps_tx"] == a.counters()["cnps_rx"] == len(sent)
    assert a.counters()["marked_rx"] == 0, "control is not ECT"
    net.check_books()


def test_a_cnp_is_the_annexes() -> None:
    net, a, b, qa, _ = start(4096)
    net.mark = lambda s: True
    net.run()
    (cnp,) = cnps(net)
    ack = next(s for s in net.sent if s.host == 2 and s.opcode == 0x11)
    assert cnp.at <= ack.at and net.sent.index(cnp) < net.sent.index(ack), (
        "nothing that answers goes before it"
    )
    assert cnp.frame[102:130] == bytes.fromhex(f"8100ffff40{qa:06x}00000000") + bytes(16)
    assert cnp.frame[-4:] == reference_icrc(cnp.frame[:-4])
    assert len(cnp.frame) == CNP_FRAME == 134
    assert (
        cnp.high
        and cnp.outer == ack.outer
        and cnp.frame[54:98] != b""
        and cnp.frame[94:98] == ack.frame[94:98]
    ), "the flow of its ACKs"
    assert (cnp.frame[14] << 8 | cnp.frame[15]) >> 4 & 0xFF == 48 << 2, "DSCP CONTROL, not-ECT"


def test_each_queue_pair_is_told_for_itself() -> None:
    net, a, b, qa, qb = start(400_000)
    more, back = a.create_qp(2, evs=1), b.create_qp(0, 7)
    a.connect_qp(0, more["qpn"], back)
    b.connect_qp(0, back["qpn"], more)
    region = b.register(bytearray(400_000))
    a.post_write(more["qpn"], 1, memoryview(bytes(400_000)), region.va, region.rkey, -1)
    net.mark = lambda s: int.from_bytes(s.frame[107:110], "big") == back["qpn"]
    net.run(done=lambda: len(a._completions) == 2)
    rates = {w["qpn"]: w["rate_bps"] for w in a.windows()}
    assert rates[qa] == 0 and 0 < rates[more["qpn"]] < TINY.nic_rate
    assert b.placed() == {qb: 400_000, back["qpn"]: 400_000} and a.placed() == {
        qa: 0,
        more["qpn"]: 0,
    }


def test_a_cut_spaces_packets_and_the_timer_brings_them_together_again() -> None:
    """One mark: from line rate to half of it, and with the stages of the timer back."""
    net, a, b, qa, _ = start(4_000_000)
    net.mark = lambda s: s.host == 0 and sum(x.host == 0 for x in net.sent) == 10
    net.run(done=lambda: bool(a._completions))
    (cnp,) = cnps(net)
    heard = cnp.at + CNP_FRAME * 80 + net.delay_ps
    out = [s for s in net.sent if s.host == 0]
    wire = 4214 * 80
    timer = 55 * US
    for stage, rate in enumerate((0.5, 0.75, 0.875, 0.9375, 0.96875, 0.984375)):
        begins = heard + stage * timer
        gaps = [
            y.at - x.at
            for x, y in itertools.pairwise(out)
            if begins + 3 * wire < x.at and y.at < begins + timer
        ]
        assert len(gaps) > 50
        assert all(abs(gap - wire / rate) <= 2 for gap in gaps), (stage, wire / rate, gaps[:5])
    assert a.counters()["retransmitted"] == 0
    tx = a._qp(qa).tx
    assert tx.srtt_ps > 2 * net.delay_ps
    assert a.windows() == [
        {
            "qpn": qa,
            "peer": 2,
            "cwnd": tx.congestion.window,
            "in_flight": 0,
            "srtt_ps": tx.srtt_ps,
            "rate_bps": tx.congestion.rate,
        }
    ]


def test_a_packet_that_waits_leaves_earlier_when_the_rate_rises() -> None:
    """100 Mb/s, cut to half by a CNP at once: the second packet leaves when the stages' rates
    together have carried the first."""
    net, a, b, qa, qb = start(8192, rate_limit=10**8, rate_ai=1e-6)
    net._pump()
    assert [s.at for s in net.sent] == [0]
    sport = b._qp(qb).sport
    net.hand_in(0, 0, data_frame(CNP, 0, qa, bytes(16), src=2, dst=0, sport=sport, ack=False))
    assert a.windows()[0]["rate_bps"] == 5 * 10**7
    net.run(done=lambda: sum(s.host == 0 for s in net.sent) == 2)
    timer = 55 * US
    left, rate, at = 4230 * 8.0, 5e7, 0
    while left > rate * timer / S:
        left -= rate * timer / S
        at += timer
        rate = (rate + 1e8) / 2
    second = [s for s in net.sent if s.host == 0][1]
    assert at == 7 * timer and abs(second.at - (at + left / rate * S)) < 1000


def test_an_idle_queue_pairs_rate_comes_back_too() -> None:
    v = Victim()
    assert v.b.deadline() == NEVER
    v.give(data_frame(CNP, 0, v.qb, bytes(16), ack=False))
    for stage in range(1, 10):
        assert v.b.windows()[0]["rate_bps"] == int(TINY.nic_rate * (1 - 0.5**stage))
        assert v.b.deadline() == stage * 55 * US
        v.b.timer(v.b.deadline())
    assert v.b.windows()[0]["rate_bps"] == 0 and v.b.deadline() == NEVER


def test_no_round_trip_is_measured_on_a_packet_sent_twice() -> None:
    net, a, _, qa, _ = start(4096, rto_ns=450)
    net.run()
    assert a.counters()["retransmitted"] == 1 and a._qp(qa).tx.srtt_ps == 0


@pytest.mark.parametrize("rto_bdp", [1, 10])
def test_a_slow_rate_is_not_taken_for_loss(rto_bdp: int) -> None:
    """At a hundredth of the line rate a packet leaves every ten base RTTs: each asks for its ACK,
    and no timer fires."""
    rto = rto_bdp * TINY.base_rtt_ps // NS
    net, a, b, _, _ = start(40 * 4096, rate_limit=TINY.nic_rate // 100, rto_ns=rto)
    net.run(done=lambda: bool(a._completions))
    assert a.counters()["rtos"] == a.counters()["retransmitted"] == 0
    assert b.counters()["acks_tx"] == 40


def test_an_ack_is_asked_for_every_quarter_of_the_timeout() -> None:
    """At a third of the line rate, three base RTTs apart although ten packets lie between: 2.5 base
    RTTs hold 8."""
    net, a, b, _, _ = start(
        100 * 4096,
        rate_limit=TINY.nic_rate // 3,
        ack_every=1000,
        rto_ns=10 * TINY.base_rtt_ps // NS,
    )
    net.run(done=lambda: bool(a._completions))
    asked = [s.at for s in net.sent if s.host == 0 and s.frame[110] & 0x80]
    assert all(y - x <= 2.5 * TINY.base_rtt_ps for x, y in itertools.pairwise(asked))
    assert all(y - x > 1.9 * TINY.base_rtt_ps for x, y in itertools.pairwise(asked[:-1]))
    assert a.counters()["rtos"] == 0


def test_the_limiter_sleeps_until_it_is_needed() -> None:
    """No deadline in the past while packets wait for their time: a host that is asked for more than
    it may send does not spin."""
    net, a, _, _, _ = start(400_000, rate_limit=10**10)
    wakes = 0
    while not a._completions:
        wakes += 1
        net.step()
        while a.transmit(net.now) >= 0:
            raise AssertionError("a step leaves nothing that may go")
        assert a.deadline() > net.now
    assert wakes < 5 * len(net.sent)


def test_fixed_windows_hear_cnps_and_go_on() -> None:
    net, a, b, _, _ = start(400_000, congestion="fixed")
    net.mark = lambda s: True
    net.run()
    assert a.counters()["cnps_rx"] == b.counters()["cnps_tx"] >= 1
    assert a.windows()[0]["rate_bps"] == 0 and a.deadline() == NEVER


def test_losses_change_no_rate() -> None:
    net, a, _, qa, _ = start(200_000)
    net.lose = lambda s: s.host == 0 and len(net.sent) in (5, 30)
    net.run(done=lambda: bool(a._completions))
    assert a.counters()["go_backs"] == 2 and a.windows()[0]["rate_bps"] == 0
    assert a.completions()[0].status == OK


def test_cnps_that_are_not_right() -> None:
    v = Victim()
    cases = {
        "cnps_rx": data_frame(CNP, 0, v.qb, bytes(16), ack=False),
        "rx_bad_length": data_frame(CNP, 0, v.qb, bytes(12), ack=False),
        "rx_bad_qp": data_frame(CNP, 0, v.qb ^ 1, bytes(16), ack=False),
        "rx_bad_source": data_frame(CNP, 0, v.qb, bytes(16), ack=False, src=1),
    }
    for counter, frame in cases.items():
        before = v.b.counters()[counter]
        v.give(frame)
        assert v.b.counters()[counter] == before + 1
        assert v.b.windows()[0]["rate_bps"] == TINY.nic_rate // 2, "only the first was one"
    assert v.answers() == []
    v.give(data_frame(0x0A, v.psn, v.qb, reth(v.region.va, v.region.rkey ^ 1, 4) + b"evil"))
    v.give(cases["cnps_rx"])
    c = v.b.counters()
    assert (c["cnps_rx"], c["rx_qp_error"]) == (1, 1)
    assert c["rx_packets"] == sum(c[part] for part in _parts()) == 6
    while v.b.transmit(1) >= 0:
        pass
    v.b.timer(v.b.deadline())
    assert v.b.deadline() == NEVER, "a dead queue pair has no rate to bring back"


def test_what_a_result_must_say() -> None:
    assert "PFC" in roce.NOTE and "\n" not in roce.NOTE
