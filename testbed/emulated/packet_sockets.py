"""Finds packet sockets of our child processes, to enlarge, filter and read them from outside."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterator

from testbed.dataplane.layout import HANDED_OVER
from testbed.errors import UserError

_PIDFD_GETFD = 438  # the same on every architecture
_SO_DOMAIN, _SO_ATTACH_FILTER = 39, 26
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
# classic BPF
_LOAD_MARK, _IF_EQUAL, _RETURN = (0x20, 0, 0, 0xFFFFF014), (0x15, 0, 1, HANDED_OVER), (6, 0, 0)
_ALL = 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def of_process(pid: int) -> Iterator[socket.socket]:
    """The caller closes each socket. Raises :class:`UserError` if the kernel refuses."""
    pidfd = os.pidfd_open(pid)
    try:
        for entry in os.listdir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(f"/proc/{pid}/fd/{entry}").startswith("socket:"):
                    continue
            except FileNotFoundError:
                continue  # closed meanwhile
            fd = _libc.syscall(_PIDFD_GETFD, pidfd, int(entry), 0)
            if fd < 0 and ctypes.get_errno() == errno.EBADF:
                continue
            if fd < 0:
                reason = os.strerror(ctypes.get_errno())
                raise UserError(
                    f"the kernel refused a look at the sockets of our own process {pid} "
                    f"({reason}): use --switch ebpf"
                )
            sock = socket.socket(fileno=fd)
            if sock.getsockopt(socket.SOL_SOCKET, _SO_DOMAIN) == socket.AF_PACKET:
                yield sock
            else:
                sock.close()
    finally:
        os.close(pidfd)


def see(sock: socket.socket, handed_over: bool) -> None:
    """Let a socket see only frames that were handed over (ovs.py), or all others. Replaces its
    filter."""
    verdicts = (_ALL, 0) if handed_over else (0, _ALL)
    steps = b"".join(
        struct.pack("=HBBI", *step)
        for step in (_LOAD_MARK, _IF_EQUAL, *((*_RETURN, verdict) for verdict in verdicts))
    )
    program = ctypes.create_string_buffer(steps, len(steps))
    sock.setsockopt(
        socket.SOL_SOCKET,
        _SO_ATTACH_FILTER,
        struct.pack("=HxxxxxxQ", len(steps) // 8, ctypes.addressof(program)),
    )


def newly_dropped(sock: socket.socket) -> int:
    return int(struct.unpack("=II", sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1])
