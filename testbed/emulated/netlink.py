"""The few netlink, ethtool and namespace calls that a running fabric needs at once, without
starting a process."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from agents.packets import rtnetlink
from agents.packets.rtnetlink import IFF_UP, LinkState

T = TypeVar("T")

OPER_UP: Final = 6
_DORMANT: Final = struct.pack("=HHB3x", 5, 16, 5)
"""IFLA_OPERSTATE with IF_OPER_DORMANT, the only state by which a process may replace OPER_UP
(net/core/rtnetlink.c)."""

GOES_ON: Final = 4_000_000_000
OPEN_BURST: Final = 1 << 20
ETH_P_PAUSE: Final = 0x8808
_NUDGE: Final = bytes(12) + ETH_P_PAUSE.to_bytes(2, "big") + bytes(46)

_TCA_STATS2, _TCA_STATS_QUEUE = 7, 3
_CLONE_NEWNET = 0x40000000
_SIOCETHTOOL = 0x8946
_libc = ctypes.CDLL(None, use_errno=True)


def in_namespace(fd: int, work: Callable[[], T]) -> T:
    """Run ``work`` on a thread of its own; sockets it opens stay in the namespace. Raises what
    ``work`` raises."""

    def enter() -> T:
        if _libc.setns(fd, _CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, f"cannot enter a network namespace: {os.strerror(code)}")
        return work()

    return _on_thread(enter)


def new_namespace() -> int:
    """The namespace lives as long as the descriptor, and what runs inside it."""

    def make() -> int:
        if _libc.unshare(_CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, f"cannot make a network namespace: {os.strerror(code)}")
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    return _on_thread(make)


def _on_thread(work: Callable[[], T]) -> T:
    outcome: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=body, name="mrcbed-netns")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _route_socket() -> socket.socket:
    return socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
    )


class LinkSocket:
    """Calls may come from several threads."""

    def __init__(self, namespace: int, groups: int = 0) -> None:
        self._sock = in_namespace(namespace, _route_socket)
        self._sock.bind((0, groups))
        self._lock = threading.Lock()
        self._serial = 0

    def _ask(self, kind: int, flags: int, body: bytes) -> list[LinkState]:
        with self._lock:
            self._serial += 1
            self._sock.send(rtnetlink.request(kind, flags, self._serial, body))
            states: list[LinkState] = []
            while True:
                for answer in rtnetlink.messages(self._sock.recv(1 << 18)):
                    if answer.serial != self._serial:
                        continue
                    if answer.kind == rtnetlink.NLMSG_ERROR:
                        code = rtnetlink.error(answer)
                        if code:
                            raise OSError(code, os.strerror(code))
                        return states
                    if answer.kind == rtnetlink.NLMSG_DONE:
                        return states
                    if answer.kind == rtnetlink.RTM_NEWLINK:
                        states.append(rtnetlink.link_state(answer.body))

    def set_up(self, ifindex: int, up: bool) -> None:
        """Do `ip link set ... up` or `down`; returns when the kernel has done it.

        Down takes back the operational state too. The kernel does that later, and an interface that
        is up again before would still be OPER_UP while its queue is off, and swallow frames
        uncounted (seen on Linux 6.1).
        """
        body = rtnetlink.link(ifindex, IFF_UP if up else 0, IFF_UP) + (b"" if up else _DORMANT)
        self._ask(rtnetlink.RTM_NEWLINK, rtnetlink.NLM_F_ACK, body)

    def wait(self, ifindex: int) -> None:
        """Wait for pending interface changes: an empty change takes the kernel's lock after
        them."""
        self._ask(rtnetlink.RTM_NEWLINK, rtnetlink.NLM_F_ACK, rtnetlink.link(ifindex))

    def get(self, ifindex: int) -> LinkState:
        return self._ask(rtnetlink.RTM_GETLINK, rtnetlink.NLM_F_ACK, rtnetlink.link(ifindex))[0]

    def dump(self) -> dict[int, LinkState]:
        return {
            s.ifindex: s
            for s in self._ask(rtnetlink.RTM_GETLINK, rtnetlink.NLM_F_DUMP, rtnetlink.link())
        }

    def close(self) -> None:
        self._sock.close()


class QueueSocket:
    def __init__(self, namespace: int) -> None:
        self._sock = in_namespace(namespace, _route_socket)
        self._sock.bind((0, 0))
        self._sock.settimeout(1.0)
        self._serial = 0

    def backlog(self, ifindex: int, handle: int) -> int | None:
        self._serial += 1
        body = rtnetlink.queue(ifindex, handle << 16)
        # ECHO: older kernels tell it to listeners alone, and to whoever asked only then.
        self._sock.send(
            rtnetlink.request(rtnetlink.RTM_GETQDISC, rtnetlink.NLM_F_ECHO, self._serial, body)
        )
        while True:
            for answer in rtnetlink.messages(self._sock.recv(1 << 16)):
                if answer.serial == self._serial:
                    return _backlog(answer.body) if answer.kind == rtnetlink.RTM_NEWQDISC else None

    def close(self) -> None:
        self._sock.close()


class PauseSocket:
    """Pauses the data class of ports of one namespace (PFC), on one thread. ``frame``: bytes of the
    longest frame."""

    def __init__(self, namespace: int, handle: int, parent: int, frame: int, limit: int) -> None:
        self._sock = in_namespace(namespace, _route_socket)
        self._sock.bind((0, 0))
        self._sock.settimeout(10.0)  # others may have the kernel's lock on interfaces
        self._raw = in_namespace(
            namespace,
            lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0),
        )
        self._queue = (handle, parent)
        self._frame, self._limit = frame, limit
        self._serial = 0

    def pause(self, ifindex: int) -> None:
        """Stop the data class; returns when the kernel has done it. One frame more may leave: a
        changed token bucket is full, and one that could not hold a frame would drop what comes.
        Raises OSError."""
        self._change(ifindex, rtnetlink.STOPPED, self._frame)

    def go_on(self, ifindex: int, name: str) -> None:
        """Let the data class go on. After the change alone the kernel would look at the queue
        within a second; a frame that the port's queues refuse makes it look at once. Raises
        OSError."""
        self._change(ifindex, GOES_ON, OPEN_BURST)
        try:
            self._raw.sendto(_NUDGE, (name, ETH_P_PAUSE))
        except OSError:
            pass  # as intended: refused; or the port is down, and starts empty when it is back

    def _change(self, ifindex: int, rate: int, burst: int) -> None:
        self._serial += 1
        body = rtnetlink.token_bucket(ifindex, *self._queue, rate, burst, self._limit)
        self._sock.send(
            rtnetlink.request(rtnetlink.RTM_NEWQDISC, rtnetlink.NLM_F_ACK, self._serial, body)
        )
        while True:
            for answer in rtnetlink.messages(self._sock.recv(1 << 16)):
                if answer.serial == self._serial and answer.kind == rtnetlink.NLMSG_ERROR:
                    if code := rtnetlink.error(answer):
                        raise OSError(code, f"cannot change a queue: {os.strerror(code)}")
                    return

    def close(self) -> None:
        self._sock.close()
        self._raw.close()


def _backlog(payload: bytes) -> int | None:
    for kind, value in rtnetlink.attributes(payload, 20):
        if kind == _TCA_STATS2:
            for inner, stats in rtnetlink.attributes(value):
                if inner == _TCA_STATS_QUEUE:
                    return int(struct.unpack_from("=II", stats)[1])
    return None


class LinkEvents:
    def __init__(self, namespace: int) -> None:
        self._sock = in_namespace(namespace, _route_socket)
        # SO_RCVBUFFORCE: a plane of links may go at once
        self._sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)
        self._sock.bind((0, rtnetlink.RTMGRP_LINK))
        self._sock.setblocking(False)

    def fileno(self) -> int:
        return self._sock.fileno()

    def read(self) -> list[LinkState] | None:
        """Return None if changes were lost: the caller must then read all interfaces."""
        states: list[LinkState] = []
        while True:
            try:
                data = self._sock.recv(1 << 18)
            except BlockingIOError:
                return states
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    return None
                raise
            states += [
                rtnetlink.link_state(m.body)
                for m in rtnetlink.messages(data)
                if m.kind == rtnetlink.RTM_NEWLINK
            ]

    def close(self) -> None:
        self._sock.close()


_OFFLOADS = {"tx checksum": 0x17, "scatter-gather": 0x19, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}


def offloads_off(namespace: int, names: Iterable[str]) -> None:
    """Turn off what puts frames on a veth that no wire could carry. Raises OSError naming the
    interface."""

    def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            value = ctypes.create_string_buffer(8)
            for name in names:
                for feature, command in _OFFLOADS.items():
                    struct.pack_into("=II", value, 0, command, 0)
                    try:
                        fcntl.ioctl(
                            sock,
                            _SIOCETHTOOL,
                            struct.pack("16sP16x", name.encode(), ctypes.addressof(value)),
                        )
                    except OSError as error:
                        raise OSError(
                            error.errno, f"{name}: cannot turn {feature} off: {error.strerror}"
                        ) from None

    in_namespace(namespace, work)


def read_sysctls(namespace: int, names: Iterable[str]) -> dict[str, str]:
    """Names are paths below /proc/sys; the result lacks those that this kernel lacks."""

    def work() -> dict[str, str]:
        values = {}
        for name in names:
            try:
                with open(f"/proc/sys/{name}") as file:
                    values[name] = file.read().strip()
            except FileNotFoundError:
                pass
        return values

    return in_namespace(namespace, work)


def write_sysctls(namespace: int, values: dict[str, str]) -> None:
    def work() -> None:
        for path, value in values.items():
            with open(f"/proc/sys/{path}", "w") as file:
                file.write(value)

    in_namespace(namespace, work)
