"""Registered memory: what peers may write, by rkey. The only place where bytes of a packet meet bytes of a user."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from agents.transport import Region

VA_BASE: Final = 0x10_0000_0000
"""The first virtual address handed out [ours]; regions are far apart so that a stray address hits none."""
VA_GAP: Final = 1 << 30


class _Registered:
    """Memory, and the address of its first byte."""

    def __init__(self, rkey: int, view: memoryview, base: int) -> None:
        self.rkey = rkey
        self.view = view
        self.base = base
        self.end = base + len(view)


class Memory:
    """The regions of one endpoint."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.regions: dict[int, _Registered] = {}  # by rkey
        self.latest: _Registered | None = None  # the one asked for last, as a rule the next one, too
        self.next_va = VA_BASE

    def register(self, memory: Any) -> Region:
        """Register memory. Raises ValueError unless ``memory`` is writable and contiguous."""
        view = memoryview(memory)
        if view.readonly or not view.contiguous:
            raise ValueError("registered memory must be writable and contiguous")
        view = view.cast("B")
        rkey = self.rng.getrandbits(32)
        while rkey in self.regions:
            rkey = self.rng.getrandbits(32)
        va = self.next_va
        self.next_va += (len(view) // VA_GAP + 2) * VA_GAP
        self.regions[rkey] = _Registered(rkey, view, va)
        return Region(va, rkey, len(view))

    def _find(self, rkey: int) -> _Registered | None:
        latest = self.latest
        if latest is None or latest.rkey != rkey:
            latest = self.regions.get(rkey)
            if latest is not None:
                self.latest = latest
        return latest

    def allowed(self, rkey: int, va: int, length: int) -> bool:
        """Say whether ``[va, va + length)`` lies inside the region of ``rkey``. A zero-length write needs no memory."""
        if length == 0:
            return True
        region = self._find(rkey)
        return region is not None and region.base <= va and va + length <= region.end

    def place(self, rkey: int, va: int, source: Any, start: int, length: int) -> None:
        """Copy a packet's payload to where it belongs; call only after :meth:`allowed`."""
        region = self._find(rkey)
        assert region is not None
        at = va - region.base
        region.view[at : at + length] = source[start : start + length]
