"""Carries faults out on a living cluster; the list of active faults and their rules are in testbed/faults/injections.py.

One :class:`Injector` per Cluster, made with it. A thread of its own does what is due later, such as the next change of a flap. Must never
touch anything but the cluster's own fabric and processes.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Protocol

from agents.clock import WallClock
from testbed.emulated.faults import Faults
from testbed.emulated.rates import Rates
from testbed.errors import UserError
from testbed.faults.injections import Injections
from testbed.faults.kinds import KINDS
from testbed.faults.packet_faults import PacketFaults
from topologies.clos import Fabric


class Process(Protocol):
    """The part of subprocess.Popen that faults need."""

    def poll(self) -> int | None: ...
    def send_signal(self, sig: int) -> None: ...


class Injector(Injections):
    """The faults of one cluster. ``process_of(host)`` is the agent of a host, or the controller for -1; None if there is none."""

    def __init__(
        self,
        fabric: Fabric,
        clock: WallClock,
        faults: Faults,
        packets: PacketFaults,
        rates: Rates,
        process_of: Callable[[int], Process | None],
    ) -> None:
        super().__init__(fabric, faults, packets, rates, clock.now)
        self._wall = clock
        self.process_of = process_of
        self._closed = False
        self._wake = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._cycles, name="mrcbed-faults", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let stopped processes go on, so that they can end, and end the thread. The rest goes with the fabric."""
        with self._wake:
            self._closed = True
            for fault in self._active.values():
                KINDS[fault.target.kind].undo(fault, self)
            self._wake.notify()
        self._thread.join()

    def _look_again(self) -> None:
        self._wake.notify()

    def pause(self, host: int, stop: bool) -> None:
        process = self.process_of(host)
        if process is not None:  # an ended process is not signalled: its number may belong to another one
            process.send_signal(signal.SIGSTOP if stop else signal.SIGCONT)

    def kill(self, host: int) -> int:
        name = "controller" if host < 0 else f"agent of h{host}"
        process = self.process_of(host)
        if process is None or process.poll() is not None:
            raise UserError(f"kill: there is no {name} running")
        t = self.clock()
        process.send_signal(signal.SIGKILL)
        return t

    def _cycles(self) -> None:
        with self._wake:
            while not self._closed:
                due = self.advance()
                self._wake.wait(None if due is None else self._wall.until(due))
