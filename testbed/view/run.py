"""The description of a run that a view needs before its first line: fabric, pairs of hosts with
their paths, times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from testbed.results.record import PathRow
from topologies.addressing import ev_fields
from topologies.clos import Fabric
from topologies.paths import path_evs, path_links
from topologies.units import NS

FORMAT = 1


@dataclass(frozen=True)
class Run:
    """``t0`` is when the run's time begins (ns); frames count from there."""

    key: str
    transport: str
    kind: str
    fabric: Fabric
    t0: int
    ranks: tuple[int, ...]  # their hosts
    paths: Mapping[int, list[PathRow]]  # host -> rows of its engine's paths, as in run.json
    warmup_steps: int = 0
    about: Mapping[str, Any] | None = None  # more for the page: docs/how/view.md

    @cached_property
    def pairs(self) -> dict[tuple[int, int], dict[int, str]]:
        """Return (sender, receiver) -> EV -> its state before the first line: used, backup or idle
        (no queue pair has it)."""
        pairs: dict[tuple[int, int], dict[int, str]] = {}
        for host, rows in sorted(self.paths.items()):
            for row in rows:
                states = pairs.setdefault(
                    (host, row.peer), dict.fromkeys(path_evs(self.fabric, host, row.peer), "idle")
                )
                # the kernel's connections may have no path yet: EV -1
                if row.ev is not None and states.get(row.ev, "used") != "used":
                    states[row.ev] = "used" if row.active else "backup"
        return pairs

    @cached_property
    def queue_pairs(self) -> dict[tuple[int, int], dict[int, int]]:
        counts: dict[tuple[int, int], dict[int, int]] = {}
        for host, rows in self.paths.items():
            for row in rows:
                if row.ev is not None:
                    by_ev = counts.setdefault((host, row.peer), {})
                    by_ev[row.ev] = by_ev.get(row.ev, 0) + 1
        return counts

    def links_of(self, src: int, dst: int, ev: int) -> tuple[str, ...]:
        path = (src, dst, ev)
        if path not in self._links:
            self._links[path] = tuple(link.name for link in path_links(self.fabric, src, dst, ev))
        return self._links[path]

    @cached_property
    def _links(self) -> dict[tuple[int, int, int], tuple[str, ...]]:
        return {}

    def header(self) -> dict[str, Any]:
        fabric = self.fabric
        return {
            "f": "run",
            "t": 0,
            "v": FORMAT,
            "key": self.key,
            "transport": self.transport,
            "kind": self.kind,
            "fabric": {
                "name": fabric.name,
                "planes": fabric.planes,
                "t0": fabric.t0_per_plane,
                "t1": fabric.t1_count,
                "hosts": fabric.host_count,
                "hosts_per_t0": fabric.hosts_per_t0,
                "buffer": fabric.buffer_bytes,
                "base_rtt_ns": round(fabric.base_rtt_ps / NS),
            },
            "links": [
                {
                    "name": link.name,
                    "kind": link.kind,
                    "plane": link.plane,
                    "a": link.a.node,
                    "b": link.b.node,
                    "gbps": round(link.rate / 1e9, 3),
                }
                for link in fabric.links
            ],
            "ranks": list(self.ranks),
            "pairs": [self.pair(src, dst, states) for (src, dst), states in self.pairs.items()],
            **(self.about or {}),
        }

    def pair(self, src: int, dst: int, states: Mapping[int, str]) -> dict[str, Any]:
        numbers = self._numbers
        paths = [
            [ev, *ev_fields(ev), state, [numbers[link] for link in self.links_of(src, dst, ev)]]
            for ev, state in states.items()
        ]
        return {"src": src, "dst": dst, "evs": paths}

    def new_pair(self, src: int, dst: int) -> dict[int, str]:
        """The description lacks pairs such as a job's, whose ranks connect later: MRC uses every
        path, others the paths that packets show."""
        return dict.fromkeys(
            path_evs(self.fabric, src, dst), "used" if self.kind == "mrc" else "idle"
        )

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {link.name: number for number, link in enumerate(self.fabric.links)}


def touched(run: Run, src: int, dst: int, ev: int, links: Iterable[str]) -> bool:
    return not set(links).isdisjoint(run.links_of(src, dst, ev))
