"""Both forwarding planes, eBPF and Open vSwitch by OpenFlow: one suite, hop by hop and byte by byte
from captured frames.

Every frame of the suite goes over both planes. A tap hears all ports of all switches and gives a
frame's journey: each port that it came in by or went out of, in order, with the frame as it was
there. What each switch must do is worked out here, from the addressing alone.
"""

from __future__ import annotations

import ipaddress
import select
import shutil
import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from agents.packets import dscp
from testbed.emulated import packet_sockets
from testbed.emulated.cluster import Cluster
from testbed.emulated.netlink import in_namespace
from tests.emulated.frames import Wire, ipv6, mrc
from tests.emulated.ring import PATIENCE_S
from topologies import Fabric, addressing, load_fabric
from topologies.addressing import ev, ev_fields
from topologies.fabrics import DILATION
from topologies.paths import path_evs, static_tables

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed"
    ),
]
PLANES = ("ebpf", "ovs")
OUTGOING = 4
ETHERNET = addressing.ROUTER_MAC + addressing.HOST_MAC


class Hop(NamedTuple):
    port: str
    out: bool
    frame: bytes


Journey = list[Hop]


class Case(NamedTuple):
    """A frame, where it starts, and the journey it must have."""

    host: int
    plane: int
    frame: bytes
    expected: Journey


def shifted(frame: bytes) -> bytes:
    """What a uN switch makes of a frame that is its own (RFC 9800, section 4.1.1)."""
    return (
        frame[:21]
        + bytes([frame[21] - 1])
        + frame[22:38]
        + addressing.shift(frame[38:54])
        + frame[54:]
    )


def malformed(frame: bytes) -> bool:
    """What no router forwards: another version, a source that is none, less than the header
    says."""
    source = ipaddress.IPv6Address(frame[22:38])
    return (
        frame[14] >> 4 != 6
        or source.is_multicast
        or source.is_link_local
        or source.is_unspecified
        or source.is_loopback
        or len(frame) < 54 + int.from_bytes(frame[18:20], "big")
    )


def journey(fabric: Fabric, host: int, plane: int, frame: bytes) -> Journey:
    """A frame's way, worked out switch by switch from the static tables."""
    far = {end.name: other for li in fabric.links for end, other in ((li.a, li.b), (li.b, li.a))}
    tables, hops, port = static_tables(fabric), [], far[f"h{host}-p{plane}"]
    while True:
        hops.append(Hop(port.name, False, frame))
        if (
            port.node in fabric.hosts
            or len(frame) < 54
            or frame[12:14] != b"\x86\xdd"
            or malformed(frame)
        ):
            return hops
        words = [frame[i : i + 2] for i in range(38, 54, 2)]
        own, after = (
            addressing.switch_usid(port.node).to_bytes(2, "big"),
            int.from_bytes(words[3], "big"),
        )
        if (
            b"".join(words[:2]) != addressing.BLOCK
            or words[2] != own
            or frame[21] <= 1
            or after not in tables[port.node]
        ):
            return hops
        frame = shifted(frame)
        hops.append(Hop(tables[port.node][after], True, frame))
        port = far[hops[-1].port]


class Tap:
    """Every frame at every port, switches' and hosts', each once."""

    def __init__(self, cluster: Cluster) -> None:
        self._sockets: dict[socket.socket, str] = {}
        for node, space in cluster.net.namespaces.items():
            sock = in_namespace(
                space, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            )
            sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
            if not node and cluster.net.come_twice:
                packet_sockets.see(sock, handed_over=False)
            self._sockets[sock] = node

    def collect(self, count: int) -> Journey:
        """``count`` hops, or fewer where some are lost, and what else comes within a moment. A
        host's is the last of all."""
        hops: Journey = []
        arrived: Journey = []
        while ready := select.select(
            list(self._sockets), [], [], PATIENCE_S if len(hops) + len(arrived) < count else 0.02
        )[0]:
            for sock in ready:
                frame, (port, _, kind, _, _) = sock.recvfrom(65536)
                if self._sockets[sock]:
                    arrived += (
                        [Hop(port, False, frame)] if kind != OUTGOING and port != "lo" else []
                    )
                else:
                    hops.append(Hop(port, kind == OUTGOING, frame))
        return hops + arrived

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


def on_all_paths(fabric: Fabric, pairs: list[tuple[int, int]]) -> Iterator[Case]:
    for src, dst in pairs:
        for value in path_evs(fabric, src, dst):
            frame = mrc(
                src,
                dst,
                addressing.path_address(fabric, src, dst, value),
                value.to_bytes(4, "big") + bytes(range(200)),
            )
            yield Case(
                src, ev_fields(value)[0], frame, journey(fabric, src, ev_fields(value)[0], frame)
            )


def probes(fabric: Fabric, host: int) -> Iterator[Case]:
    """To a switch and back, source-routed to oneself: by the T0 alone, and over each T1, which
    sends it out where it came in."""
    for plane in range(fabric.planes):
        own, t0 = (
            addressing.host_usid(fabric, plane, host),
            addressing.usid(plane, addressing.TIER_T0, fabric.t0_of(host)),
        )
        ways = [
            (t0, own),
            *(
                (t0, addressing.usid(plane, addressing.TIER_T1, j), t0, own)
                for j in range(fabric.t1_per_plane)
            ),
        ]
        for way in ways:
            frame = mrc(host, host, addressing.outer_address(way), b"probe")
            yield Case(host, plane, frame, journey(fabric, host, plane, frame))


def strange(fabric: Fabric) -> dict[str, bytes]:
    """Frames from h0 on plane 0 with something about them; most of them go nowhere, or not far."""
    good = addressing.path_address(fabric, 0, 2, ev(0, 0))
    found = {
        f"dscp {name}": mrc(0, 2, good, bytes(64), dscp_class=value)
        for value, name in dscp.NAMES.items()
    }
    found |= {f"hop limit {n}": mrc(0, 2, good, hop_limit=n) for n in (0, 1, 2, 3, 4, 255)}
    found |= {
        f"{n} bytes of payload": mrc(0, 2, good, bytes(n)) for n in (1, 2, 1400, 1401, 4096 + 28)
    }
    plain = mrc(0, 2, good, b"payload that no switch may touch")
    found |= {f"ECN {n}": plain[:15] + bytes([plain[15] | n << 4]) + plain[16:] for n in (1, 2, 3)}
    # from h0, where nobody has a route to
    inner = ipv6(addressing.plane_address(8, 0), bytes(15) + b"\x02", 59, b"")
    found["flow label"] = plain[:15] + bytes([plain[15] | 0xA, 0xBC, 0xDE]) + plain[18:]
    found["foreign MACs"] = bytes.fromhex("020304050607 0a0b0c0d0e0f") + plain[12:]
    found["multicast MAC"] = bytes.fromhex("333300000001 0a0b0c0d0e0f") + plain[12:]
    found["padding after the packet"] = plain + b"padding"
    found["IPv6 in IPv6, nothing in it"] = (
        ETHERNET + b"\x86\xdd" + ipv6(addressing.inner_address(0), good, 41, inner)
    )
    found["IPv4 in IPv6"] = (
        ETHERNET + b"\x86\xdd" + ipv6(addressing.inner_address(0), good, 4, bytes(20))
    )
    found["no next header"] = (
        ETHERNET + b"\x86\xdd" + ipv6(addressing.inner_address(0), good, 59, b"")
    )
    found["an unknown uSID next"] = mrc(0, 2, good[:6] + b"\x0b\xff" + good[8:])
    found["a uSID of another plane next"] = mrc(0, 2, good[:6] + b"\x18\x00" + good[8:])
    found["no uSID next"] = mrc(0, 2, good[:6] + bytes(10))
    found["another's uSID first"] = mrc(0, 2, addressing.shift(good))
    found["another block"] = mrc(0, 2, b"\xfc\xbb\xbb\x01" + good[4:])
    found["all six uSIDs, round and round"] = mrc(
        0, 0, addressing.outer_address((0x0400, 0x0800, 0x0400, 0x0800, 0x0400, 0x0C00))
    )
    found["version 4"] = plain[:14] + b"\x46" + plain[15:]
    sources = ("::", "::1", "ff02::1", "fe80::1")
    found |= {
        f"from {source}": plain[:22] + ipaddress.ip_address(source).packed + plain[38:]
        for source in sources
    }
    # as a switch that trims and does not say so would leave it
    found["shorter than it says"] = mrc(0, 2, good, bytes(100))[:-60]
    found["IPv4"] = ETHERNET + b"\x08\x00" + bytes(46)
    found["ARP"] = ETHERNET + b"\x08\x06" + bytes(46)
    found["bare Ethernet"] = ETHERNET + b"\x86\xdd"
    found["half an IPv6 header"] = ETHERNET + b"\x86\xdd\x60" + bytes(20)
    return found


def cases(fabric: Fabric) -> dict[str, list[Case]]:
    n = fabric.host_count
    if fabric.name == "tiny":
        odd = {
            name: [Case(0, 0, frame, journey(fabric, 0, 0, frame))]
            for name, frame in strange(fabric).items()
        }
        forged = mrc(1, 2, addressing.path_address(fabric, 0, 2, ev(0, 0)))
        # to the T0 and no further
        odd["in another host's name"] = [Case(0, 0, forged, journey(fabric, 0, 0, forged)[:1])]
        pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
        return {
            "every path of every pair": list(on_all_paths(fabric, pairs)),
            "probes": list(probes(fabric, 1)),
            **odd,
        }
    across, under = [(0, n - 1), (n - 1, 1)], [(0, 1), (n - 1, n - 2)]
    return {
        "paths": list(on_all_paths(fabric, across + under)),
        "probes": list(probes(fabric, n - 1)),
    }


NAMES = [(fabric, name) for fabric in ("tiny", "demo") for name in cases(load_fabric(fabric))]
Record = dict[tuple[str, str, str], list[Journey]]


@pytest.fixture(scope="module")
def record() -> Record:
    """(forwarding plane, fabric, case) -> the journeys of its frames, one frame on its way at a
    time."""
    found: Record = {}
    for which in PLANES:
        for name in ("tiny", "demo"):
            with Cluster(
                load_fabric(name), dilation=DILATION, controller=which == "ovs", switch=which
            ) as cluster:
                tap = Tap(cluster)
                wires: dict[int, Wire] = {}
                for case, frames in cases(cluster.fabric).items():
                    seen = found[which, name, case] = []
                    for frame in frames:
                        wire = wires.setdefault(frame.host, Wire(cluster, frame.host))
                        assert wire.send(frame.plane, frame.frame)
                        seen.append(tap.collect(len(frame.expected)))
                tap.close()
                for wire in wires.values():
                    wire.close()
    return found


@pytest.mark.parametrize(
    ("fabric", "case"), NAMES, ids=[f"{fabric}, {name}" for fabric, name in NAMES]
)
@pytest.mark.parametrize("which", PLANES)
def test_every_hop_is_as_the_addressing_says(
    record: Record, which: str, fabric: str, case: str
) -> None:
    wanted = [frame.expected for frame in cases(load_fabric(fabric))[case]]
    assert wanted
    for want, seen in zip(wanted, record[which, fabric, case], strict=True):
        assert [(h.port, h.out) for h in seen] == [(h.port, h.out) for h in want]
        assert [h.frame for h in seen] == [h.frame for h in want]


@pytest.mark.parametrize(
    ("fabric", "case"), NAMES, ids=[f"{fabric}, {name}" for fabric, name in NAMES]
)
def test_both_planes_forward_identically(record: Record, fabric: str, case: str) -> None:
    assert record["ebpf", fabric, case] == record["ovs", fabric, case]
    assert any(record["ebpf", fabric, case])


def test_the_suite_takes_every_route() -> None:
    fabric = load_fabric("tiny")
    hops = [hop for frames in cases(fabric).values() for frame in frames for hop in frame.expected]
    assert {hop.port for hop in hops if hop.out} == {
        p.name for p in fabric.ports if p.node in fabric.switches
    }


def test_where_the_planes_differ() -> None:
    """Known and left so, on frames that nobody here sends: Open vSwitch looks further into a packet
    than a uN switch has to, and its tables do not go back to the first when a switch's own uSID
    comes twice in a row."""
    seen: dict[tuple[str, str], Journey] = {}
    fabric = load_fabric("tiny")
    good = addressing.path_address(fabric, 0, 2, ev(0, 0))
    udp = ipv6(addressing.inner_address(0), good, 17, bytes.fromhex("c000 12b7 000c 1234 01020304"))
    frames = {
        "UDP right behind the outer header": ETHERNET + b"\x86\xdd" + udp,
        "own uSID twice": mrc(0, 2, good[:6] + good[4:14]),
    }
    for which in PLANES:
        with Cluster(fabric, dilation=DILATION, controller=False, switch=which) as cluster:
            tap, wire = Tap(cluster), Wire(cluster, 0)
            for name, frame in frames.items():
                assert wire.send(0, frame)
                dropped = (which, name) == ("ovs", "own uSID twice")
                seen[which, name] = tap.collect(
                    1 if dropped else len(journey(fabric, 0, 0, mrc(0, 2, good)))
                )
            tap.close()
            wire.close()
    name = "UDP right behind the outer header"
    assert seen["ebpf", name] == journey(fabric, 0, 0, seen["ebpf", name][0].frame)
    assert [(h.port, h.out, h.frame[:60], h.frame[62:]) for h in seen["ovs", name]] == [
        (h.port, h.out, h.frame[:60], h.frame[62:]) for h in seen["ebpf", name]
    ]
    assert len({h.frame[60:62] for h in seen["ovs", name]}) > 1, (
        "its checksum covers the destination: Open vSwitch keeps it right"
    )
    name = "own uSID twice"
    once = journey(fabric, 0, 0, shifted(seen["ebpf", name][0].frame))
    assert seen["ebpf", name][1:] == once[1:] and len(once) == 7
    assert seen["ovs", name] == seen["ebpf", name][:1], "Open vSwitch drops it at the first switch"
