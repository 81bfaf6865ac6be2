"""Tells the data plane which packets to lose or to corrupt, and takes that back.

fabric.bpf.c decides a fault where the frame arrives, after its time on the cable, so that queues
and accounts stay correct. Several holders' probabilities at one place combine as independent ones,
drawn with the seed of the first.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable, Iterator, MutableSequence
from typing import Any, Protocol

from testbed.dataplane import layout
from testbed.dataplane.loader import PINS
from testbed.dataplane.maps import BpfMap
from testbed.faults.targets import Path

_WORDS = len(layout.FAULT_WORDS)
_AT = {name: i for i, name in enumerate(layout.FAULT_WORDS)}
_FLAGS = {"loss": layout.FAULT_LOSS, "corrupt": layout.FAULT_CORRUPT}

_Odds = dict[int, tuple[float, int]]


class Paths(Protocol):
    def lookup(self, key: bytes) -> bytes | None: ...
    def update(self, key: bytes, value: bytes) -> None: ...
    def delete(self, key: bytes) -> bool: ...
    def items(self) -> Iterator[tuple[bytes, bytes]]: ...
    def close(self) -> None: ...


class MemoryPaths:
    def __init__(self, entries: dict[bytes, bytes]) -> None:
        self._entries = entries

    def lookup(self, key: bytes) -> bytes | None:
        return self._entries.get(key)

    def update(self, key: bytes, value: bytes) -> None:
        self._entries[key] = value

    def delete(self, key: bytes) -> bool:
        return self._entries.pop(key, None) is not None

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self._entries.items()))

    def close(self) -> None: ...


def threshold(probability: float) -> int:
    return max(1, round(probability * layout.CERTAIN))


def _together(odds: _Odds) -> float:
    return 1.0 - math.prod(1.0 - probability for probability, _ in odds.values())


class PacketFaults:
    """A fault at a port hits frames that arrive there. ``words`` and ``paths`` replace the
    programs' maps on a simulated fabric."""

    def __init__(
        self, words: MutableSequence[int] | None = None, paths: Paths | None = None
    ) -> None:
        self._words: Any = words
        if words is None:
            bpf_map = BpfMap(PINS / "port_fault")
            self._words = bpf_map.memory().cast("Q")
            bpf_map.close()
        self._paths: Paths = BpfMap(PINS / "path_fault") if paths is None else paths
        self._at_port: dict[tuple[int, str], _Odds] = {}
        self._on_path: dict[Path, _Odds] = {}

    def at_ports(
        self, holder: int, kind: str, ports: Iterable[int], probability: float, seed: int
    ) -> None:
        for port in ports:
            odds = self._at_port.setdefault((port, kind), {})
            odds[holder] = (probability, seed)
            self._write_port(port, kind, odds, fresh=len(odds) == 1)

    def on_paths(self, holder: int, paths: Iterable[Path], probability: float, seed: int) -> None:
        for path in paths:
            odds = self._on_path.setdefault(path, {})
            odds[holder] = (probability, seed)
            self._write_path(path, odds)
            self._flag_path(path[0])

    def drop(self, holder: int) -> None:
        for (port, kind), odds in list(self._at_port.items()):
            if odds.pop(holder, None) is not None:
                if not odds:
                    del self._at_port[port, kind]
                self._write_port(port, kind, odds, fresh=False)
        for path, odds in list(self._on_path.items()):
            if odds.pop(holder, None) is not None:
                if not odds:
                    del self._on_path[path]
                self._write_path(path, odds)
                self._flag_path(path[0])

    def reset(self) -> None:
        self._at_port.clear()
        self._on_path.clear()
        for word in range(len(self._words)):
            if self._words[word]:
                self._words[word] = 0
        for key, _ in list(self._paths.items()):
            self._paths.delete(key)

    def close(self) -> None:
        if isinstance(self._words, memoryview):
            self._words.release()
        self._paths.close()

    # --- how --------------------------------------------------------------------------------------

    def _flag(self, port: int, bit: int, on: bool) -> None:
        at = port * _WORDS
        self._words[at] = self._words[at] | bit if on else self._words[at] & ~bit

    def _write_port(self, port: int, kind: str, odds: _Odds, fresh: bool) -> None:
        at = port * _WORDS
        if not odds:
            self._flag(port, _FLAGS[kind], False)
            for word in (kind, f"{kind}_seed", f"{kind}_draws"):
                self._words[at + _AT[word]] = 0
            return
        if fresh:
            self._words[at + _AT[f"{kind}_draws"]] = 0
        self._words[at + _AT[f"{kind}_seed"]] = next(iter(odds.values()))[1]
        self._words[at + _AT[kind]] = threshold(_together(odds))
        self._flag(port, _FLAGS[kind], True)

    def _write_path(self, path: Path, odds: _Odds) -> None:
        key = struct.pack("=I", path[0]) + struct.pack("!HHHH", *path[1], 0)
        if not odds:
            self._paths.delete(key)
            return
        was = self._paths.lookup(key)
        draws = struct.unpack_from("=Q", was, 16)[0] if was else 0
        # A seed of its own for each place, or two of them would lose the same packets by number.
        seed = zlib.crc32(key, next(iter(odds.values()))[1])
        self._paths.update(key, struct.pack("=3Q", threshold(_together(odds)), seed, draws))

    def _flag_path(self, port: int) -> None:
        self._flag(port, layout.FAULT_PATH, any(path[0] == port for path in self._on_path))
