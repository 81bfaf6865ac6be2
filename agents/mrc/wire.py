"""MRC on the wire: every header, byte for byte, and the invariant CRC. No state, no I/O.

Called by the endpoint (fast paths use the ``Struct`` objects directly, in place), by tests and by tools. Layouts follow the
third-party readings of OCP MRC 1.0 that docs/protocol.md lists; values marked [ours] are this project's own choice.

A frame is Ethernet (14) | outer IPv6 (40) | inner IPv6 (40) | UDP (8) | BTH (12) | headers | payload | iCRC (4).
All fields are big-endian, the iCRC little-endian (InfiniBand sends it least significant byte first).
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from agents.mrc import dscp

try:
    from isal.isal_zlib import crc32 as crc32
except ImportError:  # zlib gives the same sums, eight times slower on a full packet
    from zlib import crc32 as crc32

UDP_PORT: Final = 4791
"""RoCE's port. The specification prints 4971 in one place. Changed here and in
testbed/dataplane/layout.py, and nowhere else [ours]."""

# Opcodes.
WRITE_FIRST: Final = 0xC6
WRITE_MIDDLE: Final = 0xC7
WRITE_LAST: Final = 0xC8
WRITE_LAST_IMM: Final = 0xC9
WRITE_ONLY: Final = 0xCA
WRITE_ONLY_IMM: Final = 0xCB
ACK: Final = 0xD1
ENDPOINT_REQUEST: Final = 0xD8
ENDPOINT_RESPONSE: Final = 0xD9
SACK: Final = 0xDC
NACK: Final = 0xDD
PROBE: Final = 0xDE
OPCODE_NAMES: Final = {
    WRITE_FIRST: "WRITE First",
    WRITE_MIDDLE: "WRITE Middle",
    WRITE_LAST: "WRITE Last",
    WRITE_LAST_IMM: "WRITE Last with immediate",
    WRITE_ONLY: "WRITE Only",
    WRITE_ONLY_IMM: "WRITE Only with immediate",
    ACK: "ACK",
    ENDPOINT_REQUEST: "Endpoint request",
    ENDPOINT_RESPONSE: "Endpoint response",
    SACK: "SACK",
    NACK: "NACK",
    PROBE: "Reliability Probe",
}
ENDPOINT_QPN: Final = 2
"""Endpoint requests and responses are addressed to this QPN."""

# AETH syndromes of an ACK.
SYNDROME_OK: Final = 0x1F
SYNDROME_INVALID: Final = 0x61
SYNDROME_ACCESS: Final = 0x62
SYNDROME_OPERATION: Final = 0x63

# NACK reasons.
TRIMMED: Final = 0x01
TRIMMED_LASTHOP: Final = 0x02
NO_BITMAP: Final = 0x06
NO_PKT_BUFFER: Final = 0x07
NO_RESOURCE: Final = 0x0A
PSN_OOR_WINDOW: Final = 0x0B
UNEXP_EVENT: Final = 0x19

# SETH m field.
M_NONE: Final = 0
M_SKIP_ONCE: Final = 1
M_ALWAYS_SKIP: Final = 2

# BTH word with the PSN: flags above 24 bits.
F_ACKREQ: Final = 1 << 31
F_RTX: Final = 1 << 29
F_TS: Final = 1 << 28
"""A TSETH follows: of WRITEs alone. What has its timestamp in a header of its own (SACK, NACK, probe, endpoint operations) has it clear."""
PSN_MASK: Final = 0xFFFFFF
PKEY: Final = 0xFFFF
"""Default partition [ours]."""
FTYPE: Final = 1
"""TSETH's and PETH's ftype."""
CC_SACK: Final = 0
CC_NACK: Final = 2

# Offsets in a frame.
OUTER: Final = 14
INNER: Final = 54
UDP: Final = 94
BTH_AT: Final = 102
HEAD: Final = 102
"""Bytes before the BTH."""
AFTER_BTH: Final = 114
WRITE_HEADERS: Final = 138
"""Bytes before the payload of a WRITE without immediate."""
ICRC: Final = 4
COUNTED: Final = 88
"""What congestion control counts of a data packet beside its payload: UDP length + 40, without an immediate (UET)."""
TRIM_BYTES: Final = 142
"""What a switch leaves of a frame: all headers of a WRITE with immediate [ours; the same in testbed/dataplane/layout.py]."""

S_OUTER = Struct("!IHBB16s16s")  # version/class/flow, payload length, next header, hop limit, source, destination
S_UDP = Struct("!HHHH")
S_BTH = Struct("!BBHII")  # opcode, m se pad tver, pkey, res8+dqpn24, flags8+psn24
S_WRITE = Struct("!BBHIIHHHHQII")  # BTH, METH (rqmsn, msn), TSETH (tx_ts, tsr/res/ftype), RETH (va, rkey, dmalen)
S_WRITE_EXT = Struct("!HHHHQII")  # the same after the BTH
S_IMM = Struct("!I")
S_AETH = Struct("!I")  # syndrome8, msn24
S_SETH = Struct("!HhIHHIBBhQ")
S_CC_STATE = Struct("!HHI")
S_SACK = Struct("!HhIHHIBBhQHHI")  # SETH and CC_STATE
S_NETH = Struct("!HBBIHHIBBH")
S_PETH = Struct("!3xBH2xHHHH")
S_ERTH = Struct("!xB2xI4xHH")
S_EETH = Struct("!xB26xH6x")
S_ICRC = Struct("<I")
S_ARRIVAL = Struct("!HIHBB16x16xIHBBQIHHQIHHHHHHBBHII")
"""From the EtherType (byte 12) to the end of the BTH, as the receiver reads it in one go."""

EXT_LENGTH: Final = {ACK: 4, ENDPOINT_REQUEST: 16, ENDPOINT_RESPONSE: 36, SACK: 36, NACK: 20, PROBE: 16}
"""Bytes between BTH and iCRC of each packet without payload."""

_MASK_FRONT = b"\xff" * 8 + b"\x6f\xff\xff\xff"


def seth_word(m: int, probe: bool) -> int:
    """The first 16 bits of a SETH: type4 nxt5 m2 r3 pr1 r1; type and nxt are 0 [ours]."""
    return m << 5 | (2 if probe else 0)


def psn_delta(psn: int, reference: int) -> int:
    """How far the 24-bit ``psn`` is ahead of ``reference`` (any width), as a signed 24-bit difference."""
    return ((psn - reference + 0x800000) & PSN_MASK) - 0x800000


def s24(value: int) -> int:
    """A 24-bit difference as a signed number."""
    return ((value + 0x800000) & PSN_MASK) - 0x800000


def ip_header(next_header: int, payload: int, dscp: int, ecn: int, flow: int, hop_limit: int, src: bytes, dst: bytes) -> bytes:
    """An IPv6 header; ``payload`` in bytes."""
    return S_OUTER.pack(6 << 28 | dscp << 22 | ecn << 20 | flow, payload, next_header, hop_limit, src, dst)


def head(
    mac: bytes, outer_src: bytes, outer_dst: bytes, inner_src: bytes, inner_dst: bytes, ev: int, dscp: int, ecn: int, port: int,
    after_udp: int,
) -> bytes:
    """The 102 bytes before the BTH.

    ``after_udp`` counts the bytes from the BTH to the iCRC inclusive. The EV is striped: its low half is the UDP source
    port, its high half the low 16 bits of the inner flow label; which half goes where is our choice.
    """
    udp = 8 + after_udp
    inner = ip_header(17, udp, dscp, ecn, ev >> 16 & 0xFFFF, 64, inner_src, inner_dst)
    outer = ip_header(41, 40 + udp, dscp, ecn, 0, 64, outer_src, outer_dst)
    return mac + mac + b"\x86\xdd" + outer + inner + S_UDP.pack(ev & 0xFFFF, port, udp, 0)


def icrc_of_head(frame_head: bytes) -> int:
    """CRC state after the masked inner IPv6 and UDP headers of a 102-byte head."""
    b = bytearray(b"\xff" * 8 + frame_head[INNER:HEAD])
    b[8] |= 0x0F
    b[9:12] = b"\xff\xff\xff"
    b[15] = 0xFF
    b[54:56] = b"\xff\xff"
    return int(crc32(b))


def icrc_in_place(buffer: Any, start: int, length: int) -> int:
    """The iCRC that a received frame should carry; overwrites the fields that the CRC takes as ones.

    CRC-32 from the inner IPv6 header on, after 8 bytes of FF, with traffic class, flow label, hop limit, UDP checksum
    and BTH byte 4 as ones (RoCEv2's, InfiniBand annex A17).
    """
    at = start + INNER
    buffer[at - 8 : at + 4] = _MASK_FRONT
    buffer[at + 7] = 0xFF
    buffer[start + UDP + 6 : start + UDP + 8] = b"\xff\xff"
    buffer[start + BTH_AT + 4] = 0xFF
    return int(crc32(buffer[at - 8 : start + length - ICRC]))


def describe(frame: bytes) -> dict[str, Any]:
    """Every field of a frame by name, for people, tests and tools. Raises ValueError on what is not MRC.

    ``payload`` includes the padding; of a trimmed WRITE it is what the switch left of it.
    """
    if len(frame) < AFTER_BTH + ICRC:
        raise ValueError(f"{len(frame)} bytes are too short for an MRC packet")
    word, length, nxt, hops, osrc, odst = S_OUTER.unpack_from(frame, OUTER)
    iword, ilength, inxt, ihops, isrc, idst = S_OUTER.unpack_from(frame, INNER)
    sport, dport, udp_length, _ = S_UDP.unpack_from(frame, UDP)
    op, flags, pkey, qp, psn = S_BTH.unpack_from(frame, BTH_AT)
    if frame[12:14] != b"\x86\xdd" or nxt != 41 or inxt != 17 or op not in OPCODE_NAMES:
        raise ValueError("not an MRC packet: IPv6 in IPv6, UDP and a known opcode are needed")
    d: dict[str, Any] = {
        "dscp": word >> 22 & 0x3F, "ecn": word >> 20 & 3, "hop_limit": hops, "outer_src": osrc, "outer_dst": odst,
        "inner_src": isrc, "inner_dst": idst, "ev": (iword & 0xFFFF) << 16 | sport, "udp_port": dport,
        "opcode": op, "name": OPCODE_NAMES[op], "dqpn": qp & PSN_MASK, "ackreq": psn >> 31, "rtx": psn >> 29 & 1, "ts": psn >> 28 & 1,
        "psn": psn & PSN_MASK,
    }  # fmt: skip
    at = AFTER_BTH
    if op in EXT_LENGTH and len(frame) < at + EXT_LENGTH[op] + ICRC:
        raise ValueError(f"{OPCODE_NAMES[op]} cut short")
    if op <= WRITE_ONLY_IMM:
        imm = op in (WRITE_LAST_IMM, WRITE_ONLY_IMM)
        first = WRITE_HEADERS + 4 * imm
        trimmed = d["dscp"] in (dscp.TRIMMED, dscp.TRIMMED_LASTHOP)
        if len(frame) < first + (0 if trimmed else ICRC):
            raise ValueError("WRITE cut short")
        d["rqmsn"], d["msn"], d["tx_ts"], _, d["va"], d["rkey"], d["dmalen"] = S_WRITE_EXT.unpack_from(frame, at)
        if imm:
            (d["imm"],) = S_IMM.unpack_from(frame, WRITE_HEADERS)
        # What a switch trimmed has no iCRC, unless nothing was cut off; the inner lengths still say how long it was.
        d["payload"] = frame[first : UDP + udp_length - ICRC if trimmed else -ICRC]
    elif op == ACK:
        (aeth,) = S_AETH.unpack_from(frame, at)
        d["syndrome"], d["msn"] = aeth >> 24, aeth & PSN_MASK
    elif op == SACK:
        w, off, d["entropy"], d["spdcid"], d["dpdcid"], cack, _, d["mpr"], d["sack_offset"], d["bitmap"] = S_SETH.unpack_from(frame, at)
        d["tx_ts"], ooo, cc = S_CC_STATE.unpack_from(frame, at + 28)
        d["m"], d["pr"], d["ack_psn_offset"], d["cack_psn"] = w >> 5 & 3, w >> 1 & 1, off, cack & PSN_MASK
        d["ooo_count"], d["restore_cwnd"], d["rcv_cwnd_pen"], d["rcvd_bytes"] = ooo & 0x7FFF, cc >> 31, cc >> 24 & 0x7F, cc & PSN_MASK
    elif op == NACK:
        _, d["reason"], d["vendor"], d["entropy"], d["spdcid"], d["dpdcid"], nack, _, _, d["tx_ts"] = S_NETH.unpack_from(frame, at)
        d["nack_psn"] = nack & PSN_MASK
    elif op == PROBE:
        d["vendor"], d["probe_id"], d["spdcid"], d["dpdcid"], d["tx_ts"], _ = S_PETH.unpack_from(frame, at)
    elif op == ENDPOINT_REQUEST:
        w, d["port_status_mask"], d["tx_ts"], _ = S_ERTH.unpack_from(frame, at)
        d["op"] = w & 3
    else:
        w, d["tx_ts"] = S_EETH.unpack_from(frame, at)
        d["op"] = w >> 2 & 3
    return d
