"""Carries faults out on a living cluster, and on nothing else. A thread of its own does what is due
later."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from agents.clock import WallClock
from agents.process.control import AgentClient, AgentError
from testbed.emulated.fault_socket import FaultSocket
from testbed.emulated.faults import Faults
from testbed.emulated.rates import Rates
from testbed.errors import UserError
from testbed.faults.injections import Injections
from testbed.faults.kinds import KINDS
from testbed.faults.packet_faults import PacketFaults
from testbed.machine.slowness import patient
from topologies.clos import Fabric

ANSWER_S = 2.0


class Process(Protocol):
    def poll(self) -> int | None: ...
    def send_signal(self, sig: int) -> None: ...


class Injector(Injections):
    """``process_of(host)`` is the agent of a host, or the controller for -1; None if there is none.
    ``socket_of(host)`` is the path of its control socket, or ""."""

    def __init__(
        self,
        fabric: Fabric,
        clock: WallClock,
        faults: Faults,
        packets: PacketFaults,
        rates: Rates,
        process_of: Callable[[int], Process | None],
        socket_of: Callable[[int], str],
    ) -> None:
        super().__init__(fabric, faults, packets, rates, clock.now)
        self._wall = clock
        self.process_of, self.socket_of = process_of, socket_of
        self._sockets: dict[int | None, FaultSocket] = {}  # by the user whose programs they are for
        self._closed = False
        self._wake = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._cycles, name="mrcbed-faults", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let stopped processes go on, so that they can end."""
        for fault_socket in self._sockets.values():
            fault_socket.close()
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
        # an ended process is not signalled: its number may belong to another one
        if process is not None:
            process.send_signal(signal.SIGSTOP if stop else signal.SIGCONT)

    def kill(self, host: int) -> int:
        name = "controller" if host < 0 else f"agent of h{host}"
        process = self.process_of(host)
        if process is None or process.poll() is not None:
            raise UserError(f"kill: there is no {name} running")
        t = self.clock()
        process.send_signal(signal.SIGKILL)
        return t

    def socket_for(self, user: int | None) -> str:
        if user not in self._sockets:
            self._sockets[user] = FaultSocket(self, user)
        return str(self._sockets[user].path)

    def verbs(self, host: int, number: int, rule: Mapping[str, object] | None) -> int:
        """Ask over a new connection: another thread may be waiting for an answer on the agent's
        own."""
        path, process = self.socket_of(host), self.process_of(host)
        try:
            if self._closed or not path or (process is not None and process.poll() is not None):
                raise AgentError(f"there is no agent of h{host} running")
            agent = AgentClient(path, patient(ANSWER_S))
            try:
                return int(agent.call("verbs_fault", quiet=True, number=number, rule=rule))
            finally:
                agent.close()
        except AgentError as error:
            if rule is not None:
                raise UserError(f"{error}") from None
            return self.clock()

    def _cycles(self) -> None:
        with self._wake:
            while not self._closed:
                due = self.advance()
                self._wake.wait(None if due is None else self._wall.until(due))
