"""Makes the golden capture of the Wireshark dissector: at least one frame of every MRC packet type.

    python -m tests.testbed.wireshark.golden tests/testbed/wireshark/golden.pcap

Two real engines talk over a network in virtual time that loses, marks, trims and follows chosen
frames; one tells the other of a port that goes down. RoCE frames of the baseline stand at the end,
a CNP among them, as those must keep decoding. Called by people and by the dissector's tests; it
opens no socket and is deterministic for a given engine.
"""

from __future__ import annotations

import heapq
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.endpoint import Endpoint
from agents.mrc.framing import Framer, Route
from agents.mrc.packet import WritePacket
from agents.packets import dscp, headers
from agents.roce.endpoint import Endpoint as RoceEndpoint
from agents.transport import NEVER, Engine
from topologies.addressing import ev, host_of_inner, shift
from topologies.clos import Fabric

FABRIC = Fabric(
    "golden", planes=2, t0_per_plane=2, t1_per_plane=8, hosts_per_t0=4, mtu=256, delay_ps=70_880
)
"""Small packets keep the capture small; eight uplinks because UDP source port 7 would be Echo to
Wireshark."""
SENDER, RECEIVER, NEIGHBOUR = 0, 7, 1
HOP = 150_000
"""One cable, ns."""
SNAPPED = 150
"""Bytes kept of the frame that stands for a capture with a snap length."""
DST = slice(38, 54)
"""The outer destination in a frame."""


class Record(NamedTuple):
    """One line of the capture: when (ns), what was kept, how long the frame was, and why it is
    here."""

    at: int
    frame: bytes
    length: int
    note: str


class World:
    """Engines joined by constant delays. ``fate(frame) -> frame or None`` may change or lose what
    leaves a host."""

    def __init__(self, engines: dict[int, Engine]) -> None:
        self.engines = engines
        self.now = 1_000_000_000
        self.fate: Callable[[bytes], bytes | None] = lambda frame: frame
        self.follow: Callable[[bytes], bool] = lambda frame: False
        self.records: list[Record] = []
        self._due: list[tuple[int, int, int, int, bytes]] = []
        self._serial = 0

    def record(self, frame: bytes, note: str, at: int = -1) -> None:
        self.records.append(Record(self.now if at < 0 else at, frame, len(frame), note))

    def _leave(self, port: int, frame: bytes) -> None:
        carried = self.fate(frame)
        self.record(carried or frame, "host cable" if carried else "host cable, then lost")
        if carried is None:
            return
        # one per uSID
        cables = sum(carried[at : at + 2] != b"\0\0" for at in range(DST.start + 4, DST.stop, 2))
        if self.follow(carried):
            moved = carried
            for k in range(1, cables):
                moved = on_next_cable(moved)
                self.record(moved, f"the same frame, cable {k + 1}", self.now + k * HOP)
        self._serial += 1
        host = host_of_inner(carried[78:94])
        heapq.heappush(self._due, (self.now + cables * HOP, self._serial, host, port, carried))

    def run(self, until: int) -> None:
        """To quiet, or for ``until`` ns from now."""
        end = self.now + until
        while True:
            soonest = NEVER
            for engine in self.engines.values():
                engine.timer(self.now)
                while (port := engine.transmit(self.now)) >= 0:
                    self._leave(
                        port, engine.tx_frame + bytes(engine.tx_payload or b"") + engine.tx_trailer
                    )
                    engine.sent(self.now, port, True)
                soonest = min(soonest, engine.deadline())
            if self._due:
                soonest = min(soonest, self._due[0][0])
            if soonest >= min(NEVER, end):
                self.now = end
                return
            self.now = max(self.now + 1, soonest)
            while self._due and self._due[0][0] <= self.now:
                _, _, host, port, frame = heapq.heappop(self._due)
                self.engines[host].receive(self.now, port, bytearray(frame), 0, len(frame))


def on_next_cable(frame: bytes) -> bytes:
    """The frame after one more switch."""
    return frame[: DST.start] + shift(frame[DST]) + frame[DST.stop :]


def _connect(world: World, a: int, b: int) -> tuple[int, int]:
    near, far = world.engines[a].create_qp(b), world.engines[b].create_qp(a)
    world.engines[a].connect_qp(world.now, near["qpn"], far)
    world.engines[b].connect_qp(world.now, far["qpn"], near)
    return near["qpn"], far["qpn"]


def _is_write(frame: bytes) -> bool:
    return wire.WRITE_FIRST <= frame[headers.BTH_AT] <= wire.WRITE_ONLY_IMM


def _with_class(frame: bytes, klass: int, ecn: int) -> bytes:
    word, *fields = headers.S_OUTER.unpack_from(frame, headers.OUTER)
    word = word & ~(0xFF << 20) | klass << 22 | ecn << 20
    return frame[: headers.OUTER] + headers.S_OUTER.pack(word, *fields) + frame[headers.INNER :]


def trimmed(frame: bytes, klass: int) -> bytes:
    """What a switch makes of a WRITE that it trims: headers kept, payload and iCRC cut, only outer
    length and DSCP changed."""
    keep = min(len(frame), wire.TRIM_BYTES)
    shortened = bytearray(_with_class(frame, klass, dscp.ECT0)[:keep])
    struct.pack_into("!H", shortened, headers.OUTER + 4, keep - headers.INNER)
    return bytes(shortened)


def _mrc(world: World) -> None:
    """Every packet that two engines exchange by themselves."""
    source = memoryview(bytes(range(256)) * 40)
    target = world.engines[RECEIVER].register(bytearray(16384))
    qpn, far = _connect(world, SENDER, RECEIVER)
    for k in range(8):
        world.engines[RECEIVER].post_recv(far, k)
    orders: dict[int, int] = {}

    def fate(frame: bytes) -> bytes | None:
        """The fifth PSN's first transmission is lost, the tenth's marked, the seventh's trimmed on
        its way, the twelfth's last hop."""
        if not _is_write(frame):
            return frame
        psn = int.from_bytes(frame[headers.BTH_AT + 9 : headers.BTH_AT + 12], "big")
        first = psn not in orders
        order = orders.setdefault(psn, len(orders))
        if first and order == 4:
            return None
        if first and order in (6, 11):
            return trimmed(frame, dscp.TRIMMED if order == 6 else dscp.TRIMMED_LASTHOP)
        return (
            _with_class(frame, frame[14] << 2 & 0x3C | frame[15] >> 6, dscp.CE)
            if first and order == 9
            else frame
        )

    followed: set[int] = set()

    def follow(frame: bytes) -> bool:
        """The first WRITE and the first SACK are captured on every cable of their paths."""
        op = frame[headers.BTH_AT]
        if op not in (wire.WRITE_FIRST, wire.SACK) or op in followed:
            return False
        followed.add(op)
        return True

    world.fate, world.follow = fate, follow
    sender = world.engines[SENDER]
    sender.post_write(qpn, 1, source[: 18 * 256 + 101], target.va, target.rkey, -1)
    sender.post_write(qpn, 2, source[:300], target.va + 8192, target.rkey, 0xC0FFEE)
    sender.post_write(qpn, 3, source[:64], target.va, target.rkey, -1)
    sender.post_write(qpn, 4, source[:0], target.va, target.rkey, -1)
    sender.post_write(qpn, 5, source[:30], target.va, target.rkey, 5)
    sender.post_write(qpn, 6, source[:0], target.va, target.rkey, 6)
    world.run(11_000_000)

    # A port goes down and comes back: the peer is told, and answers.
    for up in (False, True):
        sender.port_state(world.now, 1, up)
        world.run(12_000_000)

    # Under one T0: a path of two uSIDs.
    near = world.engines[NEIGHBOUR].register(bytearray(512))
    qpn, _ = _connect(world, SENDER, NEIGHBOUR)
    sender.post_write(qpn, 7, source[:200], near.va, near.rkey, -1)
    world.run(10_000_000)

    # A wrong key ends the queue pair; that answer is lost, and the next packet hears that nobody is
    # there any more.
    qpn, _ = _connect(world, SENDER, RECEIVER)
    refusals = 0

    def lose_refusal(frame: bytes) -> bytes | None:
        nonlocal refusals
        if frame[headers.BTH_AT] == wire.ACK and frame[wire.AFTER_BTH] == wire.SYNDROME_ACCESS:
            refusals += 1
            return None
        return frame

    world.fate = lose_refusal
    sender.post_write(qpn, 8, source[:64], target.va, target.rkey ^ 1, -1)
    world.run(12_000_000)


def _crafted(world: World) -> None:
    """What goes wrong on the way."""
    framer = Framer(Config.from_fabric(FABRIC, {}))
    route = Route(FABRIC, SENDER, RECEIVER)
    payload = bytes(range(256))
    op = wire.WRITE_ONLY_IMM
    p = WritePacket()
    p.op, p.asks, p.ev, p.imm = op, True, ev(0, 6), 77
    p.psn, p.rqmsn, p.msn, p.va, p.rkey, p.dmalen = 0, 3, 9, 0x10_0000_0000, 0xABCD, 256
    framer.write(world.now, route, 16, p, memoryview(payload))
    frame = framer.frame + payload + framer.trailer
    world.now += HOP
    damaged = bytearray(frame)
    damaged[wire.WRITE_HEADERS + 40] ^= 0x10
    world.record(bytes(damaged), "damaged")
    world.now += HOP
    world.records.append(Record(world.now, frame[:SNAPPED], len(frame), "snapped"))


def records() -> list[Record]:
    """The golden capture, in the order of time."""
    world = World(
        {host: Endpoint(FABRIC, host, {}, seed=1) for host in (SENDER, NEIGHBOUR, RECEIVER)}
    )
    _mrc(world)
    _crafted(world)
    roce = World({host: RoceEndpoint(FABRIC, host, {}, seed=1) for host in (SENDER, RECEIVER)})
    roce.now = world.now + HOP
    target = roce.engines[RECEIVER].register(bytearray(1024))
    qpn, far = _connect(roce, SENDER, RECEIVER)
    roce.engines[RECEIVER].post_recv(far, 1)
    roce.fate = lambda frame: (
        _with_class(frame, frame[14] << 2 & 0x3C | frame[15] >> 6, dscp.CE)
        if len(frame) > 200
        else frame
    )
    roce.engines[SENDER].post_write(qpn, 1, memoryview(bytes(600)), target.va, target.rkey, 9)
    roce.run(20_000_000)
    packets = world.records + [r._replace(note="roce") for r in roce.records]
    return sorted(packets, key=lambda r: r.at)


def write_pcap(path: Path, packets: list[Record]) -> None:
    """Classic pcap, Ethernet, microseconds."""
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for r in packets:
            out.write(
                struct.pack(
                    "<IIII", r.at // 1_000_000_000, r.at // 1000 % 1_000_000, len(r.frame), r.length
                )
                + r.frame
            )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.testbed.wireshark.golden FILE.pcap")
    write_pcap(Path(sys.argv[1]), records())
