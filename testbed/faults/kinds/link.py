"""A cable, by its own name or by that of its NIC port."""

from __future__ import annotations

import random

from testbed.faults import draws
from testbed.faults.base import Drawn, Kind
from testbed.faults.keys import Keys
from testbed.faults.targets import Target, nic_link
from topologies.clos import Fabric


class Link(Kind):
    name, on = "link", "link"
    doc = "a cable is pulled, and plugged in again"
    suffix = " down"
    used = takes = True

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        name = fabric.link(on).name
        return Target(self.name, name, keys, (name,))

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        return draws.cable(fabric, rng), {}


class Port(Kind):
    name, on = "port", "NIC port"
    doc = "a NIC port goes down: the cable of that port"
    takes = True

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        return Target(self.name, on, keys, (nic_link(fabric, on).name,))

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        return rng.choice([link.a.name for link in fabric.links if link.kind == "nic"]), {}
