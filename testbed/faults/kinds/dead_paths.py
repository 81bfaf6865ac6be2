"""The kind "dead-paths": T0-T1 links that are dead here and there."""

from __future__ import annotations

import random

from testbed.faults import draws
from testbed.faults.base import Drawn, Kind
from testbed.faults.keys import SEED, SHARE, Keys
from testbed.faults.targets import Target, between_switches
from topologies.clos import Fabric


class DeadPaths(Kind):
    name, on = "dead-paths", "fabric or plane"
    doc = "a share of the T0-T1 links is dead, drawn by seed"
    keys = (SHARE, SEED)
    takes = True

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        every = [link.name for link in between_switches(fabric, on)]
        sample = set(
            random.Random(keys["seed"]).sample(every, max(1, round(keys["share"] * len(every))))
        )
        return Target(self.name, on, keys, tuple(name for name in every if name in sample))

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        return rng.choice(["fabric", draws.plane(fabric, rng)]), {
            "share": draws.part(rng, 0.05, 0.5),
            "seed": draws.seed(rng),
        }
