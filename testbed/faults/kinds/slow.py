"""A link at a share of its rate."""

from __future__ import annotations

import random

from testbed.faults import draws
from testbed.faults.base import Change, Drawn, Kind, Machine
from testbed.faults.keys import DIRECTION, Key, Keys, Part
from testbed.faults.targets import Injected, Target, cable, ends
from topologies.clos import Fabric

RATE = Key("rate", Part, "share of the link's rate that is left")


class Slow(Kind):
    name, on = "slow", "link or NIC port"
    doc = "a link goes at a share of its rate"
    keys = (RATE, DIRECTION)
    used = slows = True

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        name, link = cable(fabric, on)
        return Target(
            self.name, name, keys, (link.name,), ports=ends(link, keys["direction"], sending=True)
        )

    def strike(self, fault: Injected, machine: Machine) -> Change:
        t = machine.clock()
        machine.rates.slow(fault.number, fault.target.ports, fault.target.keys["rate"])
        return t, ()

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        return draws.cable(fabric, rng), {
            "rate": draws.part(rng, 0.2, 0.8),
            "direction": draws.direction(rng),
        }

    def drain(self, keys: Keys) -> tuple[float, int]:
        return keys["rate"], 0
