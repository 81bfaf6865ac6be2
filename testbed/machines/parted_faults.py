"""Faults of a fabric on several machines: every machine hears of each, and acts on its own cables,
ports and agents. The machine with a fault's first cable reports what it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from testbed.errors import UserError
from testbed.faults.kinds import KINDS, resolve
from testbed.faults.targets import FaultEvent, Injected, Target
from testbed.machines.channel import Channel, ask_all, whole
from topologies import Fabric
from topologies.parts import Part


class MachineFaults:
    def __init__(self, fabric: Fabric, parts: Sequence[Part], channels: Sequence[Channel]) -> None:
        self.fabric, self.channels = fabric, channels
        self._owner = {link.name: part.machine for part in parts for link in part.links}
        self._owner_of_host = {host: part.machine for part in parts for host in part.hosts}
        self._active: dict[int, Injected] = {}
        # coordinator's number -> machine -> the machine's number
        self._numbers: dict[int, dict[int, int]] = {}
        # (machine that reports, its number) -> coordinator's number
        self._reporters: dict[tuple[int, int], int] = {}
        self._last = 0
        self.faults = self

    def inject(self, kind: str, on: str, keys: Mapping[str, Any], run_seed: int) -> Injected:
        """Begin a fault under the coordinator's number. Raises FaultError, FabricError or
        UserError; then nothing has begun."""
        return self.strike(resolve(self.fabric, kind, on, keys, run_seed))

    def strike(self, target: Target) -> Injected:
        if target.kind == "kill" and target.host < 0:
            raise UserError("kill: there is no controller on several machines")
        if KINDS[target.kind].programs:
            raise UserError(
                f"{target.kind}: programs of RDMA verbs need all hosts on one machine: drop --on"
            )
        machines = (
            [self._owner_of_host[target.host]]
            if target.host >= 0
            else list(range(len(self.channels)))
        )
        answers = ask_all([self.channels[m] for m in machines], "strike", target=asdict(target))
        self._last += 1
        reporter = self._reporter(target)
        by_machine = dict(zip(machines, answers, strict=True))
        fault = Injected(
            self._last,
            target,
            by_machine[reporter]["told_ps"],
            by_machine[reporter]["due_ps"],
            by_machine[reporter]["down"],
        )
        self._numbers[fault.number] = {
            machine: answer["number"] for machine, answer in by_machine.items()
        }
        self._reporters[reporter, by_machine[reporter]["number"]] = fault.number
        if KINDS[target.kind].heals:
            self._active[fault.number] = fault
        return fault

    def _reporter(self, target: Target) -> int:
        if target.host >= 0:
            return self._owner_of_host[target.host]
        return self._owner[target.links[0]] if target.links else 0

    def clear(self, number: int) -> int:
        fault = self._active.pop(number, None)
        if fault is None:
            numbers = ", ".join(map(str, self._active)) or "none"
            raise UserError(f"there is no fault number {number}: those that are there: {numbers}")
        by_machine = {
            machine: self.channels[machine].ask("clear", number=own)
            for machine, own in self._numbers[number].items()
        }
        return int(by_machine[self._reporter(fault.target)])

    def active(self) -> list[Injected]:
        if not self._active:
            return []
        answers = ask_all(self.channels, "faults")
        rows = {
            (machine, row["number"]): row
            for machine, answer in enumerate(answers)
            for row in answer
        }
        for number, fault in list(self._active.items()):
            reporter = self._reporter(fault.target)
            row = rows.get((reporter, self._numbers[number][reporter]))
            if row is None:
                del self._active[number]  # over by itself
            else:
                fault.due_ps, fault.down = row["due_ps"], row["down"]
        return list(self._active.values())

    def events(self) -> list[FaultEvent]:
        answers = ask_all(self.channels, "fault_events")
        rows = [
            (machine, row)
            for machine, answer in enumerate(answers)
            for row in answer
            if (machine, row["number"]) in self._reporters
        ]
        events = [
            FaultEvent(
                row["t"], self._reporters[machine, row["number"]], row["phase"], tuple(row["links"])
            )
            for machine, row in rows
        ]
        return sorted(events, key=lambda event: event.t)

    def set_link(self, name: str, up: bool) -> int:
        owner = self._owner[self.fabric.link(name).name]
        return int(ask_all(self.channels, "set_link", name=name, up=up)[owner])

    def set_switch(self, name: str, up: bool) -> int:
        return int(min(ask_all(self.channels, "set_switch", name=name, up=up)))

    def heal(self) -> None:
        ask_all(self.channels, "heal")
        self._active.clear()

    def link_states(self) -> dict[str, bool]:
        states = {
            name: up
            for answer in ask_all(self.channels, "link_states")
            for name, up in answer.items()
        }
        with whole(self.channels):
            return {link.name: states[link.name] for link in self.fabric.links}
