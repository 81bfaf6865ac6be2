"""Two hosts of a simulated fabric with bare MRC endpoints, and what may happen to them: the players
of the property tests.

The network is the simulated world's own, with its faults. What it has no fault for happens to
frames as they reach a host: *weather*. A
:class:`World` watches its engines all the time (tests/properties/watch.py) and raises
AssertionError at the moment at which one of the invariants breaks.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from agents.mrc.endpoint import Endpoint
from agents.packets import dscp
from agents.transport import NEVER, OK, WRITE, Completion
from testbed.errors import UserError
from testbed.simulated.faults import LinkFaults, SimulatedInjector
from testbed.simulated.frame import Frame
from testbed.simulated.hosts import SimulatedPorts
from testbed.simulated.network import Network, Station
from tests.fabrics import near
from tests.properties.watch import Watch
from topologies.clos import Fabric
from topologies.units import BYTE

SMALL = near(Fabric("small", 2, 2, 2, 2, mtu=256))
"""Four paths, many packets for little time on the wire."""
MANY = near(Fabric("many", 3, 2, 4, 1, mtu=256))
"""Twelve paths over three planes."""
ARENA = 1 << 17
GUARD = 64
UNTOUCHED = 0xA5
SHORTEST = 138
"""Bytes of the shortest frame with data."""
BITS = ("loss", "copy", "delay", "skew", "flip", "trim", "trim-last-hop")
"""Kinds of weather: a frame is lost; comes twice; is late, and may be overtaken on its own path; is
as late as all of its path; has one byte changed, anywhere; is cut to its headers."""


class Weather(NamedTuple):
    """``odds`` in percent, of frames that come to host ``side`` (0 or 1) by ``plane`` (-1: by any).
    ``rtts``: most delay, in quarters of a base RTT."""

    kind: str
    side: int
    plane: int = -1
    odds: int = 100
    rtts: int = 4


class Host(Station):
    """A station with nothing but an engine: what testbed.simulated.hosts.SimulatedHost is to a
    run."""

    def __init__(
        self, world: World, side: int, number: int, peer: int, options: dict[str, Any]
    ) -> None:
        self.world, self.side, self.number = world, side, number
        self.network = world.network
        self.ports = SimulatedPorts(world.network, number)
        self.engine = Endpoint(world.fabric, number, options, world.seed)
        self.made = self.engine.create_qp(peer)
        self.qp = self.engine.qps[self.made["qpn"]]
        self.memory = bytearray([UNTOUCHED]) * (ARENA + 2 * GUARD)
        self.region = self.engine.register(memoryview(self.memory)[GUARD:-GUARD])
        self.other = bytearray([UNTOUCHED]) * 4096
        self.engine.register(self.other)  # nobody is told of it
        self.expected = bytearray(self.memory)
        self.used = 0  # of the peer's arena, by our writes
        self.writes: list[tuple[bytes, int, int]] = []  # (data, offset, imm), by wr_id
        self.imms: list[int] = []  # of the peer's writes, in the order posted
        self.done: list[Completion] = []
        self.got: list[Completion] = []
        self.paused = False
        self.over = False
        self.held: list[tuple[int, bytearray]] = []
        self.wake = NEVER
        self.frames_in = self.frames_out = self.turns = self.idle = 0
        self.watch = Watch(self.engine, self.qp)
        world.network.stations[number] = self

    # --- as a station -----------------------------------------------------------------------------

    def take(self, plane: int, frame: bytes) -> None:
        """A frame came: the weather first."""
        for late, what in self.world.weathered(self, plane, bytearray(frame)):
            if late:
                self.network.wake(self.number, self.network.time + late, self._receive, plane, what)
            else:
                self._receive(plane, what)

    def _receive(self, plane: int, frame: bytearray) -> None:
        if self.paused:
            self.held.append((plane, frame))
            return
        self.frames_in += 1
        self.engine.receive(self.network.time, plane, frame, 0, len(frame))
        self.turn()

    def port_state(self, plane: int, up: bool) -> None:
        self.engine.port_state(self.network.time, plane, up)
        self.turn()

    def pause(self, stop: bool) -> None:
        self.paused = stop
        if not stop:
            held, self.held = self.held, []
            for plane, frame in held:
                self._receive(plane, frame)
            self.turn()

    def turn(self) -> None:
        """Let the engine do what is due; hold its state against the invariants."""
        if self.paused:
            return
        now, engine = self.network.time, self.engine
        sent = self.frames_out
        engine.timer(now)
        while (port := engine.transmit(now)) >= 0:
            frame = bytearray(engine.tx_frame) + bytes(engine.tx_payload or b"") + engine.tx_trailer
            self.watch.departs(now, port, frame)
            engine.sent(now, port, self.network.send(self.number, port, bytes(frame)))
            self.frames_out += 1
            assert self.frames_out - sent < 10_000, "frames without end at one moment"
        self._collect()
        self.watch.looks(now)
        self.turns += 1
        self.idle += self.frames_out == sent
        due = max(engine.deadline(), now + 1)
        if due < self.wake:
            self.wake = due
            self.network.wake(self.number, due, self._wake, due)

    def _wake(self, at: int, _: None) -> None:
        if at == self.wake:
            self.wake = NEVER
            self.turn()

    # --- verbs ------------------------------------------------------------------------------------

    def post(self, length: int, immediate: bool) -> None:
        """A write of that length to where nobody wrote yet; nothing if the peer's arena has no such
        room."""
        peer = self.world.hosts[1 - self.side]
        if self.used + length > ARENA:
            return
        number = len(self.writes)
        data = Random(f"{self.side} {number}").randbytes(length)
        imm = self.world.rng.getrandbits(32) if immediate else -1
        if immediate:
            peer.engine.post_recv(peer.qp.qpn, len(peer.imms))
            peer.imms.append(imm)
        self.engine.post_write(
            self.qp.qpn, number, memoryview(data), peer.region.va + self.used, peer.region.rkey, imm
        )
        self.writes.append((data, self.used, imm))
        self.used += length
        self.turn()

    def _collect(self) -> None:
        """Completions: each once, in order, and what they say is true at that moment."""
        peer = self.world.hosts[1 - self.side]
        for made in self.engine.completions():
            (self.done if made.kind == WRITE else self.got).append(made)
            if made.status != OK:
                assert self.world.may_fail, f"h{self.number}: {made} although a path was left"
            elif made.kind == WRITE:
                data, at, imm = self.writes[made.wr_id]
                assert (made.wr_id, made.length, made.imm) == (
                    len(self.done) - 1,
                    len(data),
                    imm,
                ), f"write out of turn: {made}"
                assert peer.memory[GUARD + at : GUARD + at + len(data)] == data, (
                    f"write {made.wr_id} is told and not there"
                )
                # its owner goes on to use it: no late copy may undo that
                used = bytes(byte ^ 0xFF for byte in data)
                peer.memory[GUARD + at : GUARD + at + len(data)] = used
                peer.expected[GUARD + at : GUARD + at + len(data)] = used
            else:
                assert made.wr_id == len(self.got) - 1 and made.imm == self.imms[made.wr_id], (
                    f"immediate out of turn: {made}"
                )

    def intact(self) -> None:
        """No byte has changed but those of writes under way, and of complete ones none since
        then."""
        peer = self.world.hosts[1 - self.side]
        now = bytearray(self.memory)
        complete = sum(made.status == OK for made in peer.done)
        for data, at, _ in peer.writes[complete:]:
            part = slice(GUARD + at, GUARD + at + len(data))
            assert all(byte in (data[k], UNTOUCHED) for k, byte in enumerate(now[part])), (
                f"h{self.number}: wrong bytes from {at} on"
            )
            now[part] = self.expected[part]
        assert now == self.expected and set(self.other) == {UNTOUCHED}, (
            f"h{self.number}: bytes that nobody wrote to have changed"
        )


class World:
    """``may_fail``: whether queue pairs may go to ERROR. ``begin``: what time it is at the
    start."""

    def __init__(
        self, fabric: Fabric, seed: int = 1, may_fail: bool = False, begin: int = 0, **options: Any
    ) -> None:
        self.fabric, self.seed, self.may_fail = fabric, seed, may_fail
        self.rng = Random(f"world {seed}")
        self.network = Network(fabric)
        self.network.time = begin
        self.network.describe(fabric, seed)
        self.weather: list[Weather] = []
        self.taken = self.lost = self.copied = 0  # frames, by the weather
        self.faults = LinkFaults(fabric, self.network, lambda link, up: None)
        self.injector = SimulatedInjector(fabric, self.network, self.faults, self._host)
        last = fabric.host_count - 1
        self.hosts: list[Host] = []
        for side, (number, peer) in enumerate(((0, last), (last, 0))):
            self.hosts.append(Host(self, side, number, peer, options))
        a, b = self.hosts
        a.engine.connect_qp(self.now, a.qp.qpn, b.made)
        b.engine.connect_qp(self.now, b.qp.qpn, a.made)
        self.config = a.engine.config
        self.rtt = fabric.base_rtt_ps
        self.before = self.network.rows()

    @property
    def now(self) -> int:
        return self.network.time

    def _host(self, number: int) -> Any:
        return next((host for host in self.hosts if host.number == number), None)

    def weathered(self, host: Host, plane: int, frame: bytearray) -> list[tuple[int, bytearray]]:
        """What becomes of a frame at the end of its way: (ps late, frame) of each that arrives."""
        self.taken += 1
        late, copies = 0, []
        rng = self.rng
        for w in self.weather:
            if (
                w.side != host.side
                or w.plane not in (-1, plane)
                or (rng.randrange(100) >= w.odds and w.kind != "skew")
            ):
                continue
            most = w.rtts * self.rtt // 4
            if w.kind == "loss":
                self.lost += 1
                return copies
            if w.kind == "copy":
                self.copied += 1
                copies.append((rng.randrange(most + 1), bytearray(frame)))
            elif w.kind == "delay":
                late += rng.randrange(most + 1)
            elif w.kind == "skew":
                late += most * (int.from_bytes(frame[94:96], "big") * 7 % 5) // 4
            elif w.kind == "flip":
                frame[rng.randrange(12, len(frame))] ^= rng.randrange(1, 256)
            elif (frame[14] << 8 | frame[15]) >> 6 & 0x3F in (dscp.TRIMMABLE, dscp.TRIMMABLE_RETX):
                cut = Frame(bytes(frame))
                cut.trim(dscp.TRIMMED if w.kind == "trim" else dscp.TRIMMED_LASTHOP)
                frame[:] = cut.contents()
        return [(late, frame), *copies]

    def inject(self, kind: str, on: str, **keys: Any) -> None:
        """A fault of the catalogue."""
        self.injector.inject(kind, on, keys, self.seed)

    def mend(self, n: int = -1) -> None:
        """Take one trouble back, the n-th of all that are there; with -1 all of them."""
        there = [made.number for made in self.injector.active()]
        if n < 0:
            self.weather.clear()
            for number in there:
                self.injector.clear(number)
            for host in self.hosts:
                host.engine.deny(self.now, [])
                host.engine.hint(self.now, [])
                host.pause(False)
        elif self.weather or there:
            n %= len(self.weather) + len(there)
            if n < len(self.weather):
                del self.weather[n]
            else:
                try:
                    self.injector.clear(there[n - len(self.weather)])
                except UserError:
                    pass  # it has healed by itself

    def run(self, quarters: int) -> None:
        """Let so many quarters of a base RTT pass."""
        until = self.now + quarters * self.rtt // 4
        before = [(host.idle, host.frames_in, host.frames_out) for host in self.hosts]
        paced = self.fabric.host_rate * (until - self.now) // BYTE // SHORTEST
        while not self.network.run(until):
            pass
        for host, (idle, frames_in, frames_out) in zip(self.hosts, before, strict=True):
            answers = 4 * (host.frames_in - frames_in)  # a probe's answer may take several SACKs
            sent = host.frames_out - frames_out
            assert sent <= paced + answers + 64, (
                f"h{host.number} sent {sent} frames in {quarters / 4} RTTs"
            )
            # An arrival may leave nothing to say; a wake-up that finds nothing to do has to be
            # rare.
            vain = host.idle - idle - (host.frames_in - frames_in)
            assert vain <= 16 * (quarters // 4 + 2), (
                f"h{host.number} woke {vain} times for nothing in {quarters / 4} RTTs"
            )
            host.watch.bounded()
            host.intact()

    def all_done(self) -> bool:
        return all(
            len(h.done) == len(h.writes)
            and len(self.hosts[1 - h.side].got) == len(self.hosts[1 - h.side].imms)
            for h in self.hosts
        )
