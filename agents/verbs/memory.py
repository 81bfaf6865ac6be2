"""A program's memory, as its agent reaches it: through /proc/self/mem, so that an unmapped address
is an error and no crash, or as a mapping of a file that cannot shrink."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
from typing import Any, Final

from agents.transport import Foreign
from agents.verbs.mapping import Mapping

HIGHEST: Final = 1 << 63
"""Addresses below it fit a file's offset; a program's all do."""
_MEM: Final = re.compile(r"(/proc)?/[0-9]+/mem")


def is_process_memory(fd: int) -> bool:
    """Say whether a program's descriptor is process memory: it never blocks, and the program could
    open it."""
    try:
        return _MEM.fullmatch(os.readlink(f"/proc/self/fd/{fd}")) is not None
    except OSError:
        return False


def mapped(fd: int, offset: int, length: int) -> Mapping:
    """Raises OSError unless the file is sealed against shrinking, and large enough: touching a
    mapped file that was cut ends a process."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if not seals & fcntl.F_SEAL_SHRINK or offset < 0 or offset + length > os.fstat(fd).st_size:
        raise OSError(errno.EINVAL, "not a file that cannot shrink")
    # where no huge page is left for a hole, touching it is a SIGBUS, too
    if os.fstatvfs(fd).f_bsize != mmap.PAGESIZE:
        raise OSError(errno.EINVAL, "a file of huge pages")
    try:
        return Mapping(fd, offset, length)
    except PermissionError as refused:  # sealed against writing, or opened for reading
        raise OSError(errno.EINVAL, "not a file that may be written") from refused


class ProcessMemory(Foreign):
    """``gone`` once its region is deregistered."""

    def __init__(self, fd: int, address: int, length: int) -> None:
        super().__init__(length)
        self.fd = fd
        self.address = address
        self.gone = False

    def read(self, at: int, end: int) -> memoryview:
        data = b"" if self.gone else os.pread(self.fd, end - at, self.address + at)
        if len(data) != end - at:
            raise OSError(errno.EFAULT, "a program's memory is not there")
        return memoryview(data)

    def write(self, at: int, data: memoryview) -> None:
        if self.gone or os.pwrite(self.fd, data, self.address + at) != len(data):
            raise OSError(errno.EFAULT, "a program's memory is not there")


class MappedMemory(Foreign):
    def __init__(self, mapping: Mapping) -> None:
        super().__init__(len(mapping.view))
        self.mapping = mapping
        self.gone = False

    def read(self, at: int, end: int) -> memoryview:
        if self.gone:
            raise OSError(errno.EFAULT, "a program's memory is not there")
        # as it is now: a program may write while the packet's iCRC is computed
        return memoryview(bytes(self.mapping.view[at:end]))

    def write(self, at: int, data: memoryview) -> None:
        if self.gone:
            raise OSError(errno.EFAULT, "a program's memory is not there")
        self.mapping.view[at : at + len(data)] = data


class Piece:
    def __init__(self, memory: Any, at: int, length: int) -> None:
        self.memory: ProcessMemory | MappedMemory = memory
        self.at = at
        self.length = length


class Gathered(Foreign):
    """``failed``: a read found a piece gone."""

    def __init__(self, pieces: list[Piece]) -> None:
        length = 0
        for piece in pieces:
            length += piece.length
        super().__init__(length)
        self.pieces = pieces
        self.failed = False

    def read(self, at: int, end: int) -> memoryview:
        try:
            parts: list[memoryview] = []
            begin = 0
            for piece in self.pieces:
                low, high = max(at - begin, 0), min(end - begin, piece.length)
                if low < high:
                    parts.append(piece.memory.read(piece.at + low, piece.at + high))
                begin += piece.length
        except OSError:
            self.failed = True
            raise
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def write(self, at: int, data: memoryview) -> None:
        raise OSError(errno.EACCES, "a list is only read")
