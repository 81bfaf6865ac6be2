"""A plane."""

from __future__ import annotations

import random

from testbed.faults import draws
from testbed.faults.base import Drawn, Kind
from testbed.faults.keys import Keys
from testbed.faults.targets import Target, plane_of
from topologies.clos import Fabric


class Plane(Kind):
    name, on = "plane", "plane"
    doc = "every switch of a plane is dead"
    takes = True

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        plane = plane_of(fabric, on)
        links = tuple(link.name for link in fabric.links if link.plane == plane)
        return Target(
            self.name,
            on,
            keys,
            links,
            tuple(s for s in fabric.switches if s.startswith(f"p{plane}-")),
        )

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        return draws.plane(fabric, rng), {}
