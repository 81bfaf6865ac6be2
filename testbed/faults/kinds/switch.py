"""A switch."""

from __future__ import annotations

import random

from testbed.faults.base import Drawn, Kind
from testbed.faults.keys import Keys
from testbed.faults.targets import Target
from topologies.clos import Fabric
from topologies.theory import links_of_switch


class Switch(Kind):
    name, on = "switch", "switch"
    doc = "a switch is dead: its links drop"
    suffix = " down"
    takes = True

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        return Target(self.name, on, keys, links_of_switch(fabric, on), (on,))

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        return rng.choice(fabric.switches), {}
