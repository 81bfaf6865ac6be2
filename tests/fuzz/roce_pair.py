"""Target ``roce``: the same as ``mrc`` with two RoCE endpoints."""

from __future__ import annotations

from agents.mrc import wire as mrc_wire
from agents.packets import headers
from agents.roce import wire
from agents.roce.counters import RX_PARTS
from agents.roce.endpoint import Endpoint
from agents.roce.queue_pair import ERROR
from tests.fabrics import near
from tests.fuzz.pair import FIRST_PORT, Pair
from topologies.clos import Fabric
from topologies.units import US

TINY = near(Fabric("tiny", 2, 2, 2, 2))
HOSTS = (0, 2)


class RocePair(Pair):
    """One execution: a story of frames, times and posts (pair.py)."""

    def __init__(self) -> None:
        super().__init__(TINY, HOSTS, lambda fabric, host: Endpoint(fabric, host, {}, 1))

    def seal(self, frame: bytearray) -> bytearray:
        if len(frame) >= wire.MIN_FRAME:
            inner = len(frame) - wire.INNER_AT
            frame[18:20] = inner.to_bytes(2, "big")
            frame[58:60] = frame[98:100] = (inner - 40).to_bytes(2, "big")
            wire.ICRC.pack_into(
                frame, len(frame) - wire.ICRC_BYTES, headers.icrc_of(frame, 0, len(frame))
            )
        return frame

    def cut(self, frame: bytearray) -> bytearray:
        return frame[: mrc_wire.TRIM_BYTES]  # which no switch does to RoCE: it must be refused

    def warm_up(self) -> None:
        """Some of every kind of frame: transfers both ways, a gap, a mark."""
        for side in (0, 1):
            for n, imm in ((9000, 7), (100, 8), (0, 9), (5000, -1)):
                self.post(side, n, imm)
        for k in range(40):
            made = self.send(0)
            if made is not None and k != 1:
                port, frame = made
                self.give(
                    1,
                    port,
                    frame[: wire.ECN_AT]
                    + bytes([frame[wire.ECN_AT] | 0x30])
                    + frame[wire.ECN_AT + 1 :],
                )
            self.carry(4)
            self.wait(2 * US)
        self.wait(FIRST_PORT)

    def kind_of(self, frame: bytes) -> int:
        return frame[wire.BTH_AT]

    def broken(self) -> bool:
        return any(qp.state == ERROR for engine in self.engines for qp in engine._qps.values())

    def check(self, side: int) -> None:
        c = self.engines[side].counters()
        assert c["rx_packets"] == sum(c[part] for part in RX_PARTS), (
            f"not every frame has one name: {c}"
        )
        assert c["rx_packets"] + c["rx_other"] == self.given[side], "a frame was not counted"
        assert len(self.engines[side]._qps) == 1
        for qp in self.engines[side]._qps.values():
            assert qp.tx.una <= qp.tx.nxt and qp.tx.inflight >= 0, "sequence space"
