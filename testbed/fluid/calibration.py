"""Corrects the times of :mod:`topologies.timing` by three numbers, fitted to packet runs and kept
in calibration.toml (docs/why/fluid.md).

*Without pause*, packets reach ``efficiency`` of the slowest flow's rate. *Waiting*, each stage
waits for the latest packet of its first slice. The largest of n delays grows with log n, here
``wait_packets`` times log2(1 + n) full packets' time (docs/why/fidelity.md, spraying in step). Near
both bounds at once a step takes longer than either: they are added as powers of ``sharpness``.

``python -m tests.testbed.fluid.against DIR... --calibrate FILE`` writes the file.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from math import ceil, log2
from pathlib import Path

import numpy as np

from topologies import Fabric
from topologies.timing import frame_ns, pipeline_bounds_ns

FILE = Path(__file__).with_name("calibration.toml")
ROUNDS = {"ring-allreduce": 2, "reduce-scatter": 1, "all-gather": 1}


@dataclass(frozen=True)
class Shape:
    """``across`` is the share of the ring's edges that cross T1s; sizes are as in scenario
    files."""

    fabric: Fabric
    ranks: int
    message_bytes: int
    slices: int
    rounds: int = 2
    across: float = 1.0

    @property
    def stages(self) -> int:
        return self.rounds * (self.ranks - 1)

    def bounds_ns(self, rate: float, port_rate: float) -> tuple[float, float]:
        """Return ns of a step without pause at ``rate``, and waiting for each stage at
        ``port_rate``; bits/s on the wire, above 0."""
        size = self.message_bytes / self.ranks / self.slices
        means = []
        for pace in (rate, port_rate):
            far, near = (
                np.array(
                    pipeline_bounds_ns(
                        self.fabric,
                        self.stages,
                        size,
                        self.slices,
                        pace * self.fabric.payload_share,
                        local,
                    )
                )
                for local in (False, True)
            )
            means.append(self.across * far + (1 - self.across) * near)
        return float(means[0][0]), float(means[1][1]) + self.uneven_ns(port_rate)

    def uneven_ns(self, port_rate: float) -> float:
        """Return how much longer, ns, a step takes that waits for each stage. A slice is there with
        the last packet of its fullest port. One of fewer packets than ports takes a packet's time,
        not a share of it."""
        size = self.message_bytes / self.ranks / self.slices
        ports = max(1, round(port_rate / self.fabric.nic_rate))
        packet = frame_ns(self.fabric, round(min(size, self.fabric.mtu)), self.fabric.nic_rate)
        return (
            self.stages * (ceil(self.slice_packets / ports) - self.slice_packets / ports) * packet
        )

    def delays_ns(self, packets: float) -> float:
        return (
            packets
            * self.across
            * self.stages
            * frame_ns(self.fabric, self.fabric.mtu, self.fabric.nic_rate)
        )

    @property
    def slice_packets(self) -> int:
        return ceil(self.message_bytes / self.ranks / self.slices / self.fabric.mtu)


@dataclass(frozen=True)
class Calibration:
    efficiency: float = 1.0
    wait_packets: float = 0.0
    sharpness: float = 100.0

    def step_ns(self, shape: Shape, rate: float, port_rate: float) -> float:
        """The time is infinite if a flow has no rate."""
        if rate <= 0 or port_rate <= 0:
            return float("inf")
        without_pause, waiting = self.bounds_ns(shape, rate, port_rate)
        longer, shorter = max(without_pause, waiting), min(without_pause, waiting)
        return float(longer * (1 + (shorter / longer) ** self.sharpness) ** (1 / self.sharpness))

    def bounds_ns(self, shape: Shape, rate: float, port_rate: float) -> tuple[float, float]:
        without_pause, waiting = shape.bounds_ns(rate, port_rate)
        delay = shape.delays_ns(self.wait_packets * log2(1 + shape.slice_packets))
        return without_pause / self.efficiency, waiting + delay


@cache
def stored() -> Calibration:
    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return Calibration(
        float(data["efficiency"]), float(data["wait_packets"]), float(data["sharpness"])
    )
