"""Opens what the controller needs of the machine before Ryu is imported, and gives up the rest
(docs/why/security.md).

``__main__`` opens the three things that need root or the machine's network, as descriptors, then
confines the process, and only then imports Ryu. After :func:`confine` the process has one
capability: to read. After :func:`seal`, which comes before anything from outside is read, it has
none. It stays user 0, whose agents listen to it. Must not import eventlet or Ryu.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from typing import NamedTuple

from testbed.controller.config import Config
from testbed.controller.southbound.netlink import link_socket
from testbed.crowd import BACKLOG
from testbed.dataplane.maps import BpfMap
from testbed.errors import UserError

_NEWNS, _NEWUTS, _NEWIPC, _NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x40000000
_MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 0x4000, 0x40000, 2, 4, 8
_SYS_MOUNT_SETATTR = 442  # on every architecture (asm-generic)
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_RDONLY, _ATTR_NOSUID = 1, 2
_PR_CAPBSET_DROP, _PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _CLEAR_ALL = (
    24,
    28,
    38,
    47,
    4,
)
_SECURE = 0x2F
"""Securebits: root gets no capability, at no exec and no change of user, for ever
(capabilities(7))."""
_CAPABILITY_VERSION = 0x20080522
_DAC_READ_SEARCH = 1 << 2
_libc = ctypes.CDLL(None, use_errno=True)


class Doors(NamedTuple):
    """Descriptors and the switches' tables; the last two are -1 and None unless switches are
    eBPF."""

    listener: int
    port: int
    links: int
    routes: BpfMap | None


def open_doors(config: Config) -> Doors:
    links, routes = -1, None
    if config.southbound == "ebpf":
        path = config.maps / "routes"
        try:
            routes = BpfMap(str(path))
        except OSError as error:
            raise UserError(
                f"controller: no BPF map at {path} ({error.strerror}): load the data plane first"
            ) from None
        links = link_socket(config.netns)
    listener, port = listen(config.rest_host, config.rest_port)
    return Doors(listener, port, links, routes)


def listen(host: str, port: int) -> tuple[int, int]:
    """Return a descriptor and its port; port 0 takes a free one. Raises :class:`UserError`."""
    with socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM
    ) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(BACKLOG)
        except OSError as error:
            raise UserError(
                f"controller: cannot serve on {host}:{port}: {os.strerror(error.errno or 0)}: "
                "set rest_port to 0 for a free one"
            ) from None
        return os.dup(sock.fileno()), int(sock.getsockname()[1])


def confine() -> None:
    """Confine this process until its end. Raises :class:`UserError` where the kernel refuses: then
    the controller must not go on.

    Before :func:`seal` it keeps CAP_DAC_READ_SEARCH: Debian 13 closes homes, where Python's modules
    may lie, even to a user 0 without capabilities.
    """
    _check(_libc.unshare(_NEWNS | _NEWUTS | _NEWIPC | _NEWNET), "namespaces of its own")
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "private mounts")
    _check(
        _libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None),
        "a /proc of its own",
    )
    read_only = struct.pack("=4Q", _ATTR_RDONLY | _ATTR_NOSUID, 0, 0, 0)
    changed = _libc.syscall(
        _SYS_MOUNT_SETATTR,
        _AT_FDCWD,
        b"/",
        _AT_RECURSIVE,
        read_only,
        ctypes.c_size_t(len(read_only)),
    )
    _check(changed, "a read-only file system")
    _check(_libc.prctl(_PR_SET_SECUREBITS, _SECURE, 0, 0, 0), "to give up root's capabilities")
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:  # until there is none of that number
        number += 1
    _check(_libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0), "to give up root's capabilities")
    _keep(_DAC_READ_SEARCH)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "to give up privileges for good")


def seal() -> None:
    _keep(0)


def _keep(capabilities: int) -> None:
    result = _libc.capset(
        struct.pack("=Ii", _CAPABILITY_VERSION, 0),
        struct.pack("=6I", capabilities, capabilities, 0, 0, 0, 0),
    )
    _check(result, "to give up root's capabilities")


def _check(result: int, request: str) -> None:
    if result != 0:
        reason = os.strerror(ctypes.get_errno())
        raise UserError(
            f"controller: the kernel refused {request} ({reason}): see mrcbed doctor; an "
            "unprivileged container will not do"
        )
