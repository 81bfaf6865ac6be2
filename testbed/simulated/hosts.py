"""A host without a process: it does in virtual time what agents.nic.device and agents.process.host
do with sockets and a clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mypy_extensions import mypyc_attr

from agents.collectives.flows import Slots
from agents.nic.device import Nic, make_engine
from agents.process.agent import Agent
from agents.process.control import AgentError, Message, result
from agents.transport import NEVER, FrameIO, Note
from testbed.simulated.frame import Frame
from testbed.simulated.interrupts import uninterrupted
from testbed.simulated.network import Network, Station
from topologies.clos import Fabric

MOST: Final = 1 << 20


class _NoRing:
    not_ours = 0


class SimulatedPorts:
    def __init__(self, network: Network, host: int) -> None:
        self.network, self.host = network, host
        self.ring = _NoRing()

    def port_states(self) -> list[bool]:
        return self.network.carries(self.host)

    def waiting(self) -> int:
        return self.network.delayed[self.host]

    def drops(self) -> int:
        return 0

    def send(self, engine: FrameIO, now: int, summed: bool) -> None:
        for _ in range(MOST):
            port = engine.transmit(now)
            if port < 0:
                return
            frame = Frame(engine.tx_frame, engine.tx_payload, engine.tx_trailer, summed)
            engine.sent(now, port, self.network.put(self.host, port, frame))
        raise RuntimeError(f"h{self.host} sent {MOST} frames at one moment")

    def close(self) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Steered(Station):
    def __init__(self, number: int) -> None:
        self.number = number
        self.notes: list[Note] = []
        self.over = False  # it was closed or killed

    def ask(self, op: str, args: Mapping[str, object]) -> Any:
        raise NotImplementedError

    def pause(self, stop: bool) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class _Agent(Agent):
    def flow_slots(self) -> Slots:
        return Slots()


class SimulatedHost(Steered):
    """Runs until :meth:`close` or :meth:`kill`. Raises ValueError on bad options."""

    def __init__(
        self,
        network: Network,
        fabric: Fabric,
        number: int,
        transport: str,
        options: Mapping[str, object],
        seed: int,
        log: Path,
    ) -> None:
        super().__init__(number)
        self.network = network
        self.ports = SimulatedPorts(network, number)
        engine = make_engine(transport, fabric, number, options, seed)
        self.sums = not engine.spare_sums()
        self.nic = Nic(fabric, number, engine, self.ports, network.now)
        self.file = open(log, "wb", buffering=1 << 13)
        self.agent = _Agent(fabric, number, self.nic, self.file.write, self._note, network.now)
        self.paused = False
        self._waiting: list[tuple[int, bytes]] = []  # what came meanwhile
        self._due = NEVER  # when it has to run again,
        self._event = NEVER  # and when it will be looked at
        network.stations[number] = self
        self.turn()

    def _note(self, note: Note) -> None:
        self.notes.append(note)
        self.network.halted = True  # the runner is told at once

    # --- what the network calls -------------------------------------------------------------------

    def arrive(self, plane: int, frame: Frame) -> None:
        if frame.summed or self.paused or not frame.intact:
            self.take(plane, frame.contents())
            return
        self.nic.engine.receive_intact(
            self.network.time, plane, frame.data, frame.word, frame.payload, frame.size
        )
        self.turn()

    def take(self, plane: int, frame: bytes) -> None:
        if self.paused:
            self._waiting.append((plane, frame))
            return
        self._receive(plane, frame)
        self.turn()

    def _receive(self, plane: int, frame: bytes) -> None:
        # of a view, parts are not copied
        self.nic.taker.receive(self.network.time, plane, memoryview(frame), 0, len(frame))

    def port_state(self, plane: int, up: bool) -> None:
        self.nic.port_state(self.network.time, plane, up)
        self.turn()

    def port_paused(self, plane: int, paused: bool) -> None:
        self.nic.engine.port_paused(self.network.time, plane, paused)
        if not paused:
            self.turn()

    def turn(self) -> None:
        if self.over or self.paused:
            return
        now = self.network.time
        nic, agent = self.nic, self.agent
        engine, mapper = nic.engine, nic.mapper
        nic.wakeups += 1
        engine.timer(now)
        agent.advance()
        self.ports.send(engine, now, self.sums)
        due = engine.deadline()
        if mapper is not None:
            mapper.timer(now)
            self.ports.send(mapper, now, True)
            due = min(due, mapper.deadline())
        if now >= agent.bin_end:
            agent.record(now)
            self.file.flush()  # whoever follows the run sees it
        self._due = due = max(min(due, agent.wake_at(now)), now + 1)
        if due < self._event:
            self._event = due
            self.network.alarm(self.number, due, self)

    def woken(self, at: int) -> None:
        if at != self._event or self.over:
            return  # an earlier one was wanted since
        self._event = NEVER
        if self._due > at:
            self._event = self._due
            self.network.alarm(self.number, self._due, self)
        else:
            self.turn()

    # --- what the cluster calls -------------------------------------------------------------------

    def ask(self, op: str, args: Mapping[str, object]) -> Any:
        """A paused host answers too: as if it ran again, and no time passed meanwhile."""
        paused = self.paused
        if paused:
            self.pause(stop=False)
        try:
            answer: Message = json.loads(
                json.dumps(self.agent.answer(json.loads(json.dumps({"id": 1, "op": op, **args}))))
            )
            if "error" not in answer:
                self.turn()
            return result(answer)
        finally:
            if paused:
                self.pause(stop=True)

    def pause(self, stop: bool) -> None:
        self.paused = stop and not self.over
        if not self.paused and not self.over:
            frames, self._waiting = self._waiting, []
            for plane, frame in frames:
                self._receive(plane, frame)
            self.turn()

    def kill(self) -> None:
        self.over = True
        self.file.close()
        self.network.stations.pop(self.number, None)
        self.network.halted = True

    def close(self) -> None:
        if not self.over:
            self.agent.write_final_log(cpu_ns=0)
            self.kill()


@mypyc_attr(allow_interpreted_subclasses=True)
class SimulatedAgent:
    def __init__(self, host: Steered) -> None:
        self.host = host

    @property
    def closed(self) -> bool:
        return self.host.over

    def fileno(self) -> int:
        return -1

    def call(self, op: str, **args: Any) -> Any:
        if self.host.over:
            raise AgentError(f"the agent of h{self.host.number} is gone")
        with uninterrupted():
            return self.host.ask(op, args)

    def notifications(self) -> list[Note]:
        notes, self.host.notes = self.host.notes, []
        return notes

    def close(self) -> None: ...
