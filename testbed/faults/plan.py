"""Random faults of every kind that heals, as a list of what breaks when.

A plan is survivable: at most MOST_AT_ONCE faults at a time, and no two hosts are without any path
for longer than MOST_CUT, so that no queue pair uses up its retries.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from agents.mrc.config import Config
from agents.mrc.paths.path import MAX_PROOF
from agents.mrc.paths.plane_health import HOLD, MOST_DOUBLINGS
from testbed.faults.kinds import KINDS, resolve
from testbed.faults.targets import Target
from topologies.clos import Fabric
from topologies.paths import path_evs, path_links
from topologies.units import US

MOST_AT_ONCE = 3
MOST_CUT = 400 * US
"""The longest cut [ours]: with the knobs' defaults a queue pair's retries last 8.5 ms."""
LONGEST = 400 * US
SHORTEST_RTTS = 3
MEAN_GAP = 70 * US
AS_GOOD_AS_DEAD = 0.3
"""A path that loses this share counts as dead: an answer has to come back, too."""
LOADED_RTTS = 4
"""The largest smoothed RTT, in base RTTs [ours]: queues are trimmed at a BDP, and the slowest links
have a fifth of their rate."""
EVERY_KIND = tuple(name for name, kind in KINDS.items() if kind.heals and not kind.programs)


@dataclass(frozen=True)
class Planned:
    """A fault from ``at`` to ``until``, ps from the plan's begin; ``over`` is when the last of it
    is gone (a reboot takes longer)."""

    at: int
    until: int
    kind: str
    on: str
    keys: dict[str, object]
    target: Target

    @property
    def over(self) -> int:
        return self.until + KINDS[self.kind].lingers_ps(self.target.keys)


class Paths:
    def __init__(self, fabric: Fabric) -> None:
        hosts = range(fabric.host_count)
        self.cables = {
            (a, b): {
                ev: frozenset(link.name for link in path_links(fabric, a, b, ev))
                for ev in path_evs(fabric, a, b)
            }
            for a in hosts
            for b in hosts
            if a != b
        }

    def cut(self, faults: Sequence[Planned]) -> set[tuple[int, int]]:
        bad = [(KINDS[fault.kind], fault.target) for fault in faults]
        bad = [
            (kind, t)
            for kind, t in bad
            if kind.takes or (kind.loses and t.keys["probability"] >= AS_GOOD_AS_DEAD)
        ]
        return {
            pair
            for pair, paths in self.cables.items()
            if all(
                any(kind.hits(target, *pair, ev, cables) for kind, target in bad)
                for ev, cables in paths.items()
            )
        }

    def longest_cut(self, faults: Sequence[Planned]) -> int:
        moments = sorted({moment for fault in faults for moment in (fault.at, fault.over)})
        running: dict[tuple[int, int], int] = {}
        longest = 0
        for begin, end in pairwise(moments):
            without = self.cut([fault for fault in faults if fault.at < end and fault.over > begin])
            running = {
                pair: running.get(pair, 0) + end - begin
                for pair in without | {(b, a) for a, b in without}
            }
            longest = max(longest, *running.values(), 0)
        return longest


@lru_cache(maxsize=4)
def paths_of(fabric: Fabric) -> Paths:
    """Kept: on 16 hosts paths take longer than a plan."""
    return Paths(fabric)


def plan(fabric: Fabric, seed: int, length: int) -> list[Planned]:
    """All faults lie within ``length`` ps. The same arguments give the same plan."""
    rng, paths = random.Random(f"{fabric.name} {seed}"), paths_of(fabric)
    faults: list[Planned] = []
    at = 0
    kinds: list[str] = []
    while (at := at + round(rng.expovariate(1 / MEAN_GAP))) < length:
        if not kinds:  # every kind has its turn
            kinds = [name for name in EVERY_KIND if fabric.sites == 1 or not KINDS[name].one_site]
            rng.shuffle(kinds)
        fault = _draw(fabric, rng, kinds.pop(), at, length)
        overlapping = [other for other in faults if other.over > at - MOST_CUT]
        most = max(
            sum(o.at <= t < o.over for o in overlapping)
            for t in [at, *(o.at for o in overlapping if o.at > at)]
        )
        if (
            fault.over <= length
            and most < MOST_AT_ONCE
            and paths.longest_cut([*overlapping, fault]) <= MOST_CUT
        ):
            faults.append(fault)
    return faults


def _draw(fabric: Fabric, rng: random.Random, kind: str, at: int, length: int) -> Planned:
    on, keys = KINDS[kind].draw(fabric, rng)
    shortest = SHORTEST_RTTS * fabric.base_rtt_ps
    # short ones as often as long ones
    lasts = min(
        shortest * (LONGEST / shortest) ** rng.random(), max(shortest, 0.98 * (length - at))
    )
    return Planned(
        at,
        at + round(lasts),
        kind,
        on,
        keys,
        resolve(fabric, kind, on, keys, rng.randrange(1 << 32)),
    )


# --- what must have mended by when ----------------------------------------------------------------


def stuck_after(config: Config) -> int:
    """Return the time without the end of a step, ps, since a fault last began or ended, after which
    something is wrong. After a cut of MOST_CUT the retransmission timer has backed off by at most
    as much again. A plane whose port flapped is held down before it is probed. Both may come one
    after the other, and what is on the way is sent again at most three times in a row."""
    return 2 * MOST_CUT + held_down(config) + 3 * config.rto


def back_after(config: Config) -> int:
    """Return the time after the last fault, ps, until every path and plane must be in use: the
    longest hold-down, the longest proof, and half as much again for answers that were broken."""
    proof = int(1.5 * 1.25 * MAX_PROOF * config.probe_cap_rtts * config.base_rtt)
    return held_down(config) + proof


def held_down(config: Config) -> int:
    return (HOLD << MOST_DOUBLINGS) * LOADED_RTTS * config.base_rtt


def used(row: Mapping[str, Any]) -> bool:
    """Say whether a row of :meth:`agents.transport.Engine.paths` carries data: all must while
    nothing is broken."""
    return row["state"] in ("GOOD", "SKIP") and row["active"] and row["plane_state"] == "USED"
