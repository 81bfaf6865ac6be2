"""Builds the frames an endpoint sends. Sans-IO.

The 102 bytes before the BTH and the CRC state after them depend only on (peer, EV, class, length):
they are kept.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.packet import WritePacket
from agents.packets import dscp, headers
from agents.packets.headers import crc32, put16, put32
from topologies.addressing import inner_address, path_address
from topologies.clos import Fabric

MOST_HEADS: Final = 4096
"""Most heads kept per peer: messages may end in packets of any length [ours]."""


_MASKED: Final = headers.HEAD + 4  # the byte of a BTH that the iCRC takes as ones


class Head:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.crc: i64 = headers.icrc_of_head(data)


class Route:
    def __init__(self, fabric: Fabric, host: int, peer: int) -> None:
        self.fabric = fabric
        self.host = host
        self.peer = peer
        self.heads: dict[int, Head] = {}
        self.dead_links: frozenset[str] = frozenset()

    def reroute(self, dead_links: frozenset[str]) -> None:
        self.dead_links = dead_links
        self.heads.clear()

    def head(self, ev: i64, klass: i64, after_udp: i64) -> Head:
        key: int = ev << 20 | klass << 14 | after_udp
        made = self.heads.get(key)
        if made is None:
            made = self._make(ev, klass, after_udp)
            if len(self.heads) >= MOST_HEADS:
                self.heads.clear()
            self.heads[key] = made
        return made

    def _make(self, ev: int, klass: int, after_udp: int) -> Head:
        me, you = inner_address(self.host), inner_address(self.peer)
        ecn = dscp.NOT_ECT if klass == dscp.CONTROL else dscp.ECT0
        outer = path_address(self.fabric, self.host, self.peer, ev, self.dead_links)
        return Head(
            headers.head((me, outer), (me, you), ev, klass, ecn, after_udp, self.fabric.udp_port)
        )


class Framer:
    """Leaves a frame in ``frame`` (headers; all of it, for a packet without payload) and
    ``trailer``."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.frame = b""
        self.trailer = b""
        self.data_class: i64 = dscp.TRIMMABLE if config.trimming else dscp.NO_TRIM
        self.again_class: i64 = (
            dscp.RETX_HIGH
            if config.urgent
            else dscp.TRIMMABLE_RETX
            if config.trimming
            else dscp.NO_TRIM
        )
        self.shift: i64 = config.ts_shift
        self.sums = True  # the iCRC is computed
        self._out = BytesWriter()

    def stamp(self, now: i64) -> i64:
        return now >> self.shift & 0xFFFF

    def _bth(self, head: Head, op: i64, flags: i64, qpn: i64, word: i64) -> BytesWriter:
        """Begin a frame up to its BTH, with that as the iCRC takes it: with ones in byte 4."""
        out = self._out
        out.truncate(0)
        out.write(head.data)
        out.append(u8(op))
        out.append(u8(flags))
        put16(out, wire.PKEY)
        put32(out, (0xFF000000 if self.sums else 0) | qpn)
        put32(out, word)
        return out

    def _sum(self, head: Head) -> int:
        """Return the iCRC so far, and put what the wire has in place of the ones."""
        crc: int = crc32(self._out.getvalue()[headers.HEAD :], head.crc)
        self._out[_MASKED] = u8(0)
        return crc

    def write(self, now: i64, route: Route, qpn: int, p: WritePacket, payload: memoryview) -> None:
        n: i64 = len(payload)
        pad = -n & 3
        ext: i64 = 40 if p.imm >= 0 else 36
        klass: i64 = self.again_class if p.rtx else self.data_class
        head = route.head(p.ev, klass, ext + n + pad + headers.ICRC)
        word = wire.F_TS | p.psn & headers.PSN_MASK
        if p.rtx:
            word |= wire.F_RTX
        if p.asks:
            word |= wire.F_ACKREQ
        out = self._bth(head, p.op, pad << 4, qpn, word)
        put16(out, p.rqmsn & 0xFFFF)
        put16(out, p.msn & 0xFFFF)
        put16(out, self.stamp(now))
        put16(out, wire.FTYPE)
        put32(out, p.va >> 32)
        put32(out, p.va & 0xFFFF_FFFF)
        put32(out, p.rkey)
        put32(out, p.dmalen)
        if p.imm >= 0:
            put32(out, p.imm)
        crc = 0
        if self.sums:
            crc = self._sum(head)
            if n:
                crc = crc32(payload, crc)
            if pad:
                crc = crc32(bytes(pad), crc)
        self.frame = out.getvalue()
        self.trailer = headers.trailer(pad, crc) if self.sums or pad else headers.GAP

    def bare(
        self, route: Route, ev: int, klass: int, op: int, qpn: int, psn_word: int, ext: bytes
    ) -> None:
        head = route.head(ev, klass, 12 + len(ext) + headers.ICRC)
        out = self._bth(head, op, 0, qpn, psn_word)
        out.write(ext)
        out.write(headers.trailer(0, self._sum(head)) if self.sums else headers.GAP)
        self.frame = out.getvalue()
        self.trailer = b""
