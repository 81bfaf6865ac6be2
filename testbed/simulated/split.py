"""One simulation in several processes: this one steers, and computes its share of hosts and planes;
the others are forked from it.

Every process has the whole network as it was at the fork, and computes its own hosts with their NIC
ports, and its own planes. Between two advances (:mod:`testbed.simulated.windows`) the others wait
for commands.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from mmap import mmap
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from agents.process.control import AgentError
from agents.transport import Note
from testbed.errors import ClusterDied, UserError
from testbed.machine.parent import die_with_parent
from testbed.simulated.exchange import HEAD, Aborted, PeerGone, Peers, Steering, Wire
from testbed.simulated.frame import OUTER
from testbed.simulated.hosts import SimulatedHost, Steered
from testbed.simulated.interrupts import uninterrupted
from testbed.simulated.network import Network
from topologies.clos import Fabric
from topologies.units import BYTE

END_S = 10.0


def why_not(fabric: Fabric) -> str:
    if fabric.local_delay_ps == 0:
        return f"fabric {fabric.name!r} has no delay, so hosts act on each other at once"
    if fabric.pfc:
        return (
            f"fabric {fabric.name!r} has PFC, whose pauses go from one process's switches to "
            "another's hosts"
        )
    if fabric.sites > 1:
        return (
            f"fabric {fabric.name!r} has two sites, and frames from the other one come out of order"
        )
    return ""


class Job(NamedTuple):
    transport: str
    options: Mapping[str, object]
    seed: int
    log_dir: Path


def begin_host(network: Network, number: int, job: Job) -> SimulatedHost:
    log = job.log_dir / f"{network.fabric.hosts[number]}.jsonl"
    return SimulatedHost(network, network.fabric, number, job.transport, job.options, job.seed, log)


class RemoteHost(Steered):
    def __init__(self, crew: Crew, owner: int, number: int) -> None:
        super().__init__(number)
        self.crew, self.owner = crew, owner

    def ask(self, op: str, args: Mapping[str, object]) -> Any:
        return self.crew.ask(self.owner, "ask", self.number, op, args)

    def pause(self, stop: bool) -> None:
        if not self.over:
            self.crew.ask(self.owner, "pause", self.number, stop)

    def kill(self) -> None:
        self.over = True
        self.crew.ask(self.owner, "kill", self.number)
        self.crew.network.halted = True

    def close(self) -> None:
        self.over = True  # its process writes the log when it ends


class Crew(Steering):
    """``count`` includes this process, with which the others end."""

    def __init__(self, network: Network, count: int) -> None:
        self.network, self.count = network, count
        fabric = network.fabric
        hosts = [number * count // fabric.host_count for number in range(fabric.host_count)]
        planes = [plane % count for plane in range(fabric.planes)]
        self.host_owner = hosts
        wires = _wires(hosts, planes, nic_bytes(network))
        context = get_context("fork")
        self.connections: list[Connection] = []
        self.children = []
        self.hosts: dict[int, RemoteHost] = {}
        # of the network, which the others do not know yet
        self.changes: list[tuple[str, tuple[Any, ...]]] = []
        self.ended: list[bytes] = []  # what others had counted when they ended
        self.owed = [0] * (count - 1)  # answers
        self.broken = False  # processes have stopped at different times
        for own in range(1, count):
            here, there = context.Pipe()
            unused = [*self.connections, here]
            child = context.Process(
                target=_serve,
                args=(network, own, hosts, planes, wires, there, unused, os.getpid()),
                daemon=True,
            )
            child.start()
            there.close()
            self.connections.append(here)
            self.children.append(child)
        _close_others(wires, 0)
        self.wires = wires[0]
        network.peers = Peers(0, hosts, planes, self.wires)
        network.steering = self

    @property
    def alive(self) -> bool:
        return bool(self.children)

    # --- commands ---------------------------------------------------------------------------------

    def remote(self, number: int) -> RemoteHost:
        self.hosts[number] = RemoteHost(self, self.host_owner[number], number)
        return self.hosts[number]

    def change(self, method: str, *args: Any) -> None:
        """Let the others call this method of the network, which was called here, before anything
        else."""
        self.changes.append((method, args))

    @uninterrupted()
    def ask(self, owner: int, command: str, *args: Any) -> Any:
        if self.changes:
            self._flush()
        self._send(owner, command, args)
        return self._answer(owner)

    @uninterrupted()
    def ask_all(self, command: str, *args: Any) -> list[Any]:
        """Raises what the first raised, after all have answered."""
        self.tell_all(command, *args)
        return self._answers()

    def tell_all(self, command: str, *args: Any) -> None:
        if self.changes:
            self._flush()
        for owner in range(1, self.count):
            self._send(owner, command, args)

    def begin(self, end: int) -> None:
        self.tell_all("advance", end)

    def finish(self) -> None:
        self._answers()

    def failed(self) -> None:
        self.broken = True
        for wire in self.wires:
            if wire is not None:
                wire.abort()
        self._answers()  # raises what stopped another process: then it was the cause

    def figures(self) -> list[bytes]:
        return self.ask_all("figures") if self.alive else self.ended

    @uninterrupted()
    def end(self) -> None:
        if not self.alive:
            return
        try:
            for block, hops in self.ask_all("end"):
                self.ended.append(block)
                self.network.hops += hops
        except (ClusterDied, RuntimeError):
            if not self.broken:
                raise
        finally:
            _close_others([[wire] for wire in self.wires], -1)
            self.network.peers = self.network.steering = None
            for connection, child in zip(self.connections, self.children, strict=True):
                connection.close()
                child.join(END_S)
                if child.is_alive():
                    child.kill()
                    child.join()
            self.children = []

    # --- how --------------------------------------------------------------------------------------

    def _flush(self) -> None:
        changes, self.changes = self.changes, []
        self.ask_all("change", changes)

    def _send(self, owner: int, command: str, args: tuple[Any, ...]) -> None:
        try:
            self.connections[owner - 1].send((command, self.network.time, args))
        except OSError:
            self._raise_dead(owner)
        self.owed[owner - 1] += 1

    def _answers(self) -> list[Any]:
        answers, errors = [], []
        for owner in range(1, self.count):
            try:
                answers.append(self._answer(owner))
            except Exception as error:
                errors.append(error)
        if errors:
            raise next((error for error in errors if not isinstance(error, ClusterDied)), errors[0])
        return answers

    def _answer(self, owner: int) -> Any:
        answer = error = None  # if it was never asked
        while self.owed[owner - 1]:
            try:
                answer, error, notes = self.connections[owner - 1].recv()
            except (EOFError, OSError):
                self._raise_dead(owner)
            self.owed[owner - 1] -= 1
            for number, note in notes:
                self.hosts[number].notes.append(note)
            if notes:
                self.network.halted = True
        if error is not None:
            raise error
        return answer

    def _raise_dead(self, owner: int) -> NoReturn:
        self.broken = True
        which = f"process {owner + 1} of the {self.count} of this simulation"
        raise ClusterDied(f"{which} was killed (out of memory?): use a smaller --split") from None


def nic_bytes(network: Network) -> int:
    """Return the most that crosses a NIC port's cable in one direction in a window: a frame that
    began before, and its rate for the rest. Each frame comes with its numbers, and has at least an
    Ethernet and an IPv6 header."""
    fabric = network.fabric
    most = fabric.nic_rate * network.reach // BYTE + fabric.frame_bytes
    return most + HEAD + most * HEAD // OUTER


def _wires(hosts: Sequence[int], planes: Sequence[int], most: int) -> list[list[Wire | None]]:
    count = max(hosts) + 1
    wires: list[list[Wire | None]] = [[None] * count for _ in range(count)]
    for a in range(count):
        for b in range(a):
            ends = socket.socketpair()
            # frames of one's hosts on the other's planes
            ports = max(hosts.count(a) * planes.count(b), hosts.count(b) * planes.count(a))
            there, back = (
                (mmap(-1, ports * most + 1), mmap(-1, ports * most + 1)) for _ in range(2)
            )
            wires[a][b] = Wire(ends[0], there, back)
            wires[b][a] = Wire(ends[1], back, there)
    return wires


def _close_others(wires: Sequence[Sequence[Wire | None]], own: int) -> None:
    for number, row in enumerate(wires):
        for wire in row:
            if number != own and wire is not None:
                wire.close()


# --- in the other processes -----------------------------------------------------------------------


class Share:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.hosts: dict[int, SimulatedHost] = {}

    def start(self, job: Job) -> None:
        peers = self.network.peers
        assert peers is not None
        for number, owner in enumerate(peers.host_owner):
            if owner == peers.own:
                self.hosts[number] = begin_host(self.network, number, job)
        gc.freeze()

    def ask(self, number: int, op: str, args: Mapping[str, object]) -> Any:
        return self.hosts[number].ask(op, args)

    def pause(self, number: int, stop: bool) -> None:
        self.hosts[number].pause(stop)

    def kill(self, number: int) -> None:
        self.hosts[number].kill()

    def change(self, changes: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
        for method, args in changes:
            getattr(self.network, method)(*args)

    def advance(self, end: int) -> None:
        self.network.advance(end)

    def figures(self) -> bytes:
        return self.network.figures()

    def hops(self) -> int:
        return int(self.network.hops)

    def quiet(self) -> bool:
        return self.network.quiet()

    def backlog(self, port: int) -> int:
        return self.network.data_backlog(port)

    def end(self) -> tuple[bytes, int]:
        for host in self.hosts.values():
            host.close()
        return self.network.figures(), int(self.network.hops)

    def notes(self) -> list[tuple[int, Note]]:
        taken = [(number, note) for number, host in self.hosts.items() for note in host.notes]
        for number, _ in taken:
            self.hosts[number].notes = []
        return taken


def _serve(
    network: Network,
    own: int,
    hosts: list[int],
    planes: list[int],
    wires: list[list[Wire | None]],
    connection: Connection,
    unused: Sequence[Connection],
    parent: int,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that steers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent(parent)
    _close_others(wires, own)
    for other in unused:
        other.close()
    network.peers = Peers(own, hosts, planes, wires[own])
    share = Share(network)
    command = ""
    while command != "end":
        try:
            command, network.time, args = connection.recv()
        except (EOFError, OSError):
            os._exit(1)
        answer, error = _done(getattr(share, command), args, network.peers)
        try:
            connection.send((answer, error, share.notes()))
        except OSError:
            os._exit(1)
    os._exit(0)


def _done(
    method: Callable[..., Any], args: tuple[Any, ...], peers: Peers
) -> tuple[Any, Exception | None]:
    try:
        return method(*args), None
    except (AgentError, ValueError, UserError) as error:
        return None, error
    except (Aborted, PeerGone):
        return None, None  # the process that was the cause tells
    except Exception as error:
        for wire in peers.wires:
            if wire is not None:
                wire.abort()
        return None, RuntimeError(
            f"in a process of a simulation: {type(error).__name__}: {error}\n"
            f"{traceback.format_exc()}"
        )
