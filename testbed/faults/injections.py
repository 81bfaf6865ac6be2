"""Carries faults out, keeps the list of active ones, and takes them back: the rules that both
worlds share. A world calls
:meth:`Injections.advance` when something is due (a flap's next change, a reboot)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from testbed.errors import UserError
from testbed.faults.holders import Holders, SlowPorts
from testbed.faults.kinds import KINDS, resolve
from testbed.faults.packet_faults import PacketFaults
from testbed.faults.targets import FaultEvent, Injected, Target
from topologies.clos import Fabric


class Injections:
    """``clock`` gives ps. Kinds use it as their :class:`testbed.faults.base.Machine`."""

    def __init__(
        self,
        fabric: Fabric,
        faults: Holders,
        packets: PacketFaults,
        rates: SlowPorts,
        clock: Callable[[], int],
    ) -> None:
        self.fabric, self.faults, self.packets, self.rates, self.clock = (
            fabric,
            faults,
            packets,
            rates,
            clock,
        )
        self._active: dict[int, Injected] = {}
        self._events: list[FaultEvent] = []
        self._last = 0
        self._lock = threading.RLock()

    # --- what a world does ------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Something may be due sooner than known."""

    def pause(self, host: int, stop: bool) -> None:
        raise NotImplementedError

    def kill(self, host: int) -> int:
        """``host`` -1 is the controller. Returns the time, ps. Raises :class:`UserError` if there
        is none."""
        raise NotImplementedError

    def verbs(self, host: int, number: int, rule: dict[str, str | int] | None) -> int:
        """Set a host's rule of agents/verbs/faults.py; None takes it back, even if it is gone.
        Returns the time, ps. Raises
        :class:`UserError`."""
        if rule is not None:
            raise UserError(
                "the simulated world runs no programs of RDMA verbs: drop --world simulated"
            )
        return self.clock()

    # --- what a kind uses -------------------------------------------------------------------------

    def report(self, t: int, fault: Injected, phase: str, links: tuple[str, ...]) -> None:
        self._events.append(FaultEvent(t, fault.number, phase, links))

    def end(self, fault: Injected) -> int:
        t, links = self._drop(fault)
        self.report(t, fault, "heal", links)
        return t

    # --- what the cluster offers ------------------------------------------------------------------

    def inject(self, kind: str, on: str, keys: Mapping[str, object], run_seed: int) -> Injected:
        return self.strike(resolve(self.fabric, kind, on, keys, run_seed))

    def strike(self, target: Target) -> Injected:
        """Raises FaultError if this world cannot have the fault; then nothing has happened."""
        kind = KINDS[target.kind]
        with self._lock:
            self._last += 1
            fault = Injected(self._last, target, self.clock())
            self._active[fault.number] = fault
            try:
                kind.begin(fault, self)
            except BaseException:
                self._drop(fault)
                raise
            if target.lasts and fault.number in self._active:
                fault.over_ps = fault.told_ps + target.lasts
            if not kind.heals:  # nothing remains that could be taken back
                del self._active[fault.number]
            self._look_again()
            return fault

    def clear(self, number: int) -> int:
        """Return when the kernel was told. A fault that takes time to end (a reboot) only begins
        to. Raises :class:`UserError` if it is not there."""
        with self._lock:
            fault = self._active.get(number)
            if fault is None:
                numbers = ", ".join(map(str, self._active)) or "none"
                raise UserError(
                    f"there is no fault number {number}: those that are there: {numbers}"
                )
            fault.over_ps = None
            t = KINDS[fault.target.kind].clear(fault, self)
            if number in self._active:
                self._look_again()
            return t

    def heal(self) -> None:
        with self._lock:
            for fault in list(self._active.values()):
                self.end(fault)
            self.faults.heal()
            self.packets.reset()
            self.rates.reset()

    def active(self) -> list[Injected]:
        with self._lock:
            return list(self._active.values())

    def events(self) -> list[FaultEvent]:
        with self._lock:
            events, self._events = self._events, []
            return events

    def advance(self) -> int | None:
        with self._lock:
            now = self.clock()
            for fault in list(self._active.values()):
                if fault.over_ps is not None and fault.over_ps <= now:
                    fault.over_ps = None
                    KINDS[fault.target.kind].clear(fault, self)
                elif fault.due_ps is not None and fault.due_ps <= now:
                    KINDS[fault.target.kind].advance(fault, self)
            return self._next_due()

    # --- how --------------------------------------------------------------------------------------

    def _next_due(self) -> int | None:
        times = [
            time
            for fault in self._active.values()
            for time in (fault.due_ps, fault.over_ps)
            if time is not None
        ]
        return min(times, default=None)

    def _drop(self, fault: Injected) -> tuple[int, tuple[str, ...]]:
        self._active.pop(fault.number, None)
        KINDS[fault.target.kind].undo(fault, self)
        self.packets.drop(fault.number)
        self.rates.drop(fault.number)
        return self.faults.hold(fault.number)


class HeldLinks(Protocol):
    def set_link(self, name: str, up: bool) -> int: ...
    def set_switch(self, name: str, up: bool) -> int: ...
    def link_states(self) -> dict[str, bool]: ...


class Injecting(Protocol):
    @property
    def faults(self) -> HeldLinks: ...
    def inject(self, kind: str, on: str, keys: Mapping[str, object], run_seed: int) -> Injected: ...
    def strike(self, target: Target) -> Injected: ...
    def clear(self, number: int) -> int: ...
    def active(self) -> list[Injected]: ...
    def events(self) -> list[FaultEvent]: ...
    def heal(self) -> None: ...


class TakesFaults:
    """The part of :class:`testbed.world.World` that breaks and mends a fabric."""

    @property
    def injections(self) -> Injecting:
        raise NotImplementedError

    def set_link(self, name: str, up: bool) -> int:
        """Plug or pull a cable; returns the time at which the data plane was told, ps."""
        return self.injections.faults.set_link(name, up)

    def set_switch(self, name: str, up: bool) -> int:
        """Revive or kill a switch with all its cables; returns the time at which the data plane was
        first told, ps."""
        return self.injections.faults.set_switch(name, up)

    def inject(self, kind: str, on: str, *, run_seed: int = 0, **keys: Any) -> Injected:
        """Inject a fault of the catalogue (docs/how/faults.md), until :meth:`clear`, :meth:`heal`
        or the end of the world: ``inject("loss", "h0:p0-t0-0", probability=0.01)``. ``run_seed`` is
        for random choices, unless the fault has a ``seed``. Raises FaultError and FabricError; then
        nothing has happened."""
        return self.injections.inject(kind, on, keys, run_seed)

    def strike(self, target: Target) -> Injected:
        """Inject a fault resolved on this fabric. Raises as :meth:`inject`."""
        return self.injections.strike(target)

    def clear(self, number: int) -> int:
        """Take one fault back; returns the time at which the data plane was told, ps."""
        return self.injections.clear(number)

    def faults(self) -> list[Injected]:
        """Return the active injected faults, oldest first."""
        return self.injections.active()

    def fault_events(self) -> list[FaultEvent]:
        """Return what injected faults did since the last call, in order."""
        return self.injections.events()

    def link_states(self) -> dict[str, bool]:
        """Return cable -> whether it is up."""
        return self.injections.faults.link_states()

    def heal(self) -> None:
        """Take every fault back, injected or made by hand."""
        self.injections.heal()
