"""Finds the path to which the kernel's hash maps a flow, by a query of its routing table, as `ip
route get ... sport ... dport`. Needs no root."""

from __future__ import annotations

import socket
import struct

from agents.packets import rtnetlink
from topologies.addressing import host_of_inner, host_of_plane, path_address
from topologies.clos import Fabric
from topologies.paths import path_evs

RTA_DST, RTA_SRC, RTA_ENCAP, RTA_IP_PROTO, RTA_SPORT, RTA_DPORT = 1, 2, 22, 27, 28, 29
SEG6_IPTUNNEL_SRH = 1
Flow = tuple[bytes, int, bytes, int]
"""Source address and port, destination address and port."""


class Routes:
    def __init__(self, fabric: Fabric, host: int) -> None:
        self.fabric, self.host = fabric, host
        self._known: dict[Flow, int] = {}
        self._evs: dict[tuple[int, bytes], int] = {}  # by peer and outer address
        self._peers: set[int] = set()
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        self._socket.settimeout(0.5)
        self._number = 0

    def ev(self, flow: Flow) -> int:
        """Return -1 where the kernel has no path."""
        if flow not in self._known:
            self._known[flow] = self._ask(flow)
        return self._known[flow]

    def forget(self) -> None:
        self._known.clear()

    def close(self) -> None:
        self._socket.close()

    def _ask(self, flow: Flow) -> int:
        self._number += 1
        self._socket.send(request(flow, self._number))
        try:
            answer = self._receive()
            while answer.serial < self._number:  # the late answer to an earlier request
                answer = self._receive()
        except TimeoutError:
            return -1
        segment = first_segment(answer)
        address = flow[2]
        peer = max(host_of_inner(address), host_of_plane(address)[1])
        if not segment or not 0 <= peer < self.fabric.host_count or peer == self.host:
            return -1
        if peer not in self._peers:
            self._peers.add(peer)
            self._evs |= {
                (peer, path_address(self.fabric, self.host, peer, ev)): ev
                for ev in path_evs(self.fabric, self.host, peer)
            }
        return self._evs.get((peer, segment), -1)

    def _receive(self) -> rtnetlink.Message:
        return rtnetlink.messages(self._socket.recv(65536))[0]


def request(flow: Flow, number: int) -> bytes:
    src, sport, dst, dport = flow
    body = struct.pack("=BBBBBBBBI", socket.AF_INET6, 128, 128, 0, 0, 0, 0, 0, 0)
    body += rtnetlink.attribute(RTA_DST, dst) + rtnetlink.attribute(RTA_SRC, src)
    body += rtnetlink.attribute(RTA_IP_PROTO, bytes([socket.IPPROTO_TCP]))
    body += rtnetlink.attribute(RTA_SPORT, struct.pack("!H", sport)) + rtnetlink.attribute(
        RTA_DPORT, struct.pack("!H", dport)
    )
    return rtnetlink.request(rtnetlink.RTM_GETROUTE, 0, number, body)


def first_segment(answer: rtnetlink.Message) -> bytes:
    """Return b"" if there is none, or for an error."""
    if answer.kind != rtnetlink.RTM_NEWROUTE:
        return b""
    for kind, value in rtnetlink.attributes(answer.body, 12):
        if kind == RTA_ENCAP:
            for inner, tunnel in rtnetlink.attributes(value):
                if inner == SEG6_IPTUNNEL_SRH and len(tunnel) >= 28:
                    # after the mode and the routing header's own eight bytes: the last, here only,
                    # segment
                    return tunnel[12:28]
    return b""
