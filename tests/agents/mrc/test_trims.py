"""Trimmed packets at the sender: sent again at once, the path skipped once, never found guilty; and
the race between NACK and SACK."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.mrc import wire
from agents.mrc.paths import ev_state
from agents.mrc.paths.path import Path
from agents.mrc.sender import resend
from agents.mrc.sender.congestion.fixed import FixedWindow
from agents.mrc.sender.loss import ORDER, PORT, RTO, TIME, too_many
from agents.mrc.sender.sent_packets import CUT, LOST, SENT
from agents.packets import dscp, headers
from agents.transport import NEVER, OK, RETRY_EXCEEDED
from tests.agents.mrc.rig import DEMO, Rig
from tests.agents.mrc.sender.test_requester import FIRST, Sender
from tests.agents.nic.egress import dscp_of, is_high, trimmed
from tests.fabrics import near
from topologies.clos import Fabric
from topologies.units import MS, US, wire_time

SIZE = DEMO.mtu + 88


class Ears(FixedWindow):
    """A window that stays, and remembers what it was told about losses."""

    said: list[tuple[Any, ...]]

    def on_nack(self, now: int, size: int, in_flight: int, trimmed: bool) -> None:
        self.said.append(("nack", size, in_flight, trimmed))

    def on_loss(self, now: int, size: int) -> None:
        self.said.append(("loss", size))

    def on_wrong_loss(self, now: int, size: int) -> None:
        self.said.append(("wrong", size))


class Trimming(Sender):
    """A sender whose peer, played by the test, also sends NACKs."""

    def __init__(self, packets: int = 60, **options: Any) -> None:
        super().__init__(DEMO, packets, **options)
        ears = Ears(self.config, self.config.base_rtt)
        ears.said = []
        ears.cwnd = self.r.congestion.cwnd
        self.r.congestion = ears
        self.said = ears.said
        self.send(40)

    def names(self, k: int) -> tuple[int, int]:
        """EV and timestamp of the k-th packet's latest transmission, as a NACK echoes them."""
        return self.path(k).ev, self.packet(k).sent_ps >> self.config.ts_shift & 0xFFFF

    def nack(self, k: int, names: tuple[int, int] | None = None, last_hop: bool = False) -> None:
        ev, ts = self.names(k) if names is None else names
        resend.trimmed(
            self.r, self.now, FIRST + k & 0xFFFFFF, ev, ts, self.config.ts_shift, last_hop
        )

    def doubted(self) -> tuple[int, tuple[int, int]]:
        """The first packet is missing and a later one on its EV is not: its EV, and what a NACK for
        it would say."""
        names = self.names(0)
        path = self.path(0)
        self.sack(self.now, {self.same_path(0)})
        assert self.lost() == [0] and self.rules() == ["order"]
        return path, names

    def books(self) -> None:
        """The EVs rest for exactly the doubts that are open."""
        doubted = Counter(d.path for d in self.r.doubts.open.values())
        assert [path.doubts for path in self.r.paths.all] == [
            doubted[path] for path in self.r.paths.all
        ]
        assert self.r.doubts.at == min(
            (d.due_ps for d in self.r.doubts.open.values()), default=NEVER
        )

    def everything(self) -> tuple[Any, ...]:
        """What a NACK may change."""
        r = self.r
        packets = [None if p is None else p.state for p in r.sent.ring]
        paths = [path.state for path in r.paths.all]
        return (
            r.sent.in_flight,
            packets,
            list(r.sent.lost_queue),
            paths,
            r.trims,
            r.timers.progress_ps,
        )

    def state_of(self, path: Path) -> int:
        return path.state


@pytest.mark.parametrize("last_hop", [False, True])
def test_a_trimmed_packet_goes_again_first_and_elsewhere(last_hop: bool) -> None:
    s = Trimming()
    flying = s.r.sent.in_flight
    path = s.path(5)
    s.nack(5, last_hop=last_hop)
    assert s.state(5) == CUT and s.r.sent.in_flight == flying - SIZE
    assert s.said == [("nack", SIZE, flying - SIZE, True)]
    # The last hop is every path's: its trims say nothing about one.
    assert s.state_of(path) == (ev_state.GOOD if last_hop else ev_state.SKIP)
    assert (s.r.trims, s.r.trims_last_hop, s.r.acquitted) == (1, int(last_hop), 0)
    s.send(1)
    assert s.latest.psn == FIRST + 5 and s.latest.path != path
    assert s.latest.path.plane != path.plane
    assert (s.state(5), s.packet(5).count, s.r.retransmitted) == (SENT, 2, 1)
    assert s.r.sent.in_flight == flying
    assert s.r.lost_by == [0] * 5 and s.rules() == [] and s.r.doubts.open == {}
    s.send(1)
    assert s.latest.psn == FIRST + 40


def test_trims_never_give_up_a_path() -> None:
    """Every packet of many laps is trimmed: EVs are skipped and restored, none is probed or out of
    use."""
    s = Trimming(packets=400)
    for _ in range(300):
        k = next(k for k in range(60) if s.state(k) == SENT)
        s.nack(k)
        s.send(1)
        assert {path.state for path in s.r.paths.all} <= {ev_state.GOOD, ev_state.SKIP}
    assert s.r.paths.next_probe == NEVER and s.r.paths.live_planes == 4
    assert s.r.trims == 300 and s.r.retransmitted == 300


@pytest.mark.parametrize(
    "what",
    ["ev", "no ev", "ts", "before", "never sent", "received", "twice", "ring ahead", "ring behind"],
)
def test_a_nack_acts_only_on_the_transmission_it_names(what: str) -> None:
    s = Trimming()
    ev, ts = s.names(5)
    if what == "received":
        s.sack(s.now, {5})
    if what == "twice":
        s.nack(5)
    s.said.clear()
    before = s.everything()
    s.now += 1
    wrong = {
        "ev": (5, ev ^ 1, ts),
        "no ev": (5, 0xFFFFFFFF, ts),
        "ts": (5, ev, ts + 1 & 0xFFFF),
        "before": (-1, ev, ts),
        "never sent": (40, ev, ts),
        "received": (5, ev, ts),
        "twice": (5, ev, ts),
        "ring ahead": (5 + s.r.sent.size, ev, ts),
        "ring behind": (5 - s.r.sent.size, ev, ts),
    }[what]
    s.nack(wrong[0], wrong[1:])
    assert s.said == []
    assert before == s.everything()


def test_a_late_nack_for_the_first_copy_says_nothing_of_the_second() -> None:
    s = Trimming()
    first = s.names(5)
    s.nack(5)
    s.now += 1 << s.config.ts_shift + 1
    s.send(1)
    s.nack(5, first)
    assert s.state(5) == SENT and s.r.trims == 1
    s.nack(5)
    assert s.state(5) == CUT and s.r.trims == 2


def test_a_nack_puts_the_timers_off() -> None:
    s = Trimming()
    s.now += s.config.base_rtt
    s.nack(5)
    assert s.r.rto_at() == s.now + s.config.rto
    assert s.r.probe_at() > s.now


def test_received_after_all_a_trimmed_one_is_not_sent_again_nor_a_wrong_verdict() -> None:
    s = Trimming()
    s.nack(5)
    s.sack(s.now, {5})
    s.send(1)
    assert s.latest.psn == FIRST + 40 and s.r.spurious == 0 and ("wrong", SIZE) not in s.said


# --- the race -------------------------------------------------------------------------------------


def test_in_doubt_the_ev_rests_and_nobody_is_punished() -> None:
    s = Trimming()
    path, _ = s.doubted()
    assert s.state(0) == LOST and s.state_of(path) == ev_state.GOOD and s.held(path)
    assert s.said == []
    s.books()
    for _ in range(20):
        s.send(1)
        assert s.latest.path != path


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("last_hop", [False, True])
def test_a_nack_in_time_acquits(again: bool, last_hop: bool) -> None:
    """Skip and the accounting of a trim, no cut for a loss, whether or not it went again
    already."""
    s = Trimming()
    path, names = s.doubted()
    due = s.r.doubts.at
    if again:
        s.send(1)
        assert s.latest.psn == FIRST
    s.now = due - 1
    s.r.settle_doubts(s.now)
    s.nack(0, names, last_hop)
    assert s.said == [("nack", SIZE, s.r.sent.in_flight, True)]
    assert s.state_of(path) == (ev_state.GOOD if last_hop else ev_state.SKIP)
    assert not s.held(path)
    assert (s.r.trims, s.r.trims_last_hop, s.r.acquitted, s.r.lost_by[ORDER]) == (
        1,
        int(last_hop),
        1,
        1,
    )
    assert s.state(0) == (SENT if again else LOST)
    s.books()
    s.now += 10 * s.r.rtt.srtt
    s.r.settle_doubts(s.now)
    assert len(s.said) == 1 and s.state_of(path) != ev_state.ASSUMED_BAD
    s.sack(s.now, {0})
    assert s.r.spurious == 0 and path.undone is False


def test_without_a_nack_the_verdict_falls_after_a_quarter_of_the_smoothed_rtt() -> None:
    s = Trimming()
    s.r.measured(s.now, 0, 3 * s.config.base_rtt)
    path, names = s.doubted()
    due = s.now + 3 * s.config.base_rtt // 4
    assert s.r.doubts.at == due
    s.r.settle_doubts(due - 1)
    assert s.said == [] and s.state_of(path) == ev_state.GOOD
    s.now = due
    s.r.settle_doubts(due)
    assert s.said == [("loss", SIZE)] and s.state_of(path) == ev_state.ASSUMED_BAD
    s.books()
    s.nack(0, names)
    assert len(s.said) == 1 and s.r.acquitted == 0, "too late"


def test_a_nack_for_something_else_acquits_nobody() -> None:
    s = Trimming()
    path, (entropy, ts) = s.doubted()
    s.nack(0, (entropy ^ 1, ts))
    s.nack(0, (entropy, ts + 1))
    assert s.said == [] and len(s.r.doubts.open) == 1
    s.judge()
    assert s.state_of(path) == ev_state.ASSUMED_BAD


@pytest.mark.parametrize("again", [False, True])
def test_a_wrong_verdict_in_doubt_leaves_no_trace_but_patience(again: bool) -> None:
    s = Trimming()
    s.r.measured(s.now, 0, s.config.base_rtt)
    path, _ = s.doubted()
    patience = s.r.loss.reorder_window()
    if again:
        s.send(1)
    s.sack(s.now, {0, s.same_path(0)} if not again else {0})
    assert s.r.spurious == 1 and s.r.loss.reorder_window() > patience
    assert s.said == [] and s.state_of(path) == ev_state.GOOD and not path.undone
    assert s.r.paths.due_probe(s.now) is None
    s.books()
    assert s.r.doubts.open == {}


def test_a_wrong_verdict_that_fell_gives_the_window_back() -> None:
    s = Trimming()
    s.doubted()
    s.judge()
    s.sack(s.now, {0})
    assert s.said == [("loss", SIZE), ("wrong", SIZE)]


def test_several_doubts_of_one_ev_keep_it_resting_until_the_last() -> None:
    s = Trimming()
    path = s.path(0)
    second = s.same_path(0)
    third = s.same_path(second)
    names = [s.names(0), s.names(second)]
    s.sack(s.now, {third})
    assert s.lost() == [0, second]
    s.books()
    s.nack(0, names[0])
    assert s.held(path)
    s.nack(second, names[1])
    assert not s.held(path)
    s.books()


def test_doubts_are_judged_each_when_due() -> None:
    s = Trimming()
    s.lose(3, TIME, "time")
    first = s.r.doubts.at
    s.r.lose(s.now + 500, s.packet(2), TIME, "time", True)
    assert s.r.doubts.at == first
    s.r.settle_doubts(first)
    assert s.said == [("loss", SIZE)] and s.r.doubts.at == first + 500
    s.books()
    s.r.settle_doubts(first + 500)
    assert len(s.said) == 2 and s.r.doubts.at == NEVER
    s.books()


def test_both_copies_of_a_packet_lost_within_the_time_of_doubt() -> None:
    """Needs a smoothed RTT far above the path's; the first is judged, its EV does not rest for
    ever."""
    s = Trimming()
    path, _ = s.doubted()
    s.send(1)
    other = s.latest.path
    s.lose(0, TIME, "time")
    s.books()
    assert s.state_of(path) == ev_state.ASSUMED_BAD and s.said == [("loss", SIZE)]
    s.judge()
    assert s.state_of(other) == ev_state.ASSUMED_BAD and s.said == [("loss", SIZE)] * 2
    s.books()


def test_the_second_copy_trimmed_while_the_first_is_in_doubt() -> None:
    s = Trimming()
    path, _ = s.doubted()
    s.send(1)
    s.nack(0)
    assert s.state(0) == CUT and s.r.trims == 1 and s.r.acquitted == 0
    assert s.held(path), "of the first nothing is known yet"
    s.books()


def test_the_timer_waits_for_no_nack() -> None:
    s = Trimming()
    path = s.path(0)
    s.lose(0, RTO, "rto")
    assert (
        s.said == [("loss", SIZE)]
        and s.state_of(path) == ev_state.ASSUMED_BAD
        and s.r.doubts.open == {}
    )


def test_a_flush_drops_all_doubts() -> None:
    s = Trimming()
    path, _ = s.doubted()
    s.r.flush(RETRY_EXCEEDED)
    assert not s.held(path) and s.r.doubts.at == NEVER
    s.books()
    s.judge()
    assert s.said == [] and s.state_of(path) == ev_state.GOOD


def test_a_port_goes_down_with_doubts_open() -> None:
    """What is in flight on it goes again unpunished, and the port explains the doubts: no verdict,
    no cut, no EV rests for ever."""
    s = Trimming()
    path, names = s.doubted()
    plane = path.plane
    s.r.paths.set_open(0, plane, False)
    resend.requeue_plane(s.r, s.now, plane)
    assert s.said == [] and s.r.doubts.open == {} and s.r.doubts.at == NEVER and path.doubts == 0
    s.books()
    while s.r.sent.lost_queue:
        s.send(1)
        assert s.latest.path.plane != plane
    s.nack(0, names)
    assert s.r.acquitted == 0, "it names a transmission that nobody asks about any more"
    s.judge()
    assert s.said == [] and s.state_of(path) == ev_state.GOOD
    s.books()


def test_a_refusal_for_want_of_room_is_told_to_congestion_control_beyond_the_window_not() -> None:
    s = Trimming()
    s.send(3)
    for k, beyond, told in ((0, True, 0), (1, False, 1)):
        psn = FIRST + k
        ts = s.packet(k).sent_ps >> s.config.ts_shift & 0xFFFF
        resend.push_back(s.r, s.now, psn & 0xFFFFFF, s.path(k).ev, ts, s.config.ts_shift, beyond)
        assert len([x for x in s.said if x[0] == "nack"]) == told
    s.books()


# --- on the wire ----------------------------------------------------------------------------------


class Cutter:
    """Trims chosen data frames where they leave the first T0, and keeps what every host got."""

    def __init__(self, rig: Rig, to: int, choose: Any, late: int = 0) -> None:
        self.rig = rig
        self.to = to
        self.choose = choose
        self.late = late
        self.cut: list[dict[str, Any]] = []
        self.sent: list[tuple[bytes, dict[str, Any]]] = []  # by the sender, data and probes
        self.got: list[tuple[int, dict[str, Any]]] = []  # by the sender
        rig.net.fate = self.fate
        rig.net.trace = self.trace
        rig.net.taken = self.taken

    def fate(self, frame: bytes, link: str, now: int) -> bool:
        if link.startswith("h") or dscp_of(frame) not in (dscp.TRIMMABLE, dscp.TRIMMABLE_RETX):
            return True
        d = wire.describe(frame)
        if frame[headers.BTH_AT] == wire.PROBE or "t0-0:" not in link or not self.choose(d):
            return True
        self.cut.append(d)
        small = trimmed(frame, self.to)
        assert is_high(small)
        net, engine, port = self.rig.net, self.rig.b.engine, d["ev"] >> 16
        net.at(
            now + net.fabric.delay_ps + self.late,
            lambda: engine.receive(net.now, port, bytearray(small), 0, len(small)),
        )
        return False

    def trace(self, now: int, port: str, frame: bytes) -> None:
        if port.startswith(f"h{self.rig.host_a}-"):
            self.sent.append((frame, wire.describe(frame)))

    def taken(self, now: int, host: int, frame: bytes) -> None:
        if host == self.rig.host_a:
            self.got.append((now, wire.describe(frame)))

    def nacks(self) -> list[dict[str, Any]]:
        return [d for _, d in self.got if d["name"] == "NACK"]

    def copies(self, psn: int) -> list[tuple[bytes, dict[str, Any]]]:
        return [(f, d) for f, d in self.sent if d["psn"] == psn and "WRITE" in d["name"]]


def finish(rig: Rig) -> bool:
    return rig.run(MS, lambda: len(rig.a.writes) == 1)


@pytest.mark.parametrize(
    "to, reason", [(dscp.TRIMMED, wire.TRIMMED), (dscp.TRIMMED_LASTHOP, wire.TRIMMED_LASTHOP)]
)
def test_a_nack_echoes_psn_ev_and_timestamp_and_the_packet_comes_again(
    to: int, reason: int
) -> None:
    rig = Rig(DEMO, 0, 7, 200_000)
    nth = [0]

    def choose(d: dict[str, Any]) -> bool:
        nth[0] += 1
        return nth[0] in (3, 11)

    cutter = Cutter(rig, to, choose)
    data = Random(1).randbytes(200_000)
    rig.write(1, data)
    assert finish(rig)
    assert rig.a.writes[0].status == OK and rig.b.memory[64:-64] == data
    assert len(cutter.cut) == 2
    assert [(d["reason"], d["nack_psn"], d["entropy"], d["tx_ts"]) for d in cutter.nacks()] == [
        (reason, d["psn"], d["ev"], d["tx_ts"]) for d in cutter.cut
    ]
    for gone in cutter.cut:
        (first, a), (second, b) = cutter.copies(gone["psn"])
        assert (a["rtx"], b["rtx"]) == (0, 1)
        assert b["ev"] >> 16 != a["ev"] >> 16
        assert (a["va"], a["name"], first[138:-4]) == (b["va"], b["name"], second[138:-4])
        assert (dscp_of(first), dscp_of(second)) == (dscp.TRIMMABLE, dscp.TRIMMABLE_RETX)
    c = rig.a.engine.counters()
    assert (c["trims"], c["trims_last_hop"], c["retransmitted"], c["acquitted"]) == (
        2,
        2 * (to == dscp.TRIMMED_LASTHOP),
        2,
        0,
    )
    assert sum(v for k, v in c.items() if k.startswith("lost_by")) == 0 and c["spurious"] == 0
    assert rig.b.engine.counters()["trimmed_rx"] == 2 and rig.b.engine.counters()["nacks_tx"] == 2
    assert all(row["state"] == "GOOD" or row["state"] == "SKIP" for row in rig.a.engine.paths())


def test_the_nack_goes_out_before_anything_else_in_the_high_class() -> None:
    """And at once: the sender has it one RTT after the packet left, though queues may be long."""
    rig = Rig(DEMO, 0, 7, 200_000)
    cutter = Cutter(
        rig,
        dscp.TRIMMED,
        lambda d: d["rtx"] == 0 and d["psn"] == rig.a.engine.qps[rig.a.qpn].first_psn,
    )
    rig.write(1, bytes(200_000))
    assert finish(rig)
    at = next(now for now, d in cutter.got if d["name"] == "NACK")
    assert at - US < DEMO.base_rtt_ps


def test_overtaken_by_sacks_a_nack_still_acquits_the_path() -> None:
    """The SACK that shows the hole comes first: a doubt, then the NACK, and no path is given up nor
    is the window cut for a loss."""
    nth = [0]

    def choose(d: dict[str, Any]) -> bool:
        nth[0] += 1
        return nth[0] == 7

    # Held back until a later packet of its own path was told of; less than the verdict waits.
    serialisation = wire_time(DEMO.frame_bytes, DEMO.nic_rate)
    acquitted = []
    for lag in range(8, 40):
        rig = Rig(DEMO, 0, 7, 400_000, {"congestion": "fixed"})
        nth[0] = 0
        Cutter(rig, dscp.TRIMMED, choose, lag * serialisation // 2)
        rig.write(1, bytes(400_000))
        assert finish(rig)
        c = rig.a.engine.counters()
        if c["acquitted"]:
            acquitted.append(lag)
            assert c["lost_by_order"] + c["lost_by_time"] == 1 and c["trims"] == 1
            assert rig.a.of("ev") == [], "no EV changed hands"
        else:
            assert c["trims"] == 1 or rig.a.of("ev"), "in time, or a verdict"
    assert acquitted, "some NACK came in between"


def test_a_doubt_wakes_the_endpoint_when_it_is_due() -> None:
    """Nothing else need happen then: at every moment the endpoint asks to be woken no later than
    the first verdict is due."""
    rig = Rig(DEMO, 0, 7, 400_000, {"congestion": "fixed"})
    qp = rig.a.engine.qps[rig.a.qpn]
    gone = [(qp.requester.sent.next + k) & headers.PSN_MASK for k in (30, 75)]

    def fate(frame: bytes, link: str, now: int) -> bool:
        d = wire.describe(frame)
        return "WRITE" not in d["name"] or d["psn"] not in gone or d["rtx"] == 1

    rig.net.fate = fate
    due: list[int] = []

    def look() -> bool:
        at = qp.requester.doubts.at
        if at != NEVER:
            due.append(at)
            assert rig.a.engine.deadline() <= at
        return bool(rig.a.of("ev"))

    rig.write(1, bytes(400_000))
    assert rig.run(MS, look)
    assert [when for when, _ in rig.a.of("ev")] == [due[-1]]


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 1 << 30),
    st.floats(0.0, 0.4),
    st.floats(0.0, 0.1),
    st.floats(0.0, 3.0),
    st.booleans(),
    st.sampled_from(["nscc", "fixed"]),
)
def test_whatever_is_trimmed_lost_late_or_unplugged_the_books_balance(
    seed: int, cut: float, lost: float, late: float, unplug: bool, congestion: str
) -> None:
    """NACKs come late and out of order, some frames of any kind vanish, a port fails on the way:
    every byte arrives, and at the end no EV rests for a doubt, nothing is in flight, and each trim
    that was acted on was one that happened.
    """
    rig = Rig(DEMO, 0, 7, 150_000, {"exponential": 25, "congestion": congestion}, seed)
    rng = Random(seed)
    cutter = Cutter(
        rig, rng.choice([dscp.TRIMMED, dscp.TRIMMED_LASTHOP]), lambda d: rng.random() < cut
    )
    inner = cutter.fate

    def fate(frame: bytes, link: str, now: int) -> bool:
        cutter.late = int(rng.random() * late * DEMO.base_rtt_ps)
        return rng.random() >= lost and inner(frame, link, now)

    rig.net.fate = fate
    data = rng.randbytes(150_000)
    for k in range(3):
        rig.write(k, data[50_000 * k : 50_000 * (k + 1)], 50_000 * k)
    engine = rig.a.engine
    r = engine.qps[rig.a.qpn].requester
    if unplug:
        for k, up in ((1, False), (3, True)):
            rig.net.at(
                rig.net.now + k * DEMO.base_rtt_ps,
                lambda up=up: engine.port_state(rig.net.now, 1, up),
            )  # type: ignore[misc]
    assert rig.run(360 * MS, lambda: len(rig.a.writes) == 3)
    assert rig.b.memory[64:-64] == data and rig.b.guards_intact()
    rig.run(100 * US)
    assert (
        r.doubts.open == {}
        and r.doubts.at == NEVER
        and not any(path.doubts for path in r.paths.all)
    )
    assert r.sent.in_flight == 0 and r.sent.una == r.queue.end
    assert r.trims <= len(cutter.cut) and r.acquitted <= r.trims
    if not lost and not cut:
        assert r.retransmitted <= r.lost_by[PORT] == sum(r.lost_by)


# --- probes ---------------------------------------------------------------------------------------


def test_a_trimmed_probe_is_answered_skip_once_and_is_no_evidence_of_order() -> None:
    """It overtook the data on its path: what is older there may still come."""
    for cut in (False, True):
        rig = Rig(DEMO, 0, 7, 200_000, {"congestion": "fixed"})
        engine = rig.a.engine
        # data vanishes
        rig.net.fate = lambda frame, link, now: (
            frame[headers.BTH_AT] == wire.PROBE or is_high(frame)
        )
        rig.write(1, bytes(100_000))
        rig.net.step(rig.net.now)
        r = engine.qps[rig.a.qpn].requester
        path = r.sent.latest(r.sent.una).path
        answers: list[dict[str, Any]] = []
        rig.net.taken = lambda now, host, frame, answers=answers: (  # type: ignore[misc]
            answers.append(wire.describe(frame))
            if host == 0 and frame[headers.BTH_AT] == wire.SACK
            else None
        )
        if cut:
            port = f"p{path.plane}-t0-0-u{path.ev & 0xFFFF}"
            rig.net.ports[port].backlog = 10 * DEMO.plane_bdp // 2
        engine.qps[rig.a.qpn].to_probe.append(path)
        before = r.sent.seq_high, [p.seq_high for p in r.paths.all], r.rtt.samples
        rig.net.run(rig.net.now + 2 * DEMO.base_rtt_ps, lambda answers=answers: bool(answers))  # type: ignore[misc]
        (answer,) = answers
        assert answer["pr"] == 1 and answer["entropy"] == path.ev
        assert answer["m"] == (1 if cut else 0)
        if cut:
            assert (
                r.sent.seq_high,
                [p.seq_high for p in r.paths.all],
                r.rtt.samples,
            ) == before and path.state == ev_state.SKIP
            assert r.lost_by[ORDER] == 0
        else:
            assert r.sent.seq_high > before[0] and r.rtt.samples == before[2] + 1
            assert r.lost_by[ORDER] > 0


# --- without trimming -----------------------------------------------------------------------------

DROPPING = near(Fabric("dropping", 4, 2, 4, 4, trimming=False))


class Dropping(Sender):
    def __init__(self, packets: int = 200) -> None:
        super().__init__(DROPPING, packets)
        self.send(60)

    def next_on(self, path: Path, after: int) -> int:
        return next(k for k in range(after + 1, 60) if self.path(k) == path)


def test_without_trimming_the_first_loss_is_a_mark_and_the_second_in_a_row_a_verdict() -> None:
    s = Dropping()
    path = s.path(0)
    s.lose(0, TIME, "time")
    assert s.r.doubts.open == {} and not path.doubts
    assert path.state == ev_state.SKIP and s.r.paths.next_probe == NEVER
    s.lose(s.next_on(path, 0), TIME, "time")
    assert path.state == ev_state.ASSUMED_BAD and s.r.paths.next_probe < NEVER


def test_without_trimming_what_arrives_between_two_losses_clears_the_first() -> None:
    s = Dropping()
    path = s.path(0)
    second = s.next_on(path, 0)
    third = s.next_on(path, second)
    s.sack(s.now, {second})
    assert s.lost() == [0] and path.state == ev_state.SKIP
    s.sack(s.now, {second, third})
    s.lose(s.next_on(path, third), TIME, "time")
    assert path.state == ev_state.SKIP


def waiting(s: Sender, n: int, first: int = FIRST) -> None:
    """Rule 3 alone: a SACK whose ooo_count is ``n`` and that shows no more."""
    s.r.loss.verdicts(s.r, s.now, first, first, 0, 0, n)


def test_rule_3_counts_what_waits_at_the_peer_only_without_trimming() -> None:
    # The window: 50 BDP; 1.5 BDP of 4 planes is 1.5 x 40 full frames of 4238 bytes, or 60.7 of
    # 4184; half of MPR is 512.
    s = Dropping()
    waiting(s, 59)
    assert s.lost() == []
    waiting(s, 61)
    assert s.lost() == [0] and s.rules() == ["count"]
    t = Sender(DEMO, 200)
    t.send(60)
    waiting(t, 500)
    assert t.lost() == []


def test_rule_3_takes_one_and_a_half_windows_half_the_peers_window_but_never_under_five() -> None:
    for window, least in ((10 * SIZE, 15), (2 * SIZE, 5), (3 * SIZE, 5)):
        s = Dropping()
        s.r.congestion.cwnd = window
        waiting(s, least - 1)
        assert s.lost() == []
        waiting(s, least)
        assert s.lost() == [0]
    # Eight planes: 121 packets are 1.5 BDP of theirs, so half of MPR counts.
    assert too_many(Sender(near(Fabric("many", 8, 2, 4, 4, trimming=False)), 200, mpr=128).r) == 64


def test_rule_3_holds_for_the_first_copy_at_the_edge_only() -> None:
    s = Dropping()
    waiting(s, 500, FIRST - 1)
    waiting(s, 500, s.r.sent.next)
    assert s.lost() == []
    waiting(s, 500)
    s.send(1)
    assert s.latest.psn == FIRST
    waiting(s, 500)
    assert s.lost() == []
