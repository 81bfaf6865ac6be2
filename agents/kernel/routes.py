"""Which path the kernel's hash gives a flow: asked of its routing table, as `ip route get ... sport ... dport` does. Needs no root.

The one place where a host learns what the network (here: its own kernel's next hops) chose for it.
"""

from __future__ import annotations

import socket
import struct

from topologies.addressing import host_of_inner, host_of_plane, path_address
from topologies.clos import Fabric
from topologies.paths import path_evs

RTM_NEWROUTE, RTM_GETROUTE, NLM_F_REQUEST, NLMSG_ERROR = 24, 26, 1, 2
RTA_DST, RTA_SRC, RTA_ENCAP, RTA_IP_PROTO, RTA_SPORT, RTA_DPORT = 1, 2, 22, 27, 28, 29
SEG6_IPTUNNEL_SRH = 1
_NLA_TYPE = 0x3FFF
Flow = tuple[bytes, int, bytes, int]
"""Source address and port, destination address and port."""


class Routes:
    """The flows' paths from host ``host``, kept until :meth:`forget`."""

    def __init__(self, fabric: Fabric, host: int) -> None:
        self.fabric, self.host = fabric, host
        self._known: dict[Flow, int] = {}
        self._evs: dict[tuple[int, bytes], int] = {}  # by peer and outer address
        self._peers: set[int] = set()
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.settimeout(0.5)
        self._number = 0

    def ev(self, flow: Flow) -> int:
        """The EV of a flow's path; -1 where the kernel has none for it."""
        if flow not in self._known:
            self._known[flow] = self._ask(flow)
        return self._known[flow]

    def forget(self) -> None:
        """Routes have changed."""
        self._known.clear()

    def close(self) -> None:
        self._socket.close()

    def _ask(self, flow: Flow) -> int:
        self._number += 1
        self._socket.send(request(flow, self._number))
        try:
            answer = self._socket.recv(65536)
            while number_of(answer) < self._number:  # what an earlier question gave up waiting for
                answer = self._socket.recv(65536)
        except TimeoutError:
            return -1
        segment = first_segment(answer)
        address = flow[2]
        peer = max(host_of_inner(address), host_of_plane(address)[1])
        if not segment or not 0 <= peer < self.fabric.host_count or peer == self.host:
            return -1
        if peer not in self._peers:
            self._peers.add(peer)
            self._evs |= {(peer, path_address(self.fabric, self.host, peer, ev)): ev for ev in path_evs(self.fabric, self.host, peer)}
        return self._evs.get((peer, segment), -1)


def request(flow: Flow, number: int) -> bytes:
    """An RTM_GETROUTE for a TCP flow."""
    src, sport, dst, dport = flow
    body = struct.pack("=BBBBBBBBI", socket.AF_INET6, 128, 128, 0, 0, 0, 0, 0, 0)
    for kind, value in (
        (RTA_DST, dst), (RTA_SRC, src), (RTA_IP_PROTO, bytes([socket.IPPROTO_TCP])), (RTA_SPORT, struct.pack("!H", sport)),
        (RTA_DPORT, struct.pack("!H", dport)),
    ):  # fmt: skip
        body += (struct.pack("=HH", 4 + len(value), kind) + value).ljust(4 + (len(value) + 3 & ~3), b"\0")
    return struct.pack("=IHHII", 16 + len(body), RTM_GETROUTE, NLM_F_REQUEST, number, 0) + body


def number_of(answer: bytes) -> int:
    """The sequence number of a netlink message; 0 if it has none."""
    return int(struct.unpack_from("=I", answer, 8)[0]) if len(answer) >= 16 else 0


def first_segment(answer: bytes) -> bytes:
    """The outer destination in an RTM_NEWROUTE: the SRv6 segment, 16 bytes; b"" if there is none, or if it is an error."""
    if len(answer) < 28 or struct.unpack_from("=H", answer, 4)[0] != RTM_NEWROUTE:
        return b""
    for kind, value in _attributes(answer[28 : struct.unpack_from("=I", answer)[0]]):
        if kind == RTA_ENCAP:
            for inner, tunnel in _attributes(value):
                if inner == SEG6_IPTUNNEL_SRH and len(tunnel) >= 28:
                    return tunnel[12:28]  # after the mode and the routing header's own eight bytes: the last, here only, segment
    return b""


def _attributes(data: bytes) -> list[tuple[int, bytes]]:
    made = []
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            break
        made.append((kind & _NLA_TYPE, data[at + 4 : at + length]))
        at += length + 3 & ~3
    return made
