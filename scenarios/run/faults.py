"""Faults on a timeline: what is due when and what it hits; and which cable or path "used-by-qp" stands for.

The run's loop asks :meth:`Timeline.due` and applies what it returns to the cluster, which tells what was really done. Nothing here
touches a network, so tests drive it with numbers.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scenarios.schema.faults import Fault
from scenarios.schema.values import ScenarioError
from testbed.faults.kinds import KINDS, USED_BY_QP, resolve
from testbed.faults.targets import Target, cable_of_path
from topologies import Fabric, FabricError
from topologies.paths import path_evs

NEVER = 1 << 62


@dataclass(frozen=True)
class Action:
    """One change to the fabric, due now."""

    number: int  # the fault's place in the scenario
    fault: Fault
    phase: str  # begin or heal
    target: Target


@dataclass
class _Entry:
    number: int
    fault: Fault
    target: Target
    due: int = NEVER
    state: str = "waiting"  # waiting, there, over


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


def resolve_used(
    fabric: Fabric, hosts: Sequence[int], edge: tuple[int, int], paths: Sequence[dict[str, Any]], seed: int, can_say: bool,
    kind: str = "link", flows: Edges = (),
) -> tuple[str, str]:
    """(what a fault of a kind is on, how that was found) for the QP between two ranks.

    ``paths`` is what the sender's agent answered; a transport on many paths cannot say, then one of those in use is drawn by ``seed``.
    ``flows``: the run's, in order.
    """
    a, b = edge
    src, dst = hosts[a], hosts[b]
    on = KINDS[kind].used_on
    mine = [path for path in paths if path.get("peer") == dst and "plane" in path and "uplink" in path]
    evs = [int(path["plane"]) << 16 | int(path["uplink"]) for path in _carrying(mine, flows, edge) if path.get("active", True)]
    if can_say and evs:
        return on(fabric, src, dst, evs[0]), f"path {evs[0]:#x} of the QP from h{src} to h{dst}"
    drawn = random.Random(seed).choice(list(dict.fromkeys(evs)) or path_evs(fabric, src, dst))
    return on(fabric, src, dst, drawn), f"path {drawn:#x} drawn by seed {seed}, from h{src} to h{dst}: no single-path transport in this run"


def _carrying(paths: Sequence[dict[str, Any]], flows: Edges, edge: tuple[int, int]) -> Sequence[dict[str, Any]]:
    """The paths of queue pairs that carry data along ``edge``.

    Between two ranks each flow has queue pairs of its own, in the flows' order; those of a flow the other way only send its receiver's
    words, on active paths of their own.
    """
    between = [flow for flow in flows if set(flow) == set(edge)]
    if not between:
        return paths
    numbers = sorted({path["qpn"] for path in paths})
    each, left = divmod(len(numbers), len(between))
    if left:  # a kernel's connection whose path is not known yet has no row: which flow has which is not known either
        return paths
    carrying = {number for i, number in enumerate(numbers) if between[i // each] == edge}
    return [path for path in paths if path["qpn"] in carrying]


@dataclass
class Timeline:
    """The faults of one run. Those on "used-by-qp" join by :meth:`follow`, once it is known what that is. ``seed``: the run's."""

    fabric: Fabric
    faults: Sequence[Fault]
    seed: int = 0
    entries: list[_Entry] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # faults on things this fabric does not have

    def __post_init__(self) -> None:
        for number, fault in enumerate(self.faults):
            if fault.on != USED_BY_QP:
                self.follow(number, fault.on)

    def follow(self, number: int, on: str) -> None:
        """Fault ``number`` is on ``on``."""
        fault = self.faults[number]
        try:
            self.entries.append(_Entry(number, fault, resolve(self.fabric, fault.kind, on, fault.keys, self.seed)))
        except FabricError as error:
            self.absent.append(f"{fault.name}: {error}")

    def begin_before(self) -> list[Action]:
        """What must be there before the agents are."""
        early = [entry for entry in self.entries if entry.fault.before and entry.state == "waiting"]
        for entry in early:
            entry.state = "there"
        return [Action(entry.number, entry.fault, "begin", entry.target) for entry in early]

    def measured_step_began(self, step: int, now: int) -> None:
        """A rank began measured step ``step`` (from 0), seen for the first time at ``now``; of flows, their t0 is step 0."""
        for entry in self.entries:
            if entry.due != NEVER:
                continue
            if entry.state == "there" and entry.fault.before and entry.fault.for_ns is not None:
                entry.due = now + entry.fault.for_ns
            elif entry.state != "waiting":
                continue
            elif entry.fault.step is not None and step >= entry.fault.step:
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
            phase = "begin" if entry.state == "waiting" else "heal"
            actions.append((entry.due, Action(entry.number, entry.fault, phase, entry.target)))
            if phase == "heal" or not KINDS[entry.fault.kind].heals:
                entry.state, entry.due = "over", NEVER
            else:
                entry.state = "there"
                entry.due = NEVER if entry.fault.for_ns is None else now + entry.fault.for_ns
        return [action for _, action in sorted(actions, key=lambda pair: pair[0])]

    def all_links(self) -> list[str]:
        """Cables that some fault of this run takes, at whatever time; those that it only affects are left out."""
        return sorted({link for e in self.entries if KINDS[e.fault.kind].takes for link in e.target.links})

    def never_began(self) -> list[str]:
        """Names of faults that have not happened."""
        return [e.fault.name for e in self.entries if e.state == "waiting"]


def check_used_edge(fabric: Fabric, hosts: Sequence[int], fault: Fault, edges: Edges) -> None:
    """A ``used-by-qp`` fault must name a pair that has a QP. Raises :class:`ScenarioError`."""
    a, b = fault_ranks(fabric, hosts, fault, edges)
    if (a, b) not in edges:
        near = next((e for e in edges if e[0] == a), edges[0])
        raise ScenarioError(f"fault {fault.name!r}: there is no QP from rank {a} to {b} (h{hosts[a]} to h{hosts[b]}); use {list(near)}")
