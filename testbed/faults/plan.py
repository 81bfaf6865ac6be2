"""Random faults of every kind, as a list of what breaks when. Pure: a fabric, a seed and a length in, faults out.

For the long runs of both worlds: tests/soak/test_random_faults.py carries plans out on an emulated fabric, scenarios/sets/schedules.py on
simulated ones. A plan is harsh but survivable: at most MOST_AT_ONCE faults at a time, and no two hosts are without any path for longer
than MOST_CUT_S, so that no queue pair may use up its retries. Drawn faults are of any kind of the catalogue but ``kill``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from agents.mrc.config import Config
from agents.mrc.paths.path import MAX_PROOF
from agents.mrc.paths.plane_health import HOLD, MOST_DOUBLINGS
from testbed.faults.kinds import KINDS
from testbed.faults.targets import Target, resolve
from topologies.addressing import ev_fields
from topologies.clos import Fabric
from topologies.paths import path_evs, path_links

MOST_AT_ONCE = 3
MOST_CUT_S = 4.0
"""The retries of a queue pair with the knobs' defaults last 85 s on `tiny`, and the faster a cut ends the sooner they go on [our own
choice]."""
LONGEST_S = 4.0
SHORTEST_RTTS = 3
MEAN_GAP_S = 0.7
"""Between the beginnings of two faults, before those that may not be are left out."""
AS_GOOD_AS_DEAD = 0.3
"""A path that loses this share of its packets does not count as one: an answer has to come back, too."""
LOADED_RTTS = 4
"""Smoothed RTT under load and faults, base RTTs, at most: queues are trimmed at a BDP, and the slowest links have a fifth of their rate
[our own choice]."""
EVERY_KIND = tuple(name for name, kind in KINDS.items() if kind.heals)


@dataclass(frozen=True)
class Planned:
    """A fault from ``at`` to ``until``, seconds from the plan's begin; ``over`` is when the last of it is gone (a reboot takes longer)."""

    at: float
    until: float
    kind: str
    on: str
    keys: dict[str, Any]
    target: Target

    @property
    def over(self) -> float:
        return self.until + int(self.target.keys.get("reboot", 0)) / 1e9


class Paths:
    """The paths between all hosts of a fabric, and which of them some faults leave."""

    def __init__(self, fabric: Fabric) -> None:
        self.pairs = [(a, b) for a in range(fabric.host_count) for b in range(fabric.host_count) if a != b]
        self.links = {
            pair: {value: [link.name for link in path_links(fabric, *pair, value)] for value in path_evs(fabric, *pair)}
            for pair in self.pairs
        }
        self.of_switch = {
            switch: {link.name for link in fabric.links if switch in (link.a.node, link.b.node)} for switch in fabric.switches
        }

    def cut(self, faults: Sequence[Planned]) -> set[tuple[int, int]]:
        """(source, destination) of those who have no path left while all these are there. A fault that comes and goes counts as there."""
        dead: set[str] = set()
        single: set[tuple[int, int, int]] = set()
        lost: list[tuple[set[str], int]] = []  # (links of the switch, towards this host)
        for target in (fault.target for fault in faults):
            bad = target.keys.get("probability", 0.0) >= AS_GOOD_AS_DEAD
            if target.takes or (bad and target.kind in ("loss", "corrupt")):
                dead |= set(target.links)
            elif bad and target.kind == "path-loss":
                src, dst = (int(name[1:]) for name in target.on.partition("@")[0].split(">"))
                plane, _, uplink = target.on.partition("@p")[2].partition("/")
                single |= {(src, dst, v) for v in self.links[src, dst] if ev_fields(v) == (int(plane), int(uplink))}
            elif bad and target.kind == "destination-loss":
                lost.append((self.of_switch[target.on], int(target.keys["to"][1:])))
        return {
            (a, b)
            for a, b in self.pairs
            if all(
                not dead.isdisjoint(links) or (a, b, value) in single or any(b == to and not at.isdisjoint(links) for at, to in lost)
                for value, links in self.links[a, b].items()
            )
        }

    def longest_cut(self, faults: Sequence[Planned]) -> float:
        """For how long at most some host hears nothing from some other, either way, seconds without a gap."""
        moments = sorted({moment for fault in faults for moment in (fault.at, fault.over)})
        running: dict[tuple[int, int], float] = {}
        longest = 0.0
        for begin, end in pairwise(moments):
            without = self.cut([fault for fault in faults if fault.at < end and fault.over > begin])
            running = {pair: running.get(pair, 0.0) + end - begin for pair in without | {(b, a) for a, b in without}}
            longest = max(longest, *running.values(), 0.0)
        return longest


@lru_cache(maxsize=4)
def paths_of(fabric: Fabric) -> Paths:
    """The fabric's paths, made once: on 16 hosts that takes longer than a plan."""
    return Paths(fabric)


def plan(fabric: Fabric, seed: int, seconds: float) -> list[Planned]:
    """Faults that all begin and end within so many seconds, by their begin. The same arguments give the same plan."""
    rng, paths = random.Random(f"{fabric.name} {seed}"), paths_of(fabric)
    made: list[Planned] = []
    at = 0.0
    left: list[str] = []
    while (at := at + rng.expovariate(1 / MEAN_GAP_S)) < seconds:
        if not left:  # every kind has its turn
            left = list(EVERY_KIND)
            rng.shuffle(left)
        fault = _draw(fabric, rng, left.pop(), at, seconds)
        overlapping = [other for other in made if other.over > at - MOST_CUT_S]
        most = max(sum(o.at <= t < o.over for o in overlapping) for t in [at, *(o.at for o in overlapping if o.at > at)])
        if fault.over <= seconds and most < MOST_AT_ONCE and paths.longest_cut([*overlapping, fault]) <= MOST_CUT_S:
            made.append(fault)
    return made


def _draw(fabric: Fabric, rng: random.Random, kind: str, at: float, seconds: float) -> Planned:
    on, keys = _DRAWS[kind](fabric, rng)
    shortest = SHORTEST_RTTS * fabric.base_rtt_ns / 1e9 + 0.001
    lasts = min(shortest * (LONGEST_S / shortest) ** rng.random(), max(shortest, 0.98 * (seconds - at)))  # short ones as often as long ones
    at = round(at, 3)
    return Planned(at, round(at + lasts, 3), kind, on, keys, resolve(fabric, kind, on, keys, rng.randrange(1 << 32)))


# --- what must have mended by when ---------------------------------------------------------------------------------


def stuck_after(config: Config) -> float:
    """Seconds without a step's end, counted from the last fault's begin or end, after which something is wrong.

    After a cut of MOST_CUT_S the retransmission timer has backed off by at most as much again, and a plane whose port flapped is held down
    before it is probed; both may come one after the other, and what is on the way is sent again at most three times in a row.
    """
    return 2 * MOST_CUT_S + (held_down(config) + 3 * config.rto) / 1e9


def back_after(config: Config) -> float:
    """Seconds after the last fault until every path and plane must be in use: the longest hold-down, then the longest proof with a probe
    per longest gap, and half as much again for rows of answers that were broken."""
    return (held_down(config) + 1.5 * 1.25 * MAX_PROOF * config.probe_cap_rtts * config.base_rtt) / 1e9


def held_down(config: Config) -> int:
    """Longest hold-down of a plane, ns."""
    return (HOLD << MOST_DOUBLINGS) * LOADED_RTTS * config.base_rtt


def used(row: Mapping[str, Any]) -> bool:
    """Whether a queue pair's path, as :meth:`agents.transport.Engine.paths` tells of it, carries data: all must where nothing is broken."""
    return row["state"] in ("GOOD", "SKIP") and row["active"] and row["plane_state"] == "USED"


# --- one of each kind ----------------------------------------------------------------------------------------------

Drawn = tuple[str, dict[str, Any]]


def _part(rng: random.Random, low: float, high: float) -> float:
    return round(rng.uniform(low, high), 3)


def _cable(fabric: Fabric, rng: random.Random) -> str:
    """NIC links as often as others: there are fewer of them."""
    kind = rng.choice(["nic", "fabric"])
    return rng.choice([link.name for link in fabric.links if link.kind == kind])


def _cycle(rng: random.Random) -> dict[str, Any]:
    return {"period": _part(rng, 0.1, 1.0), "duty": _part(rng, 0.1, 0.6)}


def _transceiver(fabric: Fabric, rng: random.Random) -> Drawn:
    on = rng.choice([*fabric.hosts, *fabric.switches])
    has = sum(on in (link.a.node, link.b.node) for link in fabric.links)
    return on, {"links": rng.randint(1, has), **(_cycle(rng) if rng.random() < 0.5 else {})}


def _path_loss(fabric: Fabric, rng: random.Random) -> Drawn:
    src, dst = rng.sample(range(fabric.host_count), 2)
    plane, uplink = ev_fields(rng.choice(path_evs(fabric, src, dst)))
    return f"h{src}>h{dst}@p{plane}/{uplink}", {"probability": rng.choice([1.0, _part(rng, 0.02, 0.5)]), "seed": rng.randrange(1 << 32)}


def _way(rng: random.Random) -> str:
    return rng.choice(["up", "down", "both"])


def _odds(low: float, high: float) -> Callable[[Fabric, random.Random], Drawn]:
    def draw(fabric: Fabric, rng: random.Random) -> Drawn:
        return _cable(fabric, rng), {"probability": _part(rng, low, high), "direction": _way(rng), "seed": rng.randrange(1 << 32)}

    return draw


_DRAWS: dict[str, Callable[[Fabric, random.Random], Drawn]] = {
    "link": lambda fabric, rng: (_cable(fabric, rng), {}),
    "port": lambda fabric, rng: (rng.choice([link.a.name for link in fabric.links if link.kind == "nic"]), {}),
    "flap": lambda fabric, rng: (_cable(fabric, rng), _cycle(rng)),
    "transceiver": _transceiver,
    "switch": lambda fabric, rng: (rng.choice(fabric.switches), {}),
    "silent": lambda fabric, rng: (rng.choice(fabric.switches), {"reboot": rng.choice([0, _part(rng, 0.1, 0.5)])}),
    "plane": lambda fabric, rng: (f"p{rng.randrange(fabric.planes)}", {}),
    "dead-paths": lambda fabric, rng: (
        rng.choice(["fabric", f"p{rng.randrange(fabric.planes)}"]), {"share": _part(rng, 0.05, 0.5), "seed": rng.randrange(1 << 32)},
    ),
    "loss": _odds(0.01, 0.5),
    "corrupt": _odds(0.01, 0.3),
    "path-loss": _path_loss,
    "destination-loss": lambda fabric, rng: (
        rng.choice(fabric.switches),
        {"to": rng.choice(fabric.hosts), "probability": rng.choice([1.0, _part(rng, 0.05, 0.5)]), "seed": rng.randrange(1 << 32)},
    ),
    "slow": lambda fabric, rng: (_cable(fabric, rng), {"rate": _part(rng, 0.2, 0.8), "direction": _way(rng)}),
    "straggler": lambda fabric, rng: (rng.choice(fabric.hosts), {"share": _part(rng, 0.2, 0.8), "period": _part(rng, 0.02, 0.1)}),
}  # fmt: skip
