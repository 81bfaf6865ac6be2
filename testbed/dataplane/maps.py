"""BPF maps from Python: bpf(2) by ctypes, and plain memory for maps that allow it."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

_SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280}.get(os.uname().machine, 280)
_LOOKUP, _UPDATE, _DELETE, _NEXT_KEY, _OBJ_GET, _INFO = 1, 2, 3, 4, 7, 15
_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attr: bytes | bytearray) -> int:
    buffer = (ctypes.c_char * len(attr)).from_buffer_copy(attr)
    result: int = _libc.syscall(_SYS_BPF, command, ctypes.byref(buffer), len(attr))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


class BpfMap:
    """Keys and values are bytes in the host's byte order. Raises OSError when the kernel
    refuses."""

    def __init__(self, path: str | Path) -> None:
        self.fd = -1
        self.path = str(path)
        name = ctypes.create_string_buffer(os.fsencode(path))
        self.fd = _bpf(_OBJ_GET, struct.pack("=QII", ctypes.addressof(name), 0, 0))
        info = ctypes.create_string_buffer(80)
        _bpf(_INFO, struct.pack("=IIQ", self.fd, len(info), ctypes.addressof(info)))
        _type, _id, self.key_size, self.value_size, self.max_entries, self.flags = (
            struct.unpack_from("=6I", info.raw)
        )

    def _element(self, command: int, key: bytes, value: int) -> None:
        if len(key) != self.key_size:
            raise ValueError(f"{self.path}: keys have {self.key_size} bytes, not {len(key)}")
        key_buffer = ctypes.create_string_buffer(key, len(key))
        _bpf(command, struct.pack("=I4xQQQ", self.fd, ctypes.addressof(key_buffer), value, 0))

    def lookup(self, key: bytes) -> bytes | None:
        out = ctypes.create_string_buffer(self.value_size)
        try:
            self._element(_LOOKUP, key, ctypes.addressof(out))
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        return out.raw

    def update(self, key: bytes, value: bytes) -> None:
        if len(value) != self.value_size:
            raise ValueError(f"{self.path}: values have {self.value_size} bytes, not {len(value)}")
        value_buffer = ctypes.create_string_buffer(value, len(value))
        self._element(_UPDATE, key, ctypes.addressof(value_buffer))

    def delete(self, key: bytes) -> bool:
        try:
            self._element(_DELETE, key, 0)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return False
            raise
        return True

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """An entry that changes meanwhile may be missed or returned twice."""
        following = ctypes.create_string_buffer(self.key_size)
        previous: ctypes.Array[ctypes.c_char] | None = None
        while True:
            key = 0 if previous is None else ctypes.addressof(previous)
            try:
                _bpf(
                    _NEXT_KEY, struct.pack("=I4xQQQ", self.fd, key, ctypes.addressof(following), 0)
                )
            except OSError as error:
                if error.errno == errno.ENOENT:
                    return
                raise
            current = following.raw
            value = self.lookup(current)
            if value is not None:
                yield current, value
            previous = ctypes.create_string_buffer(current, len(current))

    def memory(self) -> memoryview:
        """Return live, writable memory of an array map made with BPF_F_MMAPABLE: entry i starts at
        i * value_size rounded up to 8. Aligned 8-byte loads and stores are atomic, entries as a
        whole are not. The mapping outlives :meth:`close`."""
        stride = (self.value_size + 7) // 8 * 8
        pages = -(-stride * self.max_entries // mmap.PAGESIZE)
        mapped = mmap.mmap(
            self.fd, pages * mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE
        )
        return memoryview(mapped)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()


def live_words(path: Path) -> memoryview:
    """Return a pinned array map of u64 as live memory. Raises OSError."""
    bpf_map = BpfMap(path)
    try:
        return bpf_map.memory().cast("Q")
    finally:
        bpf_map.close()
