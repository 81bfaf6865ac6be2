"""Options that a scenario may set on `tcp` and `mptcp`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from agents.clock import WallClock
from topologies.clos import Fabric
from topologies.structs import Doc, Refused, convert
from topologies.units import US

TCP, MPTCP = "tcp", "mptcp"
KINDS = (TCP, MPTCP)
TUN = "mrcbed-delay"
"""The TUN where packets for a host's sockets wait for the delay that cables lack."""
MPTCP_PLANES = 8
"""Most addresses, and subflows beside the first (MPTCP_PM_ADDR_MAX in net/mptcp/pm_kernel.c)."""
TIMEOUT = 1600 * US
LEAST_TIMEOUT_S = 20.0
"""The least default of ``user_timeout``: seconds in the network, and on this machine."""
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
MPTCP_ENABLED = Path("/proc/sys/net/mptcp/enabled")


def congestion_controls() -> tuple[str, ...]:
    try:
        return tuple(AVAILABLE.read_text(encoding="ascii").split())
    except OSError:
        return ()


class Knobs(Struct, frozen=True, forbid_unknown_fields=True):
    congestion: Annotated[
        str,
        Meta(max_length=15, description="a name of at most 15 letters"),
        Doc(
            "the kernel's algorithm, by a name of net.ipv4.tcp_available_congestion_control",
            example='"bbr"',
        ),
    ] = "cubic"
    # Longer than a network takes to re-route and TCP to find out, so that an outage alone ends
    # nothing; the kernel's own limit is some 15 minutes [ours]. None: TIMEOUT.
    user_timeout: Annotated[
        Annotated[float, Meta(ge=1, le=3600, description="1 to 3600 seconds")] | None,
        Doc(
            "wall time without any progress until the queue pair goes to ERROR",
            "s",
            "20 s, or 1.6 ms of the network",
            "60",
        ),
    ] = None

    def __post_init__(self) -> None:
        available = congestion_controls()
        if not self.congestion.isidentifier() or (available and self.congestion not in available):
            has = ", ".join(available) or "no list of them"
            raise Refused(
                "congestion",
                f"= {self.congestion!r}: this kernel has {has}; for one that is a module: "
                "modprobe tcp_NAME",
            )


class Options:
    """Raises :class:`topologies.structs.Refused` or ValueError, one line."""

    def __init__(self, kind: str, fabric: Fabric, options: Mapping[str, object]) -> None:
        knobs = convert(options, Knobs)
        self.congestion = knobs.congestion
        self._user_timeout_s = knobs.user_timeout
        if kind == MPTCP:
            if fabric.planes > MPTCP_PLANES:
                raise ValueError(
                    f"fabric {fabric.name!r} has {fabric.planes} planes, the kernel's MPTCP "
                    f"takes up to {MPTCP_PLANES}"
                )
            if AVAILABLE.exists() and not MPTCP_ENABLED.exists():
                raise ValueError("this kernel has no MPTCP (CONFIG_MPTCP): see mrcbed doctor")

    def user_timeout_s(self, clock: WallClock) -> float:
        usual = max(LEAST_TIMEOUT_S, clock.wall_s(TIMEOUT))
        return usual if self._user_timeout_s is None else self._user_timeout_s
