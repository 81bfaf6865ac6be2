"""Fabrics for tests of engines."""

from __future__ import annotations

from topologies import Fabric
from topologies.units import BYTE


def near(fabric: Fabric) -> Fabric:
    """With short cables: a plane's BDP is ten full packets, a third of a shipped fabric's. Round
    trips pass quicker, and thresholds at fractions of a BDP are few packets apart, so that an error
    of one packet shows."""
    bare = fabric.with_(delay_ps=0).base_rtt_ps
    ten = 10 * fabric.frame_bytes * BYTE // fabric.nic_rate
    return fabric.with_(delay_ps=max(0, -(-(ten - bare) // 2)))
