"""Builds the frames an endpoint sends, in one preallocated buffer. Sans-IO; used by the endpoint only.

The 102 bytes before the BTH and the CRC state after them depend only on (peer, EV, class, length): they are made once and kept.
"""

from __future__ import annotations

from typing import Final

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.packet import WritePacket
from agents.packets import dscp, headers
from agents.packets.headers import crc32
from topologies.addressing import inner_address, path_address
from topologies.clos import Fabric

MOST_HEADS: Final = 4096
"""Heads kept per peer: there is one per path, class and length, and messages may end in packets of any length [ours]."""


class Route:
    """Ready-made heads towards one peer."""

    def __init__(self, fabric: Fabric, host: int, peer: int) -> None:
        self.fabric = fabric
        self.host = host
        self.peer = peer
        self.heads: dict[int, bytes] = {}
        self.sums: dict[int, int] = {}

    def make(self, key: int, ev: int, klass: int, after_udp: int) -> bytes:
        """The head for an EV value, DSCP class and length from BTH to iCRC; kept under ``key``."""
        me, you = inner_address(self.host), inner_address(self.peer)
        ecn = dscp.NOT_ECT if klass == dscp.CONTROL else dscp.ECT0
        outer = path_address(self.fabric, self.host, self.peer, ev)
        if len(self.heads) >= MOST_HEADS:
            self.heads.clear()
            self.sums.clear()
        head = headers.head((me, outer), (me, you), ev, klass, ecn, after_udp)
        self.heads[key] = head
        self.sums[key] = headers.icrc_of_head(head)
        return head


class Framer:
    """Writes frames into ``frame``; ``length`` bytes of it are headers (all of it, for a packet without payload)."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.frame = bytearray(256)
        self.view = memoryview(self.frame)
        self.length = 0
        self.trailer = b""
        self.shift = config.ts_shift

    def _head(self, route: Route, ev: int, klass: int, after_udp: int) -> int:
        key = ev << 20 | klass << 14 | after_udp
        head = route.heads.get(key)
        if head is None:
            head = route.make(key, ev, klass, after_udp)
        self.frame[: headers.HEAD] = head
        return route.sums[key]

    def stamp(self, now: int) -> int:
        """The 16-bit timestamp of a time."""
        return now >> self.shift & 0xFFFF

    def write(self, now: int, route: Route, qpn: int, p: WritePacket, payload: memoryview) -> None:
        """A WRITE packet; the payload itself is not touched, the trailer is padding and iCRC."""
        n = len(payload)
        pad = -n & 3
        at = wire.WRITE_HEADERS
        ext = 40 if p.imm >= 0 else 36
        klass = dscp.NO_TRIM if not self.config.trimming else dscp.TRIMMABLE_RETX if p.rtx else dscp.TRIMMABLE
        crc = self._head(route, p.ev, klass, ext + n + pad + headers.ICRC)
        word = wire.F_TS | p.psn & headers.PSN_MASK
        if p.rtx:
            word |= wire.F_RTX
        if p.asks:
            word |= wire.F_ACKREQ
        wire.S_WRITE.pack_into(
            self.frame, headers.BTH_AT, p.op, pad << 4, wire.PKEY, 0xFF000000 | qpn, word, p.rqmsn & 0xFFFF, p.msn & 0xFFFF,
            self.stamp(now), wire.FTYPE, p.va, p.rkey, p.dmalen,
        )  # fmt: skip
        if p.imm >= 0:
            wire.S_IMM.pack_into(self.frame, at, p.imm)
            at += 4
        self.length = at
        crc = crc32(self.view[headers.BTH_AT : at], crc)
        if n:
            crc = crc32(payload, crc)
        if pad:
            crc = crc32(bytes(pad), crc)
        self.frame[headers.BTH_AT + 4] = 0
        self.trailer = bytes(pad) + headers.S_ICRC.pack(crc)

    def bare(self, route: Route, ev: int, klass: int, op: int, qpn: int, psn_word: int, ext: bytes) -> None:
        """A packet without payload; its iCRC is inside the frame."""
        after = 12 + len(ext) + headers.ICRC
        crc = self._head(route, ev, klass, after)
        wire.S_BTH.pack_into(self.frame, headers.BTH_AT, op, 0, wire.PKEY, 0xFF000000 | qpn, psn_word)
        end = wire.AFTER_BTH + len(ext)
        self.frame[wire.AFTER_BTH : end] = ext
        crc = crc32(self.view[headers.BTH_AT : end], crc)
        self.frame[headers.BTH_AT + 4] = 0
        headers.S_ICRC.pack_into(self.frame, end, crc)
        self.length = end + headers.ICRC
        self.trailer = b""
