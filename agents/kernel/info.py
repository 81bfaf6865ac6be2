"""Reads what the kernel says of a connection: unacknowledged bytes, TCP_INFO, and MPTCP's subflows
(include/uapi/linux/tcp.h, mptcp.h)."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from typing import NamedTuple

SIOCOUTQ = 0x5411
SIOCOUTQNSD = 0x894B
IPPROTO_MPTCP = 262
SOL_MPTCP = 284
MPTCP_INFO, MPTCP_TCPINFO, MPTCP_SUBFLOW_ADDRS = 1, 2, 3
MPTCP_INFO_FLAG_FALLBACK = 1
ESTABLISHED = 1
MAX_SUBFLOWS = 32
# struct mptcp_subflow_data: its size, subflows, size in the kernel, size here
_DATA = struct.Struct("=IIII")
_INFO_BYTES = 248
_ADDRS_BYTES = 256
_libc = ctypes.CDLL(None, use_errno=True)


class TcpInfo(NamedTuple):
    """Bytes, packets and microseconds, as the kernel counts them."""

    state: int
    retransmits: int  # RTOs in a row that are not answered yet
    mss: int
    unacked: int  # packets
    rtt_us: int
    cwnd: int  # packets
    total_retrans: int
    segs_out: int
    data_segs_out: int
    total_rto: int  # -1 before Linux 6.7


class Subflow(NamedTuple):
    local: tuple[bytes, int]
    remote: tuple[bytes, int]
    info: TcpInfo


def unacknowledged(sock: socket.socket) -> int:
    """Count bytes that the peer's kernel has not acknowledged; of MPTCP those of the whole."""
    return int(struct.unpack("=i", fcntl.ioctl(sock, SIOCOUTQ, b"\0\0\0\0"))[0])


def unsent(sock: socket.socket) -> int:
    return int(struct.unpack("=i", fcntl.ioctl(sock, SIOCOUTQNSD, b"\0\0\0\0"))[0])


def read_info(data: bytes) -> TcpInfo:
    rtt, cwnd = struct.unpack_from("=I", data, 68)[0], struct.unpack_from("=I", data, 80)[0]
    mss, unacked = struct.unpack_from("=I", data, 16)[0], struct.unpack_from("=I", data, 24)[0]
    (retrans,) = struct.unpack_from("=I", data, 100)
    (segs_out,), (data_segs_out,) = (
        struct.unpack_from("=I", data, 136),
        struct.unpack_from("=I", data, 156),
    )
    rto = struct.unpack_from("=H", data, 240)[0] if len(data) >= 242 else -1
    return TcpInfo(data[0], data[2], mss, unacked, rtt, cwnd, retrans, segs_out, data_segs_out, rto)


def subflows(sock: socket.socket, mptcp: bool) -> list[Subflow]:
    """Raises OSError, also for a TCP connection that is over."""
    if not mptcp:
        local, remote = sock.getsockname(), sock.getpeername()
        info = read_info(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES))
        return [Subflow(_pair(local), _pair(remote), info)]
    infos = _subflow_entries(sock, MPTCP_TCPINFO, _INFO_BYTES)
    result = []
    # one may end between the calls
    for raw, addrs in zip(
        infos, _subflow_entries(sock, MPTCP_SUBFLOW_ADDRS, _ADDRS_BYTES), strict=False
    ):
        info = read_info(raw)
        if info.state == ESTABLISHED:  # not a connection attempt or its remains
            result.append(Subflow(_sockaddr(addrs[:128]), _sockaddr(addrs[128:]), info))
    return result


def fell_back(sock: socket.socket) -> bool:
    data = sock.getsockopt(SOL_MPTCP, MPTCP_INFO, 128)
    return bool(struct.unpack_from("=I", data, 8)[0] & MPTCP_INFO_FLAG_FALLBACK)


def _subflow_entries(sock: socket.socket, option: int, size: int) -> list[bytes]:
    """The buffer says its own layout, which socket.getsockopt cannot."""
    head = _DATA.pack(_DATA.size, 0, 0, size)
    buffer = ctypes.create_string_buffer(head, _DATA.size + MAX_SUBFLOWS * size)
    length = ctypes.c_uint32(len(buffer))
    if _libc.getsockopt(sock.fileno(), SOL_MPTCP, option, buffer, ctypes.byref(length)):
        number = ctypes.get_errno()
        raise OSError(number, f"getsockopt of MPTCP failed (errno {number})")
    raw = buffer.raw
    _, count, kernel, user = _DATA.unpack_from(raw)
    step = min(kernel, user) if option == MPTCP_TCPINFO else size
    at = [_DATA.size + i * user for i in range(min(count, MAX_SUBFLOWS))]
    return [raw[a : a + step] for a in at]


def _pair(address: tuple[str, int, int, int]) -> tuple[bytes, int]:
    return socket.inet_pton(socket.AF_INET6, address[0].partition("%")[0]), address[1]


def _sockaddr(data: bytes) -> tuple[bytes, int]:
    return data[8:24], int(struct.unpack_from("!H", data, 2)[0])
