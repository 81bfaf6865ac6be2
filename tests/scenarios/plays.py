"""How the shipped scenarios of flows might go, for tests that draw and print them."""

from __future__ import annotations

import math
import random

from scenarios.schema.workloads import Flow
from tests.scenarios.synthetic import Play
from topologies import Fabric


def incast(fair: float, depth: float, kept: float, seed: int, **more: object) -> Play:
    """Seven share a last hop, unequally as ``fair`` allows; queues near ``depth`` BDP; a victim
    that keeps ``kept``."""
    rng = random.Random(seed)
    weights = {f"h{i}-h8": 1 + (1 - fair) * rng.uniform(-1, 1) for i in range(16)}

    def rate(flow: Flow, fabric: Fabric, t: float) -> float:
        line = fabric.host_rate * fabric.payload_share
        if flow.group == "victim":
            return line * (0.99 if t < 8 else kept + 0.02 * rng.uniform(-1, 1))
        return (
            line
            / 7
            * weights[flow.name]
            * (1 + 0.06 * rng.uniform(-1, 1))
            * 0.97
            / sum(weights[f"h{i}-h8"] for i in range(7))
            * 7
        )

    def queue(port: str, group: str, fabric: Fabric, t: float) -> int:
        if group == "victim" or t < 8:
            return int(abs(rng.gauss(0.1, 0.1)) * fabric.plane_bdp)
        over = (
            depth + 0.12 * math.sin(6 * t + len(port)) + rng.gauss(0, 0.05) + (3 if t < 8.3 else 0)
        )
        return max(0, min(fabric.buffer_bytes, int(over * fabric.plane_bdp)))

    def cwnd(flow: Flow, fabric: Fabric, t: float) -> int:
        share = (
            1.0
            if flow.group == "victim"
            else max(0.14 * weights[flow.name], 1.5 * math.exp(-2.5 * (t - 8)))
        )
        return int(share * fabric.planes * fabric.plane_bdp * (1 + 0.1 * rng.uniform(-1, 1)))

    return Play(rate=rate, queue=queue, cwnd=cwnd, **more)  # type: ignore[arg-type]


def collide(shares: tuple[float, ...], seed: int) -> Play:
    """Every flow gets one of the shares of a line, by lot."""
    rng = random.Random(seed)
    lot: dict[str, float] = {}

    def rate(flow: Flow, fabric: Fabric, t: float) -> float:
        return (
            lot.setdefault(flow.name, rng.choice(shares))
            * fabric.host_rate
            * fabric.payload_share
            * rng.uniform(0.99, 1.0)
        )

    return Play(rate=rate)


def part(at: float, to: float, seed: int) -> Play:
    """A's packets leave the EVs of B (its last ones of each plane) within a beat after ``at``, down
    to ``to`` of a fair share."""
    rng = random.Random(seed)

    def packets(flow: Flow, place: int, t: float) -> int:
        if flow.name == "B":
            return round(18 + rng.uniform(-1, 1))
        wanted = (
            1.25 if place % 16 != 15 or t < at else 1.25 * (to + (1 - to) * math.exp(-(t - at)))
        )
        return int(wanted + rng.random())

    return Play(
        packets=packets,
        cwnd=lambda flow, fabric, t: int(fabric.planes * fabric.plane_bdp * rng.uniform(1.0, 1.2)),
    )
