"""Background traffic in a run: prepared before the workload, begun when due, ended with the run, and what became of it noted.

Made by scenarios.run.one_run, which calls it as time goes by. It journals (kind ``background``) when each flow began and ended; what they
measured lies in iperf3's own files, which testbed.emulated.iperf_report reads. A flow that fails is noted and fails nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.run.faults import NEVER
from scenarios.schema.background import Background
from testbed.emulated.background import wire_rate
from testbed.emulated.iperf_report import complaint
from testbed.world import Background as Flow
from testbed.world import World

LOOK_EVERY_NS = 300_000_000


@dataclass
class _One:
    entry: Background
    flow: Flow
    began_ns: int = 0
    ended_ns: int = 0


class BackgroundRun:
    """One run's. ``journal(t, kind, **fields)`` takes a line. Files go to ``directory``."""

    def __init__(
        self, cluster: World, entries: Sequence[Background], timeout_ns: int, directory: Path, journal: Callable[..., None]
    ) -> None:
        self.cluster, self.entries, self.directory, self.journal = cluster, entries, directory, journal
        self.longest_s = timeout_ns // 10**9 + 1
        self.made: list[_One] = []
        self.t0 = 0
        self.look_at = NEVER

    def prepare(self) -> None:
        """Every flow gets its path and its server. Raises UserError where that cannot be."""
        for number, entry in enumerate(self.entries):
            stem = self.directory / f"iperf3-{entry.name}"
            self.made.append(_One(entry, self.cluster.background(entry.stream(self.cluster.fabric, number, self.longest_s), stem)))
            self.made[-1].flow.prepare()

    def start(self, t0: int) -> None:
        """The workload begins at ``t0``: starts count from there."""
        self.t0 = t0
        self.look_at = t0 if self.made else NEVER

    def tick(self, now: int) -> None:
        """Begin what is due; note what has ended by itself."""
        if now < self.look_at:
            return
        for one in self.made:
            if not one.flow.begun and now >= self.t0 + one.entry.start_ns:
                one.flow.begin()
                one.began_ns = self.cluster.clock.now()
                self.tell(one, one.began_ns, "begin")
            if one.flow.over and not one.ended_ns:
                one.ended_ns = now
                self.tell(one, now, "end")
        waiting = [self.t0 + one.entry.start_ns for one in self.made if not one.flow.begun]
        running = any(not one.ended_ns for one in self.made)
        self.look_at = min([*waiting, now + LOOK_EVERY_NS]) if running else NEVER

    def tell(self, one: _One, t: int, phase: str) -> None:
        self.journal(t, "background", name=one.entry.name, phase=phase, on=one.entry.path_on(self.cluster.fabric))

    def end(self) -> None:
        """Nothing of it sends any longer, and nothing of it is left. Idempotent."""
        for one in self.made:
            one.flow.ask()
        for one in self.made:
            one.flow.end()
            if one.began_ns and not one.ended_ns:
                one.ended_ns = self.cluster.clock.now()
                self.tell(one, one.ended_ns, "end")

    def records(self) -> list[dict[str, Any]]:
        """For run.json, one of each in the scenario's order."""
        fabric = self.cluster.fabric
        return [
            {
                "name": e.name, "tool": e.tool, "protocol": e.protocol, "src": e.src, "dst": e.dst, "path": e.path_on(fabric),
                "ev": e.ev_on(fabric), "rate_bps": e.rate_bps, "parallel": e.parallel, "congestion": e.congestion,
                "wire_bps": None if e.rate_bps is None else wire_rate(fabric, e.rate_bps),
                "began_ns": one.began_ns or None, "ended_ns": one.ended_ns or None, "cut": one.flow.cut,
            }
            for one in self.made for e in [one.entry]
        ]  # fmt: skip

    def complaints(self) -> list[str]:
        """What went wrong, one line each, for the run's notes."""
        found = []
        for one in self.made:
            stem = self.directory / f"iperf3-{one.entry.name}"
            why = complaint(stem, one.flow.cut) if one.began_ns else "it was never begun, the run had ended"
            if why:
                found.append(f"background {one.entry.name}: {why}")
        return found
