"""Fabrics derived for a scenario, and the figures of a fabric that every run is printed with.

Called by the schema, the manifest and the summary. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topologies import Fabric

QUEUE_KEYS = (
    "delay", "buffer_bdp", "ecn", "ecn_low_bdp", "ecn_high_bdp", "last_hop_ecn", "trimming", "trim_bdp", "trim_last_hop_bdp",
)  # fmt: skip
"""What a transport's ``fabric_options`` may change: how queues behave, never the shape."""


def twin_of(fabric: Fabric) -> Fabric:
    """The same hosts and switches on a single plane with the same rate per host."""
    return fabric.with_(
        name=f"{fabric.name}-1p", planes=1, nic_rate=fabric.nic_rate * fabric.planes, fabric_rate=fabric.fabric_rate * fabric.planes
    )


def at_rate(fabric: Fabric, nic_rate: int) -> Fabric:
    """The fabric with NIC ports of ``nic_rate`` bits/s, other rates in proportion and the delay inversely, so that BDPs stay.

    Raises :class:`topologies.FabricError`.
    """
    if nic_rate == fabric.nic_rate:
        return fabric
    name = f"{fabric.name}-{nic_rate / 1e6:g}Mbit".replace(".", "_")
    made = fabric.with_(name=name, nic_rate=nic_rate, fabric_rate=0, delay_ns=0)  # judges the rate
    rate, delay = fabric.fabric_rate * nic_rate // fabric.nic_rate, fabric.delay_ns * fabric.nic_rate // nic_rate
    return made.with_(fabric_rate=rate, delay_ns=delay)


def variant_of(fabric: Fabric, options: Mapping[str, Any]) -> Fabric:
    """The fabric with some of :data:`QUEUE_KEYS` set (``delay_ns`` for the delay), named after what differs; itself if nothing does.

    Raises :class:`topologies.FabricError`.
    """
    made = fabric.with_(**options)  # judges every value, also one that equals what is there
    changed = {key: getattr(made, key) for key in sorted(options) if getattr(made, key) != getattr(fabric, key)}
    return made.with_(name="-".join([fabric.name, *map(_suffix, changed.items())])) if changed else fabric


def _suffix(change: tuple[str, Any]) -> str:
    key, value = change
    word = key.replace("_", "-")
    if isinstance(value, bool):
        return word if value else f"no-{word}"
    return f"{word}-{value}".replace(".", "_")


def figures(fabric: Fabric) -> dict[str, Any]:
    """Times and thresholds that follow from a fabric, ns and bytes; None for what is off."""
    low, high = fabric.ecn_bytes
    return {
        "time_scale": fabric.time_scale,
        "base_rtt_ns": fabric.base_rtt_ns,
        "local_rtt_ns": fabric.local_rtt_ns,
        "delay_ns": fabric.delay_ns,
        "plane_bdp_bytes": fabric.plane_bdp,
        "buffer_bytes": fabric.buffer_bytes,
        "ecn_bytes": [low, high] if fabric.ecn else None,
        "last_hop_ecn": fabric.ecn and fabric.last_hop_ecn,
        "trim_bytes": fabric.trim_bytes(False) if fabric.trimming else None,
        "trim_last_hop_bytes": fabric.trim_bytes(True) if fabric.trimming else None,
        "payload_share": fabric.payload_share,
        "paths_per_pair": fabric.paths_per_pair,
    }
