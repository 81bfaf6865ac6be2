"""A process of the run that dies."""

from __future__ import annotations

from testbed.faults.base import Change, Kind, Machine
from testbed.faults.keys import Keys
from testbed.faults.targets import Injected, Target
from topologies.clos import Fabric


class Kill(Kind):
    name, on = "kill", "controller or host"
    doc = "a process of ours gets SIGKILL: the controller, or a host's agent"
    heals = False

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        return Target(
            self.name, on, keys, host=-1 if on == "controller" else fabric.host_number(on)
        )

    def not_simulated(self, on: str) -> str:
        return "kills the controller" if on == "controller" else ""

    def strike(self, fault: Injected, machine: Machine) -> Change:
        return machine.kill(fault.target.host), ()
