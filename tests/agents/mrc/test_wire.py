"""Every packet type against bytes written by hand from docs/why/protocol.md, section 4, and read
back by name."""

from __future__ import annotations

import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.framing import Framer, Route
from agents.packets import dscp, headers
from testbed.simulated.frame import Frame
from tests.agents.mrc.packets import write_packet
from tests.agents.mrc.rig import DEMO, TINY
from tests.testbed.wireshark.golden import records

CONFIG = Config.from_fabric(TINY, {})
EV = 0x0001_0001
NOW = 0x1234 << CONFIG.ts_shift
MAC = "026d72630001"

HEAD = (
    MAC + MAC + "86dd"
    "6{tc}00000"
    "{olen}"
    "29"
    "40"
    "fd6d7263000000000000000000000001"  # outer: next header 41
    # T0 0, T1 1, T0 1, downlink 1, all of plane 1
    "fcbbbb00"
    "1400"
    "1801"
    "1401"
    "1c01"
    "00000000"
    "6{tc}00001"
    "{ulen}"
    "11"
    "40"
    "fd6d7263000000000000000000000001"
    "fd6d7263000000000000000000000004"
    "0001"
    "12b7"
    "{ulen}"
    "0000"
)
"""Ethernet to UDP, h0 to h3 of tiny; traffic class, outer and UDP length left open. The EV: flow
label 1, source port 1."""


def head(traffic_class: int, after_udp: int) -> str:
    return HEAD.format(
        tc=f"{traffic_class:02x}", olen=f"{48 + after_udp:04x}", ulen=f"{8 + after_udp:04x}"
    )


def straightforward_icrc(frame: bytes) -> int:
    """RoCEv2's, bit by bit over a masked copy (InfiniBand annex A17), sharing nothing with the
    engine."""
    ip = bytearray(frame[54:94])
    ip[0] |= 0x0F
    ip[1:4] = b"\xff\xff\xff"
    ip[7] = 0xFF
    udp = bytearray(frame[94:102])
    udp[6:8] = b"\xff\xff"
    bth = bytearray(frame[102:114])
    bth[4] = 0xFF
    crc = 0xFFFFFFFF
    for byte in b"\xff" * 8 + bytes(ip) + bytes(udp) + bytes(bth) + frame[114:-4]:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def built(framer: Framer, payload: bytes = b"") -> bytes:
    return framer.frame + payload + framer.trailer


def route() -> Route:
    return Route(TINY, 0, 3)


def check(frame: bytes, expected: str) -> dict[str, object]:
    """Everything but the iCRC byte for byte, the iCRC by the independent sum."""
    assert frame[:-4].hex() == expected.replace(" ", "")
    assert frame[-4:] == straightforward_icrc(frame).to_bytes(4, "little")
    said = wire.describe(frame)
    assert said["ev"] == EV
    return said


DATA_TC = dscp.TRIMMABLE_RETX << 2 | dscp.ECT0


@pytest.mark.parametrize(
    "op, imm",
    [(0xC6, -1), (0xC7, -1), (0xC8, -1), (0xC9, 0xCAFEBABE), (0xCA, -1), (0xCB, 7)],
    ids=["First", "Middle", "Last", "LastImm", "Only", "OnlyImm"],
)
@pytest.mark.parametrize("n", [0, 1, 4, 255])
def test_write(op: int, imm: int, n: int) -> None:
    framer = Framer(CONFIG)
    payload = Random(n).randbytes(n)
    packet = write_packet(
        ev=EV,
        op=op,
        rtx=True,
        asks=True,
        psn=0x1_FEDCBA,
        rqmsn=0x1_0203,
        msn=0x2_0405,
        va=0x0011223344556677,
        rkey=0x8899AABB,
        dmalen=0xCCDDEEFF,
        imm=imm,
    )
    framer.write(NOW, route(), 0xABCDEF, packet, memoryview(payload))
    pad = -n % 4
    after = 12 + 24 + (4 if imm >= 0 else 0) + n + pad + 4
    expected = head(DATA_TC, after) + f"{op:02x}" + f"{pad << 4:02x}" + "ffff00abcdefb0fedcba"
    expected += "020304051234000100112233445566778899aabbccddeeff"
    expected += f"{imm:08x}" if imm >= 0 else ""
    expected += payload.hex() + "00" * pad
    said = check(built(framer, payload), expected)
    assert (said["dqpn"], said["psn"], said["ackreq"], said["rtx"]) == (0xABCDEF, 0xFEDCBA, 1, 1)
    assert (said["rqmsn"], said["msn"], said["tx_ts"], said["va"]) == (
        0x0203,
        0x0405,
        0x1234,
        0x0011223344556677,
    )
    assert (said["rkey"], said["dmalen"], said.get("imm", -1)) == (0x8899AABB, 0xCCDDEEFF, imm)
    assert said["payload"] == payload + bytes(pad)
    assert (said["dscp"], said["ecn"]) == (dscp.TRIMMABLE_RETX, 2)


def test_flags_are_off_when_not_asked_for() -> None:
    framer = Framer(CONFIG)
    framer.write(NOW, route(), 1, write_packet(ev=EV, psn=2), memoryview(b""))
    assert framer.frame[110:114].hex() == "10000002"  # TSETH follows, nothing else


BARE = {
    # name: (class, opcode, PSN word, what follows the BTH by hand, what describe says of it)
    "ACK": (dscp.CONTROL, 0xD1, 0x10, "1f000203", {"syndrome": 0x1F, "msn": 0x203}),
    "NAK": (dscp.CONTROL, 0xD1, 0x10, "62ffffff", {"syndrome": 0x62, "msn": 0xFFFFFF}),
    "SACK": (
        dscp.CONTROL,
        0xDC,
        0x20000010,
        "0022fffe0001000311112222000000100008004180000000000000014321000785abcdef",
        {
            "m": 1,
            "pr": 1,
            "ack_psn_offset": -2,
            "entropy": 0x10003,
            "spdcid": 0x1111,
            "dpdcid": 0x2222,
            "cack_psn": 0x10,
            "mpr": 8,
            "sack_offset": 0x41,
            "bitmap": 1 << 63 | 1,
            "tx_ts": 0x4321,
            "ooo_count": 7,
            "restore_cwnd": 1,
            "rcv_cwnd_pen": 5,
            "rcvd_bytes": 0xABCDEF,
            "rtx": 1,
        },
    ),
    "NACK": (
        dscp.CONTROL,
        0xDD,
        0x10,
        "00000b0000010003111122220000001020004321",
        {
            "reason": 0x0B,
            "vendor": 0,
            "entropy": 0x10003,
            "spdcid": 0x1111,
            "dpdcid": 0x2222,
            "nack_psn": 0x10,
            "tx_ts": 0x4321,
        },
    ),
    "Probe": (
        dscp.NO_TRIM,
        0xDE,
        0,
        "00000000007700001111222243210001",
        {"probe_id": 0x77, "spdcid": 0x1111, "dpdcid": 0x2222, "tx_ts": 0x4321, "psn": 0},
    ),
    "Endpoint request": (
        dscp.CONTROL,
        0xD8,
        0x8001,
        "00010000000000f30000000043210001",
        {"op": 1, "port_status_mask": 0xF3, "tx_ts": 0x4321},
    ),
    "Endpoint response": (
        dscp.CONTROL,
        0xD9,
        0x8001,
        "0004" + "00" * 26 + "4321" + "00" * 6,
        {"op": 1, "tx_ts": 0x4321},
    ),
}


@pytest.mark.parametrize("name", BARE)
def test_packets_without_payload(name: str) -> None:
    klass, op, word, ext, fields = BARE[name]
    framer = Framer(CONFIG)
    framer.bare(route(), EV, klass, op, 0x123456, word, bytes.fromhex(ext))
    length = len(ext) // 2
    assert length == wire.EXT_LENGTH[op]
    expected = (
        head(klass << 2 | (0 if klass == dscp.CONTROL else dscp.ECT0), 12 + length + 4)
        + f"{op:02x}"
        + "00ffff00123456"
        + f"{word:08x}"
        + ext
    )
    said = check(built(framer), expected)
    assert said["name"] == wire.OPCODE_NAMES[op]
    for key, value in fields.items():
        assert said[key] == value, key


def test_structs_pack_the_golden_headers() -> None:
    """What the engine packs, against the same hand-written bytes."""
    assert (
        wire.S_SACK.pack(
            wire.seth_word(1, True),
            -2,
            0x10003,
            0x1111,
            0x2222,
            0x10,
            0,
            8,
            0x41,
            1 << 63 | 1,
            0x4321,
            7,
            1 << 31 | 5 << 24 | 0xABCDEF,
        ).hex()
        == BARE["SACK"][3]
    )
    assert (
        wire.S_NETH.pack(
            0, 0x0B, 0, 0x10003, 0x1111, 0x2222, 0x10, wire.CC_NACK << 4, 0, 0x4321
        ).hex()
        == BARE["NACK"][3]
    )
    assert wire.S_PETH.pack(0, 0x77, 0x1111, 0x2222, 0x4321, wire.FTYPE).hex() == BARE["Probe"][3]
    assert wire.S_ERTH.pack(1, 0xF3, 0x4321, 1).hex() == BARE["Endpoint request"][3]
    assert wire.S_EETH.pack(4, 0x4321).hex() == BARE["Endpoint response"][3]


@given(st.binary(min_size=118, max_size=400))
def test_icrc_agrees_with_the_straightforward_one(frame: bytes) -> None:
    # inner version 6: anything else is refused before the sum is taken
    frame = frame[:54] + b"\x65" + frame[55:]
    assert headers.icrc_of(frame, 0, len(frame)) == straightforward_icrc(frame)


CHECK = headers.IcrcCheck()
"""One for many frames, as an engine has it."""


@given(
    st.binary(min_size=118, max_size=400),
    st.integers(114, 400),
    st.sampled_from([0, 0, 1, 1 << 7, 1 << 31]),
)
def test_the_check_of_an_icrc_agrees_too(frame: bytes, looked_at: int, damage: int) -> None:
    frame = frame[:54] + b"\x65" + frame[55:]
    frame = frame[:-4] + (straightforward_icrc(frame) ^ damage).to_bytes(4, "little")
    around = b"\x11" * 7 + frame + b"\x22" * 9
    assert CHECK.good(frame[:looked_at], memoryview(around), 7, len(frame)) == (damage == 0)
    assert CHECK.good(frame[:looked_at], memoryview(around), 7, len(frame)) == (damage == 0), (
        "the second time, too"
    )


def test_icrc_at_an_offset_does_not_reach_before_its_frame() -> None:
    frame = Random(1).randbytes(54) + b"\x60" + Random(4).randbytes(145)
    assert headers.icrc_of(bytearray(b"\x11" * 33 + frame), 33, 200) == straightforward_icrc(frame)


def test_icrc_ignores_exactly_what_switches_change() -> None:
    """Outer header, traffic class, flow label, hop limit, UDP checksum and BTH's reserved byte may
    change on the way."""
    frame = bytearray(Random(2).randbytes(200))
    frame[54] = 0x60
    base = straightforward_icrc(bytes(frame))
    free = set(range(54)) | {55, 56, 57, 61, 100, 101, 106} | set(range(196, 200))
    for i in range(200):
        changed = bytearray(frame)
        changed[i] ^= 0x0F
        same = headers.icrc_of(changed, 0, 200) == base
        # the low half of byte 54 belongs to the traffic class
        assert same == (i in free or i == 54), i


@given(st.integers(0, 1 << 40), st.integers(-(1 << 23), (1 << 23) - 1))
def test_psn_delta_is_a_signed_24_bit_difference(reference: int, ahead: int) -> None:
    assert headers.psn_delta(reference + ahead & 0xFFFFFF, reference) == ahead


@given(st.binary(max_size=300))
def test_describe_says_no_with_one_error_class(frame: bytes) -> None:
    with pytest.raises(ValueError):
        wire.describe(frame)


@given(st.integers(0, 120))
def test_describe_of_a_cut_packet_is_a_value_error(cut: int) -> None:
    framer = Framer(CONFIG)
    framer.bare(route(), EV, dscp.CONTROL, wire.SACK, 1, 0, bytes(36))
    frame = built(framer)
    if cut:
        with pytest.raises(ValueError):
            wire.describe(frame[:-cut])


@pytest.mark.parametrize(
    "op, imm", [(0xC6, -1), (0xC7, -1), (0xC8, -1), (0xC9, 7), (0xCA, -1), (0xCB, 7)]
)
@pytest.mark.parametrize("n", [0, 4, 256])
def test_describe_of_what_a_switch_trimmed_has_all_that_is_left(op: int, imm: int, n: int) -> None:
    framer = Framer(CONFIG)
    payload = Random(n).randbytes(n)
    packet = write_packet(
        ev=EV, op=op, psn=2, rqmsn=3, msn=4, va=0x1122334455667788, rkey=5, dmalen=6, imm=imm
    )
    framer.write(NOW, route(), 1, packet, memoryview(payload))
    whole = built(framer, payload)
    frame = Frame(whole)
    frame.trim(dscp.TRIMMED)
    cut = frame.contents()
    said = wire.describe(bytes(cut))
    left = wire.TRIM_BYTES - wire.WRITE_HEADERS - 4 * (imm >= 0)
    expected = {**wire.describe(whole), "dscp": dscp.TRIMMED, "payload": payload[:left]}
    assert said == expected
    for length in range(wire.AFTER_BTH + headers.ICRC, wire.WRITE_HEADERS + 4 * (imm >= 0)):
        with pytest.raises(ValueError, match="cut short"):
            wire.describe(bytes(cut[:length]))


def test_only_a_write_says_that_a_timestamp_header_follows() -> None:
    """A probe and the endpoint operations have their timestamp in headers of their own."""
    seen: dict[str, set[int]] = {}
    for record in records():
        if record.frame[headers.BTH_AT] in wire.OPCODE_NAMES and len(record.frame) == record.length:
            said = wire.describe(record.frame)
            seen.setdefault(said["name"], set()).add(said["ts"])
    assert seen == {name: {int(name.startswith("WRITE"))} for name in wire.OPCODE_NAMES.values()}


def test_isal_and_zlib_agree() -> None:
    data = Random(3).randbytes(5000)
    assert headers.crc32(data) == zlib.crc32(data)


@pytest.mark.parametrize("fabric", [TINY, DEMO], ids=lambda f: f.name)
def test_timestamps_wrap_no_sooner_than_four_times_the_largest_rtt(fabric: object) -> None:
    c = Config.from_fabric(fabric, {})  # type: ignore[arg-type]
    assert (1 << 16 + c.ts_shift) >= 4 * 64 * c.base_rtt
