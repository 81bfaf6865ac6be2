"""A link that goes and comes."""

from __future__ import annotations

import random

from testbed.faults import draws
from testbed.faults.base import Cycle, Drawn
from testbed.faults.keys import DUTY, PERIOD, Keys
from testbed.faults.targets import Target, cable
from topologies.clos import Fabric


class Flap(Cycle):
    name, on = "flap", "link or NIC port"
    doc = "a link goes down and up, over and over"
    keys = (PERIOD, DUTY)
    used = takes = True

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        name, link = cable(fabric, on)
        return Target(self.name, name, keys, (link.name,))

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        return draws.cable(fabric, rng), draws.cycle(rng)
