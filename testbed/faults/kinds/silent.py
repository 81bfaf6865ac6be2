"""A switch that dies unseen."""

from __future__ import annotations

import random

from testbed.faults import draws
from testbed.faults.base import Change, Drawn, Kind, Machine
from testbed.faults.keys import Key, Keys, in_us
from testbed.faults.targets import Injected, Target
from topologies.clos import Fabric
from topologies.theory import links_of_switch
from topologies.units import Duration

REBOOT = Key("reboot", Duration, "how long the switch's links stay down after the silence", in_us)


class Silent(Kind):
    name, on = "silent", "switch"
    doc = "a switch keeps its links up and forwards nothing, then may reboot"
    keys = (REBOOT.optional(0),)
    takes = True

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        return Target(self.name, on, keys, links_of_switch(fabric, on), (on,))

    def needs_for(self, keys: Keys) -> str:
        return "the length of the silence that ends in a reboot" if keys.get("reboot") else ""

    def strike(self, fault: Injected, machine: Machine) -> Change:
        return machine.faults.hold(fault.number, silent=fault.target.switches)

    def clear(self, fault: Injected, machine: Machine) -> int:
        reboot = fault.target.keys["reboot"]
        if not reboot or fault.due_ps is not None:
            return machine.end(fault)
        t, links = super().strike(fault, machine)  # dead
        fault.due_ps = t + reboot
        machine.report(t, fault, "reboot", links)
        return t

    def advance(self, fault: Injected, machine: Machine) -> None:
        machine.end(fault)

    def just_now(self, fault: Injected) -> str:
        return "there" if fault.due_ps is None else "rebooting"

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        return rng.choice(fabric.switches), {
            "reboot": rng.choice([0, draws.microseconds(rng, 10.0, 50.0)])
        }

    def lingers_ps(self, keys: Keys) -> int:
        return keys["reboot"]
