"""Opens TUN devices: interfaces whose packets a process reads and writes. To open one takes
/dev/net/tun and CAP_NET_ADMIN."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import Final

PATH: Final = "/dev/net/tun"
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
TUNSETIFF, TUNSETPERSIST, TUNSETIFINDEX = 0x400454CA, 0x400454CB, 0x400454DA


def available() -> bool:
    """The device file alone says nothing: a kernel may lack the driver, a container the
    permission."""
    try:
        os.close(os.open(PATH, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def attach(name: str, ifindex: int = 0) -> int:
    """Open a TUN of this thread's network namespace that never blocks; each read and write is an IP
    packet. If there is none it is made, with this interface index (0: any). Raises OSError."""
    fd = os.open(PATH, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if ifindex:
            fcntl.ioctl(fd, TUNSETIFINDEX, struct.pack("=I", ifindex))
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    except OSError:
        os.close(fd)
        raise
    return fd


def make(name: str, ifindex: int) -> None:
    """Make a TUN that stays although nobody has it open. Raises OSError."""
    fd = attach(name, ifindex)
    try:
        fcntl.ioctl(fd, TUNSETPERSIST, 1)
    finally:
        os.close(fd)
