"""What the engine's tests share: fabrics, pairs of engines, writes with known bytes. Uses only the
public contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.mrc import wire
from agents.mrc.endpoint import Endpoint
from agents.packets import headers
from agents.transport import WRITE, Completion, Region
from tests.agents.virtual import VirtualNetwork, connect
from tests.fabrics import near
from topologies.clos import Fabric

TINY = near(Fabric("tiny", 2, 2, 2, 2))
DEMO = near(Fabric("demo", 4, 2, 4, 4))
WIDE = near(Fabric("wide", 8, 2, 16, 4))
SMALL = near(Fabric("small", 2, 2, 2, 2, mtu=256))
"""Tiny with short packets: many PSNs for little time on the wire."""

GUARD = 64
"""Bytes around the target of a write that nobody may touch."""


class Side:
    """One engine, its arena and what completed there."""

    def __init__(self, engine: Endpoint, qpn: int, size: int) -> None:
        self.engine = engine
        self.qpn = qpn
        self.memory = bytearray(b"\xa5" * (size + 2 * GUARD))
        self.region: Region = engine.register(memoryview(self.memory)[GUARD : GUARD + size])
        self.writes: list[Completion] = []
        self.receives: list[Completion] = []
        self.events: list[Any] = []

    def collect(self) -> None:
        for c in self.engine.completions():
            (self.writes if c.kind == WRITE else self.receives).append(c)
        self.events += self.engine.events()

    def guards_intact(self) -> bool:
        return self.memory[:GUARD] == b"\xa5" * GUARD and self.memory[-GUARD:] == b"\xa5" * GUARD

    def of(self, kind: str) -> list[tuple[int, dict[str, Any]]]:
        """(time, fields) of the events of one kind."""
        return [(t, f) for t, k, f in self.events if k == kind]


class Rig:
    """Two hosts of a fabric with one QP between them, over the virtual network."""

    def __init__(
        self,
        fabric: Fabric,
        a: int,
        b: int,
        size: int,
        options: dict[str, Any] | None = None,
        seed: int = 1,
    ) -> None:
        self.fabric = fabric
        engines = [Endpoint(fabric, h, options or {}, seed) for h in range(fabric.host_count)]
        self.net = VirtualNetwork(fabric, list(engines))
        qa, qb = connect(engines[a], engines[b], a, b, self.net.now)
        self.a = Side(engines[a], qa, size)
        self.b = Side(engines[b], qb, size)
        self.host_a, self.host_b = a, b

    def write(self, wr_id: int, data: bytes, offset: int = 0, imm: int = -1) -> None:
        """From a to b's arena at ``offset``."""
        r = self.b.region
        self.a.engine.post_write(self.a.qpn, wr_id, memoryview(data), r.va + offset, r.rkey, imm)

    def run(self, time: int, done: Callable[[], bool] | None = None) -> bool:
        """Until ``done``, or for so long; collects completions on the way."""

        def look() -> bool:
            self.a.collect()
            self.b.collect()
            return done is not None and done()

        return self.net.run(self.net.now + time, look)


def frame_of(engine: Endpoint) -> bytes:
    """The frame that ``transmit`` just built."""
    return engine.tx_frame + bytes(engine.tx_payload or b"") + engine.tx_trailer


def drain(engine: Endpoint, now: int) -> list[tuple[int, bytes]]:
    """All frames that may go now: (port, frame)."""
    made = []
    while (port := engine.transmit(now)) >= 0:
        made.append((port, frame_of(engine)))
    return made


def resealed(frame: bytes | bytearray) -> bytes:
    """The frame with lengths and iCRC made right, so that only what it says is wrong."""
    b = bytearray(frame)
    inner = len(b) - 54
    b[18:20] = inner.to_bytes(2, "big")
    b[58:60] = (inner - 40).to_bytes(2, "big")
    b[98:100] = (inner - 40).to_bytes(2, "big")
    b[-4:] = headers.S_ICRC.pack(headers.icrc_of(b, 0, len(b)))
    return bytes(b)


def op_of(frame: bytes) -> int:
    return frame[headers.BTH_AT]


def is_data(frame: bytes) -> bool:
    return wire.WRITE_FIRST <= op_of(frame) <= wire.WRITE_ONLY_IMM


def ev_of(frame: bytes) -> int:
    return int.from_bytes(frame[56:58], "big") << 16 | int.from_bytes(frame[94:96], "big")


def psn_of(frame: bytes) -> int:
    return int.from_bytes(frame[111:114], "big")
