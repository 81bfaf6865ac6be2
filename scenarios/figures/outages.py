"""Finds outages of a run, from its journal: what was broken when. All figures of failures build on them.

Called by the modules of figures. Pure: turns the files of a run into stretches of time and sets of cables and EVs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scenarios.figures.measure import Run
from testbed.faults.kinds import KINDS, Kind
from topologies import Fabric
from topologies.clos import ADAPTIVE, ECMP
from topologies.paths import path_evs, path_links
from topologies.theory import COLLECTIVES, collective_phases

ENDLESS = 1 << 62
LATE_RTTS = 4
"""A verdict may still concern packets sent before the end of a fault for so many base RTTs after it [ours]."""
NO_LOSS = frozenset(("trim", "trimmed", "nack", "port", "no room"))
"""Rules of ``loss`` events for packets that were not lost on the way: they were trimmed, or never left their host."""


def kind_of(name: str) -> Kind:
    """Find a kind of fault in the catalogue; for a kind of another version, return an entry without effects."""
    return KINDS.get(name, Kind())


@dataclass(frozen=True)
class Outage:
    """One stretch of time in which something was broken; for a flapping link, one for each time that it was down."""

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
    def keys(self) -> dict[str, Any]:
        return {"to": self.to, "probability": self.probability, "direction": self.direction}

    @property
    def dead(self) -> bool:
        """Whether its cables carry nothing during the outage."""
        return self.entry.takes

    @property
    def kills(self) -> bool:
        """Whether a path that the outage hits delivers nothing."""
        return self.dead or (self.entry.loses and self.probability >= 1)


def outages_of(run: Run) -> list[Outage]:
    """List the outages of a run, by begin. A fault has the phases begin and heal in the journal; a cyclic fault also has down and up."""
    lines = run.of("fault")
    cycles = {line["name"] for line in lines if line["phase"] == "down"}
    outages = []
    for i, line in enumerate(lines):
        cyclic = line["name"] in cycles
        if line["phase"] != ("down" if cyclic else "begin"):
            continue
        end_phases = ("up", "heal") if cyclic else ("heal",)
        end = next((later["t"] for later in lines[i + 1 :] if later["name"] == line["name"] and later["phase"] in end_phases), ENDLESS)
        begun = line
        if not kind_of(line["fault"]).wanders:
            begun = next(other for other in lines if other["name"] == line["name"] and other["phase"] == "begin")
        keys = line.get("keys", {})
        to, probability = str(keys.get("to", "")), float(keys.get("probability", 1.0))
        direction = str(keys.get("direction", "both"))
        outages.append(Outage(line["name"], line["fault"], line["on"], line["t"], end, tuple(begun["links"]), to, probability, direction))
    return outages


@lru_cache(maxsize=1024)
def _cables(fabric: Fabric, src: int, dst: int, direction: str) -> dict[int, frozenset[str]]:
    """Return EV -> the cables of its path in a direction: the first half of a path goes up, the second half goes down."""
    cables = {}
    for ev in path_evs(fabric, src, dst):
        names = [link.name for link in path_links(fabric, src, dst, ev)]
        half = len(names) // 2
        cables[ev] = frozenset({"up": names[:half], "down": names[half:]}.get(direction, names))
    return cables


@lru_cache(maxsize=16384)
def hit_evs(fabric: Fabric, outage: Outage, src: int, dst: int) -> frozenset[int]:
    """Find the EVs from ``src`` to ``dst`` of which an outage drops some or all packets; none where an EV names no path (adaptive
    routing)."""
    entry = outage.entry
    if src == dst or not (entry.takes or entry.loses) or not outage.probability or fabric.routing == ADAPTIVE:
        return frozenset()
    paths = _cables(fabric, src, dst, outage.direction)
    return frozenset(ev for ev, cables in paths.items() if entry.hits(outage, src, dst, ev, cables))


def dead_until(run: Run, outage: Outage) -> float:
    """Find the moment until which the EVs that an outage hits are dead: its end, or when switches that hash EVs have converged around
    it."""
    reconvergence_ns = run.record.get("reconvergence_ns")
    if run.fabric.routing != ECMP or not outage.dead or reconvergence_ns is None:
        return outage.end
    return min(outage.end, outage.begin + float(reconvergence_ns))


def dead_at(outages: Iterable[Outage], t: float) -> frozenset[str]:
    return frozenset(link for outage in outages if outage.dead and outage.begin <= t < outage.end for link in outage.links)


def changes(outages: Iterable[Outage]) -> list[float]:
    """List the times at which cables went down or came back, in order."""
    return sorted({t for outage in outages if outage.dead for t in (outage.begin, outage.end) if t < ENDLESS})


def sending_pairs(run: Run) -> list[tuple[int, int]]:
    """Return the pairs (sending host, receiving host) of the run's data."""
    hosts = run.record["ranks"]
    if run.named_flows:
        return list(dict.fromkeys((hosts[flow["src"]], hosts[flow["dst"]]) for flow in run.named_flows))
    kind = run.record["workload"]
    if kind not in COLLECTIVES:
        return []
    return list(dict.fromkeys(pair for phase in collective_phases(kind, hosts) for pair in phase.traffic))


def peers_at_once(run: Run, host: int) -> int:
    """Count the hosts to which a host sends at the same time."""
    hosts = run.record["ranks"]
    if run.named_flows:
        return max(1, len({flow["dst"] for flow in run.named_flows if hosts[flow["src"]] == host}))
    if run.record["workload"] not in COLLECTIVES:
        return 1
    return _most_peers(run.record["workload"], tuple(hosts)).get(host, 1)


@lru_cache(maxsize=16)
def _most_peers(collective: str, hosts: tuple[int, ...]) -> dict[int, int]:
    """Return host -> to how many others it sends in the phase of a collective in which they are most."""
    most: Counter[int] = Counter()
    for phase in collective_phases(collective, hosts):
        most |= Counter(src for src, _ in phase.traffic)
    return most


def traffic_start(run: Run, host: int | None = None) -> float:
    """Find when the traffic of a host, or of any host, began, ns, with warm-up: its first flow or step, else when the agents started."""
    if "t0" in run.record:
        hosts = run.record["ranks"]
        return float(run.record["t0"]) + min((f["start_ns"] for f in run.named_flows if host in (None, hosts[f["src"]])), default=0)
    starts = [line["start_ns"] for line in run.of("step") if host in (None, line["host"])]
    return float(min(starts or [line["t"] for line in run.of("start") if line["host"] == -1], default=run.record["window"][0]))


def path_lines(run: Run, *kinds: str) -> list[dict[str, Any]]:
    return [line for line in run.of(*kinds) if line.get("peer") is not None and line.get("ev") is not None]
