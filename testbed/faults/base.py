"""The base of every kind of fault: its entry in the catalogue, what it does to a world, and what
plans and figures need to know about it.

It has no state: an active fault is an :class:`~testbed.faults.targets.Injected`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from testbed.faults.keys import FaultError, Key, Keys
from testbed.faults.targets import Injected, Target, cable_of_path
from topologies.clos import Fabric

if TYPE_CHECKING:
    from testbed.faults.holders import Holders, SlowPorts
    from testbed.faults.packet_faults import PacketFaults

Change = tuple[int, tuple[str, ...]]
Drawn = tuple[str, dict[str, object]]


class Machine(Protocol):
    """The part of a world that a kind may use. ``faults``, ``packets`` and ``rates`` remove with a
    fault what they hold under its number."""

    clock: Callable[[], int]
    faults: Holders
    packets: PacketFaults
    rates: SlowPorts

    def pause(self, host: int, stop: bool) -> None: ...
    def kill(self, host: int) -> int: ...
    def verbs(self, host: int, number: int, rule: dict[str, str | int] | None) -> int: ...
    def report(self, t: int, fault: Injected, phase: str, links: tuple[str, ...]) -> None: ...
    def end(self, fault: Injected) -> int: ...


class Broken(Protocol):
    """A fault as plans and figures see it; figures know only the keys ``to``, ``probability`` and
    ``direction``."""

    @property
    def on(self) -> str: ...
    @property
    def links(self) -> tuple[str, ...]: ...
    @property
    def keys(self) -> Mapping[str, object]: ...


class Kind:
    """This base class takes down the cables of its target, or its switches with their cables."""

    name = ""
    doc = ""  # its line of the manual
    on = ""  # the sort of target; the prompt completes names of a sort
    keys: tuple[Key, ...] = ()  # required ones first
    # of its name in a journal; the name is kind and place, unless the scenario gives one
    suffix = ""
    used = False  # may be on "used-by-qp"
    takes = False  # its links carry nothing while it lasts
    wanders = False  # a cycle hits other links each time: those that the journal says went down
    loses = False  # packets are lost by the key "probability"
    # takes capacity that theory does not know about: figures leave out what passes during the fault
    slows = False
    # the host's agent does not run all the time: its lateness says nothing about the machine
    stalls = False
    one_site = False  # plans for fabrics of two sites have none
    # acts on programs of RDMA verbs, which a living emulated fabric alone has: no run and no plan
    # has it
    programs = False
    heals = True  # can be taken back; otherwise it is over at once, together with the process

    # --- as written -------------------------------------------------------------------------------

    def check(self, keys: Keys) -> None:
        """Raise :class:`FaultError` for keys that are valid each but do not fit together."""

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        """Raises FaultError, and FabricError for an unknown name."""
        return Target(self.name, on, keys, host=fabric.host_number(on))

    def needs_for(self, keys: Keys) -> str:
        """Return the value of a scenario's ``for``, if these keys make no sense without it."""
        return ""

    def used_on(self, fabric: Fabric, src: int, dst: int, ev: int) -> str:
        return cable_of_path(fabric, src, dst, ev).name

    def not_simulated(self, on: str) -> str:
        """Return what the fault needs that the simulated world lacks; "" for nothing."""
        return ""

    # --- as it happens ----------------------------------------------------------------------------

    def strike(self, fault: Injected, machine: Machine) -> Change:
        target = fault.target
        return machine.faults.hold(
            fault.number,
            target.links if fault.down and not target.switches else (),
            dead=target.switches,
        )

    def begin(self, fault: Injected, machine: Machine) -> None:
        fault.told_ps, _ = self.strike(fault, machine)
        machine.report(fault.told_ps, fault, "begin", fault.target.links)

    def advance(self, fault: Injected, machine: Machine) -> None:
        raise NotImplementedError

    def clear(self, fault: Injected, machine: Machine) -> int:
        """Take the fault back, or begin to; returns the time, ps."""
        return machine.end(fault)

    def undo(self, fault: Injected, machine: Machine) -> None:
        """Undo, at the end of a fault, what the machine does not undo by itself, however the fault
        ends."""

    def just_now(self, fault: Injected) -> str:
        return "there"

    # --- for plans and figures --------------------------------------------------------------------

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        """Draw a random fault for plans; not used for kinds that do not heal."""
        raise NotImplementedError

    def hits(self, fault: Broken, src: int, dst: int, ev: int, cables: frozenset[str]) -> bool:
        """Say whether packets on this path, which takes these cables, are lost, all or some. Asked
        if the kind ``takes`` or ``loses``."""
        return not cables.isdisjoint(fault.links)

    def lingers_ps(self, keys: Keys) -> int:
        """Return how long an effect remains after the fault was taken back."""
        return 0

    def drain(self, keys: Keys) -> tuple[float, int]:
        """Return the share of a link's rate that remains, and how long, ps, an agent may be unable
        to answer: a run's end waits for both."""
        return 1.0, 0


class Cycle(Kind):
    """A fault that, if the keys contain a period, is present for a part of each ("down") and absent
    for the rest ("up")."""

    def check(self, keys: Keys) -> None:
        if ("duty" in keys) != ("period" in keys):
            raise FaultError(
                "duty" if "period" in keys else "period",
                "is missing: a cycle needs period and duty",
            )

    def part_down(self, keys: Keys) -> float:
        return keys["duty"]

    def begin(self, fault: Injected, machine: Machine) -> None:
        links = fault.target.links
        fault.told_ps, changed = self.strike(fault, machine)
        machine.report(fault.told_ps, fault, "begin", links)
        if "period" in fault.target.keys:
            fault.due_ps = fault.told_ps + self._lasts(fault)
            if links:
                machine.report(fault.told_ps, fault, "down", changed)

    def advance(self, fault: Injected, machine: Machine) -> None:
        """Begin the next part of a cycle. A late change does not shift those after it."""
        assert fault.due_ps is not None
        fault.down = not fault.down
        t, links = self.strike(fault, machine)
        if fault.target.links:
            machine.report(t, fault, "down" if fault.down else "up", links)
        fault.due_ps = max(fault.due_ps + self._lasts(fault), t)

    def _lasts(self, fault: Injected) -> int:
        period = fault.target.keys["period"]
        down = round(period * self.part_down(fault.target.keys))
        return down if fault.down else period - down

    def just_now(self, fault: Injected) -> str:
        return "there" if fault.due_ps is None else "down" if fault.down else "up"


class Lossy(Kind):
    """A fault that loses or damages packets by chance: those of the target's paths, or else those
    that come in at its ports."""

    loses = True

    def strike(self, fault: Injected, machine: Machine) -> Change:
        t, target = machine.clock(), fault.target
        chance, seed = target.keys["probability"], target.keys["seed"]
        if chance and target.paths:  # the programs have no probability of zero
            machine.packets.on_paths(fault.number, target.paths, chance, seed)
        elif chance:
            machine.packets.at_ports(fault.number, self.name, target.ports, chance, seed)
        return t, ()
