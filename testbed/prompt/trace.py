"""Follow one real packet along an EV, hop by hop. Used by the prompt; needs root and the fabric's namespaces.

A packet with a mark of its own (IPv6 in IPv6, inner next header 59: "no next header", which the receiving kernel drops in silence) is
sent source-routed from the first host, while sockets in the switches' namespace and at the last host watch every port go by.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from agents.packets import dscp, headers
from testbed.emulated import packet_sockets
from topologies.addressing import HOST_MAC, inner_address, path_address, text
from topologies.clos import Fabric

ETH_P_ALL = 3
PACKET_OUTGOING = 4
NO_NEXT_HEADER = 59


@dataclass(frozen=True)
class Hop:
    """The packet seen at a port; ``at_us`` after it was sent, as this process got to see it."""

    at_us: float
    port: str
    node: str
    leaving: bool
    address: str
    hop_limit: int


def socket_in(namespace: int, protocol: int) -> socket.socket:
    """A packet socket opened in another network namespace; this thread comes back to its own."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(namespace)
        try:
            return socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(protocol))
        finally:
            _setns(home)
    finally:
        os.close(home)


def _setns(fd: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")


def trace(
    fabric: Fabric, namespaces: Callable[[str], int], src: int, dst: int, ev: int, wait: float = 1.0, come_twice: bool = False
) -> list[Hop]:
    """Send one packet from host ``src`` to ``dst`` on ``ev`` and return where it was seen, in order.

    ``namespaces(node)`` gives a network namespace's descriptor, "" for the switches'. ``come_twice``: frames come in twice there
    (testbed/emulated/packet_sockets.py), and are shown once. Raises FabricError if the EV names no path.
    """
    mark = os.urandom(16)
    outer = path_address(fabric, src, dst, ev)
    inner = headers.ip_header(NO_NEXT_HEADER, len(mark), dscp.NO_TRIM, 0, 0, 64, inner_address(src), inner_address(dst)) + mark
    frame = HOST_MAC + HOST_MAC + b"\x86\xdd" + headers.ip_header(41, len(inner), dscp.NO_TRIM, 0, 0, 64, inner_address(src), outer) + inner
    owner = {p.name: p.node for p in fabric.ports}
    watchers = [socket_in(namespaces(""), ETH_P_ALL), socket_in(namespaces(f"h{dst}"), ETH_P_ALL)]
    if come_twice:
        packet_sockets.see(watchers[0], handed_over=False)
    sender = socket_in(namespaces(f"h{src}"), 0)
    hops: list[Hop] = []
    try:
        port = f"h{src}-p{ev >> 16}"
        started = time.monotonic_ns()
        hops.append(Hop(0.0, port, f"h{src}", True, text(outer), 64))
        try:
            sender.sendto(frame, (port, 0))
        except OSError:
            return hops
        end = time.monotonic() + wait
        arrived = False
        while not arrived and (remaining := end - time.monotonic()) > 0:
            select.select(watchers, [], [], remaining)
            for watcher in watchers:  # the switches' first: what they saw happened before the host's
                while True:
                    try:
                        data, address = watcher.recvfrom(65536)
                    except BlockingIOError:
                        break
                    if data[-16:] != mark or address[0] not in owner:
                        continue
                    name = address[0]
                    us = (time.monotonic_ns() - started) / 1000
                    hops.append(Hop(us, name, owner[name], address[2] == PACKET_OUTGOING, text(data[38:54]), data[21]))
                    arrived = arrived or watcher is watchers[1]
        return hops
    finally:
        for s in (*watchers, sender):
            s.close()
