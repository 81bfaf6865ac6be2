"""A NIC that a program can use: an engine and its packet I/O, driven by one loop.

``Device`` is what the host process runs. A program of your own in a host may open one instead;
docs/how/python.md has an example.
"""

from __future__ import annotations

import importlib
import select
from collections.abc import Callable, Mapping
from typing import Any

from agents.clock import WallClock, run_until_completion
from agents.clustermapper.mapper import Mapper
from agents.clustermapper.options import Options
from agents.clustermapper.probes import probe_port
from agents.kernel.device import KernelDevice
from agents.kernel.options import KINDS
from agents.kernel.options import Options as KernelOptions
from agents.lateness import WINDOW_RTTS, Lateness
from agents.nic.packet_io import CARRIER, PacketIO
from agents.packets.headers import UDP
from agents.transport import (
    NEVER,
    Completion,
    Domain,
    Engine,
    Event,
    Foreign,
    FrameIO,
    Note,
    Region,
    Remote,
)
from topologies.clos import Fabric

BATCH = 64
TRANSPORTS = ("mrc", "roce")


def make_engine(
    transport: str, fabric: Fabric, host: int, options: Mapping[str, object], seed: int
) -> Engine:
    """Raises ValueError on an unknown transport or on unknown options."""
    if transport not in TRANSPORTS:
        raise ValueError(
            f"no transport {transport!r}: there are {', '.join((*TRANSPORTS, *KINDS))}"
        )
    engine: Engine = importlib.import_module(f"agents.{transport}.endpoint").Endpoint(
        fabric, host, options, seed
    )
    return engine


def check_options(transport: str, fabric: Fabric, options: Mapping[str, object]) -> None:
    """Raises ValueError as :func:`make_engine`; opens nothing."""
    if transport in KINDS:
        KernelOptions(transport, fabric, options)
    else:
        make_engine(transport, fabric, 0, options, 0)


_IN_SUMS = (
    ("tx_packets", "mapper_tx"),
    ("tx_refused", "mapper_refused"),
    ("rx_packets", "mapper_rx"),
    ("rx_bad_icrc", "mapper_corrupt"),
    ("rx_foreign", "mapper_foreign"),
)


class _Sorter(FrameIO):
    def __init__(self, engine: Engine, mapper: Mapper, port: int) -> None:
        super().__init__()
        self.port = port
        self.engine = engine
        self.mapper = mapper

    def receive(self, now: int, port: int, buffer: Any, start: int, length: int) -> None:
        if (
            length >= UDP + 8
            and buffer[start + UDP + 2] << 8 | buffer[start + UDP + 3] == self.port
        ):
            self.mapper.receive(now, port, buffer, start, length)
        else:
            self.engine.receive(now, port, buffer, start, length)


class Nic:
    """A host's engine, and a mapper beside it, on ports that other code drives; the verbs are those
    of :class:`agents.transport.Engine`. ``io``: an agents.nic.packet_io.PacketIO or a simulated
    host's. ``clock`` gives ps."""

    def __init__(
        self, fabric: Fabric, host: int, engine: Engine, io: Any, clock: Callable[[], int]
    ) -> None:
        self.fabric = fabric
        self.host = host
        self.engine = engine
        self.io = io
        self.clock = clock
        self.mapper: Mapper | None = None
        self.taker: FrameIO = engine  # gets what arrives
        self._up: list[bool] = io.port_states()  # as the kernel reported
        for port, up in enumerate(self._up):
            if not up:
                engine.port_state(clock(), port, False)
        self.forget_lag()
        self.wakeups = 0

    def port_state(self, now: int, port: int, up: bool) -> None:
        self._up[port] = up
        self.engine.port_state(now, port, up)
        if self.mapper is not None:
            self.mapper.port_state(now, port, up)

    def ports_up(self) -> list[bool]:
        return list(self._up)

    # Verbs: the engine's, with the clock added.

    def register(self, memory: Any) -> Region:
        """Let peers write into ``memory`` (writable, contiguous, or a Foreign). Raises ValueError
        otherwise."""
        return self.engine.register(memory)

    def domain(self) -> Domain:
        return self.engine.domain()

    def reserve_qp(self) -> int:
        return self.engine.reserve_qp()

    def create_qp(
        self, peer: int, evs: int = 0, qpn: int = -1, domain: Domain | None = None
    ) -> Remote:
        """``peer`` is a host number; the dictionary is for the peer's :meth:`connect_qp`. ``evs``,
        ``qpn`` and ``domain``: see the engine."""
        return self.engine.create_qp(peer, evs, qpn, domain)

    def remote_of(self, host: int, qpn: int, psn: int) -> Remote:
        return self.engine.remote_of(host, qpn, psn)

    def connect_qp(self, qpn: int, remote: Remote) -> None:
        """Bring a queue pair to RTS with what the peer's :meth:`create_qp` returned."""
        self.engine.connect_qp(self.clock(), qpn, remote)

    def start_qp(self, qpn: int, psn: int, timeout_ps: int, retries: int) -> None:
        self.engine.start_qp(self.clock(), qpn, psn, timeout_ps, retries)

    def fail_qp(self, qpn: int) -> None:
        self.engine.fail_qp(self.clock(), qpn)

    def destroy_qp(self, qpn: int) -> None:
        self.engine.destroy_qp(self.clock(), qpn)

    def post_recv(self, qpn: int, wr_id: int) -> None:
        """Offer one receive request for an immediate."""
        self.engine.post_recv(qpn, wr_id)

    def post_write(
        self, qpn: int, wr_id: int, memory: memoryview | Foreign, va: int, rkey: int, imm: int = -1
    ) -> None:
        """Post an RDMA WRITE; ``memory`` stays unchanged until its completion. ``imm`` >= 0 sends
        an immediate with it."""
        self.engine.post_write(qpn, wr_id, memory, va, rkey, imm)

    # Clustermapper, beside the engine.

    def start_mapper(self, options: Mapping[str, object], seed: int) -> None:
        """Probe this host's corner of the fabric from now on. ``seed`` is the same on all hosts.
        Raises ValueError on bad options."""
        now = self.clock()
        mapper = Mapper(self.fabric, self.host, Options.read(options), seed, now)
        for port, up in enumerate(self._up):
            mapper.port_state(now, port, up)
        if self.mapper is not None:
            mapper.frames = self.mapper.frames
        self.mapper = mapper
        self.taker = _Sorter(self.engine, mapper, probe_port(self.fabric))
        mapper.start(now)

    def stop_mapper(self) -> None:
        """Stop the probes; the findings stay."""
        if self.mapper is not None:
            self.mapper.stop()

    def mapper_reports(self) -> list[Note]:
        return [] if self.mapper is None else list(self.mapper.take_reports())

    # What is told of it.

    def forget_lag(self) -> None:
        self.lateness = Lateness(self.clock(), WINDOW_RTTS * self.fabric.base_rtt_ps)

    def lag(self) -> dict[str, int]:
        """Return how late this process got to timers and frames (agents.lateness), ps."""
        return {**self.lateness.figures(self.clock()), "wakeups": self.wakeups}

    def housekeeping(self) -> None:
        """The kernel resets the receive ring's drops when it reports them: call this a few times a
        second."""
        self.io.drops()

    def events(self) -> list[Event]:
        events = self.engine.events()
        return events if self.mapper is None else events + list(self.mapper.events())

    def counters(self) -> dict[str, int]:
        """Return all counters; the mapper's frames are in the sums."""
        waiting = self.io.waiting()
        counters = {
            **self.engine.counters(),
            "rx_waiting": waiting,
            "rx_ring_drops": self.io.drops(),
            "rx_not_a_port": self.io.ring.not_ours,
        }
        if self.mapper is not None:
            own: dict[str, int] = self.mapper.counters()
            counters.update(own)
            for total, part in _IN_SUMS:
                counters[total] = counters.get(total, 0) + own[part]
        return counters

    def close(self) -> None:
        self.io.close()


class Device(Nic):
    """A NIC on the ports of ``host`` in the current network namespace. Needs root when made. Raises
    OSError if the ports are not there, ValueError on bad options."""

    def __init__(
        self,
        fabric: Fabric,
        host: int,
        clock: WallClock,
        transport: str = "mrc",
        options: Mapping[str, object] | None = None,
        seed: int = 0,
    ) -> None:
        engine = make_engine(transport, fabric, host, options or {}, seed)
        io = PacketIO(fabric, host, (fabric.udp_port, probe_port(fabric)), clock)
        super().__init__(fabric, host, engine, io, clock.now)
        self.wall = clock
        self._readers = [io.receiver, io.links]
        self._without_ring = [io.links]
        self.wanted = NEVER  # when something had to be done after the last turn
        self.more = False

    def poll(self, timeout: int = 0) -> list[Completion]:
        """Run the loop until something completed or ``timeout`` (ps) went by."""
        return run_until_completion(self, timeout, self.wall)

    def work(self, until: int) -> int:
        """Receive, act on what is due, send. Returns when to do so again at the latest, ps: not
        after ``until``, and now if there is more."""
        engine = self.engine
        io = self.io
        now = self.clock()
        since = min(now, self.wanted)
        received = io.receive(self.taker, now, BATCH)
        if received:
            since = min(since, int(io.ring.first_due))
        engine.timer(now)
        sent = io.send(engine, now, BATCH)
        due = min(engine.deadline(), until)
        mapper = self.mapper
        if mapper is not None:
            mapper.timer(now)
            io.send(mapper, now, BATCH)
            due = min(due, mapper.deadline())
        # A completion may let its user post the next request: do not wait for the next frame.
        self.more = received == BATCH or sent == BATCH or engine.completed()
        # Late is all that lies between its due time and the end of this turn: the process may be
        # stopped in the middle of one, too.
        end = self.clock()
        self.lateness.add(end, end - since)
        # a deadline that has long passed waits for something else
        self.wanted = now if self.more else max(due, now)
        return now if self.more else min(due, io.ring.next_look()) if io.ring.held else due

    def sources(self) -> list[Any]:
        """Return what ends a wait: news of links, and frames unless some are held to their time.

        The ring's socket reads as ready while the newest frame is in its slot, so a wait on it
        would spin. Nor is it needed: what comes after the last look is not due before :meth:`work`
        wants to look again.
        """
        return self._without_ring if self.io.ring.held else self._readers

    def read_links(self) -> None:
        now = self.clock()
        for port, what, on in self.io.news():
            if what == CARRIER:
                self.port_state(now, port, on)
            else:
                self.engine.port_paused(now, port, on)

    def turn(self, until: int, readers: list[Any] | None = None) -> list[Any]:
        """Call :meth:`work`, then sleep until a frame, a deadline, ``until`` (ps) or a ready
        reader. Returns the ready readers."""
        wake = self.work(until)
        wait = 0.0 if self.more else self.wall.until(wake)
        # select: microseconds of resolution, where poll and epoll round up to a millisecond.
        readable, _, _ = select.select(self.sources() + (readers or []), [], [], wait)
        self.wakeups += 1
        if self.io.links in readable:
            self.read_links()
        return [r for r in readable if r is not self.io.receiver and r is not self.io.links]


def make_device(
    fabric: Fabric,
    host: int,
    clock: WallClock,
    transport: str,
    options: Mapping[str, object],
    seed: int,
) -> Device | KernelDevice:
    if transport in KINDS:
        return KernelDevice(fabric, host, clock, transport, options, seed)
    return Device(fabric, host, clock, transport, options, seed)
