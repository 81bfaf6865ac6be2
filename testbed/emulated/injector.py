"""Carries faults out on a living cluster, keeps the list of those that are there, and takes them back.

One :class:`Injector` per Cluster, made with it. Whatever is in a fault's nature to happen later (a flap's next change, a reboot) is done
here by a thread of its own, and told as an event. Must never touch anything but the cluster's own fabric and processes.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from testbed.dataplane.packet_faults import PacketFaults
from testbed.emulated.faults import Faults
from testbed.emulated.rates import Rates
from testbed.errors import UserError
from testbed.fault_targets import FaultEvent, Injected, resolve
from topologies.clos import Fabric


class Process(Protocol):
    """What is asked of a process of the cluster: subprocess.Popen has it."""

    def poll(self) -> int | None: ...
    def send_signal(self, sig: int) -> None: ...


class Injector:
    """``process_of(host)``: the agent of a host, or the controller for -1; None if there is none."""

    def __init__(
        self, fabric: Fabric, faults: Faults, packets: PacketFaults, rates: Rates, process_of: Callable[[int], Process | None]
    ) -> None:
        self.fabric, self.faults, self.packets, self.rates, self.process_of = fabric, faults, packets, rates, process_of
        self._active: dict[int, Injected] = {}
        self._events: list[FaultEvent] = []
        self._last = 0
        self._closed = False
        self._wake = threading.Condition(threading.RLock())
        self._thread = threading.Thread(target=self._cycles, name="mrcbed-faults", daemon=True)
        self._thread.start()

    # --- what the cluster offers -----------------------------------------------------------------------------

    def inject(self, kind: str, on: str, keys: Mapping[str, Any], run_seed: int) -> Injected:
        """Raises FaultError or FabricError for what cannot be, and then nothing has happened."""
        target = resolve(self.fabric, kind, on, keys, run_seed)
        with self._wake:
            self._last += 1
            made = Injected(self._last, target, time.monotonic_ns())
            self._active[made.number] = made
            try:
                self._begin(made)
            except BaseException:
                self._drop(made)
                raise
            if kind == "kill":  # nothing of it stays that could be taken back
                del self._active[made.number]
            self._wake.notify()
            return made

    def clear(self, number: int) -> int:
        """Take one fault back; returns the monotonic ns at which the kernel was told. Raises :class:`UserError` if it is not there.

        A silent switch that is to reboot begins to do so, and comes back by itself.
        """
        with self._wake:
            made = self._active.get(number)
            if made is None:
                there = ", ".join(map(str, self._active)) or "none"
                raise UserError(f"there is no fault number {number}: those that are there: {there}")
            reboot = int(made.target.keys.get("reboot", 0))
            if reboot and made.due_ns is None:
                told, links = self.faults.hold(number, dead=made.target.switches)
                made.due_ns = told + reboot
                self._tell(told, made, "reboot", links)
                self._wake.notify()
                return told
            told, links = self._drop(made)
            self._tell(told, made, "heal", links)
            return told

    def heal(self) -> None:
        """Take all faults back, and what was done by hand."""
        with self._wake:
            for made in list(self._active.values()):
                told, links = self._drop(made)
                self._tell(told, made, "heal", links)
            self.faults.heal()
            self.packets.reset()
            self.rates.reset()

    def active(self) -> list[Injected]:
        """Those that are there, oldest first."""
        with self._wake:
            return list(self._active.values())

    def events(self) -> list[FaultEvent]:
        """What happened since this was last asked, in order."""
        with self._wake:
            told, self._events = self._events, []
            return told

    def close(self) -> None:
        """Let stopped processes go on, so that they can end, and end the thread. The rest goes with the fabric."""
        with self._wake:
            self._closed = True
            for made in self._active.values():
                if made.target.kind == "straggler":
                    self._signal(made.target.host, signal.SIGCONT)
            self._wake.notify()
        self._thread.join()

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
            made.told_ns = time.monotonic_ns()
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
            self._signal(made.target.host, signal.SIGCONT)
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
        told = time.monotonic_ns()
        made.due_ns = told + self._part(made)
        self._signal(made.target.host, signal.SIGSTOP)
        return told

    def _signal(self, host: int, sig: int) -> None:
        process = self.process_of(host)
        if process is not None:
            process.send_signal(sig)  # one that has ended is not signalled: its number may be another's

    def _kill(self, host: int) -> int:
        what = "controller" if host < 0 else f"agent of h{host}"
        process = self.process_of(host)
        if process is None or process.poll() is not None:
            raise UserError(f"kill: there is no {what} running")
        told = time.monotonic_ns()
        process.send_signal(signal.SIGKILL)
        return told

    @staticmethod
    def _part(made: Injected) -> int:
        """How long the present part of a cycle lasts, ns."""
        keys = made.target.keys
        period = int(keys["period"])
        down: int = round(period * (1 - keys["share"] if made.target.kind == "straggler" else keys["duty"]))
        return down if made.down else period - down

    def _cycles(self) -> None:
        with self._wake:
            while not self._closed:
                now = time.monotonic_ns()
                for made in list(self._active.values()):
                    if made.due_ns is not None and made.due_ns <= now:
                        self._advance(made)
                due = min((made.due_ns for made in self._active.values() if made.due_ns is not None), default=None)
                self._wake.wait(None if due is None else max(0.0, (due - time.monotonic_ns()) / 1e9))

    def _advance(self, made: Injected) -> None:
        """The next part of a cycle, or the end of a reboot. A part that came late does not shift those after it."""
        if made.target.kind == "silent":
            self.clear(made.number)
            return
        made.down = not made.down
        assert made.due_ns is not None
        if made.target.kind == "straggler":
            self._signal(made.target.host, signal.SIGSTOP if made.down else signal.SIGCONT)
            made.due_ns = max(made.due_ns + self._part(made), time.monotonic_ns())
            return
        told, links = self._take(made) if made.down else self.faults.hold(made.number)
        self._tell(told, made, "down" if made.down else "up", links)
        made.due_ns = max(made.due_ns + self._part(made), told)
