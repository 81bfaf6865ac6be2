"""What comes in from strangers: never raises, touches no memory, is counted exactly once, and an
honest transfer goes on."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.mrc import wire
from agents.mrc.arrivals import _STATUS
from agents.mrc.framing import Framer, Route
from agents.mrc.queue_pair import ERROR
from agents.packets import dscp, headers
from agents.transport import FLUSHED, OK, REMOTE_ACCESS, REMOTE_INVALID, REMOTE_OPERATION
from tests.agents.mrc.packets import write_packet
from tests.agents.mrc.rig import GUARD, TINY, Rig, drain, resealed
from tests.agents.nic.egress import trimmed
from topologies.units import MS, US

NOW = 5 * US


def counted(rig: Rig) -> dict[str, int]:
    return rig.b.engine.counters()


def feed(rig: Rig, frame: bytes, port: int = 0) -> dict[str, int]:
    """Hand a frame to host b inside a larger buffer that nobody can write to; what changed in its
    counters."""
    before = counted(rig)
    rig.b.engine.receive(
        NOW, port, memoryview(b"\x77" * 40 + bytes(frame) + b"\x77" * 200), 40, len(frame)
    )
    after = counted(rig)
    return {k: v - before[k] for k, v in after.items() if v != before[k]}


def untouched(rig: Rig) -> bool:
    return rig.b.memory == b"\xa5" * len(rig.b.memory)


def fresh() -> Rig:
    return Rig(TINY, 0, 3, 8192)


def write_frame(
    rig: Rig,
    *,
    ev: int = 0,
    op: int = wire.WRITE_ONLY,
    n: int = 64,
    va: int | None = None,
    rkey: int | None = None,
    qpn: int | None = None,
    ahead: int = 0,
    dmalen: int | None = None,
    src: int = 0,
    msn: int = 0,
) -> bytes:
    """A WRITE from host ``src`` to b's QP, valid unless an argument says otherwise."""
    framer = Framer(rig.a.engine.config)
    r = rig.b.region
    psn = rig.a.engine.qps[rig.a.qpn].first_psn + ahead
    payload = b"\x5a" * n
    packet = write_packet(
        op=op,
        ev=ev,
        psn=psn,
        msn=msn,
        va=r.va if va is None else va,
        rkey=r.rkey if rkey is None else rkey,
        dmalen=n if dmalen is None else dmalen,
    )
    framer.write(
        NOW, Route(TINY, src, 3), rig.b.qpn if qpn is None else qpn, packet, memoryview(payload)
    )
    return framer.frame + payload + framer.trailer


def bare_frame(
    rig: Rig, op: int, ext: bytes, word: int = 0, ev: int = 0, qpn: int | None = None, src: int = 0
) -> bytes:
    framer = Framer(rig.a.engine.config)
    framer.bare(
        Route(TINY, src, 3), ev, dscp.CONTROL, op, rig.b.qpn if qpn is None else qpn, word, ext
    )
    return framer.frame


def request_frame(rig: Rig, ext: bytes, src: int = 0) -> bytes:
    return bare_frame(rig, wire.ENDPOINT_REQUEST, ext, qpn=wire.ENDPOINT_QPN, src=src)


def sack_frame(
    rig: Rig,
    cack: int,
    offset: int,
    bits: int,
    rcvd: int = 5,
    *,
    pr: bool = False,
    ack_offset: int = 0,
    m: int = 0,
    entropy: int = 0,
) -> bytes:
    ext = wire.S_SACK.pack(
        wire.seth_word(m, pr),
        ack_offset,
        entropy,
        0,
        0,
        cack & 0xFFFFFF,
        0,
        8,
        offset,
        bits,
        0,
        0,
        rcvd,
    )
    return bare_frame(rig, wire.SACK, ext, cack & 0xFFFFFF)


def changed(frame: bytes, at: int, *values: int) -> bytes:
    b = bytearray(frame)
    b[at : at + len(values)] = bytes(values)
    return bytes(b)


def test_the_honest_frame_is_taken() -> None:
    rig = fresh()
    assert feed(rig, write_frame(rig)) == {"rx_packets": 1, "data_rx": 1}
    assert rig.b.memory[GUARD : GUARD + 64] == b"\x5a" * 64


@pytest.mark.parametrize(
    "name, make, port, counter",
    [
        ("empty", lambda r: b"", 0, "rx_bad_length"),
        ("one short of the shortest", lambda r: write_frame(r)[:121], 0, "rx_bad_length"),
        ("truncated", lambda r: write_frame(r)[:-8], 0, "rx_bad_length"),
        ("another UDP length", lambda r: changed(write_frame(r), 99, 1), 0, "rx_bad_length"),
        ("another inner length", lambda r: changed(write_frame(r), 59, 1), 0, "rx_bad_length"),
        (
            "truncated and resealed below its headers",
            lambda r: resealed(write_frame(r)[:130]),
            0,
            "rx_bad_length",
        ),
        ("oversized", lambda r: write_frame(r) + bytes(8), 0, "rx_bad_length"),
        (
            "padding larger than the payload",
            lambda r: resealed(changed(write_frame(r, n=0), 103, 0x30)),
            0,
            "rx_bad_length",
        ),
        (
            "immediate missing",
            lambda r: resealed(changed(write_frame(r, n=0), 102, wire.WRITE_ONLY_IMM)),
            0,
            "rx_bad_length",
        ),
        ("SACK of a wrong size", lambda r: bare_frame(r, wire.SACK, bytes(40)), 0, "rx_bad_length"),
        ("not IPv6", lambda r: changed(write_frame(r), 12, 8, 0), 0, "rx_foreign"),
        ("not IPv6 in IPv6", lambda r: changed(write_frame(r), 20, 17), 0, "rx_foreign"),
        ("inner version 4", lambda r: changed(write_frame(r), 54, 0x45), 0, "rx_foreign"),
        ("not UDP", lambda r: changed(write_frame(r), 60, 6), 0, "rx_foreign"),
        ("another UDP port", lambda r: changed(write_frame(r), 96, 0x13, 0x6B), 0, "rx_foreign"),
        ("for another host", lambda r: resealed(changed(write_frame(r), 93, 2)), 0, "rx_foreign"),
        (
            "from no host of the fabric",
            lambda r: resealed(changed(write_frame(r), 76, 0, 5)),
            0,
            "rx_foreign",
        ),
        (
            "from host minus one",
            lambda r: resealed(changed(write_frame(r), 76, 0, 0)),
            0,
            "rx_foreign",
        ),
        (
            "from another prefix",
            lambda r: resealed(changed(write_frame(r), 62, 0xFE)),
            0,
            "rx_foreign",
        ),
        ("bad iCRC", lambda r: changed(write_frame(r), 150, 0), 0, "rx_bad_icrc"),
        (
            "iCRC itself",
            lambda r: write_frame(r)[:-1] + bytes([write_frame(r)[-1] ^ 1]),
            0,
            "rx_bad_icrc",
        ),
        (
            "unknown opcode",
            lambda r: resealed(changed(bare_frame(r, wire.PROBE, bytes(16)), 102, 0x77)),
            0,
            "rx_bad_opcode",
        ),
        (
            "opcode below WRITE",
            lambda r: resealed(changed(write_frame(r), 102, 0xC5)),
            0,
            "rx_bad_opcode",
        ),
        (
            "opcode above WRITE",
            lambda r: resealed(changed(write_frame(r), 102, 0xCC)),
            0,
            "rx_bad_opcode",
        ),
        ("unknown QP", lambda r: write_frame(r, qpn=4000), 0, "rx_bad_qp"),
        ("another host's QP", lambda r: write_frame(r, src=1), 0, "rx_bad_qp"),
        (
            "endpoint request of no known kind",
            lambda r: request_frame(r, b"\0\3" + bytes(14)),
            0,
            "rx_unsupported",
        ),
        (
            "EV probe under an update's id",
            lambda r: request_frame(r, b"\0\1" + bytes(14)),
            0,
            "rx_unsupported",
        ),
        ("endpoint request, short", lambda r: request_frame(r, bytes(12)), 0, "rx_bad_length"),
        (
            "endpoint request from a stranger",
            lambda r: request_frame(r, bytes(16), src=1),
            0,
            "rx_bad_qp",
        ),
        (
            "endpoint request by another port than its EV's",
            lambda r: request_frame(r, bytes(16)),
            1,
            "rx_bad_ev",
        ),
        ("a WRITE to the endpoint", lambda r: write_frame(r, qpn=2), 0, "rx_bad_opcode"),
        (
            "endpoint request to a QP",
            lambda r: bare_frame(r, wire.ENDPOINT_REQUEST, bytes(16)),
            0,
            "rx_unsupported",
        ),
        ("EV of another plane", lambda r: write_frame(r, ev=0x10000), 0, "rx_bad_ev"),
        (
            "EV that names no path",
            lambda r: resealed(changed(write_frame(r), 94, 0, 9)),
            0,
            "rx_bad_ev",
        ),
        ("wrong rkey", lambda r: write_frame(r, rkey=r.b.region.rkey ^ 1), 0, "rx_refused"),
        ("before the region", lambda r: write_frame(r, va=r.b.region.va - 1), 0, "rx_refused"),
        ("over its end", lambda r: write_frame(r, va=r.b.region.va + 8192 - 63), 0, "rx_refused"),
        (
            "at the end of all addresses",
            lambda r: write_frame(r, va=(1 << 64) - 1),
            0,
            "rx_refused",
        ),
        ("longer than it says", lambda r: write_frame(r, dmalen=60), 0, "rx_refused"),
        ("beyond the window", lambda r: write_frame(r, ahead=1024), 0, "rx_beyond_window"),
        ("long ago", lambda r: write_frame(r, ahead=-5), 0, "rx_duplicate"),
        (
            "ACK with a syndrome nobody knows",
            lambda r: bare_frame(r, wire.ACK, b"\x33\0\0\0"),
            0,
            "rx_bad_opcode",
        ),
        (
            "NACK with a reason nobody knows",
            lambda r: bare_frame(r, wire.NACK, b"\0\0\xee" + bytes(17)),
            0,
            "rx_unsupported",
        ),
    ],
)
def test_each_lie_has_its_counter(name: str, make: object, port: int, counter: str) -> None:
    rig = fresh()
    frame = make(rig)  # type: ignore[operator]
    assert feed(rig, frame, port) == {"rx_packets": 1, counter: 1}
    assert untouched(rig)


def cut_frame(frame: bytes, to: int = dscp.TRIMMED, keep: int = wire.TRIM_BYTES) -> bytes:
    """As a switch would have cut it, or shorter."""
    b = trimmed(frame, to)[:keep]
    return b[:18] + (len(b) - 54).to_bytes(2, "big") + b[20:]


@pytest.mark.parametrize(
    "to, reason", [(dscp.TRIMMED, wire.TRIMMED), (dscp.TRIMMED_LASTHOP, wire.TRIMMED_LASTHOP)]
)
@pytest.mark.parametrize("n", [0, 4, 64, 4096])
def test_an_honest_trimmed_frame_is_answered_by_a_nack(to: int, reason: int, n: int) -> None:
    rig = fresh()
    ev = 0x10001
    assert feed(rig, cut_frame(write_frame(rig, n=n, ev=ev, ahead=7), to), 1) == {
        "rx_packets": 1,
        "trimmed_rx": 1,
    }
    ((_, frame),) = drain(rig.b.engine, NOW)
    d = wire.describe(frame)
    psn = rig.a.engine.qps[rig.a.qpn].first_psn + 7 & 0xFFFFFF
    stamp = NOW >> rig.b.engine.config.ts_shift & 0xFFFF
    assert (d["name"], d["reason"], d["nack_psn"], d["entropy"], d["tx_ts"], d["dscp"]) == (
        "NACK",
        reason,
        psn,
        ev,
        stamp,
        dscp.CONTROL,
    )
    assert untouched(rig)


@pytest.mark.parametrize(
    "name, make, port, counter",
    [
        ("cut into its headers", lambda r: cut_frame(write_frame(r), keep=137), 0, "rx_bad_length"),
        ("cut into its BTH", lambda r: cut_frame(write_frame(r), keep=110), 0, "rx_bad_length"),
        (
            "nothing but the outer header",
            lambda r: cut_frame(write_frame(r), keep=54),
            0,
            "rx_bad_length",
        ),
        (
            "less inside than there is",
            lambda r: changed(cut_frame(write_frame(r)), 58, 0, 47),
            0,
            "rx_bad_length",
        ),
        (
            "inner and UDP length both less than there is",
            lambda r: changed(changed(cut_frame(write_frame(r)), 58, 0, 47), 98, 0, 47),
            0,
            "rx_bad_length",
        ),
        (
            "another UDP length",
            lambda r: changed(cut_frame(write_frame(r)), 99, 1),
            0,
            "rx_bad_length",
        ),
        (
            "another outer length",
            lambda r: changed(cut_frame(write_frame(r)), 19, 1),
            0,
            "rx_bad_length",
        ),
        ("bytes after the cut", lambda r: cut_frame(write_frame(r)) + bytes(4), 0, "rx_bad_length"),
        (
            "cut, but not said so",
            lambda r: cut_frame(write_frame(r), dscp.TRIMMABLE),
            0,
            "rx_bad_length",
        ),
        ("for another host", lambda r: changed(cut_frame(write_frame(r)), 93, 2), 0, "rx_foreign"),
        (
            "from no host of the fabric",
            lambda r: changed(cut_frame(write_frame(r)), 76, 0, 5),
            0,
            "rx_foreign",
        ),
        (
            "another UDP port",
            lambda r: changed(cut_frame(write_frame(r)), 96, 0x13, 0x6B),
            0,
            "rx_foreign",
        ),
        ("unknown QP", lambda r: cut_frame(write_frame(r, qpn=4000)), 0, "rx_bad_qp"),
        ("another host's QP", lambda r: cut_frame(write_frame(r, src=1)), 0, "rx_bad_qp"),
        ("by another port than its EV's", lambda r: cut_frame(write_frame(r)), 1, "rx_bad_ev"),
        ("EV of another plane", lambda r: cut_frame(write_frame(r, ev=0x10000)), 0, "rx_bad_ev"),
        (
            "EV that names no path",
            lambda r: changed(cut_frame(write_frame(r)), 94, 0, 9),
            0,
            "rx_bad_ev",
        ),
        ("a SACK", lambda r: cut_frame(sack_frame(r, 5, 1, 1)), 0, "rx_bad_opcode"),
        ("an ACK", lambda r: cut_frame(bare_frame(r, wire.ACK, b"\x1f\0\0\1")), 0, "rx_bad_opcode"),
        (
            "a NACK",
            lambda r: cut_frame(bare_frame(r, wire.NACK, b"\0\0\x19" + bytes(17))),
            0,
            "rx_bad_opcode",
        ),
        (
            "an endpoint request",
            lambda r: cut_frame(bare_frame(r, wire.ENDPOINT_REQUEST, bytes(16), qpn=2)),
            0,
            "rx_bad_opcode",
        ),
        (
            "an opcode nobody knows",
            lambda r: changed(cut_frame(write_frame(r)), 102, 0xCC),
            0,
            "rx_bad_opcode",
        ),
        (
            "a probe, cut",
            lambda r: cut_frame(bare_frame(r, wire.PROBE, bytes(16)), keep=130),
            0,
            "rx_bad_length",
        ),
        (
            "an honest probe",
            lambda r: cut_frame(bare_frame(r, wire.PROBE, bytes(16))),
            0,
            "probes_rx",
        ),
        (
            "any rkey and address",
            lambda r: cut_frame(write_frame(r, rkey=1, va=(1 << 64) - 1)),
            0,
            "trimmed_rx",
        ),
        ("long ago", lambda r: cut_frame(write_frame(r, ahead=-5)), 0, "trimmed_rx"),
        ("beyond the window", lambda r: cut_frame(write_frame(r, ahead=1024)), 0, "trimmed_rx"),
        (
            "as far away as PSNs go",
            lambda r: cut_frame(write_frame(r, ahead=0x7FFFFF)),
            0,
            "trimmed_rx",
        ),
        (
            "as far behind as PSNs go",
            lambda r: cut_frame(write_frame(r, ahead=0x800000)),
            0,
            "trimmed_rx",
        ),
    ],
)
def test_each_lie_of_a_trimmed_frame_has_its_counter(
    name: str, make: object, port: int, counter: str
) -> None:
    """Nothing of it is checked by an iCRC; it touches no memory and leaves the QP as it was but for
    what it owes."""
    rig = fresh()
    frame = make(rig)  # type: ignore[operator]
    assert feed(rig, frame, port) == {"rx_packets": 1, counter: 1}
    assert untouched(rig)
    d = rig.b.engine.qps[rig.b.qpn].responder
    assert (d.received, d.inflow.bytes, d.nak) == (0, 0, 0)
    names = [wire.describe(f)["name"] for _, f in drain(rig.b.engine, NOW)]
    assert names == {
        "trimmed_rx": ["SACK" if "ago" in name or "behind" in name else "NACK"],
        "probes_rx": ["SACK"],
    }.get(counter, [])
    assert feed(rig, write_frame(rig)) == {"rx_packets": 1, "data_rx": 1}


def test_a_flood_of_trimmed_frames_is_bounded() -> None:
    rig = fresh()
    for k in range(500):
        feed(rig, cut_frame(write_frame(rig, ahead=k)))
    c = counted(rig)
    assert c["trimmed_rx"] == 500 and c["rx_too_many"] == 500 - 64
    assert len(drain(rig.b.engine, NOW)) == 64
    assert feed(rig, cut_frame(write_frame(rig))) == {"rx_packets": 1, "trimmed_rx": 1}


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from([wire.TRIMMED, wire.TRIMMED_LASTHOP]),
    st.one_of(st.integers(0, 0xFFFFFF), st.none()),
    st.integers(-3, 8),
    st.sampled_from([0, 1, 0x10000, 0x10001, 0xFFFFFFFF]),
    st.integers(-2, 2),
)
def test_a_nack_for_a_trimmed_packet_can_only_send_again_what_it_names(
    reason: int, psn: int | None, near: int, entropy: int, off: int
) -> None:
    rig = fresh()
    engine = rig.b.engine
    engine.post_write(
        rig.b.qpn, 1, memoryview(bytes(20_000)), rig.a.region.va, rig.a.region.rkey, -1
    )
    sent = {d["psn"]: d for d in (wire.describe(f) for _, f in drain(engine, NOW))}
    qp = engine.qps[rig.b.qpn]
    r = qp.requester
    flying = r.sent.in_flight
    named = qp.first_psn + near & 0xFFFFFF if psn is None else psn
    ts = (NOW >> engine.config.ts_shift) + off & 0xFFFF
    ext = wire.S_NETH.pack(0, reason, 0, entropy, 0, 0, named, wire.CC_NACK << 4, 0, ts)
    assert feed(rig, bare_frame(rig, wire.NACK, ext, named))["nacks_rx"] == 1
    honest = named in sent and sent[named]["ev"] == entropy and sent[named]["tx_ts"] == ts
    assert r.trims == len(r.sent.lost_queue) == int(honest)
    assert (r.sent.in_flight < flying) == honest
    assert untouched(rig)


def test_a_qp_not_connected_yet_takes_nothing() -> None:
    rig = fresh()
    q = rig.b.engine.create_qp(0)
    assert feed(rig, write_frame(rig, qpn=q["qpn"])) == {"rx_packets": 1, "rx_bad_qp": 1}


@settings(deadline=None, max_examples=100)
@given(
    st.integers(0, 0xFFFFFF),
    st.integers(-32768, 32767),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, 0xFFFFFF),
    st.booleans(),
    st.integers(-32768, 32767),
    st.integers(0, 3),
    st.sampled_from([0, 1, 0x10000, 0xFFFFFFFF]),
    st.integers(0, 1 << 20),
)
def test_any_sack_leaves_an_honest_transfer_able_to_finish(
    cack: int,
    offset: int,
    bits: int,
    rcvd: int,
    pr: bool,
    ack_offset: int,
    m: int,
    entropy: int,
    near: int,
) -> None:
    """A SACK that claims what was never sent is counted; whatever it claims, nothing raises and no
    PSN beyond ``next`` is believed."""
    rig = fresh()
    engine = rig.b.engine
    engine.post_write(
        rig.b.qpn, 1, memoryview(bytes(20_000)), rig.a.region.va, rig.a.region.rkey, -1
    )
    drain(engine, NOW)
    first = engine.qps[rig.b.qpn].first_psn
    said = cack if near % 2 else first + near % 8 - 2
    offset = offset if near % 3 else offset % 8
    feed(
        rig,
        sack_frame(
            rig, said, offset, bits, rcvd, pr=pr, ack_offset=ack_offset, m=m, entropy=entropy
        ),
    )
    r = engine.qps[rig.b.qpn].requester
    assert first <= r.sent.una <= r.sent.next
    assert r.sent.in_flight >= 0
    drain(engine, NOW + 1)
    engine.timer(NOW + MS)
    drain(engine, NOW + MS)


def test_a_peer_that_echoes_the_present_does_not_make_time_stand_still() -> None:
    """Found by fuzzing: with a round trip of 0 the probes of a plane that comes back were due for
    ever, and the timer never returned."""
    rig = fresh()
    engine = rig.b.engine
    qp = engine.qps[rig.b.qpn]
    engine.post_write(
        rig.b.qpn, 1, memoryview(bytes(20_000)), rig.a.region.va, rig.a.region.rkey, -1
    )
    drain(engine, NOW)
    ts = NOW >> engine.config.ts_shift & 0xFFFF
    cack = qp.first_psn & 0xFFFFFF
    for k in range(60):
        feed(
            rig,
            bare_frame(
                rig,
                wire.SACK,
                wire.S_SACK.pack(0, 1, 0, 0, 0, cack, 0, 8, 1, 0, ts, 0, k + 1),
                cack,
            ),
        )
    assert (
        qp.requester.rtt.samples == 60 and qp.requester.rtt.srtt >= qp.requester.rtt.path_rtt // 2
    )
    engine.port_state(NOW, 0, False)
    engine.port_state(NOW, 0, True)
    engine.timer(NOW + engine.config.base_rtt * 2)
    assert len(qp.to_probe) <= 8


@pytest.mark.parametrize("op", [wire.SACK, wire.ACK, wire.NACK, wire.PROBE])
def test_answers_and_probes_of_a_host_that_is_not_the_peer_are_refused(op: int) -> None:
    """With all the right numbers: a queue pair hears its own peer alone."""
    rig = fresh()
    engine = rig.b.engine
    engine.post_write(
        rig.b.qpn, 1, memoryview(bytes(20_000)), rig.a.region.va, rig.a.region.rkey, -1
    )
    drain(engine, NOW)
    psn = engine.qps[rig.b.qpn].first_psn & 0xFFFFFF
    ext = {
        wire.SACK: wire.S_SACK.pack(0, 0, 0, 0, 0, psn, 0, 8, 1, 1, 0, 0, 5),
        wire.ACK: b"\x62\0\0\1",
        wire.NACK: wire.S_NETH.pack(0, wire.UNEXP_EVENT, 0, 0, 0, 0, psn, wire.CC_NACK << 4, 0, 0),
        wire.PROBE: bytes(16),
    }[op]
    assert feed(rig, bare_frame(rig, op, ext, psn, src=1)) == {"rx_packets": 1, "rx_bad_qp": 1}
    assert drain(engine, NOW + 1) == [] and engine.completions() == []


def test_no_number_that_a_stranger_or_a_peer_makes_up_costs_memory() -> None:
    """QPNs, PSNs, EVs, MSNs, probe and request ids over their whole ranges, from the peer and from
    another; nothing leaves meanwhile."""
    rig = fresh()
    rng = Random(3)
    engine = rig.b.engine
    qp = engine.qps[rig.b.qpn]

    def kept() -> int:
        d, peer = qp.responder, engine.neighbours.peers[qp.peer]
        parts = (
            engine.qps,
            engine.routes,
            engine.neighbours.peers,
            engine.neighbours.queue,
            engine.memory.regions,
            engine.finished,
            qp.answers,
            qp.answer_bases,
            qp.nacks,
            qp.probes,
            qp.to_probe,
            qp.route.heads,
            d.bases,
            d.completions,
            d.recv_queue,
            peer.probes,
            qp.requester.sent.lost_queue,
            qp.requester.sent.by_time,
            qp.requester.doubts.open,
            engine.out.control,
        )
        return sum(map(len, parts)) + d.received.bit_length() // 8

    for k in range(1500):
        src, qpn = rng.choice((0, 0, 1)), rng.choice((rig.b.qpn, rig.b.qpn, rng.getrandbits(24)))
        ev = rng.choice((0, 1, 0x10000, 0x10001))
        if k % 4 == 0:
            made = write_frame(
                rig,
                src=src,
                qpn=qpn,
                ev=ev,
                n=0,
                ahead=rng.randrange(1, 1 << 24),
                msn=rng.getrandbits(16),
            )
        elif k % 4 == 1:
            made = cut_frame(
                write_frame(rig, src=src, qpn=qpn, ev=ev, n=0, ahead=rng.getrandbits(24))
            )
        elif k % 4 == 2:
            made = bare_frame(
                rig,
                wire.PROBE,
                wire.S_PETH.pack(0, rng.getrandbits(16), 0, 0, 0, 1),
                0,
                ev,
                qpn,
                src,
            )
        else:
            made = bare_frame(
                rig,
                wire.ENDPOINT_REQUEST,
                wire.S_ERTH.pack(1, 3, 0, 1),
                0x8000 | rng.getrandbits(15),
                ev,
                2,
                src,
            )
        feed(rig, made, ev >> 16)
    assert kept() < 3 * 64 + 400, kept()
    assert counted(rig)["rx_packets"] == 1500


@pytest.mark.parametrize(
    "syndrome", [wire.SYNDROME_INVALID, wire.SYNDROME_ACCESS, wire.SYNDROME_OPERATION]
)
@pytest.mark.parametrize(
    "off, believed",
    [
        (-2, False),
        (-1, True),
        (0, True),
        (4, True),
        (5, False),
        (0x7FFFFF, False),
        (-0x800000, False),
    ],
)
def test_a_refusal_is_believed_only_from_who_knows_how_far_we_are(
    syndrome: int, off: int, believed: bool
) -> None:
    """It ends the queue pair, and its QPN and address can be guessed: its PSN, one of the few that
    fit among 2^24, hardly."""
    rig = fresh()
    engine = rig.b.engine
    engine.post_write(
        rig.b.qpn, 1, memoryview(bytes(20_000)), rig.a.region.va, rig.a.region.rkey, -1
    )
    qp = engine.qps[rig.b.qpn]
    qp.requester.congestion.cwnd = 1 << 20
    for k in range(5):
        drain(engine, NOW + k * 100 * US)
    assert not qp.requester.has_data()  # all five packets left
    changed_counters = feed(
        rig, bare_frame(rig, wire.ACK, bytes([syndrome, 0, 0, 0]), qp.first_psn + off & 0xFFFFFF)
    )
    assert changed_counters.get("bad_sacks", 0) == int(not believed)
    assert (qp.state == ERROR) == believed
    assert [c.status for c in engine.completions()] == (
        [_STATUS[syndrome]] if believed and off < 4 else [OK] if believed else []
    )


@pytest.mark.parametrize("ahead", [5, 6, 1000])
def test_a_sack_of_psns_never_sent_is_counted_and_ignored(ahead: int) -> None:
    rig = fresh()
    engine = rig.b.engine
    engine.post_write(
        rig.b.qpn, 1, memoryview(bytes(20_000)), rig.a.region.va, rig.a.region.rkey, -1
    )
    assert len(drain(engine, NOW)) >= 2
    first = engine.qps[rig.b.qpn].first_psn
    assert feed(rig, sack_frame(rig, first + ahead, 1, 0)) == {
        "rx_packets": 1,
        "sacks_rx": 1,
        "bad_sacks": 1,
    }
    assert engine.qps[rig.b.qpn].requester.sent.una == first


@pytest.mark.parametrize(
    "case, status",
    [
        ("rkey", REMOTE_ACCESS),
        ("bounds", REMOTE_ACCESS),
        ("no receive", REMOTE_OPERATION),
        ("opcode order", REMOTE_INVALID),
    ],
)
def test_a_refused_write_is_reported_and_both_ends_go_to_error(case: str, status: int) -> None:
    """The requester's first outstanding request gets the cause, the others flush in order; what was
    complete before is complete."""
    rig = Rig(TINY, 0, 3, 50_000)
    r = rig.b.region
    for k in range(3):
        rig.b.engine.post_recv(rig.b.qpn, k)
    good = bytes(range(250)) * 4
    rig.write(1, good, imm=1)
    if case != "no receive":  # else the D1 of what is complete and the NAK concern one burst
        assert rig.run(6 * MS, lambda: len(rig.a.writes) == 1)
    va, rkey, imm = r.va + 1000, r.rkey, -1
    if case == "rkey":
        rkey ^= 1
    elif case == "bounds":
        va = r.va + r.length - 999
    elif case == "no receive":
        for k in range(2, 5):
            rig.write(k, good, 0, imm=k)
    rig.a.engine.post_write(rig.a.qpn, 5, memoryview(good), va, rkey, imm)
    if case == "opcode order":
        rig.a.engine.qps[rig.a.qpn].requester.queue.messages[-1].msn += 1
    rig.write(6, good)
    rig.write(7, good)
    assert rig.run(6 * MS, lambda: len(rig.a.writes) == (7 if case == "no receive" else 4))
    statuses = [(c.wr_id, c.status) for c in rig.a.writes]
    if case == "no receive":
        assert statuses == [
            (1, OK),
            (2, OK),
            (3, OK),
            (4, status),
            (5, FLUSHED),
            (6, FLUSHED),
            (7, FLUSHED),
        ]
        assert [c.imm for c in rig.b.receives] == [1, 2, 3]
    else:
        assert statuses == [(1, OK), (5, status), (6, FLUSHED), (7, FLUSHED)]
        assert [(c.wr_id, c.status) for c in rig.b.receives] == [
            (0, OK),
            (1, FLUSHED),
            (2, FLUSHED),
        ]
    rig.run(10 * US)
    for side in (rig.a, rig.b):
        assert [f["state"] for _, f in side.of("qp")] == ["RTS", "ERROR"]
        assert side.guards_intact()
    rig.b.engine.post_recv(rig.b.qpn, 9)
    assert [(c.wr_id, c.status) for c in rig.b.engine.completions()] == [(9, FLUSHED)]


def broken() -> Rig:
    """Host b's QP in ERROR, by a wrong rkey; what it owed is sent."""
    rig = fresh()
    feed(rig, write_frame(rig, rkey=rig.b.region.rkey ^ 1))
    frames = drain(rig.b.engine, NOW)
    assert [wire.describe(f)["syndrome"] for _, f in frames] == [wire.SYNDROME_ACCESS]
    return rig


def test_a_qp_in_error_answers_unexp_event_once_per_rtt_and_touches_nothing() -> None:
    rig = broken()
    base = rig.b.engine.config.base_rtt
    told = []
    for k in range(40):
        now = NOW + k * base // 10
        rig.b.engine.receive(now, 0, bytearray(write_frame(rig)), 0, len(write_frame(rig)))
        for _, frame in drain(rig.b.engine, now):
            d = wire.describe(frame)
            sent = wire.describe(write_frame(rig))
            assert (d["name"], d["reason"]) == ("NACK", wire.UNEXP_EVENT)
            assert (d["psn"], d["nack_psn"], d["entropy"], d["tx_ts"]) == (
                sent["psn"],
                sent["psn"],
                sent["ev"],
                sent["tx_ts"],
            )
            told.append(now)
    assert 3 <= len(told) <= 4
    assert all(b - a > base for a, b in pairwise(told))
    assert untouched(rig)
    assert counted(rig)["rx_unexpected"] == 40


@pytest.mark.parametrize("op", [wire.NACK, wire.SACK, wire.ACK])
def test_unexp_event_answers_packets_that_want_something_alone(op: int) -> None:
    """Not another NACK; and a SACK or an ACK names nothing by which its sender could know the
    answer for true."""
    rig = broken()
    ext = bytes(wire.EXT_LENGTH[op])
    feed(rig, bare_frame(rig, op, b"\0\0\x19" + ext[3:] if op == wire.NACK else ext))
    assert drain(rig.b.engine, NOW) == []


def test_a_qp_in_error_answers_no_frame_that_is_too_short_for_its_names() -> None:
    rig = broken()
    for frame in (resealed(write_frame(rig)[:130]), bare_frame(rig, wire.PROBE, bytes(8))):
        assert feed(rig, frame) == {"rx_packets": 1, "rx_unexpected": 1}
    assert drain(rig.b.engine, NOW) == []


def test_frames_that_came_with_the_offending_one_touch_nothing_either() -> None:
    rig = fresh()
    feed(rig, write_frame(rig, rkey=rig.b.region.rkey ^ 1))
    assert feed(rig, write_frame(rig, ahead=1, msn=1)) == {"rx_packets": 1, "rx_refused": 1}
    assert untouched(rig)


def test_a_flood_of_probes_is_bounded() -> None:
    rig = fresh()
    probe = bare_frame(rig, wire.PROBE, wire.S_PETH.pack(0, 5, 0, 0, 0, 1), 0)
    for _ in range(500):
        feed(rig, probe)
    c = counted(rig)
    assert c["probes_rx"] + c["rx_too_many"] == 500 and c["rx_too_many"] > 400
    assert len(drain(rig.b.engine, NOW)) <= 64 + 1


def test_an_edge_that_moves_between_the_parts_of_a_probe_answer_is_no_error() -> None:
    rig = fresh()
    for k in range(1, 200):
        feed(rig, write_frame(rig, ahead=k, msn=k, n=4))
    drain(rig.b.engine, NOW)
    feed(rig, bare_frame(rig, wire.PROBE, wire.S_PETH.pack(0, 5, 0, 0, 0, 1), 0))
    assert rig.b.engine.transmit(NOW) >= 0
    feed(rig, write_frame(rig, ahead=0, n=4))
    for _, frame in drain(rig.b.engine, NOW):
        d = wire.describe(frame)
        if d["name"] == "SACK":
            assert d["sack_offset"] >= 1


def test_an_answer_of_many_sacks_counts_once() -> None:
    """One probe is one clean answer, however many SACKs tell it and however often they are
    repeated."""
    rig = fresh()
    engine = rig.b.engine
    qp = engine.qps[rig.b.qpn]
    paths = qp.requester.paths
    paths.lost(NOW, paths.all[0], NOW, 1000, "time")
    qp.to_probe.append(paths.all[0])
    ((_, probe),) = drain(engine, NOW + 1000)
    d = wire.describe(probe)
    assert (d["name"], d["ev"]) == ("Reliability Probe", 0)
    for _ in range(5):
        feed(rig, sack_frame(rig, qp.first_psn - 1, 1, 0, pr=True, ack_offset=d["probe_id"]))
    assert paths.all[0].clean == 1 and paths.rows()[0]["state"] == "ASSUMED_BAD"


@pytest.mark.parametrize("entropy", [0xFFFF_FFFF, 0x0001_0001])
def test_what_answers_a_probe_confirms_the_probes_path_whatever_it_names(entropy: int) -> None:
    """Found by fuzzing: an answer that named no path of ours ended the process."""
    rig = fresh()
    engine = rig.b.engine
    qp = engine.qps[rig.b.qpn]
    qp.to_probe.append(qp.requester.paths.by_ev[0])
    ((_, probe),) = drain(engine, NOW + 1000)
    evs = list(qp.responder.reverse.evs)
    answer = sack_frame(
        rig,
        qp.first_psn - 1,
        1,
        0,
        pr=True,
        ack_offset=wire.describe(probe)["probe_id"],
        entropy=entropy,
    )
    feed(rig, answer)
    assert qp.responder.reverse.evs == [0, *evs[1:]]


def test_a_held_sack_echoes_the_timestamp_plus_the_time_held() -> None:
    rig = fresh()
    engine = rig.b.engine
    feed(rig, write_frame(rig))
    # the message is complete: D1 now, the SACK when idle
    assert drain(engine, NOW)[0][1][headers.BTH_AT] == wire.ACK
    due = engine.deadline()
    assert due == NOW + (engine.config.base_rtt >> 2)
    engine.timer(due)
    ((_, frame),) = drain(engine, due)
    d = wire.describe(frame)
    shift = engine.config.ts_shift
    assert d["name"] == "SACK" and d["tx_ts"] == (NOW >> shift) + ((due - NOW) >> shift) & 0xFFFF


def test_a_qp_in_error_owes_nothing_else() -> None:
    """After the NAK no SACK, D1 or probe answer follows, though all were due."""
    rig = fresh()
    feed(rig, write_frame(rig))
    feed(rig, bare_frame(rig, wire.PROBE, wire.S_PETH.pack(0, 5, 0, 0, 0, 1), 0))
    feed(rig, write_frame(rig, ahead=1, msn=1, rkey=rig.b.region.rkey ^ 1))
    ((_, frame),) = drain(rig.b.engine, NOW)
    d = wire.describe(frame)
    assert (d["name"], d["syndrome"], d["msn"]) == ("ACK", wire.SYNDROME_ACCESS, 1)
    rig.b.engine.timer(NOW + 100 * MS)
    assert drain(rig.b.engine, NOW + 100 * MS) == []
