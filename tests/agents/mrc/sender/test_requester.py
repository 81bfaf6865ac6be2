"""The sending half alone: verdicts at exact times, SACK ordering, the RTO's schedule,
completions."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.paths import ev_state
from agents.mrc.paths.path import Path
from agents.mrc.paths.path_set import PathSet
from agents.mrc.paths.rotation import Deal
from agents.mrc.sender import resend
from agents.mrc.sender.congestion.fixed import FixedWindow
from agents.mrc.sender.requester import Requester
from agents.mrc.sender.sent_packets import LOST, SENT, SentPacket
from agents.packets import headers
from agents.transport import FLUSHED, NEVER, OK, RETRY_EXCEEDED, WRITE
from tests.agents.mrc.rig import DEMO, TINY, Rig
from tests.fabrics import near
from topologies.clos import Fabric
from topologies.paths import path_evs
from topologies.units import MS, NS, US

FIRST = 0xFFFFFC
T0 = MS
GAP = 100


class Sender:
    """A requester that sends into nothing; the test plays the peer."""

    def __init__(
        self,
        fabric: Fabric = DEMO,
        packets: int = 40,
        messages: int = 1,
        imm: bool = False,
        **options: Any,
    ) -> None:
        self.config = Config.from_fabric(fabric, {"window_bdp": 50.0, **options})
        evs = list(path_evs(fabric, 0, fabric.host_count - 1))
        self.log: list[Any] = []
        paths = PathSet(self.config, 7, evs, Random(1), self.log)
        self.r = Requester(
            self.config,
            16,
            7,
            paths,
            FixedWindow(self.config, fabric.base_rtt_ps),
            self.log,
            Deal(1, Random(0)),
        )
        self.r.start(T0, FIRST, self.config.mpr)
        for k in range(messages):
            self.r.post(k, memoryview(bytes(packets * fabric.mtu)), 0, 1, 5 if imm else -1)
        self.r.timers.start(T0)
        self.free = vec[i64]([0] * fabric.planes)
        self.now = T0

    def send(self, n: int, gap: int = GAP) -> None:
        for _ in range(n):
            assert self.goes()
            self.now += gap

    def goes(self, at: int = 0, slack: int = 0) -> bool:
        """Whether a packet may go, which then is the ``latest``."""
        packet = self.r.next_packet(at or self.now, self.free, slack)
        if packet is not None:
            self.latest = packet
        return packet is not None

    def packet(self, k: int) -> SentPacket:
        """The k-th packet's latest transmission."""
        return self.r.sent.latest(FIRST + k)

    def lose(self, k: int, rule: int, name: str) -> None:
        """A verdict on the k-th packet, its path to blame."""
        self.r.lose(self.now, self.packet(k), rule, name, True)

    def sack(
        self,
        now: int,
        got: set[int],
        *,
        rcvd: int | None = None,
        high: int | None = None,
        base: int | None = None,
    ) -> int:
        """A SACK from a peer that has ``got`` (relative to FIRST)."""
        edge = 0
        while edge in got:
            edge += 1
        at = edge if base is None else base
        bits = sum(1 << k - at for k in got if at <= k < at + 64)
        cack = FIRST + edge - 1
        fresh = self.r.on_sack(
            now,
            cack & 0xFFFFFF,
            FIRST + at - cack,
            bits,
            (len(got) * 16 if rcvd is None else rcvd) & 0xFFFFFF,
            self.config.mpr >> 7,
        )
        if fresh > 0:
            self.r.loss.verdicts(
                self.r, now, cack + 1, FIRST + at, 64, bits, sum(k > edge for k in got)
            )
        return fresh

    def judge(self) -> None:
        """The time in which a NACK might explain what is missing is over."""
        self.now += self.r.rtt.srtt
        self.r.settle_doubts(self.now)

    def state(self, k: int) -> int:
        return self.packet(k).state

    def path(self, k: int) -> Path:
        """The path of the k-th packet's latest transmission."""
        return self.packet(k).path

    def held(self, path: Path) -> bool:
        """Whether a path gets no new data for the moment."""
        return path.on_hold(self.now, self.r.paths.rtt_limit[path.plane])

    def same_path(self, k: int) -> int:
        """The first packet after the k-th on its path."""
        return next(q for q in range(k + 1, 200) if self.path(q) == self.path(k))

    def lost(self) -> list[int]:
        return [
            k
            for k in range(self.r.sent.una - FIRST, self.r.sent.next - FIRST)
            if self.state(k) == LOST
        ]

    def rules(self) -> list[str]:
        return [f["rule"] for _, kind, f in self.log if kind == "loss"]


def test_planes_rotate_strictly_and_counts_differ_by_at_most_one() -> None:
    s = Sender(packets=200)
    for n in range(1, 201):
        s.send(1)
        counts = [0] * 4
        for k in range(n):
            counts[s.path(k).plane] += 1
        assert max(counts) - min(counts) <= 1


def test_weighted_planes_take_packets_in_proportion_to_the_evs_they_have_left() -> None:
    s = Sender(packets=400, plane_load="weighted")
    s.send(4)
    assert sorted(s.path(k).plane for k in range(4)) == [0, 1, 2, 3]
    for path in s.r.paths.active[0][:2]:
        s.r.paths.lost(s.now, path, s.now, s.r.rtt.srtt, "order")
    # each waits for its port before it goes: asking twice gains a plane nothing
    for _ in range(140):
        s.free = vec[i64]([s.now + 10] * 4)
        assert not s.goes()
        s.free = vec[i64]([0] * 4)
        s.send(1)
    counts = [sum(s.path(k).plane == p for k in range(4, 144)) for p in range(4)]
    assert counts[0] == pytest.approx(20, abs=1) and counts[1:] == pytest.approx(
        [40, 40, 40], abs=1
    )


def test_a_light_plane_sends_when_the_others_are_held() -> None:
    s = Sender(packets=400, plane_load="weighted")
    s.send(4)
    for path in s.r.paths.active[0][:3]:
        s.r.paths.lost(s.now, path, s.now, s.r.rtt.srtt, "order")
    for plane in (1, 2, 3):
        s.r.paths.rtt_limit[plane] = 0
        for path in s.r.paths.active[plane]:
            path.oldest_ps = 1
    s.send(1)
    assert s.latest.path.plane == 0


def test_a_busy_port_is_waited_for_not_passed_over() -> None:
    s = Sender()
    s.send(1)
    plane = s.r.plane
    s.free[plane] = s.now + 500
    assert not s.goes(slack=100) and s.r.wait == s.now + 400
    assert s.goes(s.now + 400, 100)
    assert s.latest.path.plane == plane


def test_order_a_later_one_of_the_same_path_arrived() -> None:
    s = Sender()
    s.send(40)
    q = s.same_path(0)
    others = {k for k in range(1, q) if s.path(k) != s.path(0)}
    s.sack(s.now, others)
    assert s.lost() == []
    s.sack(s.now, others | {q})
    assert s.lost() == [0] and s.rules() == ["order"]
    assert s.path(0).state == ev_state.GOOD and s.held(s.path(0)), "it rests at once"
    s.judge()
    assert s.path(0).state == ev_state.ASSUMED_BAD


def test_order_only_what_was_sent_before() -> None:
    s = Sender()
    s.send(40)
    q = s.same_path(3)
    s.sack(s.now, {3})
    assert s.state(q) == SENT and s.lost() == []


def test_time_exactly_at_its_threshold() -> None:
    s = Sender()
    s.send(4)  # one per plane
    base = s.config.base_rtt
    assert s.r.loss.reorder_window() == base  # clamped from below
    limit = T0 + base + base  # send + largest recent RTT (none: base) + window
    s.sack(limit - 1, {1})
    assert s.lost() == []
    s.sack(limit, {1, 2})
    assert s.lost() == [0] and s.rules() == ["time"]


def test_time_uses_the_largest_recent_rtt_of_any_plane_and_the_spread() -> None:
    s = Sender()
    base = s.config.base_rtt
    s.send(4)
    plane = s.path(0).plane
    s.r.measured(T0, plane, 3 * base)
    s.r.measured(T0, plane, base // 2)
    s.r.measured(T0, (plane + 1) % 4, 10 * base)  # another plane's: queues grow on all of them
    window = 4 * base  # spread 9.5, clamped from above
    assert s.r.loss.reorder_window() == window
    s.sack(T0 + 10 * base + window - 1, {1})
    assert s.lost() == []
    s.sack(T0 + 10 * base + window, {1, 2})
    assert s.lost() == [0]


def test_time_needs_something_sent_later_to_have_arrived() -> None:
    s = Sender()
    s.send(4)
    s.sack(T0 + 100 * s.config.base_rtt, {0})
    assert s.lost() == []
    s.sack(T0 + 100 * s.config.base_rtt, {0, 2})
    assert s.lost() == [1]


def test_a_clear_bit_counts_only_from_a_sack_not_older_than_the_newest() -> None:
    s = Sender()
    s.send(40)
    q = s.same_path(0)
    assert s.sack(s.now, {3}, rcvd=100) == 1
    assert s.sack(s.now, {3, q}, rcvd=99) == 0
    assert s.state(q) != SENT and s.lost() == []  # set bits always count
    assert s.sack(s.now, {3, q}, rcvd=100) == 1
    assert s.lost() == [0]


def test_rcvd_bytes_order_survives_their_wrap() -> None:
    s = Sender()
    s.send(10)
    s.r.newest = 0xFFFF00
    assert s.sack(s.now, {3}, rcvd=0xFFFFFF) == 1
    assert s.r.news == 0xFF << 8
    assert s.sack(s.now, {3}, rcvd=2) == 1
    assert s.sack(s.now, {3}, rcvd=0xFFFFFE) == 0


def test_no_verdict_on_what_the_sack_does_not_cover() -> None:
    s = Sender(packets=200)
    s.send(200)
    late = T0 + 100 * s.config.base_rtt
    s.sack(late, set(range(100, 200)), base=100)  # covers 100..163 and the edge
    assert s.lost() == [0]
    s.sack(late, set(range(100, 200)), base=20)
    assert s.lost() == [0, *range(20, 84)]


def test_a_sack_overtaken_by_a_d1_judges_nothing_at_the_new_edge() -> None:
    s = Sender(packets=10, messages=3)
    s.send(30)
    late = T0 + 100 * s.config.base_rtt
    s.r.on_ack(late, FIRST + 9 & 0xFFFFFF)
    assert s.r.sent.una == FIRST + 10
    s.sack(late, {0, 1, *range(20, 30)}, base=20)  # sent before the D1: knows nothing of PSN 10
    assert s.lost() == []


def test_a_sack_that_shows_all_that_waits_shows_every_hole() -> None:
    """Bitmaps have 64 bits; of the longest bursts they never reach the end, and an incast without
    trimming stood still until the timer."""
    s = Sender(packets=200)
    s.send(150)
    late = s.now + 20 * s.config.base_rtt
    # one of the two that wait: of what lies between nothing is known
    s.sack(late, {40, 149}, base=100)
    assert s.lost() == [0, *range(100, 149)]
    s.sack(late + 1, {40, 149}, base=100, rcvd=64)
    assert s.lost() == [0, *range(100, 149)]
    t = Sender(packets=200)
    t.send(150)
    t.sack(late, {149}, base=100)  # it is all that waits
    assert t.lost() == list(range(149))


def test_a_hole_that_closes_is_forgotten() -> None:
    s = Sender()
    s.send(40)
    s.sack(s.now, set(range(1, 40)))
    assert s.lost() == [0]
    s.sack(s.now, set(range(40)))
    assert s.lost() == [] and s.r.sent.in_flight == 0
    assert not s.goes()


def test_a_retransmission_goes_first_on_another_plane_with_the_oldest_first() -> None:
    s = Sender(packets=100)
    s.send(40)
    s.sack(s.now, set(range(40)) - {0, 5, 9})
    lost = s.lost()
    assert lost == [0, 5, 9]
    for k in lost:
        before = s.path(k).plane
        s.send(1)
        assert s.latest.psn == FIRST + k
        assert s.latest.path.plane != before
    s.send(1)
    assert s.latest.psn == FIRST + 40


def test_when_a_lost_packet_has_arrived_is_told_once() -> None:
    s = Sender(packets=100)
    s.send(40)
    s.sack(s.now, set(range(40)) - {0, 5, 9})
    s.send(3)
    s.sack(s.now, set(range(40)) - {0, 9})
    s.now += GAP
    s.sack(s.now, set(range(40)))
    told = [(now, f["psn"] - FIRST & 0xFFFFFF) for now, kind, f in s.log if kind == "redelivered"]
    assert told == [(s.now - GAP, 5), (s.now, 0), (s.now, 9)]


def test_a_retransmission_takes_its_own_plane_when_the_others_are_held() -> None:
    s = Sender(TINY, packets=100)
    s.send(20)
    s.sack(s.now, set(range(20)) - {0})
    plane = s.path(0).plane
    other = 1 - plane
    s.r.paths.rtt_limit[other] = 0
    for path in s.r.paths.active[other]:
        path.oldest_ps = 1
    s.send(1)
    assert s.latest.psn == FIRST and s.latest.path.plane == plane


def test_a_wrong_verdict_is_undone_when_the_first_copy_shows_up() -> None:
    s = Sender()
    s.send(40)
    q = s.same_path(0)
    s.sack(s.now, {q})
    path = s.path(0)
    s.judge()
    before = s.r.loss.reorder_window()
    s.sack(s.now, {0, q})  # not sent again yet
    assert s.r.spurious == 1 and path.undone and s.r.paths.due_probe(s.now) is path
    assert s.r.loss.reorder_window() > before


@pytest.mark.parametrize("after, wrong", [(0.85, 1), (0.95, 0)])
def test_spurious_below_nine_tenths_of_the_smallest_rtt_after_a_retransmission(
    after: float, wrong: int
) -> None:
    s = Sender()
    base = s.config.base_rtt
    s.send(40)
    s.r.measured(s.now, 0, base)
    q = s.same_path(0)
    s.sack(s.now, {q})
    blamed = s.path(0)
    s.judge()
    at = s.now
    s.send(1)
    assert s.latest.psn == FIRST
    s.sack(at + int(after * base), {0, q})
    assert s.r.spurious == wrong
    assert blamed.undone == bool(wrong)


def test_what_a_dead_port_requeued_blames_nobody_whatever_comes_of_it() -> None:
    s = Sender()
    s.send(40)
    s.r.measured(s.now, 0, s.config.base_rtt)
    plane = s.path(0).plane
    mine = [k for k in range(40) if s.path(k).plane == plane]
    flying = s.r.sent.in_flight
    s.r.paths.set_open(0, plane, False)
    resend.requeue_plane(s.r, s.now, plane)
    assert s.lost() == mine
    assert s.r.sent.in_flight == flying - len(mine) * (TINY.mtu + wire.COUNTED)
    assert all(path.state == ev_state.GOOD for path in s.r.paths.all)
    s.send(1)
    s.sack(s.now, set(mine))  # they had arrived
    assert s.r.spurious == 0 and s.r.loss.patience == 0


@pytest.mark.parametrize(
    "count, rtx, valid",
    [(1, False, True), (1, True, False), (2, True, True), (2, False, False), (3, True, False)],
)
def test_rtt_samples_are_valid_for_first_0_and_second_1(count: int, rtx: bool, valid: bool) -> None:
    s = Sender()
    s.send(4)
    s.packet(0).count = count
    s.r.sample(s.now, FIRST, rtx, 12345)
    assert s.r.rtt.samples == valid


@pytest.mark.parametrize("k", [-1, -2000, 4, 5000])
def test_no_sample_from_what_was_never_sent(k: int) -> None:
    s = Sender()
    s.send(4)
    s.r.sample(s.now, FIRST + k, False, 12345)
    assert s.r.rtt.samples == 0


@pytest.mark.parametrize(
    "cack, offset, bits", [(4, 1, 0), (-1, 1, 1 << 4), (-1, 300, 1), (1 << 20, 1, 0)]
)
def test_a_sack_of_what_was_never_sent_is_counted_and_changes_nothing(
    cack: int, offset: int, bits: int
) -> None:
    s = Sender()
    s.send(4)
    assert s.r.on_sack(s.now, FIRST + cack & 0xFFFFFF, offset, bits, 5, 8) == -1
    assert (s.r.bad_sacks, s.r.sent.una, s.r.sent.received, s.r.newest) == (1, FIRST, 0, 0)


def test_bits_beyond_an_overtaken_edge_move_the_edge() -> None:
    s = Sender(packets=10, messages=2)
    s.send(20)
    s.r.on_ack(s.now, FIRST + 9 & 0xFFFFFF)
    s.sack(s.now, {0, *range(2, 16)})
    assert s.r.sent.una == FIRST + 16


def test_d1_completes_in_order_and_an_old_one_says_nothing() -> None:
    s = Sender(packets=2, messages=5)
    s.send(10)
    assert s.r.on_ack(s.now, FIRST + 5 & 0xFFFFFF)
    assert [(c.wr_id, c.status) for c in s.r.queue.completions] == [(0, OK), (1, OK), (2, OK)]
    assert not s.r.on_ack(s.now, FIRST + 3 & 0xFFFFFF) and not s.r.on_ack(
        s.now, FIRST + 5 & 0xFFFFFF
    )
    assert not s.r.on_ack(s.now, FIRST + 10 & 0xFFFFFF)  # never sent
    assert s.r.bad_sacks == 1 and len(s.r.queue.completions) == 3 and s.r.sent.una == FIRST + 6


def test_a_sack_alone_completes_nothing() -> None:
    s = Sender(packets=2)
    s.send(2)
    s.sack(s.now, {0, 1})
    assert s.r.queue.completions == [] and s.r.probe_at() < NEVER and s.r.rto_at() < NEVER


def test_immediates_stay_under_max_wimm() -> None:
    s = Sender(packets=2, messages=5, imm=True, max_wimm=2)
    s.send(5)
    assert not s.goes()  # the third immediate, PSN 5
    s.sack(s.now, set(range(5)))
    assert not s.goes()  # a slot frees with the D1 only
    s.r.on_ack(s.now, FIRST + 1 & 0xFFFFFF)
    assert s.goes() and s.latest.psn == FIRST + 5


def test_peers_window_in_psns_and_own_in_bytes() -> None:
    s = Sender(packets=300, mpr=128)
    s.send(128)
    assert not s.goes()
    s.sack(s.now, {0, 1, 5})
    s.send(2)
    assert not s.goes()
    t = Sender(packets=300, window_bdp=1.5)
    n = 0
    while t.goes():
        n += 1
    assert n == t.r.congestion.cwnd // (DEMO.mtu + wire.COUNTED)
    assert abs(t.r.congestion.cwnd - 1.5 * DEMO.plane_bdp * 4) < 4


def test_a_nack_acts_only_on_the_transmission_it_names() -> None:
    s = Sender()
    s.send(4)
    shift = s.config.ts_shift
    ts = s.packet(0).sent_ps >> shift & 0xFFFF
    ev = s.path(0).ev
    psn = FIRST & 0xFFFFFF
    resend.push_back(s.r, s.now, psn, ev ^ 1, ts, shift, True)
    resend.push_back(s.r, s.now, psn, ev, ts + 1, shift, True)
    resend.push_back(s.r, s.now, psn + 50 & 0xFFFFFF, ev, ts, shift, True)
    assert s.lost() == []
    resend.push_back(s.r, s.now, psn, ev, ts, shift, True)
    assert s.lost() == [0] and s.path(0).state == ev_state.GOOD


@pytest.mark.parametrize("linear, exponential", [(3, 2), (0, 3), (7, 0), (1, 1)])
def test_rto_fires_linearly_then_doubling_until_error(linear: int, exponential: int) -> None:
    """Nothing is ever answered: firings at exact times, then ERROR, completions flushed in order,
    the first with the cause."""
    rig = Rig(DEMO, 0, 4, 20_000, {"linear": linear, "exponential": exponential, "timeout": 2})
    rig.net.fate = lambda frame, link, now: False
    began = rig.net.now
    for k in range(4):
        rig.write(10 + k, bytes(5000), 5000 * k)
    assert rig.run(360 * MS, lambda: len(rig.a.writes) == 4)
    rto = 1024 * 4 * NS
    wanted = [began + rto * (k + 1) for k in range(linear)]
    for k in range(exponential + 1):
        wanted.append((wanted[-1] if wanted else began) + (rto << k + 1))
    assert [t for t, _ in rig.a.of("rto")] == wanted
    assert [f["firing"] for _, f in rig.a.of("rto")] == list(range(1, linear + exponential + 2))
    assert [(c.wr_id, c.kind, c.status) for c in rig.a.writes] == [(10, WRITE, RETRY_EXCEEDED)] + [
        (k, WRITE, FLUSHED) for k in (11, 12, 13)
    ]
    assert rig.a.engine.deadline() == NEVER
    with pytest.raises(ValueError, match="RTS"):
        rig.write(99, b"x")


def test_a_process_that_slept_does_not_spend_all_its_retries_at_once() -> None:
    rig = Rig(DEMO, 0, 4, 1000)
    rig.net.fate = lambda frame, link, now: False
    rig.write(1, bytes(1000))
    rig.run(10 * US)
    later = rig.net.now + 360 * MS
    for k in range(20):
        rig.a.engine.timer(later + k)
    rig.a.collect()
    assert len(rig.a.of("rto")) == 1 and rig.a.writes == []


def test_before_an_rto_declares_loss_a_probe_asks() -> None:
    rig = Rig(DEMO, 0, 4, 1000)
    rig.net.fate = lambda frame, link, now: (
        frame[headers.BTH_AT] not in (wire.WRITE_ONLY, wire.WRITE_ONLY_IMM) or now > 1_500_000
    )
    rig.write(1, bytes(1000))
    assert rig.run(MS, lambda: len(rig.a.writes) == 1)
    assert rig.a.of("rto") == [] and len(rig.a.of("loss")) == 1
    assert rig.a.engine.counters()["probes_tx"] >= 1


def test_a_lost_d1_is_asked_for() -> None:
    rig = Rig(DEMO, 0, 4, 1000)
    drops = [2]

    def fate(frame: bytes, link: str, now: int) -> bool:
        if frame[headers.BTH_AT] == wire.ACK and drops[0]:
            drops[0] -= 1
            return False
        return True

    rig.net.fate = fate
    rig.write(1, bytes(1000))
    assert rig.run(MS, lambda: len(rig.a.writes) == 1)
    assert rig.a.writes[0].status == OK and rig.a.engine.counters()["data_tx"] == 1


def test_order_on_a_single_path_stops_at_what_arrived() -> None:
    s = Sender(near(Fabric("one", 1, 1, 0, 2)))
    s.send(4)
    s.sack(s.now, {1})
    assert s.lost() == [0]
    s.sack(s.now, {1, 3})
    assert s.lost() == [0, 2]


def test_with_only_a_d1_missing_every_rto_asks() -> None:
    rig = Rig(DEMO, 0, 4, 1000)
    rig.net.fate = lambda frame, link, now: frame[headers.BTH_AT] != wire.ACK
    asked: set[int] = set()

    def trace(now: int, port: str, frame: bytes) -> None:
        if port.startswith("h0-") and frame[headers.BTH_AT] == wire.PROBE:
            asked.add(now)

    rig.net.trace = trace
    rig.write(1, bytes(1000))
    assert rig.run(360 * MS, lambda: len(rig.a.writes) == 1)
    fired = [t for t, _ in rig.a.of("rto")]
    assert len(fired) == 13 and set(fired[:-1]) <= asked
    assert rig.a.writes[0].status == RETRY_EXCEEDED
