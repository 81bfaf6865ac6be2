"""Faults on a timeline: what is due when, on which cables, and a journal of what was really done.

The run's loop asks :meth:`Timeline.due` and applies what it returns to the cluster. Nothing here touches a network, so tests
drive it with numbers.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scenarios.schema import USED_BY_QP, Fault, ScenarioError
from topologies import Fabric, FabricError, Link
from topologies.paths import path_evs, path_links
from topologies.theory import links_of_switch

NEVER = 1 << 62


@dataclass(frozen=True)
class Action:
    """One change to the fabric, due now."""

    fault: Fault
    phase: str  # begin or heal
    on: str  # a link's or a switch's name
    links: tuple[str, ...]  # the cables it takes or gives back


@dataclass
class _Entry:
    fault: Fault
    on: str
    links: tuple[str, ...]
    due: int = NEVER
    state: str = "waiting"  # waiting, down, over


Edges = Sequence[tuple[int, int]]
"""(sender rank, receiver rank) of the pairs that have a queue pair."""


def fault_ranks(fabric: Fabric, hosts: Sequence[int], fault: Fault, edges: Edges) -> tuple[int, int]:
    """(sender rank, receiver rank) whose QP a ``used-by-qp`` fault follows: as given, else the first of ``edges`` across T0s.

    Which of the edges the runner follows when none is given is :func:`busiest_edge`.
    """
    if fault.ranks is not None:
        return fault.ranks
    return next((e for e in edges if fabric.t0_of(hosts[e[0]]) != fabric.t0_of(hosts[e[1]])), edges[0])


def busiest_edge(
    fabric: Fabric, hosts: Sequence[int], fault: Fault, edges: Edges, paths: Mapping[int, Sequence[dict[str, Any]]]
) -> tuple[int, int]:
    """As :func:`fault_ranks`; but if no ranks are given, the first edge whose cable carries most of the edges' QPs.

    That edge holds the others up, so a stall there is one of the whole ring. ``paths`` is what each host's agent answered.
    """
    if fault.ranks is not None:
        return fault.ranks
    cables: dict[tuple[int, int], str] = {}
    for i, j in edges:
        src = hosts[i]
        mine = [p for p in paths.get(src, ()) if p.get("peer") == hosts[j] and "plane" in p and "uplink" in p]
        if mine and fabric.t0_of(src) != fabric.t0_of(hosts[j]):
            cables[i, j] = cable_of_path(fabric, src, hosts[j], int(mine[0]["plane"]) << 16 | int(mine[0]["uplink"])).name
    shared = list(cables.values())
    return max(cables, key=lambda edge: shared.count(cables[edge]), default=fault_ranks(fabric, hosts, fault, edges))


def cable_of_path(fabric: Fabric, src: int, dst: int, ev: int) -> Link:
    """The cable to pull on a path: its first T0-T1 link, or the receiver's NIC link under one T0."""
    links = path_links(fabric, src, dst, ev)
    return next((link for link in links if link.kind == "fabric"), links[-1])


def resolve_used(
    fabric: Fabric, hosts: Sequence[int], edge: tuple[int, int], paths: Sequence[dict[str, Any]], seed: int, can_say: bool
) -> tuple[str, str]:
    """(link name, how it was found) for the QP between two ranks.

    ``paths`` is what the sender's agent answered; a transport on many paths cannot say, then a path is drawn by ``seed``.
    """
    a, b = edge
    src, dst = hosts[a], hosts[b]
    if can_say:
        for path in paths:
            if path.get("peer") == dst and "plane" in path and "uplink" in path:
                ev = int(path["plane"]) << 16 | int(path["uplink"])
                return cable_of_path(fabric, src, dst, ev).name, f"path {ev:#x} of the QP from h{src} to h{dst}"
    ev = random.Random(seed).choice(path_evs(fabric, src, dst))
    return cable_of_path(
        fabric, src, dst, ev
    ).name, f"path {ev:#x} drawn by seed {seed}, from h{src} to h{dst}: no single-path transport in this run"


@dataclass
class Timeline:
    """The faults of one run. ``used`` is the cable that ``used-by-qp`` stands for, by the fault's place in the scenario."""

    fabric: Fabric
    faults: Sequence[Fault]
    used: dict[int, str] = field(default_factory=dict)
    entries: list[_Entry] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # faults on things this fabric does not have

    def __post_init__(self) -> None:
        for i, fault in enumerate(self.faults):
            on = self.used[i] if fault.on == USED_BY_QP else fault.on
            try:
                if fault.kind == "switch":
                    links = links_of_switch(self.fabric, on)
                else:
                    on = self.fabric.link(on).name
                    links = (on,)
            except FabricError as error:
                self.absent.append(f"{fault.name}: {error}")
                continue
            self.entries.append(_Entry(fault, on, links))

    def measured_step_began(self, step: int, now: int) -> None:
        """A rank began measured step ``step`` (from 0), seen for the first time at ``now``; of flows, their t0 is step 0."""
        for entry in self.entries:
            if entry.state != "waiting" or entry.due != NEVER:
                continue
            if entry.fault.step is not None and step >= entry.fault.step:
                entry.due = now
            elif entry.fault.at_ns is not None:
                entry.due = now + entry.fault.at_ns

    def next_ns(self) -> int:
        """When something is due next; NEVER for nothing."""
        return min((e.due for e in self.entries if e.state != "over"), default=NEVER)

    def due(self, now: int) -> list[Action]:
        """What to do at ``now``, oldest first; each is returned once."""
        actions: list[tuple[int, Action]] = []
        for entry in self.entries:
            if entry.due > now:
                continue
            if entry.state == "waiting":
                actions.append((entry.due, Action(entry.fault, "begin", entry.on, entry.links)))
                entry.state = "down"
                entry.due = NEVER if entry.fault.for_ns is None else now + entry.fault.for_ns
            elif entry.state == "down":
                still = {link for e in self.entries if e is not entry and e.state == "down" for link in e.links}
                entry.state, entry.due = "over", NEVER
                mended = tuple(link for link in entry.links if link not in still)
                actions.append((now, Action(entry.fault, "heal", entry.on, mended)))
        return [action for _, action in sorted(actions, key=lambda pair: pair[0])]

    def dead_links(self) -> list[str]:
        """Cables that are down now."""
        return sorted({link for e in self.entries if e.state == "down" for link in e.links})

    def all_links(self) -> list[str]:
        """Cables that some fault of this run takes, at whatever time."""
        return sorted({link for e in self.entries for link in e.links})

    def never_began(self) -> list[str]:
        """Names of faults that have not happened."""
        return [e.fault.name for e in self.entries if e.state == "waiting"]


def check_used_edge(fabric: Fabric, hosts: Sequence[int], fault: Fault, edges: Edges) -> None:
    """A ``used-by-qp`` fault must name a pair that has a QP. Raises :class:`ScenarioError`."""
    a, b = fault_ranks(fabric, hosts, fault, edges)
    if (a, b) not in edges:
        near = next((e for e in edges if e[0] == a), edges[0])
        raise ScenarioError(f"fault {fault.name!r}: there is no QP from rank {a} to {b} (h{hosts[a]} to h{hosts[b]}); use {list(near)}")
