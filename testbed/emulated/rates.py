"""Slows cables down and restores their rate, by changing HTB's classes in place. A queue's
thresholds stay the same in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agents.clock import WallClock
from testbed.emulated import bringup
from testbed.faults.holders import SlowPorts
from topologies.clos import Fabric, Port
from topologies.parts import Part, whole


class Rates(SlowPorts):
    def __init__(
        self,
        fabric: Fabric,
        clock: WallClock,
        path_of: Callable[[str], str],
        part: Part | None = None,
    ) -> None:
        super().__init__(fabric)
        self._clock, self._path_of = clock, path_of
        self._own = {port.number for port in (whole(fabric) if part is None else part).ports}

    def _set(self, rates: Iterable[tuple[int, int]]) -> None:
        batches: dict[str, list[tuple[Port, int]]] = {}
        for number, rate in rates:
            if number not in self._own:
                continue
            port = self.fabric.ports[number]
            batches.setdefault(port.node if port.node in self.fabric.hosts else "", []).append(
                (port, rate)
            )
        for node, rated in batches.items():
            lines = [
                line
                for port, rate in rated
                for line in bringup.class_lines(self.fabric, self._clock, "change", port, rate)
            ]
            bringup.run_batch("tc", lines, self._path_of(node))
