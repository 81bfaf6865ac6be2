"""Packets lost on one path."""

from __future__ import annotations

import random
import re

from testbed.faults import draws
from testbed.faults.base import Broken, Drawn, Lossy
from testbed.faults.keys import PROBABILITY, SEED, Keys
from testbed.faults.targets import Target
from topologies.addressing import ev, ev_fields, sid_list
from topologies.clos import Fabric, FabricError
from topologies.denylist import check_entry
from topologies.paths import path_evs, path_links


def _named(src: int, dst: int, ev: int) -> str:
    plane, uplink = ev_fields(ev)
    return f"h{src}>h{dst}@p{plane}/{uplink}"


class PathLoss(Lossy):
    name, on = "path-loss", "path, like h0>h5@p0/3"
    doc = "loss on one path, by default of everything, by its outer address alone"
    keys = (PROBABILITY.optional(1.0), SEED)
    used = True
    one_site = True

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        """The fault is where the path enters the fabric: behind the first switch's own uSID, only
        its frames have the same uSIDs there."""
        if ">" not in on:
            raise FabricError(
                f"{on!r} is not a path: write it as source>destination@plane/uplink, like "
                "h0>h5@p0/3"
            )
        on = check_entry(fabric, on)
        src, dst, plane, uplink = map(int, re.findall(r"[0-9]+", on))
        path = src, dst, ev(plane, uplink)
        if fabric.is_far(src, dst):
            raise FabricError(
                f"path-loss on {on!r} leads to another site, and a switch sees three uSIDs "
                "ahead, too few to know the host: use loss, on a link"
            )
        first, second, third = (*sid_list(fabric, *path)[1:], 0, 0, 0)[:3]
        return Target(
            self.name,
            on,
            keys,
            paths=((path_links(fabric, *path)[0].b.number, (first, second, third)),),
        )

    def used_on(self, fabric: Fabric, src: int, dst: int, ev: int) -> str:
        return _named(src, dst, ev)

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        src, dst = rng.sample(range(fabric.host_count), 2)
        on = _named(src, dst, rng.choice(path_evs(fabric, src, dst)))
        return on, {
            "probability": rng.choice([1.0, draws.part(rng, 0.02, 0.5)]),
            "seed": draws.seed(rng),
        }

    def hits(self, fault: Broken, src: int, dst: int, ev: int, cables: frozenset[str]) -> bool:
        return fault.on == _named(src, dst, ev)
