"""Samples what every port carried during a run into ``ports.jsonl``.

A line: ``t``, ``span_ps`` since the line before, and ``rows`` of the ports that carried, queued,
marked, trimmed or dropped anything since: [port number, bytes that left, bytes of the data class
waiting now, packets marked, trimmed, dropped].
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from testbed.world import World

EVERY_S = 0.1  # shortest interval between two samples, for a machine [ours]
PER_RTT = 2  # most samples; no sender reacts to what is shorter [ours]
PORTS = 512
"""A larger fabric is sampled as much more seldom [ours]: a log grows by some 100 kB/s at most."""

_encode = msgspec.json.Encoder().encode


class PortLog:
    """``interval_ps`` between samples; the first is the base of the second."""

    def __init__(self, world: World, file: Path) -> None:
        self.world = world
        fabric = world.fabric
        every = world.clock.patience(EVERY_S)
        self.interval_ps = max(
            every, every * len(fabric.ports) // PORTS, fabric.base_rtt_ps // PER_RTT
        )
        self.due_ps = 0
        self._file = open(file, "wb", buffering=0)
        self._last: tuple[int, NDArray[np.int64]] | None = None

    def close(self) -> None:
        self._file.close()

    def tick(self, now: int) -> None:
        if now >= self.due_ps:
            self.sample(now)

    def sample(self, now: int) -> None:
        self.due_ps = now + self.interval_ps
        loads = self.world.loads()
        if self._last is not None and now > self._last[0]:
            before, earlier = self._last
            changes = loads - earlier
            changes[:, 1] = np.maximum(0, loads[:, 1])
            busy = np.flatnonzero(changes.any(axis=1))
            rows = np.concatenate((busy[:, None], changes[busy]), axis=1).tolist()
            self._file.write(
                _encode({"t": now, "kind": "ports", "span_ps": now - before, "rows": rows}) + b"\n"
            )
        self._last = (now, loads)
