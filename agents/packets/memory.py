"""Registered memory: what peers may write, by rkey. The only place where bytes of a packet meet
bytes of a user."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from agents.transport import Domain, Foreign, Region

VA_BASE: Final = 0x10_0000_0000
"""The first virtual address handed out [ours]; regions are far apart so that a stray address hits
none."""
VA_GAP: Final = 1 << 30
VA_END: Final = 1 << 63
"""No region lies beyond: arriving addresses are read as signed numbers."""
NOTHING: Final = memoryview(b"")


def read(memory: memoryview | Foreign, at: int, end: int) -> memoryview | None:
    """Return None if the bytes cannot be read."""
    if isinstance(memory, Foreign):
        if at == end:
            return NOTHING
        try:
            data = memory.read(at, end)
        except OSError:
            return None
        return data if len(data) == end - at else None
    return memory[at:end]


class _Registered:
    def __init__(self, rkey: int, memory: memoryview | Foreign, base: int) -> None:
        self.rkey = rkey
        self.memory = memory
        self.base = base
        self.end = base + len(memory)


class Memory(Domain):
    def __init__(self, rng: Random, rkeys: set[int] | None = None) -> None:
        self.rng = rng
        self.rkeys: set[int] = set() if rkeys is None else rkeys
        self.regions: dict[int, _Registered] = {}  # by rkey
        # the one asked for last, as a rule the next one, too
        self.latest: _Registered | None = None
        self.next_va = VA_BASE

    def register(self, memory: Any, va: int = -1) -> Region:
        """Raises ValueError unless ``memory`` is writable and contiguous, or a Foreign, and lies
        within 63 bits."""
        held: memoryview | Foreign
        if isinstance(memory, Foreign):
            held = memory
        else:
            view = memoryview(memory)
            if view.readonly or not view.contiguous:
                raise ValueError("registered memory must be writable and contiguous")
            held = view.cast("B")
        length = len(held)
        if va > VA_END - length:
            raise ValueError(f"memory of {length} bytes at {va:#x} does not lie within 63 bits")
        rkey = self.rng.getrandbits(32)
        while rkey in self.rkeys:
            rkey = self.rng.getrandbits(32)
        if va < 0:
            va = self.next_va
            self.next_va += (length // VA_GAP + 2) * VA_GAP
        self.rkeys.add(rkey)
        self.regions[rkey] = _Registered(rkey, held, va)
        return Region(va, rkey, length)

    def deregister(self, rkey: int) -> None:
        if rkey not in self.regions:
            raise ValueError(f"there is no region with the rkey {rkey:#x}")
        del self.regions[rkey]
        self.rkeys.remove(rkey)
        self.latest = None

    def _find(self, rkey: int) -> _Registered | None:
        latest = self.latest
        if latest is None or latest.rkey != rkey:
            latest = self.regions.get(rkey)
            if latest is not None:
                self.latest = latest
        return latest

    def allowed(self, rkey: int, va: int, length: int) -> bool:
        """A zero-length write needs no memory."""
        if length == 0:
            return True
        region = self._find(rkey)
        return region is not None and region.base <= va and va + length <= region.end

    def place(self, rkey: int, va: int, source: Any, start: int, length: int) -> bool:
        """Call only after :meth:`allowed`. Returns False if the memory is no longer there."""
        region = self._find(rkey)
        assert region is not None
        at = va - region.base
        memory = region.memory
        part = (
            source
            if start == 0 and length == len(source)
            else memoryview(source)[start : start + length]
        )
        if isinstance(memory, Foreign):
            try:
                memory.write(at, memoryview(part))
            except OSError:
                return False
        else:
            memory[at : at + length] = part
        return True


def memory_of(domain: Domain | None, own: Memory) -> Memory:
    """Return an engine's domain, ``own`` for None. Raises ValueError for another engine's."""
    if domain is None:
        return own
    if not isinstance(domain, Memory) or domain.rkeys is not own.rkeys:
        raise ValueError("the protection domain is another engine's")
    return domain
