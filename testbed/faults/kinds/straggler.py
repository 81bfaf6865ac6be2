"""A host whose agent gets too little of the CPU."""

from __future__ import annotations

import random

from testbed.faults import draws
from testbed.faults.base import Change, Cycle, Drawn, Machine
from testbed.faults.keys import PERIOD, SHARE, FaultError, Keys
from testbed.faults.targets import Injected
from topologies.clos import Fabric


class Straggler(Cycle):
    name, on = "straggler", "host"
    doc = "a host's agent gets a share of the CPU: it is stopped for the rest of every period"
    keys = (SHARE, PERIOD.optional("1600ns"))
    slows = stalls = True

    def check(self, keys: Keys) -> None:
        if keys["share"] == 1.0:
            raise FaultError("share", "= 1 leaves the agent all of its CPU: it must be below 1")

    def part_down(self, keys: Keys) -> float:
        return 1 - keys["share"]

    def strike(self, fault: Injected, machine: Machine) -> Change:
        t = machine.clock()
        machine.pause(fault.target.host, stop=fault.down)
        return t, ()

    def undo(self, fault: Injected, machine: Machine) -> None:
        machine.pause(fault.target.host, stop=False)

    def just_now(self, fault: Injected) -> str:
        return "stopped" if fault.down else "running"

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        return rng.choice(fabric.hosts), {
            "share": draws.part(rng, 0.2, 0.8),
            "period": draws.microseconds(rng, 2.0, 10.0),
        }

    def drain(self, keys: Keys) -> tuple[float, int]:
        return 1.0, keys["period"]
