"""Carries faults out, keeps the list of those that are there, and takes them back: the rules that both worlds share.

A world says how a host's agent is stopped and killed, and sees to it that :meth:`Injections.advance` is called when something is due
(a flap's next change, a reboot): testbed/emulated/injector.py, testbed/simulated/faults.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from testbed.errors import UserError
from testbed.faults.holders import Holders
from testbed.faults.packet_faults import PacketFaults
from testbed.faults.targets import FaultEvent, Injected, resolve
from topologies.clos import Fabric


class Slowing(Protocol):
    """What is asked of testbed.emulated.rates.Rates."""

    def slow(self, holder: int, ports: Iterable[int], share: float) -> None: ...
    def drop(self, holder: int) -> None: ...
    def reset(self) -> None: ...


class Injections:
    """``clock`` gives monotonic ns."""

    def __init__(self, fabric: Fabric, faults: Holders, packets: PacketFaults, rates: Slowing, clock: Callable[[], int]) -> None:
        self.fabric, self.faults, self.packets, self.rates, self.clock = fabric, faults, packets, rates, clock
        self._active: dict[int, Injected] = {}
        self._events: list[FaultEvent] = []
        self._last = 0
        self._lock = threading.RLock()

    # --- what a world does -----------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Something may be due sooner."""

    def _pause(self, host: int, stop: bool) -> None:
        """A host's agent does not run from now on, or does again."""
        raise NotImplementedError

    def _kill(self, host: int) -> int:
        """End a host's agent, or the controller for -1; ns at which it was told. Raises :class:`UserError` if there is none."""
        raise NotImplementedError

    # --- what the cluster offers -----------------------------------------------------------------------------

    def inject(self, kind: str, on: str, keys: Mapping[str, Any], run_seed: int) -> Injected:
        """Raises FaultError or FabricError for what cannot be, and then nothing has happened."""
        target = resolve(self.fabric, kind, on, keys, run_seed)
        with self._lock:
            self._last += 1
            made = Injected(self._last, target, self.clock())
            self._active[made.number] = made
            try:
                self._begin(made)
            except BaseException:
                self._drop(made)
                raise
            if kind == "kill":  # nothing of it stays that could be taken back
                del self._active[made.number]
            self._look_again()
            return made

    def clear(self, number: int) -> int:
        """Take one fault back; returns the monotonic ns at which the kernel was told. Raises :class:`UserError` if it is not there.

        A silent switch that is to reboot begins to do so, and comes back by itself.
        """
        with self._lock:
            made = self._active.get(number)
            if made is None:
                there = ", ".join(map(str, self._active)) or "none"
                raise UserError(f"there is no fault number {number}: those that are there: {there}")
            reboot = int(made.target.keys.get("reboot", 0))
            if reboot and made.due_ns is None:
                told, links = self.faults.hold(number, dead=made.target.switches)
                made.due_ns = told + reboot
                self._tell(told, made, "reboot", links)
                self._look_again()
                return told
            told, links = self._drop(made)
            self._tell(told, made, "heal", links)
            return told

    def heal(self) -> None:
        """Take all faults back, and what was done by hand."""
        with self._lock:
            for made in list(self._active.values()):
                told, links = self._drop(made)
                self._tell(told, made, "heal", links)
            self.faults.heal()
            self.packets.reset()
            self.rates.reset()

    def active(self) -> list[Injected]:
        """Those that are there, oldest first."""
        with self._lock:
            return list(self._active.values())

    def events(self) -> list[FaultEvent]:
        """What happened since this was last asked, in order."""
        with self._lock:
            told, self._events = self._events, []
            return told

    # --- how ---------------------------------------------------------------------------------------------------

    def _tell(self, t: int, made: Injected, phase: str, links: tuple[str, ...]) -> None:
        self._events.append(FaultEvent(t, made.number, phase, links))

    def _begin(self, made: Injected) -> None:
        target = made.target
        if target.kind == "kill":
            made.told_ns = self._kill(target.host)
            self._tell(made.told_ns, made, "begin", ())
        elif target.kind == "straggler":
            made.told_ns = self._stop(made)
            self._tell(made.told_ns, made, "begin", ())
        elif target.kind in ("loss", "corrupt", "slow", "path-loss", "destination-loss"):
            made.told_ns = self.clock()
            self._hit(made)
            self._tell(made.told_ns, made, "begin", target.links)
        elif target.kind == "silent":
            made.told_ns, _ = self.faults.hold(made.number, silent=target.switches)
            self._tell(made.told_ns, made, "begin", target.links)
        else:
            made.told_ns, gone = self._take(made)
            self._tell(made.told_ns, made, "begin", target.links)
            if "period" in target.keys:
                made.due_ns = made.told_ns + self._part(made)
                self._tell(made.told_ns, made, "down", gone)

    def _take(self, made: Injected) -> tuple[int, tuple[str, ...]]:
        if made.target.switches:
            return self.faults.hold(made.number, dead=made.target.switches)
        return self.faults.hold(made.number, made.target.links)

    def _drop(self, made: Injected) -> tuple[int, tuple[str, ...]]:
        """Nothing of it stays."""
        self._active.pop(made.number, None)
        if made.target.kind == "straggler":
            self._pause(made.target.host, stop=False)
        self.packets.drop(made.number)
        self.rates.drop(made.number)
        return self.faults.hold(made.number)

    def _hit(self, made: Injected) -> None:
        target, keys = made.target, made.target.keys
        if target.kind == "slow":
            self.rates.slow(made.number, target.ports, keys["rate"])
        elif not keys["probability"]:
            return  # the programs know no chance of nothing
        elif target.paths:
            self.packets.on_paths(made.number, target.paths, keys["probability"], keys["seed"])
        else:
            self.packets.at_ports(made.number, target.kind, target.ports, keys["probability"], keys["seed"])

    def _stop(self, made: Injected) -> int:
        """Stop a straggler's agent for its part of the period."""
        told = self.clock()
        made.due_ns = told + self._part(made)
        self._pause(made.target.host, stop=True)
        return told

    @staticmethod
    def _part(made: Injected) -> int:
        """How long the present part of a cycle lasts, ns."""
        keys = made.target.keys
        period = int(keys["period"])
        down: int = round(period * (1 - keys["share"] if made.target.kind == "straggler" else keys["duty"]))
        return down if made.down else period - down

    def advance(self) -> int | None:
        """Do what is due; when something is again, None for nothing."""
        with self._lock:
            now = self.clock()
            for made in list(self._active.values()):
                if made.due_ns is not None and made.due_ns <= now:
                    self._advance(made)
            return min((made.due_ns for made in self._active.values() if made.due_ns is not None), default=None)

    def _advance(self, made: Injected) -> None:
        """The next part of a cycle, or the end of a reboot. A part that came late does not shift those after it."""
        if made.target.kind == "silent":
            self.clear(made.number)
            return
        made.down = not made.down
        assert made.due_ns is not None
        if made.target.kind == "straggler":
            self._pause(made.target.host, made.down)
            made.due_ns = max(made.due_ns + self._part(made), self.clock())
            return
        told, links = self._take(made) if made.down else self.faults.hold(made.number)
        self._tell(told, made, "down" if made.down else "up", links)
        made.due_ns = max(made.due_ns + self._part(made), told)
