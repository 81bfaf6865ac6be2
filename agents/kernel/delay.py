"""The delay that the emulated cables lack, for what the kernel's own sockets receive.

Used by agents.kernel.device. The routes of testbed/emulated/kernel_paths.py hand the inner packets that reach a host to a TUN; here each is
read, held for as long as agents.nic.delay_line holds a frame (the delay, and its time on each wire), and written back, whereupon the
kernel delivers it to its socket.
"""

from __future__ import annotations

import errno
import fcntl
import heapq
import os
import socket
import struct

from agents.kernel.options import TUN
from agents.transport import LONG_AGO, NEVER
from topologies.addressing import host_of_inner, host_of_plane
from topologies.clos import ETHERNET, IPV6, Fabric

IFF_TUN, IFF_NO_PI, TUNSETIFF = 0x0001, 0x1000, 0x400454CA
LARGEST = 1 << 16
MOST = 256
"""Packets read in one turn, so that sockets get theirs."""


class Delay:
    """Packets on their way to this host's sockets, by the time they are due (monotonic ns). ``fd``: reads and writes packets, and never
    blocks."""

    def __init__(self, fabric: Fabric, host: int, fd: int) -> None:
        self.held = 0  # packets so far
        self.refused = 0  # that the kernel did not take back
        self._fd = fd
        self._t0_of, self._own_t0 = fabric.t0_of, fabric.t0_of(host)
        self._delay, self._nic_rate, self._fabric_rate = fabric.delay_ns, fabric.nic_rate, fabric.fabric_rate
        self._waiting: list[tuple[int, int, bytes]] = []  # a heap: (due, number, packet)
        self._last: dict[bytes, int] = {}  # by source and destination: when the last one is due, for a path changes no order

    @classmethod
    def here(cls, fabric: Fabric, host: int) -> Delay | None:
        """On the TUN of this network namespace, as root; None where there is none, and packets arrive at once. Raises OSError."""
        try:
            socket.if_nametoindex(TUN)
        except OSError:
            return None
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", TUN.encode(), IFF_TUN | IFF_NO_PI))
        except OSError:
            os.close(fd)
            raise
        return cls(fabric, host, fd)

    def fileno(self) -> int:
        return self._fd

    @property
    def due(self) -> int:
        """When the next packet is due; NEVER without one."""
        return self._waiting[0][0] if self._waiting else NEVER

    def take(self, now: int) -> None:
        """Read what has arrived."""
        for _ in range(MOST):
            try:
                packet = os.read(self._fd, LARGEST)
            except BlockingIOError:
                return
            self.put(now, packet)

    def put(self, now: int, packet: bytes) -> None:
        """An IPv6 packet arrived. Of what is none of the fabric's the delay is that of the longest path."""
        pair = packet[8:IPV6]
        source = max(host_of_inner(pair[:16]), host_of_plane(pair[:16])[1])
        bits = 8_000_000_000 * (len(packet) + IPV6 + ETHERNET)
        due = now + self._delay + 2 * bits // self._nic_rate
        if source < 0 or self._t0_of(source) != self._own_t0:
            due += 2 * bits // self._fabric_rate
        due = max(due, self._last.get(pair, LONG_AGO))
        self._last[pair] = due
        self.held += 1
        heapq.heappush(self._waiting, (due, self.held, packet))

    def release(self, now: int) -> None:
        """Give the kernel what is due."""
        while self._waiting and self._waiting[0][0] <= now:
            packet = heapq.heappop(self._waiting)[2]
            try:
                os.write(self._fd, packet)
            except OSError as error:
                if error.errno == errno.EBADFD:  # the TUN is gone: so is the host
                    self._waiting.clear()
                self.refused += 1

    def close(self) -> None:
        os.close(self._fd)
