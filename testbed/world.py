"""The interface of all worlds to a run: a fabric with agents, faults, counters and a clock.

:class:`testbed.emulated.cluster.Cluster` is a world of processes and packets,
:class:`testbed.simulated.cluster.SimulatedCluster` one in virtual time,
:class:`testbed.machines.world.Machines` one whose processes are on several machines. All times are
ps of the network (docs/why/time.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from agents.clock import Clock
from agents.transport import Note
from testbed.faults.targets import FaultEvent, Injected, Target
from topologies import Fabric
from topologies.units import S

WORLDS = EMULATED, SIMULATED = "emulated", "simulated"
PATIENCE = 10_000
"""A second of waiting for a machine is this part of a second in virtual time, as where machines
emulate [ours]."""


class Agent(Protocol):
    """The agent of one host, as agents.process.control.AgentClient shows it."""

    def call(self, op: str, **args: Any) -> Any:
        """Perform one operation and return its answer. Raises
        :class:`agents.process.control.AgentError` if the agent refuses it or is gone."""

    def fileno(self) -> int: ...
    def notifications(self) -> list[Note]: ...


class Timeline(Protocol):
    """A network in virtual time."""

    @property
    def time(self) -> int: ...

    def run(self, until: int) -> bool:
        """Let time pass up to and including ``until``; False if something happened before that
        whoever waits must see."""


class VirtualClock:
    """An agents.clock.Clock over a network in virtual time: time passes because somebody waits."""

    virtual = True

    def __init__(self, network: Timeline) -> None:
        self.network = network

    def now(self) -> int:
        return self.network.time

    def patience(self, seconds: float) -> int:
        return int(seconds * S) // PATIENCE

    def sleep(self, length: int) -> None:
        until = self.network.time + length
        while not self.network.run(until):
            pass

    @contextmanager
    def waiter(self, agents: Sequence[Any]) -> Iterator[Callable[[int], Iterable[int]]]:
        """Make a waiter. ``agents`` have a ``host`` with ``notes`` that nobody has read yet, and
        that may be ``over``."""
        hosts = [agent.host for agent in agents]

        def wait(length: int) -> Iterable[int]:
            if not any(host.notes for host in hosts):
                self.network.run(self.network.time + length)
            return (place for place, host in enumerate(hosts) if host.notes or host.over)

        yield wait


class Ports(Protocol):
    """A watch over the rates and queues of all ports."""

    def look(self) -> None: ...
    def result(self) -> Mapping[str, object]: ...


class RunWatch(Protocol):
    """A watch over the machine, or machines, that carry a run: scenarios.run.watch.Watch is that of
    this machine."""

    samples: list[tuple[int, float]]
    delay_max_ns: int

    def start(self) -> None: ...
    def mark(self) -> None: ...
    def stop(self) -> None: ...
    def result(self) -> Mapping[str, object]: ...


@dataclass(frozen=True)
class Stream:
    """One flow of background traffic. ``rate_bps`` is that of the payload, all parallel streams
    together; None: as fast as TCP goes. ``length``: how long it sends."""

    number: int  # unique among those of a fabric at one time
    src: int
    dst: int
    protocol: str
    rate_bps: int | None
    length: int
    ev: int  # of the path, taken in both directions
    parallel: int = 1
    congestion: str = "cubic"


@dataclass(frozen=True)
class Program:
    """The program of every rank: a Python file, or in a world of processes any command. ``user``:
    who runs it, None: whoever runs us."""

    command: tuple[str, ...]
    user: int | None = None
    qps: int = 1
    """Queue pairs between two ranks."""
    nice: int = 19
    """Niceness of its process: the agents, which are the network, go first."""
    verbs: bool = False
    """Whether it brings RDMA verbs of its own to its hosts' NICs, and no communicator
    (testbed/emulated/verbs_words.py)."""

    faults: str = ""
    """Path of a socket by which it injects faults (testbed/emulated/fault_socket.py); "" for
    none."""

    @property
    def python(self) -> bool:
        """Whether it is a Python file with its arguments."""
        return self.command[0].endswith(".py")


class Programs(Protocol):
    """Ranks that run a program, one on each of some hosts."""

    def run(
        self,
        on_line: Callable[[int, str], None],
        on_note: Callable[[int, Note], None],
        look: Callable[[], int | None],
    ) -> dict[int, str]:
        """Wait until all have ended. ``on_line(rank, text)`` gets what one printed, ``on_note(rank,
        note)`` what one reported (agents.communicator). ``look`` is called now and then; it may say
        after what time it is to be called again. Returns rank -> error; the rank that failed first
        comes first. Raises :class:`testbed.errors.ClusterDied`."""

    def end(self) -> None:
        """End those that still run. Idempotent."""


class Background(Protocol):
    """One running flow of background traffic: :meth:`prepare`, :meth:`begin`, :meth:`ask` for its
    report, :meth:`end`."""

    cut: bool

    @property
    def begun(self) -> bool: ...
    @property
    def over(self) -> bool: ...
    def prepare(self) -> None: ...
    def begin(self) -> None: ...
    def ask(self) -> None: ...
    def end(self) -> None: ...


class Started:
    """The part of a world that has it up inside a ``with``."""

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class World(Protocol):
    """A built fabric. A method whose text says "Raises" raises testbed.errors.UserError, FaultError
    or FabricError: one line for people."""

    fabric: Fabric

    @property
    def name(self) -> str:
        """The world's name: one of :data:`EMULATED` and :data:`SIMULATED`."""

    @property
    def clock(self) -> Clock: ...

    @property
    def controller_lost(self) -> bool:
        """Whether a controller came up and is gone. Traffic does not need it."""

    @property
    def agents(self) -> Sequence[Agent]:
        """The agents by host; empty before :meth:`start_agents`."""

    def start(self) -> None:
        """Build the fabric. Raises if this machine cannot; then nothing stays behind."""

    def stop(self) -> None:
        """Take everything down. Idempotent."""

    def start_agents(
        self,
        transport: str,
        options: Mapping[str, object],
        log_dir: Path,
        seed: int,
        policy: str = "none",
        alone: bool = True,
    ) -> None:
        """Start one agent per host; returns when all answer. Raises. ``policy``: what the
        controller sends them about link events. ``alone``: a fault may stop or kill the process of
        any one."""

    def stop_agents(self) -> None:
        """End all agents; they flush their logs."""

    def controller_journal(self, since_ps: int) -> Sequence[Mapping[str, object]]:
        """Return what the controller saw and did after a time (docs/why/controller.md)."""

    def reroute(self, dead_links: Sequence[str]) -> None:
        """The network has converged around these links, all that are down."""

    def deny(self, entry: str, reason: str = "", by: str = ...) -> bool:
        """Put an entry on the denylist (topologies/denylist.py); returns whether it is new.
        Raises."""

    def allow(self, entry: str, by: str | None = None) -> bool:
        """Take an entry off the denylist, or with ``by`` only that party's denial; returns whether
        it was there. Raises."""

    def inject(self, kind: str, on: str, *, run_seed: int = 0, **keys: Any) -> Injected:
        """Begin a fault of the catalogue (docs/how/faults.md); ``run_seed`` is its seed unless it
        has its own. If this raises, nothing has begun."""

    def strike(self, target: Target) -> Injected:
        """Begin a fault that is resolved on this fabric."""

    def clear(self, number: int) -> int:
        """Take one fault back, by its number; returns the time. Raises if there is no such
        fault."""

    def faults(self) -> Sequence[Injected]:
        """Return the active injected faults, oldest first."""

    def fault_events(self) -> Sequence[FaultEvent]:
        """Return what injected faults did since the last call, in order."""

    def link_states(self) -> dict[str, bool]:
        """Return cable -> whether it carries, in the fabric's order."""

    def heal(self) -> None:
        """Take every fault back, injected or by hand."""

    def counters(self) -> list[dict[str, Any]]:
        """Return one row per port (testbed/dataplane/counters.py)."""

    def backlog(self, port: str) -> int:
        """Count the bytes of the data class waiting at a port. Raises KeyError for an unknown
        port."""

    def loads(self) -> NDArray[np.int64]:
        """Return a row per port: bytes that have left, bytes of the data class waiting now, packets
        marked, trimmed and dropped so far."""

    def quiesce(self, timeout: int) -> bool:
        """Wait until no port has anything queued or on its way, at most ``timeout``; returns
        whether that happened."""

    def check(self) -> None:
        """Raise :class:`testbed.errors.ClusterDied` if something that the world needs has died."""

    def processes(self) -> Mapping[str, int]:
        """Return name -> pid of the processes that work during a run; empty where there are
        none."""

    def port_watch(self) -> Ports | None:
        """Make a watch over rates and queues of all ports; None where a model moves the packets."""

    def run_watch(self, interval: int) -> RunWatch | None:
        """Make this world's own watch over a run, whose ports it looks at so often; None: the
        runner watches this machine itself."""

    def programs(self, program: Program, hosts: Sequence[int]) -> Programs:
        """Prepare a program on some hosts, ranks in this order; agents must have been started. The
        caller ends it. Raises."""

    def background(self, stream: Stream, stem: Path) -> Background:
        """Make a flow of background traffic, not yet prepared; the caller ends it. Its reports are
        ``<stem>*.json``. Raises."""
