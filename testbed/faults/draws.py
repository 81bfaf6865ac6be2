"""Draws random faults for the kinds, from a fabric and a seeded generator."""

from __future__ import annotations

import random

from topologies.clos import Fabric


def part(rng: random.Random, low: float, high: float) -> float:
    return round(rng.uniform(low, high), 3)


def microseconds(rng: random.Random, low: float, high: float) -> str:
    return f"{part(rng, low, high)}us"


def seed(rng: random.Random) -> int:
    return rng.randrange(1 << 32)


def direction(rng: random.Random) -> str:
    return rng.choice(["up", "down", "both"])


def plane(fabric: Fabric, rng: random.Random) -> str:
    return f"p{rng.randrange(fabric.planes)}"


def cable(fabric: Fabric, rng: random.Random) -> str:
    """NIC links are fewer, but drawn as often as others."""
    kind = rng.choice(["nic", "fabric"])
    return rng.choice([link.name for link in fabric.links if link.kind == kind])


def cycle(rng: random.Random) -> dict[str, object]:
    return {"period": microseconds(rng, 10.0, 100.0), "duty": part(rng, 0.1, 0.6)}
