"""Target ``mrc``: frames, honest, mutated and random, into two connected MRC endpoints that
transfer data meanwhile."""

from __future__ import annotations

from agents.mrc import wire
from agents.mrc.endpoint import Endpoint
from agents.mrc.queue_pair import ERROR
from agents.packets import dscp, headers
from tests.fabrics import near
from tests.fuzz.pair import FIRST_PORT, Pair
from topologies.clos import Fabric
from topologies.units import US

TINY = near(Fabric("tiny", 2, 2, 2, 2))
HOSTS = (0, 3)
KINDS = (
    "data_rx",
    "sacks_rx",
    "acks_rx",
    "nacks_rx",
    "probes_rx",
    "trimmed_rx",
    "endpoint_operations_rx",
)
OWED = 64
"""Most answers of a kind that an endpoint keeps waiting (agents/mrc/arrivals.py, neighbours.py)."""


class MrcPair(Pair):
    """One execution: a story of frames, times and posts (pair.py)."""

    def __init__(self) -> None:
        super().__init__(TINY, HOSTS, lambda fabric, host: Endpoint(fabric, host, {"mpr": 128}, 1))

    def seal(self, frame: bytearray) -> bytearray:
        inner = len(frame) - headers.INNER
        if len(frame) >= wire.AFTER_BTH + headers.ICRC:
            frame[18:20] = inner.to_bytes(2, "big")
            frame[58:60] = frame[98:100] = (inner - 40).to_bytes(2, "big")
            headers.S_ICRC.pack_into(
                frame, len(frame) - headers.ICRC, headers.icrc_of(frame, 0, len(frame))
            )
        return frame

    def cut(self, frame: bytearray) -> bytearray:
        made = frame[: wire.TRIM_BYTES]
        if len(made) > headers.INNER:
            made[18:20] = (len(made) - headers.INNER).to_bytes(2, "big")
            made[14] = 0x60 | dscp.TRIMMED >> 2
            made[15] = made[15] & 0x3F | (dscp.TRIMMED & 3) << 6
        return made

    def warm_up(self) -> None:
        """Some of every kind of frame: transfers both ways, a port that goes and comes, a trimmed
        packet, idle time."""
        for side in (0, 1):
            for n, imm in ((9000, 7), (100, 8), (0, 9), (5000, -1)):
                self.post(side, n, imm)
        for k in range(40):
            self.carry(8)
            self.wait(2 * US)
            if k == 10:
                self.engines[0].port_state(self.now, FIRST_PORT, False)
            if k == 20:
                self.engines[0].port_state(self.now, FIRST_PORT, True)
        frame = self.cut(
            bytearray(next(f for f in self.recent if f[headers.BTH_AT] == wire.WRITE_FIRST))
        )
        self.give(1, FIRST_PORT, frame)
        self.carry(8)

    def kind_of(self, frame: bytes) -> int:
        return frame[headers.BTH_AT]

    def broken(self) -> bool:
        return any(qp.state == ERROR for engine in self.engines for qp in engine.order)

    def check(self, side: int) -> None:
        engine = self.engines[side]
        c = engine.counters()
        parts = sum(
            v for k, v in c.items() if k in KINDS or (k.startswith("rx_") and k != "rx_packets")
        )
        # A trimmed packet that finds too many NACKs waiting is counted as both.
        assert parts - c["rx_too_many"] <= c["rx_packets"] <= parts, (
            f"{c['rx_packets']} frames came, {parts} have a name: {c}"
        )
        assert c["rx_packets"] == self.given[side], "a frame was not counted"
        for qp in engine.order:
            r, d = qp.requester, qp.responder
            assert r.sent.una <= r.sent.next <= r.queue.end and r.sent.in_flight >= 0, (
                "sequence space"
            )
            assert (
                r.sent.next - r.sent.una <= r.sent.size and len(r.sent.lost_queue) <= r.sent.size
            ), "more in flight than the window"
            assert r.rtt.srtt >= r.rtt.path_rtt // 2, "timers can be set to no time"
            assert d.received.bit_length() <= d.size and d.high - d.expected < d.size, (
                "receive window"
            )
            owed = (
                len(qp.answers),
                len(qp.nacks),
                len(d.bases),
                len(qp.answer_bases),
                len(qp.probes) // 5,
                len(qp.route.heads) // 64,
            )
            assert max(owed) <= OWED, f"state grows: {owed}"
            assert len(r.doubts.open) <= r.sent.size and len(r.sent.by_time) <= 4 * r.sent.size, (
                "state grows"
            )
        for peer in engine.neighbours.peers.values():
            assert peer.queued <= OWED and len(peer.probes) <= OWED
        assert (
            len(engine.qps) == 1 and len(engine.routes) == 1 and len(engine.neighbours.peers) == 1
        )
