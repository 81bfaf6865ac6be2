"""What a scenario may set on `tcp` and `mptcp`. Read at load time, by the agents, and by whoever sets the hosts' routes."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from topologies.clos import Fabric

TCP, MPTCP = "tcp", "mptcp"
KINDS = (TCP, MPTCP)
MPTCP_PLANES = 8
"""Most addresses, and subflows beside the first, that the kernel's path manager takes (MPTCP_PM_ADDR_MAX in net/mptcp/pm_kernel.c)."""
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
MPTCP_ENABLED = Path("/proc/sys/net/mptcp/enabled")


def congestion_controls() -> tuple[str, ...]:
    """What this kernel has by now, modules not loaded left out; () where it does not say."""
    try:
        return tuple(AVAILABLE.read_text(encoding="ascii").split())
    except OSError:
        return ()


class Options:
    """Raises ValueError, one line, on a key or value that cannot be.

    ============ ======= ==============================================================================================
    option       default meaning
    ============ ======= ==============================================================================================
    congestion   cubic   the kernel's algorithm by name, as in net.ipv4.tcp_available_congestion_control
    user_timeout 20      seconds without any progress of what was sent, or of a connection attempt, until the queue pair
                         goes to ERROR. Longer than a network takes to re-route and TCP to find out, so that an
                         outage alone ends nothing; the kernel's own limit is some 15 minutes [ours]
    ============ ======= ==============================================================================================
    """

    def __init__(self, kind: str, fabric: Fabric, options: dict[str, Any]) -> None:
        known = ("congestion", "user_timeout")
        for key in options:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
                raise ValueError(f"{kind} has no option {key!r}: {hint}")
        self.congestion = options.get("congestion", "cubic")
        there = congestion_controls()
        if not isinstance(self.congestion, str) or not self.congestion.isidentifier() or (there and self.congestion not in there):
            has = ", ".join(there) or "no list of them"
            raise ValueError(f"congestion = {self.congestion!r}: this kernel has {has}; for one that is a module: modprobe tcp_NAME")
        timeout = options.get("user_timeout", 20)
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 1 <= timeout <= 3600:
            raise ValueError(f"user_timeout = {timeout!r}: 1 to 3600 seconds")
        self.user_timeout_ns = int(timeout * 1e9)
        if kind == MPTCP:
            if fabric.planes > MPTCP_PLANES:
                raise ValueError(f"fabric {fabric.name!r} has {fabric.planes} planes, the kernel's MPTCP takes up to {MPTCP_PLANES}")
            if AVAILABLE.exists() and not MPTCP_ENABLED.exists():
                raise ValueError("this kernel has no MPTCP (CONFIG_MPTCP): see mrcbed doctor")
