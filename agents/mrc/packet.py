"""Records of a packet's contents, between the modules that read or write the wire and those that act on it. No behaviour."""

from __future__ import annotations


class WritePacket:
    """One WRITE packet. Endpoints reuse one for all packets: the code that fills it in sets every field."""

    def __init__(self) -> None:
        self.op = 0
        self.psn = 0  # absolute
        self.rtx = False
        self.asks = False  # for an answer at once (ACKREQ)
        self.marked = False
        self.ev = 0
        self.ts = 0
        self.rqmsn = 0
        self.msn = 0
        self.va = 0
        self.rkey = 0
        self.dmalen = 0
        self.imm = -1  # none


class Echo:
    """What a SACK says of the packet that asked for it. ``offset`` is its PSN above the cumulative edge, or a probe's id."""

    def __init__(self, offset: int, probe: bool, ev: int, ts: int, m: int, rtx: bool) -> None:
        self.offset = offset
        self.probe = probe
        self.ev = ev
        self.ts = ts
        self.m = m
        self.rtx = rtx
