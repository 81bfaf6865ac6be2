"""Reads and builds rtnetlink messages, without a socket.

Layouts are those of netlink(7), rtnetlink(7) and the kernel's uapi headers linux/netlink.h,
linux/rtnetlink.h, linux/if_link.h.
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
RTMGRP_TC: Final = 8
IFF_UP: Final = 0x1
IFF_LOWER_UP: Final = 0x10000
IFLA_OPERSTATE: Final = 16
_TYPE: Final = 0x3FFF
STOPPED: Final = 1
"""Bytes/s of a token bucket that stands still: the least that the kernel takes. It pauses a port's
data class under PFC."""
_HEADER: Final = 16
_TCMSG: Final = 20
_TCA_KIND: Final = 1
_TCA_OPTIONS: Final = 2
_TCA_TBF_PARMS: Final = 1
_TCA_TBF_BURST: Final = 6
_TBF: Final = b"tbf\0"
_LINKLAYER_ETHERNET: Final = 1


class Message(NamedTuple):
    kind: int
    serial: int
    body: bytes


class LinkState(NamedTuple):
    ifindex: int
    flags: int
    operstate: int

    @property
    def carries(self) -> bool:
        return self.flags & (IFF_UP | IFF_LOWER_UP) == IFF_UP | IFF_LOWER_UP


def request(kind: int, flags: int, serial: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", _HEADER + len(body), kind, NLM_F_REQUEST | flags, serial, 0) + body


def messages(data: bytes) -> list[Message]:
    """A truncated message ends the list."""
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
    size = 4 + len(value)
    return (struct.pack("=HH", size, kind) + value).ljust((size + 3) & ~3, b"\0")


def attributes(data: bytes, at: int = 0) -> list[tuple[int, bytes]]:
    out = []
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            break
        out.append((kind & _TYPE, data[at + 4 : at + length]))
        at += (length + 3) & ~3
    return out


def error(message: Message) -> int:
    """Return an errno; 0 is an acknowledgement."""
    return -int(struct.unpack_from("=i", message.body)[0])


def link(ifindex: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BxHiII", 0, 0, ifindex, flags, change)


def link_state(body: bytes) -> LinkState:
    ifindex, flags = struct.unpack_from("=iI", body, 4)
    operstate = next(
        (value[0] for kind, value in attributes(body, 16) if kind == IFLA_OPERSTATE), 0
    )
    return LinkState(ifindex, flags, operstate)


def queue(ifindex: int, handle: int, parent: int = 0) -> bytes:
    return struct.pack("=BxxxiIII", 0, ifindex, handle, parent, 0)


def token_bucket(
    ifindex: int, handle: int, parent: int, rate: int, burst: int, limit: int
) -> bytes:
    """``rate`` in bytes/s, ``burst`` and ``limit`` in bytes."""
    parameters = (
        struct.pack("=BBHhHI", 0, _LINKLAYER_ETHERNET, 0, 0, 0, rate)
        + bytes(12)
        + struct.pack("=III", limit, 0, 0)
    )
    options = attribute(_TCA_TBF_PARMS, parameters) + attribute(
        _TCA_TBF_BURST, struct.pack("=I", burst)
    )
    return (
        queue(ifindex, handle, parent)
        + attribute(_TCA_KIND, _TBF)
        + attribute(_TCA_OPTIONS, options)
    )


def token_rate(body: bytes) -> tuple[int, int]:
    """Return (interface, bytes/s); -1 for another queue."""
    (ifindex,) = struct.unpack_from("=i", body, 4)
    found = dict(attributes(body, _TCMSG))
    if found.get(_TCA_KIND) == _TBF:
        parameters = dict(attributes(found.get(_TCA_OPTIONS, b""))).get(_TCA_TBF_PARMS, b"")
        if len(parameters) >= 12:
            return int(ifindex), int(struct.unpack_from("=I", parameters, 8)[0])
    return int(ifindex), -1
