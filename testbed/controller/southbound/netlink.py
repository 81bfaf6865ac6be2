"""Hears about interfaces of another network namespace from a process that stays in its own.

A raw netlink socket is made during a brief visit to the namespace; it keeps hearing from there. pyroute2 only parses: its own
sockets do not work under eventlet's monkey-patch. The socket also keeps the namespace alive: whoever takes a
fabric down must end the controller for the namespace to go.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import time
from collections.abc import Mapping

from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE
from pyroute2.netlink.rtnl import RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK, RTMGRP_LINK
from pyroute2.netlink.rtnl.ifinfmsg import IFF_LOWER_UP, IFF_UP, ifinfmsg

from testbed.controller.southbound.base import PortReport
from testbed.errors import UserError

CLONE_NEWNET = 0x40000000
RECEIVE_BUFFER = 8 << 20
"""Bytes; a whole `wide` fabric going down at once is under 2 MB of messages [ours]."""
HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port id: struct nlmsghdr
REQUEST = struct.pack("=IHHII", 32, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + bytes(16)
UP = IFF_UP | IFF_LOWER_UP


def socket_in(netns: str) -> socket.socket:
    """A route netlink socket that belongs to another namespace; the caller's thread is back in its own on return.

    Raises UserError if the namespace cannot be entered. A thread that could not get back would act on the wrong
    namespace from then on: that raises RuntimeError and must end the process.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            there = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(f"controller: no network namespace at {netns}: {error.strerror}") from None
        try:
            if libc.setns(there, CLONE_NEWNET):
                raise UserError(f"controller: cannot enter network namespace {netns}: {os.strerror(ctypes.get_errno())} (root is needed)")
            try:
                return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
            finally:
                if libc.setns(own, CLONE_NEWNET):
                    raise RuntimeError("cannot return to the own network namespace")
        finally:
            os.close(there)
    finally:
        os.close(own)


class LinkWatcher:
    """Reports on the interfaces it was given, by ifindex."""

    def __init__(self, netns: str, ports: Mapping[int, str]) -> None:
        """Raises UserError if the namespace cannot be entered."""
        self._ports = ports
        self._seen: set[str] | None = None  # ports met in the dump under way, None outside of one
        self._socket = socket_in(netns)
        so_rcvbufforce = 33  # not in Python's socket module; goes past rmem_max, which needs root
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, so_rcvbufforce, RECEIVE_BUFFER)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._socket.bind((0, RTMGRP_LINK))

    def snapshot(self) -> list[PortReport]:
        """The state of every port now (and of what changed meanwhile, in order)."""
        self._ask()
        reports: list[PortReport] = []
        while self._seen is not None:
            reports += self.wait()
        return reports

    def wait(self) -> list[PortReport]:
        """Block until the kernel says something; reports for the ports it spoke of, often none."""
        try:
            data = self._socket.recv(1 << 18)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise UserError(f"controller: lost the kernel's link events: {error.strerror}") from None
            self._ask()  # messages were lost: ask for the whole truth
            return []
        return self._parse(data, time.monotonic_ns())

    def _ask(self) -> None:
        self._socket.send(REQUEST)
        self._seen = set()

    def _parse(self, data: bytes, now: int) -> list[PortReport]:
        reports: list[PortReport] = []
        offset = 0
        while offset + HEADER.size <= len(data):
            length, kind = HEADER.unpack_from(data, offset)[:2]
            if length < HEADER.size:
                break
            if kind in (RTM_NEWLINK, RTM_DELLINK):
                message = ifinfmsg(data, offset=offset)
                message.decode()
                port = self._ports.get(message["index"])
                if port is not None:
                    up = kind == RTM_NEWLINK and message["flags"] & UP == UP
                    reports.append(PortReport(port, up, now))
                    if self._seen is not None:
                        self._seen.add(port)
            elif kind == NLMSG_DONE and self._seen is not None:
                reports += [PortReport(port, False, now) for port in self._ports.values() if port not in self._seen]
                self._seen = None
            offset += (length + 3) & ~3
        return reports
