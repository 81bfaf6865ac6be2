"""Faults on a timeline: when each is due and what it hits, and which cable or path "used-by-qp"
stands for.

The run's loop calls :meth:`Timeline.due` and applies the result. Nothing here touches a network.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scenarios.schema.fault_tables import Fault
from scenarios.schema.values import ScenarioError
from testbed.faults.kinds import KINDS, USED_BY_QP, target_of
from testbed.faults.targets import Target, cable_of_path
from topologies import Fabric, FabricError
from topologies.paths import path_evs

NEVER = 1 << 62


@dataclass(frozen=True)
class Action:
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
    state: str = "waiting"  # waiting, active, over


Edges = Sequence[tuple[int, int]]  # (sender rank, receiver rank) with a queue pair


def fault_ranks(
    fabric: Fabric, hosts: Sequence[int], fault: Fault, edges: Edges
) -> tuple[int, int]:
    """Return (sender rank, receiver rank) that a ``used-by-qp`` fault follows: its own, else the
    first edge across T0s."""
    if fault.ranks is not None:
        return fault.ranks
    return next(
        (e for e in edges if fabric.t0_of(hosts[e[0]]) != fabric.t0_of(hosts[e[1]])), edges[0]
    )


def busiest_edge(
    fabric: Fabric,
    hosts: Sequence[int],
    fault: Fault,
    edges: Edges,
    paths: Mapping[int, Sequence[dict[str, Any]]],
) -> tuple[int, int]:
    """Without given ranks, return the first edge whose cable carries most of the edges' QPs.

    The other edges wait for that one, so a stall there stalls the whole ring. ``paths``: host ->
    the rows that its agent answered.
    """
    if fault.ranks is not None:
        return fault.ranks
    cables: dict[tuple[int, int], str] = {}
    for i, j in edges:
        src = hosts[i]
        edge_paths = [
            p
            for p in paths.get(src, ())
            if p.get("peer") == hosts[j] and "plane" in p and "uplink" in p
        ]
        if edge_paths and fabric.t0_of(src) != fabric.t0_of(hosts[j]):
            cables[i, j] = cable_of_path(
                fabric,
                src,
                hosts[j],
                int(edge_paths[0]["plane"]) << 16 | int(edge_paths[0]["uplink"]),
            ).name
    shared = list(cables.values())
    return max(
        cables,
        key=lambda edge: shared.count(cables[edge]),
        default=fault_ranks(fabric, hosts, fault, edges),
    )


def resolve_used(
    fabric: Fabric,
    hosts: Sequence[int],
    edge: tuple[int, int],
    paths: Sequence[dict[str, Any]],
    seed: int,
    can_say: bool,
    kind: str = "link",
    flows: Edges = (),
) -> tuple[str, str]:
    """Return (target of such a fault, how it was found) for the QP between two ranks.

    ``paths``: rows that the sender's agent answered. A transport on many paths cannot name one
    (``can_say`` is false); then ``seed`` draws one in use. ``flows``: those of the run, in order.
    """
    a, b = edge
    src, dst = hosts[a], hosts[b]
    used_on = KINDS[kind].used_on
    peer_paths = [
        path for path in paths if path.get("peer") == dst and "plane" in path and "uplink" in path
    ]
    evs = [
        int(path["plane"]) << 16 | int(path["uplink"])
        for path in _data_paths(peer_paths, flows, edge)
        if path.get("active", True)
    ]
    if can_say and evs:
        return used_on(
            fabric, src, dst, evs[0]
        ), f"path {evs[0]:#x} of the QP from h{src} to h{dst}"
    ev = random.Random(seed).choice(list(dict.fromkeys(evs)) or path_evs(fabric, src, dst))
    return (
        used_on(fabric, src, dst, ev),
        (
            f"path {ev:#x} drawn by seed {seed}, from h{src} to h{dst}: no single-path transport "
            "in this run"
        ),
    )


def _data_paths(
    paths: Sequence[dict[str, Any]], flows: Edges, edge: tuple[int, int]
) -> Sequence[dict[str, Any]]:
    """Return paths of queue pairs that carry data along ``edge``.

    Each flow between two ranks has its own queue pairs, in the order of the flows. Those of a flow
    in the other direction only send acknowledgements, on active paths of their own.
    """
    pair_flows = [flow for flow in flows if set(flow) == set(edge)]
    if not pair_flows:
        return paths
    qpns = sorted({path["qpn"] for path in paths})
    per_flow, remainder = divmod(len(qpns), len(pair_flows))
    # a kernel's connection without a known path has no row, so queue pairs cannot be matched to
    # flows
    if remainder:
        return paths
    data_qpns = {qpn for i, qpn in enumerate(qpns) if pair_flows[i // per_flow] == edge}
    return [path for path in paths if path["qpn"] in data_qpns]


@dataclass
class Timeline:
    """Faults on "used-by-qp" join by :meth:`follow`, once their target is known."""

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
        fault = self.faults[number]
        try:
            self.entries.append(
                _Entry(number, fault, target_of(self.fabric, fault.kind, on, fault.keys, self.seed))
            )
        except FabricError as error:
            self.absent.append(f"{fault.name}: {error}")

    def begin_before(self) -> list[Action]:
        entries = [
            entry for entry in self.entries if entry.fault.before and entry.state == "waiting"
        ]
        for entry in entries:
            entry.state = "active"
        return [Action(entry.number, entry.fault, "begin", entry.target) for entry in entries]

    def measured_step_began(self, step: int, now: int) -> None:
        """``step`` counts from 0; the t0 of flows is step 0."""
        for entry in self.entries:
            if entry.due != NEVER:
                continue
            if entry.state == "active" and entry.fault.before and entry.fault.for_ps is not None:
                entry.due = now + entry.fault.for_ps
            elif entry.state != "waiting":
                continue
            elif entry.fault.step is not None and step >= entry.fault.step:
                entry.due = now
            elif entry.fault.at_ps is not None:
                entry.due = now + entry.fault.at_ps

    def next_ps(self) -> int:
        return min((e.due for e in self.entries if e.state != "over"), default=NEVER)

    def planned_ps(self) -> int:
        """Return :meth:`next_ps` without what begins with a step (``at = "0us"`` too): nobody knows
        when before a rank has checked the step before."""
        times = (
            e.due
            for e in self.entries
            if e.state == "active" or (e.state == "waiting" and e.fault.at_ps)
        )
        return min(times, default=NEVER)

    def due(self, now: int) -> list[Action]:
        """Return each action once, oldest first."""
        actions: list[tuple[int, Action]] = []
        for entry in self.entries:
            if entry.due > now:
                continue
            phase = "begin" if entry.state == "waiting" else "heal"
            actions.append((entry.due, Action(entry.number, entry.fault, phase, entry.target)))
            if phase == "heal" or not KINDS[entry.fault.kind].heals:
                entry.state, entry.due = "over", NEVER
            else:
                entry.state = "active"
                entry.due = NEVER if entry.fault.for_ps is None else now + entry.fault.for_ps
        return [action for _, action in sorted(actions, key=lambda pair: pair[0])]

    def all_links(self) -> list[str]:
        """Return the cables that some fault takes; those only affected are not among them."""
        return sorted(
            {link for e in self.entries if KINDS[e.fault.kind].takes for link in e.target.links}
        )

    def never_began(self) -> list[str]:
        return [e.fault.name for e in self.entries if e.state == "waiting"]


def check_used_edge(fabric: Fabric, hosts: Sequence[int], fault: Fault, edges: Edges) -> None:
    """Raise :class:`ScenarioError` unless a ``used-by-qp`` fault names a pair that has a QP."""
    a, b = fault_ranks(fabric, hosts, fault, edges)
    if (a, b) not in edges:
        usable = next((e for e in edges if e[0] == a), edges[0])
        raise ScenarioError(
            f"fault {fault.name!r}: there is no QP from rank {a} to {b} (h{hosts[a]} to "
            f"h{hosts[b]}); use {list(usable)}"
        )
