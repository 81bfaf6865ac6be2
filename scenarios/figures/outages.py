"""Finds a run's outages in its journal: what was broken when, and what senders logged of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol, TypeVar

import pandas as pd

from scenarios.figures.measure import Run
from testbed.faults.kinds import KINDS, Kind
from testbed.results import log
from testbed.results.record import Flow
from topologies import Fabric
from topologies.clos import ADAPTIVE, ECMP
from topologies.paths import path_evs, path_links
from topologies.theory import COLLECTIVES, collective_phases

ENDLESS = 1 << 62
Pair = tuple[int, int]
LATE_RTTS = 4
"""Base RTTs after a fault in which a verdict may concern packets sent before [ours]."""
# trimmed, or never left their host
NO_LOSS = frozenset(("trim", "trimmed", "nack", "port", "no room"))


def kind_of(name: str) -> Kind:
    """Return a kind without effects for one of another version."""
    return KINDS.get(name, Kind())


@dataclass(frozen=True)
class Outage:
    """A stretch in which something was broken; a flapping link has one for each time down."""

    fault: str
    kind: str
    on: str
    begin: float
    end: float  # ENDLESS: not mended in this run
    links: tuple[str, ...]
    to: str = ""  # for destination-loss: the host
    probability: float = 1.0
    direction: str = "both"  # up: packets that travel away from the hosts

    @property
    def entry(self) -> Kind:
        return kind_of(self.kind)

    @property
    def keys(self) -> dict[str, str | float]:
        return {"to": self.to, "probability": self.probability, "direction": self.direction}

    @property
    def dead(self) -> bool:
        return self.entry.takes

    @property
    def kills(self) -> bool:
        return self.dead or (self.entry.loses and self.probability >= 1)


def outages_of(run: Run) -> list[Outage]:
    """A fault has phases begin and heal; a cyclic one also down and up."""
    lines = run.of(log.Fault)
    cycles = {line.name for line in lines if line.phase == "down"}
    outages = []
    for i, line in enumerate(lines):
        cyclic = line.name in cycles
        if line.phase != ("down" if cyclic else "begin"):
            continue
        end_phases = ("up", "heal") if cyclic else ("heal",)
        end = next(
            (
                later.t_ns
                for later in lines[i + 1 :]
                if later.name == line.name and later.phase in end_phases
            ),
            ENDLESS,
        )
        begun = line
        if not kind_of(line.fault).wanders:
            begun = next(
                other for other in lines if other.name == line.name and other.phase == "begin"
            )
        options = line.to, line.probability, line.direction
        outages.append(
            Outage(line.name, line.fault, line.on, line.t_ns, end, tuple(begun.links), *options)
        )
    return outages


@lru_cache(maxsize=1024)
def _cables(fabric: Fabric, src: int, dst: int, direction: str) -> dict[int, frozenset[str]]:
    cables = {}
    for ev in path_evs(fabric, src, dst):
        names = [link.name for link in path_links(fabric, src, dst, ev)]
        half = len(names) // 2
        cables[ev] = frozenset({"up": names[:half], "down": names[half:]}.get(direction, names))
    return cables


@lru_cache(maxsize=16384)
def hit_evs(fabric: Fabric, outage: Outage, src: int, dst: int) -> frozenset[int]:
    """Return the EVs whose paths an outage hits; none where an EV names no path (adaptive
    routing)."""
    entry = outage.entry
    if (
        src == dst
        or not (entry.takes or entry.loses)
        or not outage.probability
        or fabric.routing == ADAPTIVE
    ):
        return frozenset()
    paths = _cables(fabric, src, dst, outage.direction)
    return frozenset(ev for ev, cables in paths.items() if entry.hits(outage, src, dst, ev, cables))


def dead_at(outages: Iterable[Outage], t: float) -> frozenset[str]:
    return frozenset(
        link
        for outage in outages
        if outage.dead and outage.begin <= t < outage.end
        for link in outage.links
    )


def changes(outages: Iterable[Outage]) -> list[float]:
    return sorted(
        {t for outage in outages if outage.dead for t in (outage.begin, outage.end) if t < ENDLESS}
    )


@lru_cache(maxsize=16)
def _most_peers(collective: str, hosts: tuple[int, ...]) -> dict[int, int]:
    most: Counter[int] = Counter()
    for phase in collective_phases(collective, hosts):
        most |= Counter(src for src, _ in phase.traffic)
    return most


class OfQueuePair(Protocol):
    """A line without a number is about all queue pairs of two hosts."""

    @property
    def pair(self) -> Pair: ...
    @property
    def qpn(self) -> int | None: ...


T = TypeVar("T", bound=OfQueuePair)


def by_pair(lines: Iterable[T]) -> dict[Pair, list[T]]:
    found: dict[Pair, list[T]] = defaultdict(list)
    for line in lines:
        found[line.pair].append(line)
    return found


class Failures:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.outages = outages_of(run)
        self.faults, self.moves, self.losses, self.reroutes = (
            run.of(log.Fault),
            run.of(log.PathChange),
            run.of(log.Loss),
            run.of(log.Reroute),
        )
        # A change from DENIED is no verdict: the denial ended, and probes must now be answered on
        # the path.
        self.verdicts = [
            line for line in self.moves if line.to == "ASSUMED_BAD" and line.from_ != "DENIED"
        ]

    @cached_property
    def pairs(self) -> list[Pair]:
        run, hosts = self.run, self.run.record.ranks
        if run.named_flows:
            return list(
                dict.fromkeys((hosts[flow.src], hosts[flow.dst]) for flow in run.named_flows)
            )
        if run.record.workload not in COLLECTIVES:
            return []
        return list(
            dict.fromkeys(
                pair
                for phase in collective_phases(run.record.workload, hosts)
                for pair in phase.traffic
            )
        )

    @cached_property
    def _heard_of(self) -> list[Pair]:
        rank = {host: number for number, host in enumerate(self.run.record.ranks)}
        logged = {line.pair for line in (*self.verdicts, *self.losses)}
        logged |= {(line.host, line.peer) for line in self.reroutes if line.peer is not None}
        known = [(a, b) for a, b in {*self.pairs, *logged} if a in rank and b in rank and a != b]
        return sorted(known, key=lambda pair: (rank[pair[0]], rank[pair[1]]))

    @cached_property
    def _arrivals(self) -> dict[tuple[Pair, int | None, int | None], list[float]]:
        """Packet -> ascending times at which its sender, which had found it lost, knew that it had
        arrived (PSNs wrap)."""
        arrivals: dict[tuple[Pair, int | None, int | None], list[float]] = {}
        for line in self.run.of(log.Redelivered):
            arrivals.setdefault((line.pair, line.qpn, line.psn), []).append(line.t_ns)
        return arrivals

    @cached_property
    def verdicts_of(self) -> dict[Pair, list[log.PathChange]]:
        return by_pair(self.verdicts)

    @cached_property
    def losses_of(self) -> dict[Pair, list[log.Loss]]:
        return by_pair(self.losses)

    @cached_property
    def samples_of(self) -> dict[Pair, list[log.Cwnd | log.Srtt]]:
        """MRC's lines with RTTs and windows every few RTTs, and those of flows. Per-bin lines of
        collectives came later, are of the bin's end, and would change figures."""
        lines = self.run.of_any(log.Srtt, log.Cwnd)
        return by_pair(
            x
            for x in lines
            if isinstance(x, log.Srtt) or (isinstance(x, log.Cwnd) and x.flow is not None)
        )

    @cached_property
    def bins_of(self) -> dict[Pair, pd.DataFrame]:
        evs = self.run.evs
        return {
            (int(rows["host"].iloc[0]), int(rows["peer"].iloc[0])): rows
            for _, rows in evs.groupby(["host", "peer"])
        }

    def redelivered(self, loss: log.Loss) -> float | None:
        """Return when the sender of a packet found lost knew that it had arrived, ns."""
        return next(
            (t for t in self._arrivals.get((loss.pair, loss.qpn, loss.psn), ()) if t >= loss.t_ns),
            None,
        )

    def hits(self, outage: Outage, pair: Pair) -> frozenset[int]:
        return hit_evs(self.run.fabric, outage, *pair)

    def flows_hit(self, outages: Iterable[Outage]) -> list[Flow]:
        hosts = self.run.record.ranks
        return [
            flow
            for flow in self.run.named_flows
            if any(self.hits(o, (hosts[flow.src], hosts[flow.dst])) for o in outages)
        ]

    def dead(self, outage: Outage) -> dict[Pair, frozenset[int]]:
        if outage not in self._dead:
            hits = {pair: self.hits(outage, pair) for pair in self._heard_of}
            self._dead[outage] = {pair: evs for pair, evs in hits.items() if evs}
        return self._dead[outage]

    @cached_property
    def _dead(self) -> dict[Outage, dict[Pair, frozenset[int]]]:
        return {}

    def dead_until(self, outage: Outage) -> float:
        """Return the outage's end, or when hashing switches have converged around it."""
        reconvergence_ns = self.run.record.reconvergence_ns
        if self.run.fabric.routing != ECMP or not outage.dead or reconvergence_ns is None:
            return outage.end
        return min(outage.end, outage.begin + reconvergence_ns)

    def peers_at_once(self, host: int) -> int:
        run, hosts = self.run, self.run.record.ranks
        if run.named_flows:
            return max(1, len({flow.dst for flow in run.named_flows if hosts[flow.src] == host}))
        if run.record.workload not in COLLECTIVES:
            return 1
        return _most_peers(run.record.workload, tuple(hosts)).get(host, 1)

    def traffic_start(self, host: int | None = None) -> float:
        """Return when traffic began, ns, with warm-up: first flow or step, else the agents'
        start."""
        run, record = self.run, self.run.record
        if record.t0_ns is not None:
            return record.t0_ns + min(
                (f.start_ns for f in run.named_flows if host in (None, record.ranks[f.src])),
                default=0,
            )
        starts = [line.start_ns for line in run.of(log.Step) if host in (None, line.host)]
        return min(
            starts or [line.t_ns for line in run.of(log.Start) if line.host == log.NO_HOST],
            default=record.window_ns[0],
        )
