"""Maps files in memory without the descriptor that Python's mmap keeps for each: select() takes
1,024."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED: Final = ctypes.c_void_p(-1).value


class Mapping:
    """``view`` may not outlive this object. Raises OSError."""

    def __init__(self, fd: int, offset: int, length: int) -> None:
        self.address = 0
        before = offset % mmap.PAGESIZE
        self.length = before + length
        address = _LIBC.mmap(
            None,
            self.length,
            mmap.PROT_READ | mmap.PROT_WRITE,
            mmap.MAP_SHARED,
            fd,
            offset - before,
        )
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.address = address
        whole = (ctypes.c_char * self.length).from_address(address)
        self.view = memoryview(whole).cast("B")[before:]

    def __del__(self) -> None:
        if self.address:
            _LIBC.munmap(self.address, self.length)
