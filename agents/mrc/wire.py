"""MRC on the wire: every header after the BTH, byte for byte.

Layouts follow the third-party readings of OCP MRC 1.0 that docs/why/protocol.md lists; values
marked [ours] are our own.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from agents.packets import dscp
from agents.packets.headers import BTH_AT, ICRC, INNER, OUTER, PSN_MASK, S_OUTER, S_UDP, UDP, put32

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
"""A TSETH follows, in WRITEs alone. Packets with their timestamp in another header have it
clear."""
PKEY: Final = 0xFFFF
"""Default partition [ours]."""
FTYPE: Final = 1
CC_SACK: Final = 0
CC_NACK: Final = 2

AFTER_BTH: Final = 114
WRITE_HEADERS: Final = 138
"""Bytes before the payload of a WRITE without immediate."""
COUNTED: Final = 88
"""Bytes that congestion control counts beside the payload: UDP length + 40, without an immediate
(UET)."""
TRIM_BYTES: Final = 142
"""Bytes that a switch leaves of a frame: all headers of a WRITE with immediate [ours; also in
testbed/dataplane/layout.py]."""

S_BTH = Struct("!BBHII")  # opcode, m se pad tver, pkey, res8+dqpn24, flags8+psn24
# METH (rqmsn, msn), TSETH (tx_ts, tsr/res/ftype), RETH (va, rkey, dmalen)
S_WRITE_EXT = Struct("!HHHHQII")
S_IMM = Struct("!I")
S_AETH = Struct("!I")  # syndrome8, msn24
S_SETH = Struct("!HhIHHIBBhQ")
S_CC_STATE = Struct("!HHI")
S_SACK = Struct("!HhIHHIBBhQHHI")  # SETH and CC_STATE
S_NETH = Struct("!HBBIHHIBBH")
S_PETH = Struct("!3xBH2xHHHH")
S_ERTH = Struct("!xB2xI4xHH")
S_EETH = Struct("!xB26xH6x")

EXT_LENGTH: Final = {
    ACK: 4,
    ENDPOINT_REQUEST: 16,
    ENDPOINT_RESPONSE: 36,
    SACK: 36,
    NACK: 20,
    PROBE: 16,
}
"""Bytes between BTH and iCRC of each packet without payload."""


def sack(
    word: i64, ev: i64, qpns: i64, cack: i64, window: i64, bitmap: int, ts: i64, cc: i64
) -> bytes:
    """Make the headers of ``S_SACK``, in words of 32 bits. ``window``: the peer's, and where the
    bitmap begins."""
    out = BytesWriter()
    for field in (word, ev, qpns, cack, CC_SACK << 28 | window):
        put32(out, field)
    put32(out, bitmap >> 32)
    put32(out, bitmap & 0xFFFF_FFFF)
    put32(out, ts)
    put32(out, cc)
    return out.getvalue()


def seth_word(m: int, probe: bool) -> int:
    """Make the first 16 bits of a SETH: type4 nxt5 m2 r3 pr1 r1; type and nxt are 0 [ours]."""
    return m << 5 | (2 if probe else 0)


def describe(frame: bytes) -> dict[str, int | str | bytes]:
    """Raises ValueError on any frame that is not MRC's. ``payload`` includes the padding."""
    if len(frame) < AFTER_BTH + ICRC:
        raise ValueError(f"{len(frame)} bytes are too short for an MRC packet")
    word, length, nxt, hops, osrc, odst = S_OUTER.unpack_from(frame, OUTER)
    iword, ilength, inxt, ihops, isrc, idst = S_OUTER.unpack_from(frame, INNER)
    sport, dport, udp_length, _ = S_UDP.unpack_from(frame, UDP)
    op, flags, pkey, qp, psn = S_BTH.unpack_from(frame, BTH_AT)
    if frame[12:14] != b"\x86\xdd" or nxt != 41 or inxt != 17 or op not in OPCODE_NAMES:
        raise ValueError("not an MRC packet: IPv6 in IPv6, UDP and a known opcode are needed")
    d: dict[str, int | str | bytes] = {
        "dscp": word >> 22 & 0x3F,
        "ecn": word >> 20 & 3,
        "hop_limit": hops,
        "outer_src": osrc,
        "outer_dst": odst,
        "inner_src": isrc,
        "inner_dst": idst,
        "ev": (iword & 0xFFFF) << 16 | sport,
        "udp_port": dport,
        "opcode": op,
        "name": OPCODE_NAMES[op],
        "dqpn": qp & PSN_MASK,
        "ackreq": psn >> 31,
        "rtx": psn >> 29 & 1,
        "ts": psn >> 28 & 1,
        "psn": psn & PSN_MASK,
    }
    at = AFTER_BTH
    if op in EXT_LENGTH and len(frame) < at + EXT_LENGTH[op] + ICRC:
        raise ValueError(f"{OPCODE_NAMES[op]} cut short")
    if op <= WRITE_ONLY_IMM:
        imm = op in (WRITE_LAST_IMM, WRITE_ONLY_IMM)
        first = WRITE_HEADERS + 4 * imm
        trimmed = d["dscp"] in (dscp.TRIMMED, dscp.TRIMMED_LASTHOP)
        if len(frame) < first + (0 if trimmed else ICRC):
            raise ValueError("WRITE cut short")
        d["rqmsn"], d["msn"], d["tx_ts"], _, d["va"], d["rkey"], d["dmalen"] = (
            S_WRITE_EXT.unpack_from(frame, at)
        )
        if imm:
            (d["imm"],) = S_IMM.unpack_from(frame, WRITE_HEADERS)
        # What a switch trimmed has no iCRC, unless nothing was cut off; the inner lengths still say
        # how long it was.
        d["payload"] = frame[first : UDP + udp_length - ICRC if trimmed else -ICRC]
    elif op == ACK:
        (aeth,) = S_AETH.unpack_from(frame, at)
        d["syndrome"], d["msn"] = aeth >> 24, aeth & PSN_MASK
    elif op == SACK:
        (
            w,
            off,
            d["entropy"],
            d["spdcid"],
            d["dpdcid"],
            cack,
            _,
            d["mpr"],
            d["sack_offset"],
            d["bitmap"],
        ) = S_SETH.unpack_from(frame, at)
        d["tx_ts"], ooo, cc = S_CC_STATE.unpack_from(frame, at + 28)
        d["m"], d["pr"], d["ack_psn_offset"], d["cack_psn"] = (
            w >> 5 & 3,
            w >> 1 & 1,
            off,
            cack & PSN_MASK,
        )
        d["ooo_count"], d["restore_cwnd"], d["rcv_cwnd_pen"], d["rcvd_bytes"] = (
            ooo & 0x7FFF,
            cc >> 31,
            cc >> 24 & 0x7F,
            cc & PSN_MASK,
        )
    elif op == NACK:
        (
            _,
            d["reason"],
            d["vendor"],
            d["entropy"],
            d["spdcid"],
            d["dpdcid"],
            nack,
            _,
            _,
            d["tx_ts"],
        ) = S_NETH.unpack_from(frame, at)
        d["nack_psn"] = nack & PSN_MASK
    elif op == PROBE:
        d["vendor"], d["probe_id"], d["spdcid"], d["dpdcid"], d["tx_ts"], _ = S_PETH.unpack_from(
            frame, at
        )
    elif op == ENDPOINT_REQUEST:
        w, d["port_status_mask"], d["tx_ts"], _ = S_ERTH.unpack_from(frame, at)
        d["op"] = w & 3
    else:
        w, d["tx_ts"] = S_EETH.unpack_from(frame, at)
        d["op"] = w >> 2 & 3
    return d
