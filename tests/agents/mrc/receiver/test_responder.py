"""The receiving half alone: the bitmap tells the truth and everything, completions come in order,
each check has its syndrome."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.receiver.advice import Advice
from agents.mrc.receiver.responder import BEYOND, DUPLICATE, NEW, REFUSED, Responder
from agents.packets.memory import Memory
from agents.transport import OK, RECEIVE
from tests.agents.mrc.packets import write_packet
from tests.agents.mrc.rig import SMALL

CONFIG = Config.from_fabric(SMALL, {"sack_bytes": 16384})
MTU = SMALL.mtu
BUFFER = bytearray(range(256)) * 2
ASK = wire.F_ACKREQ


class Peer:
    """Sends to one responder; ``first`` near the wrap of 24 bits is where mistakes hide."""

    def __init__(
        self,
        first: int = 0xFFFFF0,
        receives: int = 1000,
        config: Config = CONFIG,
        advice: Advice | None = None,
    ) -> None:
        self.memory = Memory(Random(1))
        self.arena = bytearray(1 << 16)
        self.region = self.memory.register(self.arena)
        self.r = Responder(config, 16, self.memory, Random(2), advice or Advice(config))
        self.first = first
        self.r.start(first, [0, 1 << 16])
        for number in range(receives):
            self.r.recv_queue.append(number)

    def only(
        self,
        k: int,
        now: int = 0,
        *,
        imm: int = -1,
        msn: int | None = None,
        rqmsn: int = 0,
        flags: int = 0,
        marked: bool = False,
    ) -> int:
        """The k-th PSN as a one-packet message."""
        op = wire.WRITE_ONLY_IMM if imm >= 0 else wire.WRITE_ONLY
        psn = self.r.absolute(self.first + k & 0xFFFFFF)
        assert psn == self.first + k
        va = self.region.va + k * 16 % 60000
        packet = write_packet(
            op=op,
            psn=psn,
            rtx=flags & wire.F_RTX != 0,
            asks=flags & wire.F_ACKREQ != 0,
            marked=marked,
            rqmsn=rqmsn,
            msn=(k if msn is None else msn) & 0xFFFF,
            va=va,
            rkey=self.region.rkey,
            dmalen=16,
            imm=imm,
        )
        return self.r.data(now, packet, BUFFER, 0, 16)

    def raw(
        self,
        k: int,
        op: int,
        length: int,
        dmalen: int,
        *,
        va: int | None = None,
        rkey: int | None = None,
        msn: int = 0,
        rqmsn: int = 0,
    ) -> int:
        at = self.region.va if va is None else va
        key = self.region.rkey if rkey is None else rkey
        packet = write_packet(
            op=op, psn=self.first + k, rqmsn=rqmsn, msn=msn, va=at, rkey=key, dmalen=dmalen
        )
        return self.r.data(0, packet, BUFFER, 0, length)

    def sack(self) -> tuple[int, int, int]:
        """(cack, base, bits) as the endpoint would send them."""
        base = self.r.bitmap_base()
        bits = self.r.bitmap(base)
        self.r.sack_built()
        return self.r.expected - 1, base, bits


@settings(deadline=None)
@given(st.data(), st.integers(1, 400), st.floats(0.0, 0.95))
def test_bits_tell_the_truth_and_all_holes_are_told(
    data: st.DataObject, n: int, loss: float
) -> None:
    """Any arrival order, any subset lost: no SACK lies, cack is the edge, and at the end every hole
    is told, and every arrival was once."""
    rng = Random(data.draw(st.integers(0, 1 << 32)))
    order = list(range(n))
    reach = data.draw(st.sampled_from([1, 8, 100, 400]))
    order.sort(key=lambda k: k + rng.random() * reach)
    peer = Peer()
    here: set[int] = set()
    news: set[int] = set()
    for k in order:
        if rng.random() < loss:
            continue
        assert peer.only(k) == NEW
        here.add(k)
        if rng.random() < 0.1:
            base, bits = check_sack(peer, here)
            news |= {base + i for i in range(64) if bits >> i & 1}
    if not here:
        return
    holes: set[int] = set()
    for _ in range(2 * (n // 64 + 2)):
        base, bits = check_sack(peer, here)
        for i in range(64):
            (news if bits >> i & 1 else holes).add(base + i)
    edge = peer.r.expected - peer.first
    for k in range(edge, max(here) + 1):
        assert peer.first + k in (news if k in here else holes), k


def check_sack(peer: Peer, here: set[int]) -> tuple[int, int]:
    cack, base, bits = peer.sack()
    edge = 0
    while edge in here:
        edge += 1
    assert cack == peer.first + edge - 1
    high = peer.first + max(here, default=-1)
    assert cack + 1 <= base <= max(cack + 1, high - 63)
    assert 0 <= bits < 1 << 64
    for i in range(64):
        assert bool(bits >> i & 1) == (base + i - peer.first in here)
    return base, bits


def test_news_and_holes_take_turns() -> None:
    peer = Peer()
    for k in range(1, 300, 2):
        peer.only(k)
    bases = [peer.sack()[1] - peer.first for _ in range(6)]
    assert bases == [1, 0, 65, 64, 129, 128]


def test_a_probe_or_a_flush_tells_everything_from_the_edge_on() -> None:
    peer = Peer()
    for k in range(1, 200):
        peer.only(k)
    assert [b - peer.first for b in peer.r.complete_bases()] == [0, 64, 128, 192]
    peer.r.sack_built()
    peer.r.flush()
    bases = []
    while peer.r.sack_due:
        bases.append(peer.sack()[1] - peer.first)
    assert bases == [0, 64, 128, 192]


def test_nothing_open_is_told_by_one_sack() -> None:
    peer = Peer()
    assert peer.r.complete_bases() == [peer.first]
    peer.only(0)
    assert peer.r.complete_bases() == [peer.first + 1]


def test_a_duplicate_is_acknowledged_and_never_placed() -> None:
    peer = Peer()
    for k in (0, 2):
        assert peer.only(k) == NEW
    peer.arena[:] = bytes(len(peer.arena))
    peer.r.sack_built()
    peer.r.ack_due = False
    for k, completed in ((0, True), (2, False)):
        assert peer.only(k) == DUPLICATE
        assert peer.r.sack_due and peer.r.ack_due == completed
        peer.r.sack_built()
        peer.r.ack_due = False
    assert not any(peer.arena)
    assert peer.r.inflow.bytes == 2 * wire_size(16)


def wire_size(n: int) -> int:
    return max(n + 48, 256)


def test_window_is_half_open() -> None:
    peer = Peer()
    assert peer.only(CONFIG.mpr - 1) == NEW
    assert peer.only(CONFIG.mpr) == BEYOND
    assert peer.r.high == peer.first + CONFIG.mpr - 1
    peer.only(0)
    assert peer.only(CONFIG.mpr) == NEW


def test_room_for_a_whole_window_is_made_by_need() -> None:
    peer = Peer(receives=2000)
    n = CONFIG.mpr
    for k in (1, 70, 5, 300, *(k for k in range(n - 1, -1, -1) if k not in (1, 70, 5, 300))):
        assert peer.only(k, imm=k, rqmsn=k) == NEW
    assert [c.imm for c in peer.r.take()] == list(range(n))
    assert len(peer.r.recv_queue) == 2000 - n


def test_completions_and_immediates_come_in_psn_order() -> None:
    peer = Peer()
    rq = 0
    todo = []
    for k in range(60):
        imm = 1000 + k if k % 3 == 0 else -1
        todo.append((k, imm, rq))
        rq += imm >= 0
    Random(5).shuffle(todo)
    for k, imm, rqmsn in todo:
        assert peer.only(k, imm=imm, rqmsn=rqmsn) == NEW
    assert [(c.wr_id, c.imm, c.kind, c.status) for c in peer.r.completions] == [
        (j, 1000 + 3 * j, RECEIVE, OK) for j in range(20)
    ]
    assert (peer.r.msn, peer.r.last_done, peer.r.nak) == (60, peer.first + 59, 0)


@pytest.mark.parametrize("start", [0xFFFE, 0x1FFFF])
def test_msn_and_rqmsn_are_compared_modulo_2_to_16(start: int) -> None:
    peer = Peer()
    peer.r.msn = peer.r.immediates = start
    for k in range(5):
        peer.only(k, imm=1, msn=start + k, rqmsn=start + k & 0xFFFF)
    assert peer.r.nak == 0 and peer.r.msn == start + 5


def test_sack_rules() -> None:
    quarter = CONFIG.base_rtt >> 2
    peer = Peer()
    peer.only(0, 100)
    assert not peer.r.sack_due and peer.r.flush_at == 100 + quarter
    for flags, marked in ((ASK, False), (wire.F_RTX, False), (0, True)):
        peer.r.sack_built()
        k = peer.r.expected - peer.first
        peer.only(k, flags=flags, marked=marked)
        assert peer.r.sack_due
        assert peer.r.trigger.m == (1 if marked else 0) and peer.r.trigger.rtx == bool(
            flags & wire.F_RTX
        )


def test_a_sack_after_16_kb_where_a_packet_counts_at_least_1_kb() -> None:
    counts = set()
    peer = Peer()
    k = 0
    for _ in range(40):
        n = 0
        while not peer.r.sack_due:
            peer.only(k)
            k += 1
            n += 1
        peer.sack()
        counts.add(n)
    # 16 of 1 KB, jittered by 25 %
    assert min(counts) >= 12 and max(counts) <= 20 and len(counts) > 3


def test_an_asked_for_sack_comes_again_when_nothing_is_missing() -> None:
    peer = Peer()
    peer.only(1, flags=ASK)
    assert peer.r.sack_due
    peer.r.sack_built()
    peer.only(0)
    assert peer.r.sack_due
    peer.r.sack_built()
    peer.only(2)
    assert not peer.r.sack_due


INVALID, ACCESS, OPERATION = wire.SYNDROME_INVALID, wire.SYNDROME_ACCESS, wire.SYNDROME_OPERATION


@pytest.mark.parametrize(
    "op, length, dmalen",
    [
        (wire.WRITE_ONLY, 10, 11),
        (wire.WRITE_ONLY, 11, 10),
        (wire.WRITE_FIRST, MTU - 1, 4 * MTU),
        (wire.WRITE_FIRST, MTU, MTU),
        (wire.WRITE_MIDDLE, MTU - 4, 4 * MTU),
        (wire.WRITE_LAST, 0, 2 * MTU),
        (wire.WRITE_ONLY, MTU + 4, MTU + 4),
        (wire.WRITE_LAST, MTU + 4, 4 * MTU),
    ],
)
def test_lengths_that_cannot_be_are_invalid(op: int, length: int, dmalen: int) -> None:
    peer = Peer()
    assert peer.raw(3, op, length, dmalen) == REFUSED
    assert peer.r.nak == INVALID and not any(peer.arena)


@pytest.mark.parametrize("what", ["rkey", "below", "above", "end"])
def test_rkey_and_bounds(what: str) -> None:
    peer = Peer()
    base, size = peer.region.va, peer.region.length
    va = {"rkey": base, "below": base - 1, "above": base + size, "end": base + size - 15}[what]
    assert (
        peer.raw(0, wire.WRITE_ONLY, 16, 16, va=va, rkey=peer.region.rkey ^ (what == "rkey"))
        == REFUSED
    )
    assert peer.r.nak == ACCESS and not any(peer.arena)


def test_the_last_byte_of_a_region_may_be_written() -> None:
    peer = Peer()
    assert peer.raw(0, wire.WRITE_ONLY, 16, 16, va=peer.region.va + peer.region.length - 16) == NEW
    assert bytes(peer.arena[-16:]) == bytes(range(16))


def test_a_zero_length_write_needs_no_memory_and_takes_one_psn() -> None:
    peer = Peer()
    assert peer.raw(0, wire.WRITE_ONLY, 0, 0, va=1, rkey=peer.region.rkey ^ 1) == NEW
    assert peer.r.nak == 0 and peer.r.msn == 1 and peer.r.expected == peer.first + 1


@pytest.mark.parametrize(
    "ops",
    [
        (wire.WRITE_MIDDLE,),
        (wire.WRITE_LAST,),
        (wire.WRITE_FIRST, wire.WRITE_ONLY),
        (wire.WRITE_FIRST, wire.WRITE_FIRST),
    ],
)
def test_opcode_sequences_that_cannot_be_are_invalid_in_any_arrival_order(
    ops: tuple[int, ...],
) -> None:
    for order in (range(len(ops)), reversed(range(len(ops)))):
        peer = Peer()
        for k in order:
            only = ops[k] == wire.WRITE_ONLY
            peer.raw(k, ops[k], 16 if only else MTU, 16 if only else 4 * MTU)
        assert peer.r.nak == INVALID


@pytest.mark.parametrize("msn, rqmsn", [(1, 0), (0, 1)])
def test_a_wrong_msn_or_rqmsn_is_invalid(msn: int, rqmsn: int) -> None:
    peer = Peer()
    peer.only(0, msn=msn, rqmsn=rqmsn)
    assert peer.r.nak == INVALID and peer.r.msn == 0


def test_an_immediate_without_a_receive_is_an_operational_error() -> None:
    peer = Peer(receives=1)
    peer.only(0, imm=5)
    assert peer.r.nak == 0
    peer.only(1, imm=6, rqmsn=1)
    assert peer.r.nak == OPERATION
    assert [c.imm for c in peer.r.completions] == [5]


def test_after_a_nak_memory_is_not_touched() -> None:
    peer = Peer()
    peer.raw(5, wire.WRITE_ONLY, 16, 17)
    assert peer.only(0) == REFUSED
    assert not any(peer.arena) and peer.r.received == 0


def test_reverse_evs_rotate_over_planes_and_pass_over_a_quiet_one() -> None:
    peer = Peer()
    peer.r.arrived(1000, 0, 0x3)
    peer.r.arrived(1000, 1, 0x10002)
    assert [peer.r.reverse.next() for _ in range(4)] == [0x3, 0x10002, 0x3, 0x10002]
    peer.r.arrived(1000 + 5 * CONFIG.base_rtt, 1, 0x10001)
    assert {peer.r.reverse.next() for _ in range(4)} == {0x10001}


# --- what came without its payload ----------------------------------------------------------------


def cut(
    peer: Peer,
    k: int,
    now: int = 0,
    *,
    ev: int = 0x10001,
    ts: int = 77,
    rtx: bool = False,
    last_hop: bool = False,
) -> bool:
    packet = write_packet(
        psn=peer.r.absolute(peer.first + k & 0xFFFFFF), ev=ev, ts=ts, rtx=rtx, marked=True
    )
    return peer.r.trimmed(now, packet, last_hop)


@pytest.mark.parametrize("k", [0, 3, CONFIG.mpr - 1, CONFIG.mpr, 0x7FFF00])
def test_a_trimmed_packet_that_is_missing_is_to_be_told_and_is_not_received(k: int) -> None:
    """Also one beyond the window: the sender knows what it sent."""
    peer = Peer()
    peer.only(1)
    peer.r.sack_built()
    before = (peer.r.expected, peer.r.received, peer.r.high, peer.r.inflow.bytes, peer.r.since_sack)
    assert cut(peer, k)
    assert before == (
        peer.r.expected,
        peer.r.received,
        peer.r.high,
        peer.r.inflow.bytes,
        peer.r.since_sack,
    )
    assert not peer.r.sack_due and not peer.r.ack_due and peer.r.nak == 0
    if k < CONFIG.mpr:
        assert peer.only(k) == NEW


@pytest.mark.parametrize("k", [0, 1, 5, -1, -1000])
def test_a_trimmed_duplicate_is_told_by_a_sack_as_if_it_had_been_marked(k: int) -> None:
    peer = Peer()
    for j in (0, 1, 5):
        peer.only(j)
    peer.r.sack_built()
    assert not cut(peer, k, 123, rtx=True)
    r = peer.r
    t = r.trigger
    assert r.sack_due and (t.m, t.psn, t.ev, t.ts, t.rtx, t.at) == (
        wire.M_SKIP_ONCE, peer.first + k, 0x10001, 77, True, 123,
    )  # fmt: skip
    assert not any(r.completions) and r.msn == 2


RTT = CONFIG.base_rtt


def test_the_last_hops_trims_ask_for_less_for_a_base_rtt() -> None:
    peer = Peer()
    assert peer.r.window_advice(0) == 0
    cut(peer, 3, 1000)
    assert peer.r.window_advice(1001) == 0, (
        "some link on the way: every sender's own paths are to be skipped"
    )
    cut(peer, 3, 2000, last_hop=True)
    assert (
        peer.r.window_advice(2000)
        == CONFIG.receiver_penalty
        == peer.r.window_advice(2000 + RTT - 1)
        == 16
    )
    assert peer.r.window_advice(2000 + RTT) & 0x7F == 0
    cut(peer, 3, 3000 + RTT, last_hop=True)
    assert peer.r.window_advice(2999 + 2 * RTT) == 16


def test_a_trimmed_duplicate_on_the_last_hop_asks_for_less_too() -> None:
    peer = Peer()
    peer.only(0)
    assert not cut(peer, 0, 1000, last_hop=True)
    assert peer.r.window_advice(1001) == 16


@pytest.mark.parametrize("penalty", [0, 1, 127])
def test_how_much_less_is_an_option(penalty: int) -> None:
    peer = Peer(config=Config.from_fabric(SMALL, {"receiver_penalty": penalty}))
    cut(peer, 0, 1000, last_hop=True)
    assert peer.r.window_advice(1001) == penalty
    if not penalty:
        assert peer.r.window_advice(1001 + 10 * RTT) == 0, (
            "nothing was taken, nothing is given back"
        )


def test_windows_are_given_back_once_nobody_else_sends_to_this_host() -> None:
    advice = Advice(CONFIG)
    peers = [Peer(advice=advice) for _ in range(3)]
    begin = 100 * RTT
    for p in peers:
        p.r.arrived(begin, 0, 1)
    cut(peers[0], 0, begin, last_hop=True)
    restore = 0x80
    assert peers[0].r.window_advice(begin + RTT) == 0
    peers[2].r.arrived(begin + RTT, 0, 1)
    assert peers[0].r.window_advice(begin + 3 * RTT - 1) == 0
    peers[0].r.arrived(begin + 3 * RTT, 0, 1)  # its own does not count
    assert peers[0].r.window_advice(begin + 3 * RTT) == restore
    assert peers[1].r.window_advice(begin + 3 * RTT) == 0, "it never asked for less"
    cut(peers[0], 0, begin + 4 * RTT, last_hop=True)
    assert peers[0].r.window_advice(begin + 4 * RTT) == 16, "not both"


def test_who_brings_less_than_its_share_is_spared() -> None:
    """Shares are taken every four base RTTs: of 4, 2 and 1 packets, the mean is 7/3."""
    advice = Advice(CONFIG)
    peers = [Peer(advice=advice) for _ in range(3)]
    for p, n in zip(peers, (4, 2, 1), strict=True):
        for k in range(n):
            p.only(k)
    for p in peers:
        cut(p, 10, RTT, last_hop=True)
    assert [p.r.window_advice(RTT + 1) for p in peers] == [16, 0, 0]
    for k in range(4, 8):
        peers[2].only(k)
    cut(peers[2], 20, 5 * RTT - 1, last_hop=True)
    assert peers[2].r.window_advice(5 * RTT) == 0, "still by the old shares"
    for p in peers:
        cut(p, 10, 5 * RTT, last_hop=True)
    assert [p.r.window_advice(5 * RTT + 1) & 0x7F for p in peers] == [0, 0, 16], (
        "only what came since the last look counts"
    )


def test_who_sends_nothing_is_nobody_in_the_mean() -> None:
    """Of 4 and 2 packets the mean is 3, however many idle QPs there are."""
    advice = Advice(CONFIG)
    peers = [Peer(advice=advice) for _ in range(6)]
    for p, n in zip(peers, (4, 2), strict=False):
        for k in range(n):
            p.only(k)
    for p in peers[:2]:
        cut(p, 10, RTT, last_hop=True)
    assert [p.r.window_advice(RTT + 1) for p in peers[:2]] == [16, 0]
