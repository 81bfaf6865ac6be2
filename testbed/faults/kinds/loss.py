"""Packets lost or damaged on links, by chance."""

from __future__ import annotations

import random
import re

from testbed.faults import draws
from testbed.faults.base import Drawn, Lossy
from testbed.faults.keys import DIRECTION, PROBABILITY, SEED, Keys
from testbed.faults.targets import Target, between_switches, cable, ends
from topologies.clos import Fabric


class Loss(Lossy):
    name, on = "loss", "link, NIC port, plane, fabric or nics"
    doc = (
        "random loss on a link, on every T0-T1 link of a plane or of the fabric, or on every NIC "
        "link"
    )
    keys = (PROBABILITY, DIRECTION, SEED)
    used = True
    most = 0.5  # that is drawn

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        if on == "nics":
            links = tuple(link for link in fabric.links if link.kind == "nic")
        elif re.fullmatch(r"fabric|p[0-9]+", on):
            links = between_switches(fabric, on)
        else:
            on, link = cable(fabric, on)
            links = (link,)
        ports = tuple(
            number for link in links for number in ends(link, keys["direction"], sending=False)
        )
        return Target(self.name, on, keys, tuple(link.name for link in links), ports=ports)

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        on, chance = draws.cable(fabric, rng), draws.part(rng, 0.01, self.most)
        return on, {
            "probability": chance,
            "direction": draws.direction(rng),
            "seed": draws.seed(rng),
        }


class Corrupt(Loss):
    name = "corrupt"
    doc = (
        "random packets on such links arrive with one byte changed, which the receiver's "
        "checksum catches"
    )
    most = 0.3
