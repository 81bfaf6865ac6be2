"""Gives what the kernel's own sockets receive the delay that the emulated cables lack.

A host's frames come from a TUN (testbed/emulated/kernel_paths.py). Each is held in the delay line,
decapsulated, and written back: the kernel delivers it.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

from agents import tun
from agents.delay_line import DelayLine
from agents.kernel.options import TUN
from topologies.addressing import BLOCK, usid_fields
from topologies.clos import ETHERNET, IPV6, Fabric

LARGEST = 1 << 16
MOST = 256
NEXT_HEADER, HOP_LIMIT = 6, 7
IPV6_IN_IPV6 = 41


class Delay:
    def __init__(self, fabric: Fabric, fd: int) -> None:
        self.held = 0  # packets so far
        self.refused = 0  # that the kernel did not take back
        self._fd = fd
        self._planes = fabric.planes
        self._line = DelayLine(fabric)
        self._waiting: dict[int, bytes] = {}  # decapsulated, by place in the line
        self._free: list[int] = []  # places

    @classmethod
    def here(cls, fabric: Fabric) -> Delay | None:
        """Open this namespace's TUN, as root; None without one. Raises OSError."""
        try:
            socket.if_nametoindex(TUN)
        except OSError:
            return None
        return cls(fabric, tun.attach(TUN))

    def fileno(self) -> int:
        return self._fd

    @property
    def due(self) -> int:
        return self._line.next

    def take(self, clock: Callable[[], int]) -> None:
        for _ in range(MOST):
            try:
                packet = os.read(self._fd, LARGEST)
            except BlockingIOError:
                return
            # read after it came: by the turn's begin a packet that came meanwhile would be early
            self.put(clock(), packet)

    def put(self, now: int, packet: bytes) -> None:
        """The kernel itself sends some packets to every interface; they end here."""
        if len(packet) <= 2 * IPV6 or packet[NEXT_HEADER] != IPV6_IN_IPV6 or packet[24:28] != BLOCK:
            return
        plane = usid_fields(int.from_bytes(packet[28:30], "big"))[0]
        if plane >= self._planes:
            return
        place = self._free.pop() if self._free else len(self._waiting)
        klass = int.from_bytes(packet[:2], "big") >> 6 & 0x3F
        self._waiting[place] = packet[IPV6:]
        self._line.put(place, now, plane, klass, packet[HOP_LIMIT], len(packet) + ETHERNET)
        self.held += 1

    def release(self, now: int) -> None:
        while self._line.next <= now:
            place = self._line.take()
            self._free.append(place)
            try:
                os.write(self._fd, self._waiting.pop(place))
            except OSError as error:
                if error.errno == errno.EBADFD:  # the TUN is gone: so is the host
                    return
                self.refused += 1

    def close(self) -> None:
        os.close(self._fd)
