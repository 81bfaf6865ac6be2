"""Invariant: whatever arrives, nothing raises, no memory outside the regions changes, and every
frame has one name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.packets.headers import crc32
from agents.roce import wire
from agents.roce.endpoint import Endpoint
from agents.transport import FLUSHED, OK, REMOTE_ACCESS, REMOTE_INVALID, WRITE, Completion
from tests.agents.roce.network import Network, pair
from tests.fabrics import near
from topologies import load_fabric
from topologies.addressing import HOST_MAC, inner_address

TINY = near(load_fabric("tiny"))


def reference_icrc(frame: bytes) -> bytes:
    """Annex A17's rule, written out byte by byte; ``frame`` without its iCRC."""
    b = bytearray(frame[54:])
    b[0] |= 0x0F
    b[1] = b[2] = b[3] = b[7] = 0xFF  # traffic class, flow label, hop limit
    b[46] = b[47] = 0xFF  # UDP checksum
    b[52] = 0xFF  # BTH byte 4
    crc = 0xFFFFFFFF
    for byte in b"\xff" * 8 + b:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


def sealed(frame: bytes) -> bytes:
    """With the lengths and the iCRC that belong to it."""
    b = bytearray(frame)
    n = len(b) + 4
    b[18:20] = (n - 54).to_bytes(2, "big")
    b[58:60] = b[98:100] = (n - 94).to_bytes(2, "big")
    masked = bytearray(b"\xff" * 8) + b[54:]
    for i in (9, 10, 11, 15, 54, 55, 60):
        masked[i] = 0xFF
    masked[8] |= 0x0F
    return bytes(b) + crc32(bytes(masked)).to_bytes(4, "little")


def data_frame(
    opcode: int,
    psn: int,
    dqpn: int,
    body: bytes,
    *,
    src: int = 0,
    dst: int = 2,
    sport: int = 0xC123,
    flags: int = 0,
    ack: bool = True,
) -> bytes:
    outer = (
        bytes.fromhex("66a0 0000 0000 2940".replace(" ", "")) + inner_address(src) + b"\xfc" * 16
    )
    inner = bytes.fromhex("6000000000001140") + inner_address(src) + inner_address(dst)
    udp = sport.to_bytes(2, "big") + (4791).to_bytes(2, "big") + bytes(4)
    bth = (
        bytes([opcode, flags, 0xFF, 0xFF])
        + dqpn.to_bytes(4, "big")
        + (psn | ack << 31).to_bytes(4, "big")
    )
    return sealed(HOST_MAC + HOST_MAC + b"\x86\xdd" + outer + inner + udp + bth + body)


def reth(va: int, rkey: int, length: int) -> bytes:
    return wire.RETH.pack(va, rkey, length)


class Victim:
    """Endpoint b with one region inside a larger arena, and a peer to speak as."""

    def __init__(self) -> None:
        self.net, self.a, self.b, self.qa, self.qb = pair(TINY)
        self.memory = bytearray(b"\xaa" * 20_000)
        self.region = self.b.register(memoryview(self.memory)[4000:16_000])
        self.before = bytes(self.memory)
        self.psn = self.b._qp(self.qb).rx.expected

    def give(self, frame: bytes) -> None:
        self.net.hand_in(2, 0, frame)

    def answers(self) -> list[tuple[int, int]]:
        """(syndrome, PSN) of what it sends."""
        out = []
        while self.b.transmit(0) >= 0:
            frame = self.b.tx_frame
            assert bytes(frame[118:122]) == reference_icrc(bytes(frame[:118]))
            out.append((frame[114], int.from_bytes(frame[111:114], "big")))
        return out

    def untouched(self) -> bool:
        return bytes(self.memory) == self.before


def test_icrc_of_every_kind_of_packet_is_the_annexes() -> None:
    net, a, b, qa, qb = pair(TINY.with_(mtu=256))
    region = b.register(bytearray(10_000))
    for n, imm in ((0, -1), (1, 7), (256, -1), (700, 3), (513, -1)):
        b.post_recv(qb, 1)
        a.post_write(qa, n, memoryview(bytes(range(256)) * 3)[:n], region.va, region.rkey, imm)
    net.run()
    assert {s.opcode for s in net.sent} == {0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x11}
    for s in net.sent:
        assert s.frame[-4:] == reference_icrc(s.frame[:-4])
        assert len(s.frame) % 4 == 2, "Ethernet's 14 bytes, then whole words: payload is padded"
        assert int.from_bytes(s.frame[14:18], "big") >> 22 & 0x3F == (48 if s.high else 26)
        assert int.from_bytes(s.frame[14:18], "big") >> 20 & 3 == (0 if s.high else 2), (
            "control is not-ECT, data ECT(0)"
        )
        if s.host == 0:
            assert int.from_bytes(s.frame[94:96], "big") >= 0xC000
            assert (len(s.frame) - 118 - (s.frame[103] >> 4 & 3)) >= 0


def test_a_sound_frame_of_our_making_is_placed() -> None:
    """The forger works: so that what the other tests see refused is refused for the reason they
    give."""
    v = Victim()
    v.give(
        data_frame(
            0x0A, v.psn, v.qb, reth(v.region.va + 4, v.region.rkey, 5) + b"hello\0\0\0", flags=0x30
        )
    )
    assert v.memory[4004:4009] == b"hello" and v.memory[4009] == 0xAA
    assert v.answers() == [(0x1F, v.psn)]


REFUSED = {
    "wrong rkey": (0x0A, lambda r: reth(r.va, r.rkey ^ 1, 4) + b"evil", 0, 0x62, "rx_bad_rkey"),
    "below the region": (
        0x0A,
        lambda r: reth(r.va - 1, r.rkey, 4) + b"evil",
        0,
        0x62,
        "rx_bad_rkey",
    ),
    "past its end": (
        0x0A,
        lambda r: reth(r.va + r.length - 3, r.rkey, 4) + b"evil",
        0,
        0x62,
        "rx_bad_rkey",
    ),
    "at the end of memory": (
        0x0A,
        lambda r: reth((1 << 64) - 2, r.rkey, 4) + b"evil",
        0,
        0x62,
        "rx_bad_rkey",
    ),
    "first of a message that will not fit": (
        0x06,
        lambda r: reth(r.va, r.rkey, 12_001) + bytes(4096),
        0,
        0x62,
        "rx_bad_rkey",
    ),
    "shorter than it says": (
        0x0A,
        lambda r: reth(r.va, r.rkey, 8) + b"evil",
        0,
        0x61,
        "rx_bad_request",
    ),
    "longer than it says": (
        0x0A,
        lambda r: reth(r.va, r.rkey, 1) + b"evil",
        0,
        0x61,
        "rx_bad_request",
    ),
    "zero bytes with payload": (
        0x0A,
        lambda r: reth(r.va, r.rkey, 0) + b"evil",
        0,
        0x61,
        "rx_bad_request",
    ),
    "over the MTU": (
        0x0A,
        lambda r: reth(r.va, r.rkey, 4100) + bytes(4100),
        0,
        0x61,
        "rx_bad_request",
    ),
    "first that is not full": (
        0x06,
        lambda r: reth(r.va, r.rkey, 5000) + bytes(4092),
        0,
        0x61,
        "rx_bad_request",
    ),
    "first that is all": (
        0x06,
        lambda r: reth(r.va, r.rkey, 4096) + bytes(4096),
        0,
        0x61,
        "rx_bad_request",
    ),
    "middle of nothing": (0x07, lambda r: bytes(4096), 0, 0x61, "rx_bad_request"),
    "last of nothing": (0x08, lambda r: b"evil", 0, 0x61, "rx_bad_request"),
    "no room for RETH": (0x0A, lambda r: b"evil", 0, 0x61, "rx_bad_request"),
    "pad of nothing": (0x0A, lambda r: reth(r.va, r.rkey, 0), 0x30, 0x61, "rx_bad_request"),
    "over two gigabytes": (
        0x06,
        lambda r: reth(r.va, r.rkey, 0xFFFFFFFF) + bytes(4096),
        0,
        0x61,
        "rx_bad_request",
    ),
    "SEND": (0x04, lambda r: b"evil", 0, 0x61, "rx_bad_opcode"),
    "READ request": (0x0C, lambda r: reth(r.va, r.rkey, 4), 0, 0x61, "rx_bad_opcode"),
    "ATOMIC": (0x14, lambda r: bytes(28), 0, 0x61, "rx_bad_opcode"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_cannot_be_is_refused_for_good(name: str) -> None:
    opcode, body, flags, syndrome, counter = REFUSED[name]
    v = Victim()
    v.b.post_recv(v.qb, 5)
    ra = v.a.register(bytearray(10))
    v.b.post_write(v.qb, 6, memoryview(b"abc"), ra.va, ra.rkey, -1)
    v.give(data_frame(opcode, v.psn, v.qb, body(v.region), flags=flags))
    assert v.untouched()
    assert v.answers() == [(syndrome, v.psn)]
    assert v.b.counters()[counter] == 1
    assert v.b.completions() == [
        Completion(v.qb, 6, WRITE, FLUSHED, -1, 3),
        Completion(v.qb, 5, 1, FLUSHED, -1, 0),
    ]
    assert v.b.paths()[0]["qp_state"] == "ERROR"
    # dead for good: a sound request is not placed any more, and is told so
    v.net.now = 10 * TINY.base_rtt_ps
    said = []
    for _ in range(2):
        v.give(data_frame(0x0A, v.psn, v.qb, reth(v.region.va, v.region.rkey, 4) + b"good"))
        said += v.answers()
    assert v.untouched()
    assert said == [(syndrome, v.psn)], "once per base RTT at most"
    c = v.b.counters()
    assert c["rx_packets"] == sum(c[part] for part in _parts()) == 3


def _parts() -> tuple[str, ...]:
    from agents.roce.counters import RX_PARTS

    return RX_PARTS


DROPPED = {
    "reserved opcode": (lambda v: data_frame(0x1F, v.psn, v.qb, b""), "rx_bad_opcode"),
    "MRC's opcode": (lambda v: data_frame(0xCA, v.psn, v.qb, bytes(24)), "rx_bad_opcode"),
    "READ response": (lambda v: data_frame(0x0D, v.psn, v.qb, bytes(8)), "rx_bad_opcode"),
    "transport version 1": (
        lambda v: data_frame(0x0A, v.psn, v.qb, bytes(16), flags=1),
        "rx_bad_opcode",
    ),
    "foreign QP": (lambda v: data_frame(0x0A, v.psn, v.qb ^ 1, bytes(16)), "rx_bad_qp"),
    "QP 0": (lambda v: data_frame(0x0A, v.psn, 0, bytes(16)), "rx_bad_qp"),
    "another host": (
        lambda v: data_frame(
            0x0A, v.psn, v.qb, reth(v.region.va, v.region.rkey, 4) + b"evil", src=1
        ),
        "rx_bad_source",
    ),
    "another host's ACK": (
        lambda v: data_frame(0x11, v.psn, v.qb, b"\x1f\0\0\1", src=1),
        "rx_bad_source",
    ),
    "another host's NAK": (
        lambda v: data_frame(0x11, v.psn, v.qb, b"\x62\0\0\1", src=1),
        "rx_bad_source",
    ),
    "another host's CNP": (lambda v: data_frame(0x81, 0, v.qb, bytes(16), src=1), "rx_bad_source"),
    "no host": (lambda v: data_frame(0x0A, v.psn, v.qb, bytes(16), src=40_000), "rx_bad_source"),
    "to another host": (
        lambda v: data_frame(0x0A, v.psn, v.qb, bytes(16), dst=3),
        "rx_bad_address",
    ),
    "ACK too long": (lambda v: data_frame(0x11, v.psn, v.qb, bytes(8)), "rx_bad_length"),
    "ACK of what was never sent": (
        lambda v: data_frame(0x11, 5, v.qb, b"\x1f\0\0\1"),
        "rx_stale_response",
    ),
    "NAK of what was never sent": (
        lambda v: data_frame(0x11, 5, v.qb, b"\x62\0\0\1"),
        "rx_stale_response",
    ),
    "flipped payload bit": (
        lambda v: _flip(
            data_frame(0x0A, v.psn, v.qb, reth(v.region.va, v.region.rkey, 4) + b"evil"), 131
        ),
        "rx_bad_icrc",
    ),
    "flipped QPN bit": (
        lambda v: _flip(data_frame(0x0A, v.psn, v.qb, bytes(16)), 109),
        "rx_bad_icrc",
    ),
    "flipped iCRC bit": (
        lambda v: _flip(data_frame(0x0A, v.psn, v.qb, bytes(16)), -1),
        "rx_bad_icrc",
    ),
    "flipped source": (
        lambda v: _flip(data_frame(0x0A, v.psn, v.qb, bytes(16)), 77),
        "rx_bad_icrc",
    ),
    "outer length too large": (
        lambda v: _flip(data_frame(0x0A, v.psn, v.qb, bytes(16)), 18),
        "rx_bad_length",
    ),
    "inner length differs": (
        lambda v: _flip(data_frame(0x0A, v.psn, v.qb, bytes(16)), 59),
        "rx_bad_length",
    ),
    "cut behind its UDP header": (
        lambda v: data_frame(0x0A, v.psn, v.qb, bytes(16))[:104],
        "rx_bad_length",
    ),
    "cut in its payload": (
        lambda v: data_frame(0x0A, v.psn, v.qb, bytes(100))[:-50],
        "rx_bad_length",
    ),
    "cut before its UDP port": (
        lambda v: data_frame(0x0A, v.psn, v.qb, bytes(16))[:90],
        "rx_other",
    ),
    "nothing": (lambda v: b"", "rx_other"),
    "another ethertype": (
        lambda v: _flip(data_frame(0x0A, v.psn, v.qb, bytes(16)), 12),
        "rx_other",
    ),
    "another UDP port": (lambda v: _flip(data_frame(0x0A, v.psn, v.qb, bytes(16)), 97), "rx_other"),
}


def _flip(frame: bytes, at: int) -> bytes:
    b = bytearray(frame)
    b[at] ^= 1
    return bytes(b)


@pytest.mark.parametrize("name", DROPPED)
def test_what_is_not_for_this_queue_pair_is_dropped_and_counted(name: str) -> None:
    make, counter = DROPPED[name]
    v = Victim()
    v.give(make(v))
    assert v.untouched()
    assert v.answers() == []
    c = v.b.counters()
    assert c[counter] == 1
    assert c["rx_packets"] + c["rx_other"] == 1 == c["rx_other"] + sum(c[part] for part in _parts())
    assert v.b.paths()[0]["qp_state"] == "RTS"


def test_before_the_peer_is_known_nothing_is_taken() -> None:
    b = Endpoint(TINY, 2, {}, 1)
    qp = b.create_qp(0)
    b.receive(0, 0, bytearray(data_frame(0x0A, 0, qp["qpn"], bytes(16))), 0, 134)
    assert b.counters()["rx_not_connected"] == 1 and b.transmit(0) == -1


def test_a_bad_middle_leaves_the_rest_of_the_message_alone() -> None:
    v = Victim()
    v.give(data_frame(0x06, v.psn, v.qb, reth(v.region.va, v.region.rkey, 12_000) + b"\x01" * 4096))
    v.give(
        data_frame(0x0A, v.psn + 1 & 0xFFFFFF, v.qb, reth(v.region.va, v.region.rkey, 4) + b"evil")
    )
    assert v.memory[4000:8096] == b"\x01" * 4096
    assert v.memory[8096:] == v.before[8096:] and v.memory[:4000] == v.before[:4000]
    assert v.answers() == [(0x61, v.psn + 1 & 0xFFFFFF)]


@pytest.mark.parametrize(
    ("rkey_off", "length_off", "status"), [(1, 0, REMOTE_ACCESS), (0, 1, REMOTE_ACCESS)]
)
def test_the_requester_hears_why_and_flushes_the_rest(
    rkey_off: int, length_off: int, status: int
) -> None:
    net, a, b, qa, _qb = pair(TINY)
    memory = bytearray(100)
    region = b.register(memory)
    a.post_write(qa, 1, memoryview(b"\x07" * 100), region.va, region.rkey, -1)
    a.post_write(qa, 2, memoryview(bytes(100)), region.va + length_off, region.rkey ^ rkey_off, -1)
    a.post_write(qa, 3, memoryview(bytes(100)), region.va, region.rkey, -1)
    a.post_recv(qa, 4)
    net.run()
    assert [(c.wr_id, c.status) for c in a.completions()] == [
        (1, OK),
        (2, status),
        (3, FLUSHED),
        (4, FLUSHED),
    ]
    assert memory == b"\x07" * 100
    states = [f["state"] for e in (a, b) for _, kind, f in e.events() if kind == "qp"]
    assert states == ["ERROR", "ERROR"]
    net.check_books()


def test_a_lost_fatal_nak_is_said_again() -> None:
    net, a, _b, qa, _ = pair(TINY)
    net.lose = lambda s: s.host == 2 and sum(x.host == 2 for x in net.sent) <= 2
    a.post_write(qa, 1, memoryview(bytes(10)), 0, 0, -1)
    net.run()
    assert [c.status for c in a.completions()] == [REMOTE_ACCESS]
    assert a.counters()["rtos"] == 2


def test_the_invalid_request_status() -> None:
    v = Victim()
    v.a.post_write(v.qa, 1, memoryview(bytes(10)), v.region.va, v.region.rkey, -1)
    v.a.transmit(0)
    psn = v.a._qp(v.qa).tx.una & 0xFFFFFF
    v.net.hand_in(0, 0, data_frame(0x11, psn, v.qa, b"\x61\0\0\0", src=2, dst=0))
    assert [c.status for c in v.a.completions()] == [REMOTE_INVALID]


frames = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda op, psn, own, body, flags, ack, sport: (op, psn, own, body, flags, ack, sport),
        st.one_of(st.sampled_from([0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x11]), st.integers(0, 255)),
        st.one_of(st.integers(-3, 3), st.integers(0, 0xFFFFFF)),
        st.booleans(),
        st.one_of(
            st.binary(max_size=64),
            st.builds(
                lambda off, length, key, n: (off, length, key, n),
                st.one_of(st.integers(-5, 12_005), st.integers(-(1 << 35), 1 << 63)),
                st.one_of(st.integers(0, 12_100), st.integers(0, 0xFFFFFFFF)),
                st.booleans(),
                st.one_of(st.integers(0, 5000), st.just(4096)),
            ),
        ),
        st.one_of(st.just(0), st.integers(0, 255)),
        st.booleans(),
        st.one_of(st.just(0), st.integers(0, 0xFFFF)),
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(frames, max_size=12), st.integers(0, 4))
def test_no_frame_raises_or_touches_what_it_must_not(
    given_frames: list[object], receives: int
) -> None:
    """Also well-formed ones with a right iCRC, in any order, from the peer itself."""
    v = Victim()
    own_sport = v.b._qp(v.qb).remote_sport
    for i in range(receives):
        v.b.post_recv(v.qb, i)
    v.b.post_write(v.qb, 1, memoryview(bytes(9000)), v.region.va, v.region.rkey, -1)
    for f in given_frames:
        if isinstance(f, bytes):
            v.give(f)
        else:
            op, psn, own, body, flags, ack, sport = f  # type: ignore[misc]
            if isinstance(body, tuple):
                off, length, key, n = body
                body = (
                    reth(v.region.va + off & (1 << 64) - 1, v.region.rkey ^ (not key), length)
                    + b"\x55" * n
                )
            v.give(
                data_frame(
                    op,
                    psn + v.psn & 0xFFFFFF,
                    v.qb if own else v.qb ^ 5,
                    body,
                    flags=flags,
                    ack=ack,
                    sport=sport or own_sport,
                )
            )
        while v.b.transmit(0) >= 0:
            pass
    assert v.memory[:4000] == v.before[:4000] and v.memory[16_000:] == v.before[16_000:]
    c = v.b.counters()
    assert c["rx_packets"] == sum(c[part] for part in _parts())
    assert c["rx_packets"] + c["rx_other"] == len(given_frames)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 4229), st.integers(0, 255), st.integers(0, 1 << 20))
def test_damage_anywhere_on_the_way_is_only_a_delay(at: int, xor: int, seed: int) -> None:
    """One byte of every seventh frame changes: what the iCRC does not cover does not matter, all
    else is dropped and sent again."""
    net, a, b, qa, _ = pair(TINY, seed=seed)
    memory = bytearray(40_000)
    region = b.register(memory)
    data = bytes(i * 7 & 0xFF for i in range(40_000))
    a.post_write(qa, 1, memoryview(data), region.va, region.rkey, -1)
    count = 0

    def hand_in(host: int, port: int, frame: bytes) -> None:
        nonlocal count
        count += 1
        if count % 7 == 0:
            broken = bytearray(frame)
            broken[at % len(frame)] ^= xor
            frame = bytes(broken)
        Network.hand_in(net, host, port, frame)

    net.hand_in = hand_in  # type: ignore[method-assign]
    net.run(done=lambda: bool(a._completions))
    assert memory == data
    net.run()
    net.check_books()
