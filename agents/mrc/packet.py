"""Records of a packet's contents, between the modules that read or write the wire and those that
act on it."""

from __future__ import annotations

from mypy_extensions import i64


class WritePacket:
    """Endpoints reuse one for all packets: every field is set anew."""

    def __init__(self) -> None:
        self.op: i64 = 0
        self.psn: i64 = 0  # absolute
        self.rtx = False
        self.asks = False  # for an answer at once (ACKREQ)
        self.marked = False
        self.ev: i64 = 0
        self.ts: i64 = 0
        self.rqmsn: i64 = 0
        self.msn: i64 = 0
        # of one that has arrived: its 64 bits as a signed number; no region lies where that is
        # negative
        self.va = 0
        self.rkey: i64 = 0
        self.dmalen: i64 = 0
        self.imm: i64 = -1  # none


class Echo:
    """``offset``: the packet's PSN above the cumulative edge, or a probe's id."""

    def __init__(self, offset: int, probe: bool, ev: int, ts: int, m: int, rtx: bool) -> None:
        self.offset = offset
        self.probe = probe
        self.ev = ev
        self.ts = ts
        self.m = m
        self.rtx = rtx
