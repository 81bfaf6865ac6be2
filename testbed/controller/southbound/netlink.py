"""Receives events of interfaces in another network namespace, in a process that stays in its own.

A raw netlink socket stays connected to the namespace in which it was opened, and keeps that alive
until the controller ends.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Callable, Mapping

from agents.packets import rtnetlink
from testbed.controller.southbound.base import PortReport
from testbed.errors import UserError

CLONE_NEWNET = 0x40000000
RECEIVE_BUFFER = 8 << 20
"""A whole `wide` fabric going down at once is under 2 MB of messages [ours]."""
REQUEST = rtnetlink.request(rtnetlink.RTM_GETLINK, rtnetlink.NLM_F_DUMP, 1, rtnetlink.link())


def socket_in(netns: str) -> socket.socket:
    """Open a socket there. The thread is back in its own namespace afterwards. Raises UserError if
    the namespace cannot be entered, RuntimeError if the thread cannot return: that must end the
    process."""
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            target = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(
                f"controller: no network namespace at {netns}: {error.strerror}"
            ) from None
        try:
            if libc.setns(target, CLONE_NEWNET):
                raise UserError(
                    f"controller: cannot enter network namespace {netns}: "
                    f"{os.strerror(ctypes.get_errno())} (root is needed)"
                )
            try:
                return socket.socket(
                    socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
                )
            finally:
                if libc.setns(own, CLONE_NEWNET):
                    raise RuntimeError("cannot return to the own network namespace")
        finally:
            os.close(target)
    finally:
        os.close(own)


def link_socket(netns: str) -> int:
    with socket_in(netns) as sock:
        so_rcvbufforce = 33  # not in Python's socket module; goes past rmem_max, which needs root
        try:
            sock.setsockopt(socket.SOL_SOCKET, so_rcvbufforce, RECEIVE_BUFFER)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        sock.bind((0, rtnetlink.RTMGRP_LINK))
        return os.dup(sock.fileno())


class LinkWatcher:
    def __init__(self, links: int, ports: Mapping[int, str], now: Callable[[], int]) -> None:
        self._ports, self._now = ports, now
        # ports met in the dump under way, None outside of one
        self._reported: set[str] | None = None
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE, fileno=links
        )

    def snapshot(self) -> list[PortReport]:
        self._ask()
        reports: list[PortReport] = []
        while self._reported is not None:
            reports += self.wait()
        return reports

    def wait(self) -> list[PortReport]:
        try:
            data = self._socket.recv(1 << 18)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise UserError(
                    f"controller: lost the kernel's link events: {error.strerror}"
                ) from None
            self._ask()  # messages were lost: ask for the state of all interfaces
            return []
        return self._parse(data, self._now())

    def _ask(self) -> None:
        self._socket.send(REQUEST)
        self._reported = set()

    def _parse(self, data: bytes, now: int) -> list[PortReport]:
        reports: list[PortReport] = []
        for message in rtnetlink.messages(data):
            if message.kind in (rtnetlink.RTM_NEWLINK, rtnetlink.RTM_DELLINK):
                state = rtnetlink.link_state(message.body)
                port = self._ports.get(state.ifindex)
                if port is not None:
                    reports.append(
                        PortReport(
                            port, message.kind == rtnetlink.RTM_NEWLINK and state.carries, now
                        )
                    )
                    if self._reported is not None:
                        self._reported.add(port)
            elif message.kind == rtnetlink.NLMSG_DONE and self._reported is not None:
                reports += [
                    PortReport(port, False, now)
                    for port in self._ports.values()
                    if port not in self._reported
                ]
                self._reported = None
        return reports
