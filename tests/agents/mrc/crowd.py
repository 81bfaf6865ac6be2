"""Many hosts that send at once over the virtual network: incasts and permutations. Uses only the
public contract."""

from __future__ import annotations

from typing import Any

from agents.mrc.endpoint import Endpoint
from agents.transport import OK, WRITE
from tests.agents.virtual import VirtualNetwork, connect
from tests.fabrics import near
from topologies.clos import Fabric
from topologies.units import BYTE

RACK16 = near(Fabric("rack16", 4, 2, 8, 8))
"""As in the fabric file."""


class Flow:
    """One QP that always has something to send, or one message; every message's bytes are checked
    when it completes."""

    def __init__(
        self, engines: list[Endpoint], src: int, dst: int, now: int, size: int, endless: bool
    ) -> None:
        self.src, self.dst = src, dst
        self.sender, self.receiver = engines[src], engines[dst]
        self.qpn, self.remote_qpn = connect(self.sender, self.receiver, src, dst, now)
        self.size = size
        self.endless = endless
        self.slots = 3 if endless else 1
        self.arena = bytearray(size * self.slots)
        self.region = self.receiver.register(memoryview(self.arena))
        self.posted = 0
        self.done = 0
        self.wrong = 0

    def pattern(self, k: int) -> bytes:
        unit = bytes((self.src * 31 + k * 7 + i) & 0xFF for i in range(251))
        return (unit * (self.size // 251 + 1))[: self.size]

    def start(self) -> None:
        for _ in range(self.slots):
            self.post()

    def post(self) -> None:
        k = self.posted
        self.posted += 1
        va = self.region.va + k % self.slots * self.size
        self.sender.post_write(self.qpn, k, memoryview(self.pattern(k)), va, self.region.rkey, -1)

    def completed(self, status: int) -> None:
        at = self.done % self.slots * self.size
        if status != OK or self.arena[at : at + self.size] != self.pattern(self.done):
            self.wrong += 1
        self.done += 1
        if self.endless and status == OK:
            self.post()

    @property
    def placed(self) -> int:
        return self.receiver.placed()[self.remote_qpn]


class Crowd:
    """A fabric, an engine per host, and flows ``(src, dst)`` that start together."""

    def __init__(
        self,
        fabric: Fabric,
        pairs: list[tuple[int, int]],
        *,
        options: dict[str, Any] | None = None,
        seed: int = 1,
        size: int = 100_000,
        endless: bool = True,
    ) -> None:
        self.fabric = fabric
        self.engines = [Endpoint(fabric, h, options or {}, seed) for h in range(fabric.host_count)]
        self.net = VirtualNetwork(fabric, list(self.engines), seed=seed)
        self.flows = [Flow(self.engines, a, b, self.net.now, size, endless) for a, b in pairs]
        self.by_qp = {(f.src, f.qpn): f for f in self.flows}
        self.senders = sorted({a for a, _ in pairs})
        for flow in self.flows:
            flow.start()

    def look(self) -> None:
        for host in self.senders:
            for c in self.engines[host].completions():
                if c.kind == WRITE:
                    self.by_qp[host, c.qpn].completed(c.status)

    def run(self, rtts: float, until_done: bool = False) -> bool:
        def done() -> bool:
            self.look()
            return until_done and all(f.done for f in self.flows)

        return self.net.run(self.net.now + int(rtts * self.fabric.base_rtt_ps), done)

    def rates(self, rtts: float) -> list[float]:
        """Payload each flow places from now on for so long, as a share of a host's payload line
        rate."""
        before = [f.placed for f in self.flows]
        began = self.net.now
        self.run(rtts)
        line = self.fabric.host_rate * self.fabric.payload_share * (self.net.now - began) / BYTE
        return [(f.placed - b) / line for f, b in zip(self.flows, before, strict=True)]

    def total(self, counter: str) -> int:
        return sum(e.counters()[counter] for e in self.engines)

    def last_hop(self, host: int) -> list[Any]:
        """The egress ports towards a host, plane by plane."""
        f = self.fabric
        return [
            self.net.ports[f"p{p}-t0-{f.t0_of(host)}-d{f.downlink_of(host)}"]
            for p in range(f.planes)
        ]

    @property
    def wrong(self) -> int:
        return sum(f.wrong for f in self.flows)


def jain(rates: list[float]) -> float:
    """Jain's fairness index."""
    return sum(rates) ** 2 / (len(rates) * sum(r * r for r in rates))
