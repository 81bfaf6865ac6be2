"""Layouts on the wire, as data: every header's fields, and the values that have names.
docs/why/protocol.md, section 4, is made from it.

Nothing here comes from the engine, so that the judge does not share its mistakes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bits:
    width: int
    text: str
    key: str = ""
    signed: bool = False
    usual: int = 0


def _reserved(width: int) -> Bits:
    return Bits(width, "reserved: 0 when sent, not read")


HEADERS: dict[str, tuple[Bits, ...]] = {
    "BTH": (
        Bits(8, "opcode", "opcode"),
        Bits(1, "m: 0 (the order of m and se is disputed)", "bth_m"),
        Bits(1, "se: 0", "se"),
        Bits(2, "pad: bytes that fill the payload to a multiple of four, before the iCRC", "pad"),
        Bits(4, "tver: 0", "tver"),
        Bits(16, "partition key: FFFF **[ours]**", "pkey", usual=0xFFFF),
        _reserved(8),
        Bits(24, "destination QPN; endpoint operations go to QPN 2", "dqpn"),
        Bits(1, "a: asks for a SACK at once", "ackreq"),
        _reserved(1),
        Bits(1, "rtx: a retransmission; in a SACK the trigger's", "rtx"),
        Bits(
            1,
            "ts: a TSETH follows: 1 in WRITEs **[ours]**, else 0, since others have their "
            "timestamp elsewhere **[ours]**",
            "ts",
        ),
        _reserved(4),
        Bits(
            24,
            "PSN; in a SACK the cumulative PSN, in a NACK the PSN refused, in a Reliability "
            "Probe 0",
            "psn",
        ),
    ),
    "METH": (Bits(16, "RQMSN, low 16 bits", "rqmsn"), Bits(16, "MSN, low 16 bits", "msn")),
    "TSETH": (
        Bits(16, "transmit timestamp", "tx_ts"),
        Bits(1, "tsr: 0", "tsr"),
        _reserved(11),
        Bits(4, "ftype: 1", "ftype", usual=1),
    ),
    "RETH": (
        Bits(64, "virtual address of this packet's payload", "va"),
        Bits(32, "rkey", "rkey"),
        Bits(32, "dmalen", "dmalen"),
    ),
    "Imm": (Bits(32, "immediate", "imm"),),
    "AETH": (Bits(8, "syndrome", "syndrome"), Bits(24, "MSN: messages completed", "msn")),
    "SETH": (
        Bits(4, "type: 0 **[ours]**", "type"),
        Bits(5, "nxt: 0 **[ours]**", "nxt"),
        Bits(2, "m: 0 none, 1 SKIP_ONCE, 2 ALWAYS_SKIP", "m"),
        _reserved(3),
        Bits(1, "pr: answers a Reliability Probe", "pr"),
        _reserved(1),
        Bits(
            16,
            "from the cumulative PSN to the trigger's; 0 if it does not fit. With pr the probe's "
            "id",
            "ack_psn_offset",
            signed=True,
        ),
        Bits(32, "the trigger's EV", "entropy"),
        Bits(16, "low 16 bits of this SACK's sender's QPN **[ours]**", "spdcid"),
        Bits(16, "low 16 bits of its receiver's QPN **[ours]**", "dpdcid"),
        _reserved(8),
        Bits(24, "cumulative PSN: everything up to it has arrived", "cack_psn"),
        Bits(4, "CC type: 0", "cc_type"),
        Bits(4, "flags: 0", "cc_flags"),
        Bits(8, "receive window from the cumulative PSN on, in units of 128 PSNs", "mpr"),
        Bits(16, "from the cumulative PSN to the bitmap's bit 0", "sack_offset", signed=True),
        Bits(64, "bitmap, bit 0 the least significant: 1 has arrived, 0 has not", "bitmap"),
    ),
    "CC_STATE": (
        Bits(16, "the trigger's timestamp plus the time for which it was held", "tx_ts"),
        _reserved(1),
        Bits(15, "packets that have arrived above the cumulative PSN", "ooo_count"),
        Bits(1, "restore_cwnd: nobody else sends to this host", "restore_cwnd"),
        Bits(7, "receiver's penalty for the window", "rcv_cwnd_pen"),
        Bits(
            24,
            "bytes of new packets in units of 256, rounded down; each is payload + 88, at least "
            "256 **[UET]**",
            "rcvd_bytes",
        ),
    ),
    "NETH": (
        Bits(16, "type, nxt: 0", "type"),
        Bits(8, "reason", "reason"),
        Bits(8, "vendor: 0", "vendor"),
        Bits(32, "EV of the packet refused", "entropy"),
        Bits(16, "low 16 bits of this NACK's sender's QPN **[ours]**", "spdcid"),
        Bits(16, "low 16 bits of its receiver's QPN **[ours]**", "dpdcid"),
        _reserved(8),
        Bits(
            24,
            "PSN refused; of a Reliability Probe its id, here and as the PSN of the BTH **[ours]**",
            "nack_psn",
        ),
        Bits(4, "CC type: 2", "cc_type", usual=2),
        _reserved(12),
        Bits(16, "timestamp of the packet refused", "tx_ts"),
    ),
    "PETH": (
        _reserved(24),
        Bits(8, "vendor: 0", "vendor"),
        Bits(16, "probe id: 1 to 32,767, so that it fits the SACK's signed field", "probe_id"),
        _reserved(16),
        Bits(16, "low 16 bits of the probe's sender's QPN **[ours]**", "spdcid"),
        Bits(16, "low 16 bits of its receiver's QPN **[ours]**", "dpdcid"),
        Bits(16, "timestamp", "tx_ts"),
        Bits(16, "as in a TSETH: tsr (1), reserved (11), ftype (4) = 1", "ftype", usual=1),
    ),
    "ERTH": (
        _reserved(14),
        Bits(2, "operation: 0 Port Status Update, 1 EV Probe", "op"),
        _reserved(16),
        Bits(
            32,
            "port status mask: 2^p is in it if the port to plane p is up; not read in an EV Probe",
            "port_status_mask",
        ),
        _reserved(32),
        Bits(16, "timestamp", "tx_ts"),
        Bits(16, "as in a TSETH", "ftype", usual=1),
    ),
    "EETH": (
        _reserved(12),
        Bits(2, "operation, the request's (two of three readers agree on its place)", "op"),
        _reserved(2 + 26 * 8),
        Bits(16, "the request's timestamp plus the time for which it was held", "tx_ts"),
        _reserved(6 * 8),
    ),
}
PACKETS = {
    0xC6: "WRITE First",
    0xC7: "WRITE Middle",
    0xC8: "WRITE Last",
    0xC9: "WRITE Last with immediate",
    0xCA: "WRITE Only",
    0xCB: "WRITE Only with immediate",
    0xD1: "ACK",
    0xD8: "Endpoint request",
    0xD9: "Endpoint response",
    0xDC: "SACK",
    0xDD: "NACK",
    0xDE: "Reliability Probe",
}
AFTER_BTH: dict[int, tuple[str, ...]] = {
    **dict.fromkeys((0xC6, 0xC7, 0xC8, 0xCA), ("METH", "TSETH", "RETH")),
    **dict.fromkeys((0xC9, 0xCB), ("METH", "TSETH", "RETH", "Imm")),
    0xD1: ("AETH",),
    0xD8: ("ERTH",),
    0xD9: ("EETH",),
    0xDC: ("SETH", "CC_STATE"),
    0xDD: ("NETH",),
    0xDE: ("PETH",),
}
SYNDROMES = {
    0x1F: "fine",
    0x61: "invalid request: MSN, RQMSN, opcode or length out of place",
    0x62: "access: rkey or bounds",
    0x63: "operation: an immediate without a receive request",
}
REASONS = {
    0x01: ("TRIMMED", True),
    0x02: ("TRIMMED_LASTHOP", True),
    0x06: ("NO_BITMAP", False),
    0x07: ("NO_PKT_BUFFER", False),
    0x0A: ("NO_RESOURCE", False),
    0x0B: ("PSN_OOR_WINDOW", True),
    0x19: ("UNEXP_EVENT", True),
}
"""A NACK's reason -> its name, and whether it is ever sent."""
CLASSES = {  # by DSCP value: the class's name, and who is in it
    48: (
        "CONTROL",
        "SACK, NACK, ACK, endpoint operations; the high class of every port, never trimmed",
    ),
    10: ("TRIMMABLE", "data and Reliability Probes that a switch may trim"),
    12: ("NO_TRIM", "data and Reliability Probes on a fabric that does not trim"),
    14: ("TRIMMABLE_RETX", "retransmitted data that a switch may trim"),
    18: ("TRIMMED", "what a switch trimmed"),
    20: ("TRIMMED_LASTHOP", "what was trimmed on its last hop, T0 to host"),
    22: ("RETX_HIGH", 'retransmitted data with `retransmit_class = "high"`'),
}


def size(header: str) -> int:
    return sum(field.width for field in HEADERS[header]) // 8
