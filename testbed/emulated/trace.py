"""Follows one real packet along an EV, hop by hop, on one machine or several; needs root and the
fabric's namespaces.

The packet has a mark of its own: IPv6 in IPv6, inner next header 59, which the receiving kernel
drops in silence.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.packets import dscp, headers
from testbed.emulated import packet_sockets
from topologies.addressing import HOST_MAC, inner_address, path_address, text
from topologies.clos import Fabric

ETH_P_ALL = 3
PACKET_OUTGOING = 4
NO_NEXT_HEADER = 59
SO_TIMESTAMPNS = 35


@dataclass(frozen=True)
class Hop:
    at_us: float
    port: str
    node: str
    leaving: bool
    address: str
    hop_limit: int


def socket_in(namespace: int, protocol: int) -> socket.socket:
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(namespace)
        try:
            return socket.socket(
                socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(protocol)
            )
        finally:
            _setns(home)
    finally:
        os.close(home)


def _setns(fd: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")


def frame_of(fabric: Fabric, src: int, dst: int, ev: int, mark: bytes) -> bytes:
    outer = path_address(fabric, src, dst, ev)
    inner = (
        headers.ip_header(
            NO_NEXT_HEADER,
            len(mark),
            dscp.NO_TRIM,
            0,
            0,
            64,
            inner_address(src),
            inner_address(dst),
        )
        + mark
    )
    ip = headers.ip_header(41, len(inner), dscp.NO_TRIM, 0, 0, 64, inner_address(src), outer)
    return HOST_MAC + HOST_MAC + b"\x86\xdd" + ip + inner


class Sight:
    """``come_twice``: frames come in twice in the switches' namespace, and are shown once. ``dst``
    is watched if it is in ``namespaces``."""

    def __init__(
        self, fabric: Fabric, namespaces: Mapping[str, int], dst: int, come_twice: bool = False
    ) -> None:
        self._owner = {p.name: p.node for p in fabric.ports}
        self._watchers = [
            socket_in(namespaces[node], ETH_P_ALL) for node in ("", f"h{dst}") if node in namespaces
        ]
        for watcher in self._watchers:
            watcher.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._sees_host = len(self._watchers) > 1
        if come_twice:
            packet_sockets.see(self._watchers[0], handed_over=False)

    def follow(self, mark: bytes, wall_started_ns: int, wait: float) -> list[Hop]:
        hops: list[Hop] = []
        behind = time.monotonic_ns() - time.time_ns()  # the kernel stamps with the clock of the day
        end = time.monotonic() + wait
        arrived = False
        while not arrived:
            select.select(self._watchers, [], [], max(0.0, end - time.monotonic()))
            over = time.monotonic() >= end
            # the switches' first: what they saw happened before the host's
            for watcher in self._watchers:
                for data, address, stamp in _frames(watcher):
                    if data[-16:] != mark or address[0] not in self._owner:
                        continue
                    name, us = address[0], max(0.0, (stamp + behind - wall_started_ns) / 1000)
                    hops.append(
                        Hop(
                            us,
                            name,
                            self._owner[name],
                            address[2] == PACKET_OUTGOING,
                            text(data[38:54]),
                            data[21],
                        )
                    )
                    arrived = arrived or (self._sees_host and watcher is self._watchers[1])
            if over:
                break
        return hops

    def close(self) -> None:
        for watcher in self._watchers:
            watcher.close()


def _frames(watcher: socket.socket) -> Iterator[tuple[bytes, Any, int]]:
    while True:
        try:
            data, extra, _, address = watcher.recvmsg(65536, 64)
        except BlockingIOError:
            return
        seconds, ns = next(
            (struct.unpack("=qq", value) for _, kind, value in extra if kind == SO_TIMESTAMPNS),
            (0, time.time_ns()),
        )
        yield data, address, seconds * 1_000_000_000 + ns


def send(namespace: int, port: str, frame: bytes) -> bool:
    sender = socket_in(namespace, 0)
    try:
        sender.sendto(frame, (port, 0))
    except OSError:
        return False
    finally:
        sender.close()
    return True


def first_hop(fabric: Fabric, src: int, dst: int, ev: int) -> Hop:
    return Hop(
        0.0, f"h{src}-p{ev >> 16}", f"h{src}", True, text(path_address(fabric, src, dst, ev)), 64
    )


def trace(
    fabric: Fabric,
    namespaces: Mapping[str, int],
    src: int,
    dst: int,
    ev: int,
    wait: float = 1.0,
    come_twice: bool = False,
) -> list[Hop]:
    """Return where the packet was seen, in order. ``namespaces``: node -> network namespace's
    descriptor, "" for the switches'. Raises FabricError if the EV names no path."""
    mark = os.urandom(16)
    frame = frame_of(fabric, src, dst, ev, mark)
    sight = Sight(fabric, namespaces, dst, come_twice)
    try:
        hops = [first_hop(fabric, src, dst, ev)]
        started = time.monotonic_ns()
        if send(namespaces[f"h{src}"], hops[0].port, frame):
            hops += sight.follow(mark, started, wait)
        return hops
    finally:
        sight.close()
