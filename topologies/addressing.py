"""The one module that knows addresses: uSIDs, outer SRv6 addresses, hosts' inner addresses, EVs
(docs/why/addressing.md).

SRv6 NEXT-C-SID (RFC 9800, F3216). Bits [ours]: uSID = plane(4) | tier(2) | index(10), tier 1 = T0,
2 = T1, 3 = host downlink, so that no uSID is zero; EV = plane(16) | uplink(16).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from topologies.clos import ECMP, Fabric, FabricError
from topologies.ecmp import uplink_of

BLOCK = bytes.fromhex("fcbbbb00")
TIER_T0, TIER_T1, TIER_HOST = 1, 2, 3
INNER_PREFIX = bytes.fromhex("fd6d7263000000000000000000000000")[:14]
"""A host's one inner address is fd6d:7263::<number + 1> (a unique local prefix) [ours]."""
BACKGROUND_PREFIX = bytes.fromhex("fd6d7263000b")
"""A background flow's two addresses are fd6d:7263:b::<flow>:<end>, so that every counter can tell
its frames from the workload's [ours]."""
HOST_MAC = bytes.fromhex("026d72630001")
"""Switches redirect frames without rewriting their destination [ours]."""
SWITCH_MAC = bytes.fromhex("0a6d7263")
"""The number of a switch's port follows. Under PFC a switch makes the MAC of a data frame's ingress
port its source [ours]."""
ROUTER_MAC = HOST_MAC
GATEWAY = "fe80::1"
"""Next hop of the kernel's routes; a permanent neighbour on every NIC port."""


def usid(plane: int, tier: int, index: int) -> int:
    return plane << 12 | tier << 10 | index


def usid_fields(value: int) -> tuple[int, int, int]:
    return value >> 12, value >> 10 & 3, value & 0x3FF


def switch_usid(switch: str) -> int:
    try:
        plane, tier, index = switch.split("-")
        return usid(int(plane[1:]), {"t0": TIER_T0, "t1": TIER_T1}[tier], int(index))
    except (ValueError, KeyError):
        raise FabricError(
            f"{switch!r} is not a switch name: they look like p0-t0-1 or p0-t1-3"
        ) from None


def host_usid(fabric: Fabric, plane: int, host: int) -> int:
    return usid(plane, TIER_HOST, fabric.downlink_of(host))


def ev(plane: int, uplink: int) -> int:
    """Uplinks count within a site. Between hosts of one T0 the uplink is 0."""
    return plane << 16 | uplink


def ev_fields(value: int) -> tuple[int, int]:
    return value >> 16, value & 0xFFFF


def sid_list(
    fabric: Fabric, src: int, dst: int, value: int, dead_links: Collection[str] = ()
) -> tuple[int, ...]:
    """Return the uSIDs of the path that ``value`` names, in travel order. Cross-T1: T0src, T1,
    T0dst, dst. Under one T0: T0, dst. Between sites: T0src, its T1, the T1 at the other end of the
    long-haul cable, T0dst, dst. Raises :class:`FabricError` if the EV names no path there.
    ``dead_links``: those that switches which hash have converged around."""
    plane, uplink = ev_fields(value)
    first, last = fabric.t0_of(src), fabric.t0_of(dst)
    if not 0 <= plane < fabric.planes:
        raise FabricError(
            f"EV {value:#x}: fabric {fabric.name!r} has planes 0..{fabric.planes - 1}, not {plane}"
        )
    if first == last:
        if uplink:
            raise FabricError(
                f"EV {value:#x}: h{src} and h{dst} share a T0, their EVs have uplink 0"
            )
        return usid(plane, TIER_T0, first), host_usid(fabric, plane, dst)
    if fabric.routing == ECMP:
        uplink = uplink_of(fabric, src, dst, value, dead_links)
    elif uplink >= fabric.t1_per_plane:
        raise FabricError(
            f"EV {value:#x}: fabric {fabric.name!r} has uplinks 0..{fabric.t1_per_plane - 1}, "
            f"not {uplink}"
        )
    t1s = [usid(plane, TIER_T1, fabric.t1s_of_t0(first)[uplink])]
    if fabric.is_far(src, dst):
        t1s.append(usid(plane, TIER_T1, fabric.t1s_of_t0(last)[uplink]))
    return (
        usid(plane, TIER_T0, first),
        *t1s,
        usid(plane, TIER_T0, last),
        host_usid(fabric, plane, dst),
    )


def outer_address(sids: tuple[int, ...]) -> bytes:
    if len(sids) > 6:
        raise ValueError("an address holds at most six uSIDs")
    return (BLOCK + b"".join(s.to_bytes(2, "big") for s in sids)).ljust(16, b"\0")


def path_address(
    fabric: Fabric, src: int, dst: int, value: int, dead_links: Collection[str] = ()
) -> bytes:
    return outer_address(sid_list(fabric, src, dst, value, dead_links))


def shift(address: bytes) -> bytes:
    """What a uN switch does (RFC 9800 section 4.1.1): drops the first uSID, zeros enter at the
    end."""
    return address[:4] + address[6:] + b"\0\0"


def inner_address(host: int) -> bytes:
    return INNER_PREFIX + inner_number(host).to_bytes(2, "big")


def inner_number(host: int) -> int:
    """Return the last 16 bits of a host's inner addresses, by which its T0s know its frames; never
    0."""
    return host + 1


def host_of_inner(address: bytes) -> int:
    if address[:14] != INNER_PREFIX:
        return -1
    return int.from_bytes(address[14:16], "big") - 1


def plane_address(plane: int, host: int) -> bytes:
    """Return fd6d:7263::<plane + 1>:<number + 1>, there only while MPTCP runs [ours]."""
    return (
        INNER_PREFIX[:12] + (plane + 1).to_bytes(2, "big") + inner_number(host).to_bytes(2, "big")
    )


def host_of_plane(address: bytes) -> tuple[int, int]:
    plane, host = (
        int.from_bytes(address[12:14], "big") - 1,
        int.from_bytes(address[14:16], "big") - 1,
    )
    return (
        (plane, host)
        if address[:12] == INNER_PREFIX[:12] and plane >= 0 and host >= 0
        else (-1, -1)
    )


def background_addresses(flow: int) -> tuple[bytes, bytes]:
    head = BACKGROUND_PREFIX.ljust(12, b"\0") + flow.to_bytes(2, "big")
    return head + b"\0\1", head + b"\0\2"


def text(address: bytes) -> str:
    return str(ipaddress.IPv6Address(address))


def management_address(host: int) -> str:
    """Return 10.78.0.1 for h0, and so on. Programs exchange there what they need before they have
    queue pairs."""
    return "10.78.{}.{}".format(*divmod(host + 1, 256))
