"""Computes how long messages and steps take where nothing is in their way. theory.py says what
bandwidth allows; this module adds the time that passes before and after."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from topologies.clos import DATA_HEADERS, ICRC, SACK_BYTES, Fabric
from topologies.theory import sack_share
from topologies.units import NS

Flow = TypeVar("Flow", bound=Hashable)
Cable = tuple[str, str]


def frame_ns(fabric: Fabric, payload: int, rate: int) -> float:
    return frame_bytes(payload) * 8e9 / rate


def frame_bytes(payload: int) -> int:
    return DATA_HEADERS + payload + ICRC


def one_way_ns(fabric: Fabric, local: bool, size: int) -> float:
    """Return the time from a frame's first bit on its host's port to its arrival; ``local``: under
    one T0."""
    return (
        (fabric.local_delay_ps if local else fabric.delay_ps) + fabric.wire_ps(size, local)
    ) / NS


def fill_ns(fabric: Fabric, local: bool, payload: int | None = None) -> float:
    """Return the time from a packet's last bit on its host's port to its arrival: what the links
    after the first add, and the delay. ``payload`` None is a full packet's."""
    size = frame_bytes(fabric.mtu if payload is None else payload)
    return one_way_ns(fabric, local, size) - size * 8e9 / fabric.nic_rate


def burst_ns(fabric: Fabric, message_bytes: int, ports: int) -> float:
    """Return the time from the first bit on the host's ports to the last; the message is spread
    evenly over ``ports``."""
    packets, last = divmod(message_bytes, fabric.mtu)
    full, most = frame_ns(fabric, fabric.mtu, fabric.nic_rate), -(-(packets + (last > 0)) // ports)
    # the short one is alone in its row: nothing longer leaves with it
    if last and packets % ports == 0:
        return (most - 1) * full + frame_ns(fabric, last, fabric.nic_rate)
    return most * full


def idle_message_ns(fabric: Fabric, local: bool, message_bytes: int) -> float:
    """Return the time from posting a message to its acknowledgement, sprayed over all planes. For
    one full packet it is the base RTT."""
    last = message_bytes % fabric.mtu
    alone = last and message_bytes // fabric.mtu % fabric.planes == 0
    back = one_way_ns(fabric, local, SACK_BYTES)
    return (
        burst_ns(fabric, message_bytes, fabric.planes)
        + fill_ns(fabric, local, last if alone else None)
        + back
    )


def ring_step_ns(
    fabric: Fabric,
    ranks: int,
    message_bytes: int,
    slices: int,
    rate: float,
    local: bool = False,
    acks: bool = True,
) -> float:
    """Compute the time of a ring all-reduce in slices, ns, each rank sending ``rate`` bits/s of
    payload.

    A chunk goes through 2 (n - 1) stages, a slice into the next as soon as it has arrived. Let t be
    a slice's time at ``rate`` and L the filling of the path. Either the S slices of a stage take
    longer than one needs to arrive (S t >= t + L): then a rank sends without pause and waits for
    the last slice alone, 2 (n - 1) S t + L. Or each stage waits for its first slice: 2 (n - 1) (t +
    L) + (S - 1) t. The larger of the two holds. ``acks``: a port also carries the SACKs of what its
    host receives.
    """
    return max(
        pipeline_bounds_ns(
            fabric, 2 * (ranks - 1), message_bytes / ranks / slices, slices, rate, local, acks
        )
    )


def pipeline_bounds_ns(
    fabric: Fabric,
    stages: int,
    slice_bytes: float,
    slices: int,
    rate: float,
    local: bool = False,
    acks: bool = True,
) -> tuple[float, float]:
    fill = fill_ns(fabric, local)
    t = slice_bytes * 8e9 / rate * (1 + (sack_share(fabric) if acks else 0.0))
    return stages * slices * t + fill, stages * (t + fill) + (slices - 1) * t


def all_to_all_step_ns(fabric: Fabric, ranks: int, message_bytes: int, bandwidth: float) -> float:
    """Every rank sends a part of its buffer to every other at ``bandwidth`` bits/s of payload, and
    waits for the last to arrive."""
    sent = message_bytes * (ranks - 1) / ranks
    return sent * 8e9 / bandwidth * (1 + sack_share(fabric)) + fill_ns(fabric, False)


def fair_shares(
    routes: Mapping[Flow, Sequence[Cable]], rates: Mapping[str, float]
) -> dict[Flow, float]:
    """Compute max-min fair rates of flows that have one path each, in the unit of ``rates`` (by
    link, each direction), by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2)."""
    left = {cable: float(rates[cable[0]]) for route in routes.values() for cable in route}
    shares: dict[Flow, float] = {}
    while len(shares) < len(routes):
        crossing = {
            cable: [f for f, route in routes.items() if f not in shares and cable in route]
            for cable in left
        }
        level, full = min(
            ((left[cable] / len(flows), cable) for cable, flows in crossing.items() if flows),
            key=lambda found: found[0],
        )
        for flow in crossing[full]:
            shares[flow] = level
            for cable in set(routes[flow]):
                left[cable] -= level
    return shares
