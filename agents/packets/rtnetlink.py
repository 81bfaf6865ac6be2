"""Rtnetlink messages, read and built without a socket: what the kernel says of interfaces, routes and queues, and how it is asked.

The one codec of the project; who has the socket decides what to ask. Layouts and numbers are those of netlink(7), rtnetlink(7) and the
kernel's uapi headers linux/netlink.h, linux/rtnetlink.h, linux/if_link.h. All integers have the machine's byte order.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
NLM_F_REQUEST: Final = 0x1
NLM_F_ACK: Final = 0x4
NLM_F_ECHO: Final = 0x8
NLM_F_DUMP: Final = 0x300
RTM_NEWLINK: Final = 16
RTM_DELLINK: Final = 17
RTM_GETLINK: Final = 18
RTM_NEWROUTE: Final = 24
RTM_GETROUTE: Final = 26
RTM_NEWQDISC: Final = 36
RTM_GETQDISC: Final = 38
RTMGRP_LINK: Final = 1
"""Multicast group of interface changes."""
IFF_UP: Final = 0x1
IFF_LOWER_UP: Final = 0x10000
IFLA_OPERSTATE: Final = 16
_TYPE: Final = 0x3FFF
"""An attribute's type without its two flags."""
_HEADER: Final = 16
"""Bytes of struct nlmsghdr."""


class Message(NamedTuple):
    """One netlink message: its type, the sequence number of the request that it answers, and what follows its header."""

    kind: int
    serial: int
    body: bytes


class LinkState(NamedTuple):
    """The state of an interface, as the kernel reports it."""

    ifindex: int
    flags: int
    operstate: int

    @property
    def carries(self) -> bool:
        """Administratively up, with carrier."""
        return self.flags & (IFF_UP | IFF_LOWER_UP) == IFF_UP | IFF_LOWER_UP


def request(kind: int, flags: int, serial: int, body: bytes) -> bytes:
    """A message to the kernel; NLM_F_REQUEST is added."""
    return struct.pack("=IHHII", _HEADER + len(body), kind, NLM_F_REQUEST | flags, serial, 0) + body


def messages(data: bytes) -> list[Message]:
    """The messages in one read of a netlink socket; a truncated message ends the list."""
    out = []
    at = 0
    while at + _HEADER <= len(data):
        length, kind, _flags, serial, _pid = struct.unpack_from("=IHHII", data, at)
        if length < _HEADER or at + length > len(data):
            break
        out.append(Message(kind, serial, data[at + _HEADER : at + length]))
        at += (length + 3) & ~3
    return out


def attribute(kind: int, value: bytes) -> bytes:
    """A struct rtattr with its value, padded."""
    size = 4 + len(value)
    return (struct.pack("=HH", size, kind) + value).ljust((size + 3) & ~3, b"\0")


def attributes(data: bytes, at: int = 0) -> list[tuple[int, bytes]]:
    """(type, value) of the attributes from byte ``at`` on; one of impossible length ends the list."""
    out = []
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            break
        out.append((kind & _TYPE, data[at + 4 : at + length]))
        at += (length + 3) & ~3
    return out


def error(message: Message) -> int:
    """The errno that an NLMSG_ERROR carries; 0 is an acknowledgement."""
    return -int(struct.unpack_from("=i", message.body)[0])


def link(ifindex: int = 0, flags: int = 0, change: int = 0) -> bytes:
    """A struct ifinfomsg; ``change`` says which of the ``flags`` are to be set."""
    return struct.pack("=BxHiII", 0, 0, ifindex, flags, change)


def link_state(body: bytes) -> LinkState:
    """Of an RTM_NEWLINK or RTM_DELLINK."""
    ifindex, flags = struct.unpack_from("=iI", body, 4)
    operstate = next((value[0] for kind, value in attributes(body, 16) if kind == IFLA_OPERSTATE), 0)
    return LinkState(ifindex, flags, operstate)
