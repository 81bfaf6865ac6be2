"""Links between switches that fail one after another."""

from __future__ import annotations

import random
from functools import lru_cache

from testbed.faults import draws
from testbed.faults.base import Change, Cycle, Drawn, Machine
from testbed.faults.keys import PERIOD, SEED, FaultError, Key, Keys, in_us
from testbed.faults.targets import Injected, Target, between_switches
from topologies.clos import Fabric
from topologies.units import Duration

OUTAGE = Key("outage", Duration, "how long each link is down, less than the period", in_us)


class Failures(Cycle):
    name, on = "failures", "fabric or plane"
    doc = "T0-T1 links fail one after another, one each period; their order is drawn by seed"
    keys = (PERIOD, OUTAGE, SEED)
    takes = wanders = True

    def check(self, keys: Keys) -> None:
        if not 0 < keys["outage"] < keys["period"]:
            raise FaultError(
                "outage",
                "must be more than nothing and less than the period: one link is down at a time",
            )

    def part_down(self, keys: Keys) -> float:
        return keys["outage"] / keys["period"]

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        return Target(
            self.name, on, keys, tuple(link.name for link in between_switches(fabric, on))
        )

    def strike(self, fault: Injected, machine: Machine) -> Change:
        return machine.faults.hold(fault.number, (self.link(fault),) if fault.down else ())

    def link(self, fault: Injected) -> str:
        """Each link has one turn before any has its next."""
        keys = fault.target.keys
        turn = 0 if fault.due_ps is None else round((fault.due_ps - fault.told_ps) / keys["period"])
        lap, place = divmod(turn, len(fault.target.links))
        return _order(fault.target.links, keys["seed"], lap)[place]

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        keys = {
            "period": "100us",
            "outage": draws.microseconds(rng, 10.0, 60.0),
            "seed": draws.seed(rng),
        }
        return rng.choice(["fabric", draws.plane(fabric, rng)]), keys


@lru_cache(maxsize=8)
def _order(links: tuple[str, ...], seed: int, lap: int) -> tuple[str, ...]:
    return tuple(random.Random(f"{seed}/{lap}").sample(links, len(links)))
