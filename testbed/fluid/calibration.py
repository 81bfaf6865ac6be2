"""What packets add to the times of :mod:`topologies.timing`: two numbers, fitted to packet runs and kept in calibration.toml.

Hosts under one T0 spray over the same uplinks, and packets that choose the same one wait for each other (docs/fidelity.md). While ranks
send without pause, other slices hide most of that: what is left is ``efficiency``, of the ideal pace. Where each stage waits for its first
slice, the slice's last packet comes ``wait_packets`` times of a full packet later than on an empty path.

``mrcbed fluid --against DIR --calibrate FILE`` writes the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from testbed.errors import UserError
from topologies import Fabric
from topologies.timing import frame_ns, ring_bounds_ns

FILE = Path(__file__).with_name("calibration.toml")


@dataclass(frozen=True)
class Ring:
    """A measured ring: ``rate`` in bits/s on the wire of its slowest flow, by the model; ``measured_ns``: its median step."""

    run: str
    fabric: Fabric
    ranks: int
    message_bytes: int
    slices: int
    dead_links: int
    rate: float
    measured_ns: float

    @property
    def bounds_ns(self) -> tuple[float, float]:
        return ring_bounds_ns(self.fabric, self.ranks, self.message_bytes, self.slices, self.rate * self.fabric.payload_share)


@dataclass(frozen=True)
class Calibration:
    efficiency: float = 1.0
    wait_packets: float = 0.0

    def ring_ns(self, fabric: Fabric, ranks: int, message_bytes: int, slices: int, rate: float) -> float:
        """Nanoseconds of a ring all-reduce whose slowest flow has ``rate`` bits/s on the wire; infinite at 0."""
        if rate <= 0:
            return float("inf")
        without_pause, waiting = ring_bounds_ns(fabric, ranks, message_bytes, slices, rate * fabric.payload_share)
        return max(without_pause / self.efficiency, waiting + self.wait_packets * _stages_ns(fabric, ranks))


def _stages_ns(fabric: Fabric, ranks: int) -> float:
    """A full packet's time on a NIC port, once a stage."""
    return 2 * (ranks - 1) * frame_ns(fabric, fabric.mtu, fabric.nic_rate)


def fit(rings: Iterable[Ring]) -> Calibration:
    """The medians over runs of each kind. Raises :class:`UserError` if there are no runs of one kind."""
    efficiencies, waits = [], []
    for ring in rings:
        without_pause, waiting = ring.bounds_ns
        if without_pause >= waiting:
            efficiencies.append(without_pause / ring.measured_ns)
        else:
            waits.append((ring.measured_ns - waiting) / _stages_ns(ring.fabric, ring.ranks))
    if not efficiencies or not waits:
        raise UserError("a calibration needs healthy rings with large and with small messages: see testbed/fluid/ring.toml")
    return Calibration(median(efficiencies), median(waits))


def written(calibration: Calibration, rings: Sequence[Ring]) -> str:
    """The file's text: the two numbers, and the runs that they come from."""
    lines = [
        "# Written by mrcbed fluid --against DIR ... --calibrate FILE, from runs of ring.toml beside it (docs/fluid.md).",
        f"efficiency = {calibration.efficiency:.4f}",
        f"wait_packets = {calibration.wait_packets:.3f}",
    ]
    for ring in rings:
        lines += [
            "", "[[ring]]", f'fabric = "{ring.fabric.name}"', f"hosts = {ring.ranks}", f"message_bytes = {ring.message_bytes}",
            f"slices = {ring.slices}", f"measured_ns = {ring.measured_ns:.0f}", f"ideal_ns = {max(ring.bounds_ns):.0f}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


@cache
def stored() -> Calibration:
    """The calibration that came with this copy."""
    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return Calibration(float(data["efficiency"]), float(data["wait_packets"]))
