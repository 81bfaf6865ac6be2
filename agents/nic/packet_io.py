"""Raw packet I/O of one host: a memory-mapped receive ring for all NIC ports and one sending socket
per port.

The kernel gets header, payload (a view of registered memory) and trailer without a join. Sockets go
on working after root is dropped.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import socket
import struct
import time
from typing import Any, Final

from agents.clock import WallClock
from agents.delay_line import DelayLine
from agents.nic.receive_ring import ReceiveRing
from agents.packets import rtnetlink
from agents.transport import FrameIO
from topologies.clos import Fabric
from topologies.units import BYTE

ETH_P_IPV6: Final = 0x86DD
SOL_PACKET: Final = 263
PACKET_RX_RING: Final = 5
PACKET_STATISTICS: Final = 6
PACKET_VERSION: Final = 10
TPACKET_V2: Final = 1
SO_ATTACH_FILTER: Final = 26
SO_SNDBUFFORCE: Final = 32
SEND_BUFFER: Final = 64 << 20
"""An skb charges its sender until the far end has it: a small buffer, in bytes, would make the
fabric lossless."""
BLOCK: Final = 1 << 18
RING_BYTES: Final = 16 << 20
"""Most bytes of a receive ring. The kernel clears all of it when it is made."""
FAR_RINGS: Final = 4
RING_S: Final = 4
"""A receive ring holds so many seconds (wall time) of all ports at line rate [ours]."""
CARRIER: Final = 0
PAUSE: Final = 1
"""Kinds of the kernel's news about a port: its carrier; whether its data class is paused (PFC)."""
IFF_RUNNING: Final = 1 << 6
SIOCGIFFLAGS: Final = 0x8913
PR_CAPBSET_DROP: Final = 24
PR_SET_NO_NEW_PRIVS: Final = 38
LIBC: Final = ctypes.CDLL(None, use_errno=True)


def _only_tunnelled_udp(ports: tuple[int, int]) -> bytes:
    ldb, ldh, jeq, ret = 0x30, 0x28, 0x15, 0x06
    code = (
        (ldb, 0, 0, 20), (jeq, 0, 6, 41),  # outer next header
        (ldb, 0, 0, 60), (jeq, 0, 4, 17),  # inner next header
        (ldh, 0, 0, 96), (jeq, 1, 0, ports[0]), (jeq, 0, 1, ports[1]),  # UDP destination
        (ret, 0, 0, 0xFFFFFFFF), (ret, 0, 0, 0),
    )  # fmt: skip
    return b"".join(struct.pack("=HBBI", *line) for line in code)


class PacketIO:
    """Needs CAP_NET_RAW when made. Raises OSError."""

    def __init__(
        self, fabric: Fabric, host: int, udp_ports: tuple[int, int], clock: WallClock
    ) -> None:
        self.ports = [f"h{host}-p{p}" for p in range(fabric.planes)]
        self.port_of: dict[int, int] = {
            socket.if_nametoindex(name): k for k, name in enumerate(self.ports)
        }
        self.out: list[socket.socket] = []
        self.receiver = self._open_ring(fabric, udp_ports, clock)
        for name in self.ports:
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
            s.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER)
            s.bind((name, 0))
            self.out.append(s)
        self.links = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
        )
        self.links.bind((0, rtnetlink.RTMGRP_LINK | (rtnetlink.RTMGRP_TC if fabric.pfc else 0)))
        self.ring_drops = 0

    def _open_ring(
        self, fabric: Fabric, udp_ports: tuple[int, int], clock: WallClock
    ) -> socket.socket:
        # Bound to no interface: one ring for all ports, and a port that goes down does not disturb
        # it.
        s = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(ETH_P_IPV6)
        )
        code = _only_tunnelled_udp(udp_ports)
        # The kernel wants a pointer to the program; compiled code drops locals early, so the buffer
        # lives in the object.
        self.filter = ctypes.create_string_buffer(code, len(code))
        s.setsockopt(
            socket.SOL_SOCKET,
            SO_ATTACH_FILTER,
            struct.pack("HL", len(code) // 8, ctypes.addressof(self.filter)),
        )
        s.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
        slot = (fabric.frame_bytes + 32 + 20 + 64 + 15) & ~15
        # a frame keeps its slot until it is due
        held_ps = clock.patience(RING_S) + fabric.long_haul_delay_ps
        frames = held_ps * fabric.host_rate // (BYTE * fabric.frame_bytes)
        most = RING_BYTES * (1 if fabric.sites == 1 else FAR_RINGS)
        blocks = int(min(2 * frames * slot, most - BLOCK)) // BLOCK + 1
        wanted = struct.pack("=IIII", BLOCK, blocks, slot, BLOCK // slot * blocks)
        # Not s.setsockopt, which keeps Python's lock while the kernel waits for an RCU grace
        # period: other hosts are opened meanwhile.
        if LIBC.setsockopt(s.fileno(), SOL_PACKET, PACKET_RX_RING, wanted, len(wanted)) != 0:
            raise OSError(ctypes.get_errno(), "the kernel refuses a receive ring")
        self.map = mmap.mmap(s.fileno(), blocks * BLOCK)
        self.ring = ReceiveRing(
            self.map, BLOCK, blocks, slot, self.port_of, DelayLine(fabric), clock
        )
        return s

    def receive(self, engine: FrameIO, now: int, most: int) -> int:
        """Returns how many frames were handed over."""
        real = time.time_ns()
        self.ring.look(time.monotonic_ns(), real)
        return self.ring.hand_over(engine, now, most)

    def send(self, engine: FrameIO, now: int, most: int) -> int:
        """Returns how many frames were sent."""
        n = 0
        while n < most:
            port = engine.transmit(now)
            if port < 0:
                break
            payload: Any = engine.tx_payload
            try:
                if payload is None and not engine.tx_trailer:
                    self.out[port].send(engine.tx_frame)
                else:
                    self.out[port].sendmsg(
                        (
                            engine.tx_frame,
                            payload if payload is not None else b"",
                            engine.tx_trailer,
                        )
                    )
            except OSError:
                # ENETDOWN, ENOBUFS: the port is down. Sent and lost; the transport recovers, nobody
                # retries here.
                engine.sent(now, port, False)
            else:
                engine.sent(now, port, True)
            n += 1
        return n

    def port_states(self) -> list[bool]:
        states = []
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
            for name in self.ports:
                (flags,) = struct.unpack_from(
                    "=16xH", fcntl.ioctl(s, SIOCGIFFLAGS, struct.pack("=16s24x", name.encode()))
                )
                states.append(flags & rtnetlink.IFF_UP != 0 and flags & IFF_RUNNING != 0)
        return states

    def news(self) -> list[tuple[int, int, bool]]:
        changes: list[tuple[int, int, bool]] = []
        while True:
            try:
                data = self.links.recv(65536)
            except BlockingIOError:
                return changes
            except OSError:
                # ENOBUFS: something was not told. What may be sent by mistake then waits in the
                # port's own queue
                changes += [(port, PAUSE, False) for port in self.port_of.values()]
                continue
            for message in rtnetlink.messages(data):
                if message.kind == rtnetlink.RTM_NEWLINK:
                    state = rtnetlink.link_state(message.body)
                    port = self.port_of.get(state.ifindex)
                    if port is not None:
                        changes.append((port, CARRIER, state.carries))
                elif message.kind == rtnetlink.RTM_NEWQDISC:
                    ifindex, rate = rtnetlink.token_rate(message.body)
                    port = self.port_of.get(ifindex)
                    if port is not None and rate >= 0:
                        changes.append((port, PAUSE, rate == rtnetlink.STOPPED))

    def waiting(self) -> int:
        real = time.time_ns()
        self.ring.look(time.monotonic_ns(), real)
        return self.ring.held

    def drops(self) -> int:
        _, dropped = struct.unpack(
            "=II", self.receiver.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        )
        self.ring_drops += dropped
        return self.ring_drops

    def close(self) -> None:
        self.ring.close()
        self.map.close()
        for s in (self.receiver, self.links, *self.out):
            s.close()


def drop_root(uid: int, gid: int) -> None:
    """Call after all sockets and files are open. Raises OSError where the kernel refuses."""
    if os.geteuid() == 0:
        capability = 0
        # until there is none of that number
        while LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
            capability += 1
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(
            ctypes.get_errno(), "the kernel does not let an agent give up privileges for good"
        )
