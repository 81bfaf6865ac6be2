"""Several queue pairs on one port of a whole fabric in virtual time: what DCQCN makes of its marks.
A CNP interval is 50 us."""

from __future__ import annotations

from typing import Any

import pytest

from agents.roce.endpoint import Endpoint
from tests.agents.virtual import VirtualNetwork, connect
from tests.fabrics import near
from topologies import load_fabric
from topologies.clos import Fabric
from topologies.units import BYTE, US

RACK = near(load_fabric("rack16").with_(planes=1, t1_per_plane=1))
MESSAGE = bytes(k * 7 & 0xFF for k in range(1 << 17))


class Flows:
    """One queue pair per (source, destination), which always has two messages posted, and checks
    what has arrived at the end."""

    def __init__(
        self, fabric: Fabric, pairs: list[tuple[int, int]], seed: int = 1, **options: Any
    ) -> None:
        self.engines = [Endpoint(fabric, h, dict(options), seed) for h in range(fabric.host_count)]
        self.net = VirtualNetwork(fabric, list(self.engines), seed=seed)
        self.fabric = fabric
        self.qpns: list[tuple[int, int, int, int]] = []
        self.memory: list[bytearray] = []
        self.posts: dict[tuple[int, int], tuple[int, int]] = {}
        for source, destination in pairs:
            qa, qb = connect(
                self.engines[source], self.engines[destination], source, destination, self.net.now
            )
            self.qpns.append((source, qa, destination, qb))
            self.memory.append(bytearray(len(MESSAGE)))
            region = self.engines[destination].register(self.memory[-1])
            self.posts[source, qa] = (region.va, region.rkey)

    def begin(self, which: int) -> None:
        source, qa, _, _ = self.qpns[which]
        for _ in range(2):
            self.engines[source].post_write(qa, 0, memoryview(MESSAGE), *self.posts[source, qa], -1)

    def run(self, time: int) -> list[float]:
        """Payload rates meanwhile, as shares of what one port carries."""
        before = self._placed()
        end = self.net.now + time
        while self.net.now < end:
            self.net.step(end)
            for host, engine in enumerate(self.engines):
                for c in engine.completions():
                    assert c.status == 0
                    engine.post_write(c.qpn, 0, memoryview(MESSAGE), *self.posts[host, c.qpn], -1)
        line = self.fabric.nic_rate * self.fabric.payload_share * time / BYTE
        return [(after - b) / line for after, b in zip(self._placed(), before, strict=True)]

    def _placed(self) -> list[int]:
        return [self.engines[destination].placed()[qb] for _, _, destination, qb in self.qpns]

    def total(self, counter: str) -> int:
        return sum(e.counters()[counter] for e in self.engines)

    def check(self) -> None:
        assert all(m == MESSAGE for m in self.memory)
        assert not any(p.trimmed for p in self.net.ports.values()), (
            "this transport's packets may not be trimmed"
        )
        assert self.total("marked_rx") <= sum(p.marked for p in self.net.ports.values())
        assert self.total("rx_bad_icrc") == 0, "marks are no damage"


def jain(rates: list[float]) -> float:
    return sum(rates) ** 2 / len(rates) / sum(r * r for r in rates)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_flows_share_their_last_hop_without_a_drop(seed: int) -> None:
    flows = Flows(RACK.with_(fabric_rate=2 * 10**11), [(0, 8), (1, 8)], seed)
    flows.begin(0)
    alone = flows.run(200 * US)
    assert alone[0] > 0.97 and flows.total("cnps_tx") == 0
    flows.begin(1)
    flows.run(200 * US)  # both cut, to half and once more
    rates = flows.run(1000 * US)
    assert jain(rates) > 0.97
    assert 0.85 < sum(rates) <= 1
    assert flows.net.dropped == flows.total("retransmitted") == flows.total("rtos") == 0
    assert flows.net.ports["p0-t0-1-d0"].marked == flows.total("marked_rx") > 0, (
        "on the last hop, although the fabric spares others there"
    )
    flows.check()


def test_two_flows_share_an_uplink() -> None:
    flows = Flows(RACK, [(0, 8), (1, 9)])
    flows.begin(0)
    flows.begin(1)
    flows.run(200 * US)
    rates = flows.run(1000 * US)
    assert jain(rates) > 0.95 and sum(rates) > 0.8
    assert flows.net.dropped == 0
    assert flows.net.ports["p0-t0-0-u0"].marked == flows.total("marked_rx") > 0
    flows.check()


def test_without_marks_only_drops_are_left() -> None:
    flows = Flows(RACK.with_(ecn=False), [(0, 8), (1, 9)])
    flows.begin(0)
    flows.begin(1)
    flows.run(800 * US)
    assert flows.total("cnps_tx") == 0
    assert flows.net.ports["p0-t0-0-u0"].dropped == flows.net.dropped > 20
    assert flows.total("retransmitted") > flows.net.dropped, "go-back-N repeats more than was lost"
    flows.check()


def test_seven_into_one_overflows_at_first_and_never_again() -> None:
    """Seven line rates fill 8 BDP before the second CNP can be sent: without PFC that is lost. Then
    the marks hold the queue."""
    flows = Flows(RACK.with_(fabric_rate=8 * 10**11), [(h, 8) for h in range(7)])
    for k in range(7):
        flows.begin(k)
    flows.run(400 * US)
    last_hop = flows.net.ports["p0-t0-1-d0"]
    lost = last_hop.dropped
    assert lost == flows.net.dropped > 100
    assert last_hop.peak <= flows.fabric.buffer_bytes
    last_hop.peak = 0
    flows.run(800 * US)
    rates = flows.run(800 * US)
    assert last_hop.dropped == lost and last_hop.peak < flows.fabric.ecn_bytes[1]
    assert 0.4 < sum(rates) <= 1 and min(rates) > 0.01
    at_most = flows.fabric.nic_rate
    for source, qa, _, _ in flows.qpns:
        (window,) = (w for w in flows.engines[source].windows() if w["qpn"] == qa)
        assert 0 < window["rate_bps"] < at_most
    flows.check()


def test_a_window_of_a_bdp_and_a_half_would_spare_most_of_that() -> None:
    """What adapters that bound their outstanding data gain: an option, not the default."""
    lost: list[int] = []
    given: list[dict[str, Any]] = [{}, {"window_bdp": 1.5}]
    for options in given:
        flows = Flows(RACK.with_(fabric_rate=8 * 10**11), [(h, 8) for h in range(7)], **options)
        for k in range(7):
            flows.begin(k)
        flows.run(400 * US)
        lost.append(flows.net.dropped)
        flows.check()
    assert lost[1] * 5 < lost[0]
