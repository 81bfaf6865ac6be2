"""The tables and diagrams of docs/protocol.md that come from the code: ``python -m tests.docs.protocol`` writes them between their markers.

Layouts stand here, field by field, and tests/docs/test_protocol.py reads frames of random bits with them and with the engine's own reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from agents.mrc import wire
from agents.mrc.paths import ev_state, plane_state
from agents.packets import dscp
from tests.docs.check import ROOT

PAGE = ROOT / "docs" / "protocol.md"


@dataclass(frozen=True)
class Bits:
    """A field: its width in bits, what it is, and its key in :func:`agents.mrc.wire.describe`; "" if that does not tell it."""

    width: int
    text: str
    key: str = ""
    signed: bool = False


def _reserved(width: int) -> Bits:
    return Bits(width, "reserved: 0 when sent, not read")


HEADERS: dict[str, tuple[Bits, ...]] = {
    "BTH": (
        Bits(8, "opcode", "opcode"),
        Bits(1, "m: 0 (the order of m and se is disputed)"),
        Bits(1, "se: 0"),
        Bits(2, "pad: bytes that fill the payload to a multiple of four, before the iCRC"),
        Bits(4, "tver: 0"),
        Bits(16, "partition key: FFFF **[ours]**"),
        _reserved(8),
        Bits(24, "destination QPN; endpoint operations go to QPN 2", "dqpn"),
        Bits(1, "a: asks for a SACK at once", "ackreq"),
        _reserved(1),
        Bits(1, "rtx: a retransmission; in a SACK the trigger's", "rtx"),
        Bits(1, "ts: a TSETH follows: 1 in WRITEs **[ours]**, else 0, since others have their timestamp elsewhere **[ours]**", "ts"),
        _reserved(4),
        Bits(24, "PSN; in a SACK the cumulative PSN, in a NACK the PSN refused, in a Reliability Probe 0", "psn"),
    ),
    "METH": (Bits(16, "RQMSN, low 16 bits", "rqmsn"), Bits(16, "MSN, low 16 bits", "msn")),
    "TSETH": (Bits(16, "transmit timestamp", "tx_ts"), Bits(1, "tsr: 0"), _reserved(11), Bits(4, "ftype: 1")),
    "RETH": (Bits(64, "virtual address of this packet's payload", "va"), Bits(32, "rkey", "rkey"), Bits(32, "dmalen", "dmalen")),
    "Imm": (Bits(32, "immediate", "imm"),),
    "AETH": (Bits(8, "syndrome", "syndrome"), Bits(24, "MSN: messages completed", "msn")),
    "SETH": (
        Bits(4, "type: 0 **[ours]**"),
        Bits(5, "nxt: 0 **[ours]**"),
        Bits(2, "m: 0 none, 1 SKIP_ONCE, 2 ALWAYS_SKIP", "m"),
        _reserved(3),
        Bits(1, "pr: answers a Reliability Probe", "pr"),
        _reserved(1),
        Bits(16, "from the cumulative PSN to the trigger's; 0 if it does not fit. With pr the probe's id", "ack_psn_offset", signed=True),
        Bits(32, "the trigger's EV", "entropy"),
        Bits(16, "low 16 bits of this SACK's sender's QPN **[ours]**", "spdcid"),
        Bits(16, "low 16 bits of its receiver's QPN **[ours]**", "dpdcid"),
        _reserved(8),
        Bits(24, "cumulative PSN: everything up to it has arrived", "cack_psn"),
        Bits(4, "CC type: 0"),
        Bits(4, "flags: 0"),
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
        Bits(24, "bytes received in units of 256, a packet counted as UDP length + 40, its immediate not **[UET]**", "rcvd_bytes"),
    ),
    "NETH": (
        Bits(16, "type, nxt: 0"),
        Bits(8, "reason", "reason"),
        Bits(8, "vendor: 0", "vendor"),
        Bits(32, "EV of the packet refused", "entropy"),
        Bits(16, "low 16 bits of this NACK's sender's QPN **[ours]**", "spdcid"),
        Bits(16, "low 16 bits of its receiver's QPN **[ours]**", "dpdcid"),
        _reserved(8),
        Bits(24, "PSN refused; of a probe its id, as in the BTH **[ours]**", "nack_psn"),
        Bits(4, "CC type: 2"),
        _reserved(12),
        Bits(16, "timestamp of the packet refused", "tx_ts"),
    ),
    "PETH": (
        _reserved(24),
        Bits(8, "vendor: 0", "vendor"),
        Bits(16, "probe id", "probe_id"),
        _reserved(16),
        Bits(16, "low 16 bits of the probe's sender's QPN **[ours]**", "spdcid"),
        Bits(16, "low 16 bits of its receiver's QPN **[ours]**", "dpdcid"),
        Bits(16, "timestamp", "tx_ts"),
        Bits(16, "as in a TSETH: tsr (1), reserved (11), ftype (4) = 1"),
    ),
    "ERTH": (
        _reserved(14),
        Bits(2, "operation: 0 Port Status Update, 1 EV Probe", "op"),
        _reserved(16),
        Bits(32, "port status mask: bit p is set if the port to plane p is up; 0 in an EV Probe", "port_status_mask"),
        _reserved(32),
        Bits(16, "timestamp", "tx_ts"),
        Bits(16, "as in a TSETH"),
    ),
    "EETH": (
        _reserved(12),
        Bits(2, "operation, the request's (two of three readers agree on its place)", "op"),
        _reserved(2 + 26 * 8),
        Bits(16, "the request's timestamp plus the time for which it was held", "tx_ts"),
        _reserved(6 * 8),
    ),
}
AFTER_BTH: dict[int, tuple[str, ...]] = {
    **dict.fromkeys((wire.WRITE_FIRST, wire.WRITE_MIDDLE, wire.WRITE_LAST, wire.WRITE_ONLY), ("METH", "TSETH", "RETH")),
    **dict.fromkeys((wire.WRITE_LAST_IMM, wire.WRITE_ONLY_IMM), ("METH", "TSETH", "RETH", "Imm")),
    wire.ACK: ("AETH",),
    wire.ENDPOINT_REQUEST: ("ERTH",),
    wire.ENDPOINT_RESPONSE: ("EETH",),
    wire.SACK: ("SETH", "CC_STATE"),
    wire.NACK: ("NETH",),
    wire.PROBE: ("PETH",),
}
"""The headers after the BTH, by opcode."""
SYNDROMES = {
    wire.SYNDROME_OK: "fine",
    wire.SYNDROME_INVALID: "invalid request: MSN, RQMSN or opcode out of place, or an immediate without a receive request",
    wire.SYNDROME_ACCESS: "access: rkey or bounds",
    wire.SYNDROME_OPERATION: "operation",
}
REASONS = {
    wire.TRIMMED: ("TRIMMED", True),
    wire.TRIMMED_LASTHOP: ("TRIMMED_LASTHOP", True),
    wire.NO_BITMAP: ("NO_BITMAP", False),
    wire.NO_PKT_BUFFER: ("NO_PKT_BUFFER", False),
    wire.NO_RESOURCE: ("NO_RESOURCE", False),
    wire.PSN_OOR_WINDOW: ("PSN_OOR_WINDOW", True),
    wire.UNEXP_EVENT: ("UNEXP_EVENT", True),
}
"""A NACK's reason: its name, and whether it is ever sent."""
CLASSES = {
    dscp.CONTROL: "SACK, NACK, ACK, endpoint operations; the high class of every port, never trimmed",
    dscp.TRIMMABLE: "data and Reliability Probes that a switch may trim",
    dscp.NO_TRIM: "data and Reliability Probes on a fabric that does not trim",
    dscp.TRIMMABLE_RETX: "retransmitted data that a switch may trim",
    dscp.TRIMMED: "what a switch trimmed",
    dscp.TRIMMED_LASTHOP: "what was trimmed on its last hop, T0 to host",
    dscp.RETX_HIGH: 'retransmitted data with `retransmit_class = "high"`',
}


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def size(header: str) -> int:
    """Bytes of a header."""
    return sum(field.width for field in HEADERS[header]) // 8


def _place(bit: int, width: int) -> str:
    """Bytes, and bits from the most significant of the first one where a field is no whole bytes."""
    first, last = bit // 8, (bit + width - 1) // 8
    octets = f"{first}-{last}" if last > first else f"{first}"
    if bit % 8 == 0 and width % 8 == 0:
        return octets
    return f"{octets}, bit {bit % 8}" + (f"-{bit % 8 + width - 1}" if width > 1 else "")


def layouts() -> str:
    parts = []
    for name, fields in HEADERS.items():
        rows, bit = [], 0
        for field in fields:
            rows.append((_place(bit, field.width), field.text + (", signed" if field.signed else "")))
            bit += field.width
        parts.append(f"**{name}** ({size(name)} bytes)\n" + _table(("bytes", "field"), rows))
    return "\n\n".join(parts)


def opcodes() -> str:
    return _table(
        ("opcode", "packet", "after the BTH"),
        ((f"{code:02X}", name, ", ".join(AFTER_BTH[code]) + (", payload" if code <= wire.WRITE_ONLY_IMM else ""))
         for code, name in sorted(wire.OPCODE_NAMES.items())),
    )  # fmt: skip


def values() -> str:
    """Syndromes and reasons."""
    syndromes = _table(("syndrome of an ACK", "is"), ((f"{value:02X}", text) for value, text in SYNDROMES.items()))
    sent = {True: "yes", False: "no, accepted"}
    reasons = _table(("reason of a NACK", "name", "sent"), ((f"{value:02X}", name, sent[ours]) for value, (name, ours) in REASONS.items()))
    return f"{syndromes}\n\n{reasons}"


def classes() -> str:
    return _table(("DSCP", "name", "who"), ((str(value), dscp.NAMES[value], text) for value, text in CLASSES.items()))


def diagram(states: tuple[str, ...], events: tuple[str, ...], transitions: Mapping[tuple[int, int], int], first: int = 0) -> str:
    """A table of transitions as a Mermaid diagram. Events that lead from one state to the same other share an arrow; those that change
    nothing are left out."""
    arrows: dict[tuple[int, int], list[str]] = {}
    for (state, event), after in transitions.items():
        if state != after:
            arrows.setdefault((state, after), []).append(events[event])
    lines = [f"    [*] --> {states[first]}", *(f"    {states[a]} --> {states[b]}: {', '.join(names)}" for (a, b), names in arrows.items())]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def transitions(states: tuple[str, ...], events: tuple[str, ...], table: Mapping[tuple[int, int], int]) -> str:
    """The state after each event; a dash where the event cannot happen."""
    rows = (
        [f"**{state}**", *(states[table[number, event]] if (number, event) in table else "-" for event in range(len(events)))]
        for number, state in enumerate(states)
    )
    return _table(["", *events], rows)


def _states(module: object) -> str:
    states, events, table = (getattr(module, name) for name in ("STATE_NAMES", "EVENT_NAMES", "TRANSITIONS"))
    return f"{diagram(states, events, table)}\n\n{transitions(states, events, table)}"


PARTS: dict[str, Callable[[], str]] = {
    "opcodes": opcodes,
    "layouts": layouts,
    "values": values,
    "DSCP classes": classes,
    "EV states": lambda: _states(ev_state),
    "plane states": lambda: _states(plane_state),
}


def written(page: str, name: str) -> str:
    """The page with one of its parts as the code has it now. Raises ValueError if it has no place for it."""
    begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"{PAGE.name} has no place for {name}")
    return before + begin + PARTS[name]() + end + after


if __name__ == "__main__":
    text = PAGE.read_text()
    for each in PARTS:
        text = written(text, each)
    PAGE.write_text(text)
