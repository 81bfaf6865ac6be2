"""Packets for one host that one switch loses."""

from __future__ import annotations

import random
from typing import Annotated

from testbed.faults import draws
from testbed.faults.base import Broken, Drawn, Lossy
from testbed.faults.keys import PROBABILITY, SEED, Key, Keys
from testbed.faults.targets import Path, Target
from topologies.addressing import TIER_T0, TIER_T1, host_usid, switch_usid, usid, usid_fields
from topologies.clos import Fabric, FabricError
from topologies.structs import text
from topologies.theory import links_of_switch

TO = Key(
    "to", Annotated[str, text(".+", "a host's name, like 'h5'")], "the host whose packets are hit"
)


class DestinationLoss(Lossy):
    name, on = "destination-loss", "switch"
    doc = "one switch loses what goes to one host, by default all of it"
    keys = (TO, PROBABILITY.optional(1.0), SEED)
    one_site = True

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        return Target(
            self.name, on, keys, paths=_towards(fabric, on, fabric.host_number(keys["to"]))
        )

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        on, to = rng.choice(fabric.switches), rng.choice(fabric.hosts)
        return on, {
            "to": to,
            "probability": rng.choice([1.0, draws.part(rng, 0.05, 0.5)]),
            "seed": draws.seed(rng),
        }

    def hits(self, fault: Broken, src: int, dst: int, ev: int, cables: frozenset[str]) -> bool:
        return fault.keys["to"] == f"h{dst}" and any(fault.on in name.split(":") for name in cables)


def _towards(fabric: Fabric, switch: str, host: int) -> tuple[Path, ...]:
    """Return the forms in which a host's frame may come in at a switch, probes that turn around at
    a T1 included."""
    links_of_switch(fabric, switch)  # raises if there is none
    if fabric.sites > 1:
        raise FabricError(
            f"destination-loss on {switch!r}: fabric {fabric.name!r} has two sites, and a switch "
            "sees three uSIDs ahead, too few to know a host of the other one: use loss, on a "
            "link"
        )
    plane, tier, index = usid_fields(switch_usid(switch))
    last, down = usid(plane, TIER_T0, fabric.t0_of(host)), host_usid(fabric, plane, host)
    ports = [port for port in fabric.ports if port.node == switch]
    if tier == TIER_T1:
        return tuple((port.number, (last, down, 0)) for port in ports)
    own = index == fabric.t0_of(host)
    forms: list[Path] = []
    for port in ports:
        if own:
            forms.append((port.number, (down, 0, 0)))
        if "-d" in port.name:
            forms += [
                (port.number, (usid(plane, TIER_T1, j), last, down))
                for j in range(fabric.t1_per_plane)
            ]
    return tuple(forms)
