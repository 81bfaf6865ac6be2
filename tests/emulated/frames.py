"""Frames and packet sockets for tests of the fabric: what an agent would send, byte by byte,
without an agent."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from agents.packets import dscp
from testbed.dataplane.counters import books
from testbed.emulated.cluster import Cluster
from testbed.emulated.netlink import in_namespace
from tests.emulated.ring import PATIENCE_S, quiet, wait_until
from topologies import addressing

ETH_P_IPV6 = 0x86DD
OTHERHOST = 3
SO_TIMESTAMPNS = 35
INTO_THE_SOCKET_S = 0.05
"""Between a host's counter of arrivals and its sockets lies the rest of one interrupt."""


class Got(NamedTuple):
    port: str
    kind: int  # the packet socket's sll_pkttype
    frame: bytes
    at: float  # when the kernel had it, seconds: how late this process reads it does not matter


def ipv6(
    src: bytes,
    dst: bytes,
    next_header: int,
    payload: bytes,
    hop_limit: int = 64,
    dscp_class: int = dscp.NO_TRIM,
) -> bytes:
    return (
        struct.pack("!IHBB", 6 << 28 | dscp_class << 22, len(payload), next_header, hop_limit)
        + src
        + dst
        + payload
    )


def mrc(
    src: int,
    dst: int,
    path: bytes,
    body: bytes = b"",
    *,
    hop_limit: int = 64,
    dscp_class: int = dscp.NO_TRIM,
    udp_port: int = 4791,
) -> bytes:
    """A frame that a switch takes for MRC: Ethernet, outer IPv6 to ``path``, inner IPv6, UDP,
    ``body``."""
    a, b = addressing.inner_address(src), addressing.inner_address(dst)
    udp = struct.pack("!HHHH", 49152, udp_port, 8 + len(body), 0) + body
    # A right checksum, so that it is not for a wrong one that the kernel keeps silent.
    pseudo = a + b + struct.pack("!II", len(udp), 17) + udp + bytes(len(udp) % 2)
    total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
    udp = udp[:6] + struct.pack("!H", (~(total % 0xFFFF) & 0xFFFF) or 0xFFFF) + udp[8:]
    inner = ipv6(a, b, 17, udp)
    outer = ipv6(a, path, 41, inner, hop_limit, dscp_class)
    return addressing.ROUTER_MAC + addressing.HOST_MAC + struct.pack("!H", ETH_P_IPV6) + outer


class Wire:
    """Packet sockets of one host: one sender per port, one unbound receiver."""

    def __init__(self, cluster: Cluster, host: int) -> None:
        self.cluster = cluster
        self.name = f"h{host}"
        space = cluster.net.namespaces[self.name]
        self.receiver = in_namespace(
            space,
            lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IPV6)),
        )
        self.receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
        self.receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.sender = in_namespace(
            space, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        )
        self.sender.setsockopt(socket.SOL_SOCKET, 32, 1 << 26)  # SO_SNDBUFFORCE

    def send(self, plane: int, frame: bytes) -> bool:
        """Whether the kernel took it."""
        try:
            self.sender.sendto(frame, (f"{self.name}-p{plane}", 0))
        except OSError:
            return False
        return True

    def receive(self, count: int, timeout: float = PATIENCE_S, linger: float = 0.0) -> list[Got]:
        """``count`` frames, or fewer after ``timeout``; then what else comes within ``linger``
        seconds."""
        got: list[Got] = []
        until = time.monotonic() + timeout
        while True:
            if len(got) == count:
                until = time.monotonic() + linger if linger else 0.0
                count = -1
            if not select.select([self.receiver], [], [], max(0.0, until - time.monotonic()))[0]:
                return got
            frame, (extra,), _, (port, _, kind, _, _) = self.receiver.recvmsg(65536, 64)
            seconds, ns = struct.unpack("=qq", extra[2])
            got.append(Got(port, kind, frame, seconds + ns / 1e9))

    def close(self) -> None:
        self.receiver.close()
        self.sender.close()


@contextmanager
def wires_of(cluster: Cluster) -> Iterator[list[Wire]]:
    """Of all its hosts, open for so long."""
    made = [Wire(cluster, h) for h in range(cluster.fabric.host_count)]
    yield made
    for wire in made:
        wire.close()


def at_rest(cluster: Cluster) -> bool:
    """Wait until every packet has an account: none waits at a port, or in a switch that forwards in
    user space. False if one is lost."""
    return wait_until(lambda: quiet(cluster) and books(cluster.counters()) == [])


def arrived(wire: Wire) -> list[Got]:
    """All that a host has been sent, once everything is at rest."""
    assert at_rest(wire.cluster)
    return wire.receive(1 << 30, timeout=INTO_THE_SOCKET_S)


def change(
    before: list[dict[str, int]], after: list[dict[str, int]], column: str
) -> dict[str, int]:
    """Ports whose counter moved, and by how much."""
    return {
        str(b["port"]): b[column] - a[column]
        for a, b in zip(before, after, strict=True)
        if b[column] != a[column]
    }
