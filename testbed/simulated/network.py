"""The simulated fabric: links that serialise, switches that shift and forward. Seeded, and nothing
else is random.

Each link puts whole frames on the wire at its rate, out of the queue of its egress port
(:mod:`testbed.simulated.port`). A switch has a frame when all of it is there; if it cuts through,
it has by then sent what it had of it. The delay passes once, at the end of the path. drop_malformed
stays 0: engines alone send here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final

from librt.strings import BytesWriter, write_i64_le
from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from agents.delay_line import FAR_HOPS, LOCAL_HOPS
from agents.packets import dscp
from agents.transport import NEVER
from testbed.dataplane import layout
from testbed.dataplane.counters import Row
from testbed.simulated.frame import (
    ARRIVAL,
    PAUSE,
    PORT_BITS,
    RETRY,
    Calendar,
    Call,
    Event,
    Fifo,
    Frame,
    Sleeper,
    within_kind,
)
from testbed.simulated.packed_counters import added, rows
from testbed.simulated.pool import Pool
from testbed.simulated.port import (
    ARRIVED_BYTES,
    ARRIVED_PACKETS,
    CORRUPTED,
    DOWN,
    FAULT_LOSS,
    FAULT_PATH,
    LAST,
    NIC,
    PLANE_AT,
    SILENT,
    SWITCH_DOWN,
    UP,
    WHOLE,
    SimPort,
    draw,
    is_high,
)
from testbed.simulated.windows import Windows, reach_of
from topologies.addressing import inner_number, switch_usid
from topologies.clos import ADAPTIVE, Fabric, Link
from topologies.paths import static_tables

_WORDS: Final[i64] = len(layout.FAULT_WORDS)
_SILENT: Final[i64] = layout.SWITCH_SILENT
_FAULT: Final = {name: i for i, name in enumerate(layout.FAULT_WORDS)}
_LOSS, _CORRUPT = _FAULT["loss"], _FAULT["corrupt"]
_PATH_FAULT: Final = struct.Struct("=3Q")
_STAGES: Final = {"nic": (NIC, LAST), "fabric": (UP, DOWN), "haul": (DOWN, DOWN)}


def _places(table: dict[int, str], ports: dict[str, SimPort]) -> list[SimPort | None]:
    places: list[SimPort | None] = [None] * (1 + max(usid & (1 << PLANE_AT) - 1 for usid in table))
    for usid, name in table.items():
        places[usid & (1 << PLANE_AT) - 1] = ports[name]
    return places


@mypyc_attr(allow_interpreted_subclasses=True)
class Station(Sleeper):
    def arrive(self, plane: int, frame: Frame) -> None:
        self.take(plane, frame.contents())

    def take(self, plane: int, frame: bytes) -> None:
        raise NotImplementedError

    def port_state(self, plane: int, up: bool) -> None:
        raise NotImplementedError

    def port_paused(self, plane: int, paused: bool) -> None:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Network(Windows):
    """``stations``: host number -> the receiver of its frames; without one, frames are
    discarded."""

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        self.stations: dict[int, Station] = {}
        self.hops: i64 = 0  # frames that took a link
        self.fault_words = [0] * (_WORDS * len(fabric.ports))
        """The map port_fault: testbed.faults.packet_faults writes it, draws are counted here."""
        # which packet faults a port has: its first word there
        self._faulty = vec[i64]([0] * len(fabric.ports))
        self.path_faults: dict[bytes, bytes] = {}
        self.taps: dict[int, Callable[[int, bytes], None]] = {}
        """By port: gets the time and bytes of each frame that crossed the cable from it."""
        self.delayed = vec[i64]([0] * fabric.host_count)
        self._local: i64 = fabric.local_delay_ps
        self._more: i64 = fabric.delay_ps - fabric.local_delay_ps  # across T1s
        self._cut_through = fabric.cut_through
        self._haul: i64 = fabric.long_haul_delay_ps
        self._pfc_ps: i64 = fabric.pfc_ps
        numbers = {name: i for i, name in enumerate(fabric.switches)}
        self._switch_states = vec[i64]([layout.SWITCH_WORKS] * len(numbers))
        self._numbers = numbers
        self._pools = [Pool() for _ in numbers]
        self._describe_pools(fabric)
        self.ports: list[SimPort] = []
        for link in fabric.links:
            for port, stage in zip((link.a, link.b), _STAGES[link.kind], strict=True):
                self.ports.append(SimPort(fabric, port.number, port.plane, link.rate, stage))
            self.ports[-1].far, self.ports[-2].far = self.ports[-2], self.ports[-1]
        by_name = {port.name: self.ports[port.number] for port in fabric.ports}
        tables = {
            switch: _places(table, by_name) for switch, table in static_tables(fabric).items()
        }
        for port, sim_port in zip(fabric.ports, self.ports, strict=True):
            if port.node in numbers:
                sim_port.switch_number = numbers[port.node]
                sim_port.pool = self._pools[numbers[port.node]]
                sim_port.usid = switch_usid(port.node)
                sim_port.table = tables[port.node]
            else:
                sim_port.host = fabric.host_number(port.node)
                sim_port.far.source = inner_number(sim_port.host)
        self._uplinks: dict[int, list[SimPort]] = {}
        """Ports to T1s by T0, next one first; empty unless T0s choose."""
        self._adaptive = fabric.routing == ADAPTIVE
        if self._adaptive:
            for link in fabric.links:
                if link.kind == "fabric":
                    self._uplinks.setdefault(numbers[link.a.node], []).append(
                        self.ports[link.a.number]
                    )
        self.nics = [
            [by_name[f"{host}-p{plane}"] for plane in range(fabric.planes)] for host in fabric.hosts
        ]

    # --- frames -----------------------------------------------------------------------------------

    def send(self, host: int, plane: int, data: bytes) -> bool:
        return self.put(host, plane, Frame(data))

    def put(self, host: int, plane: int, frame: Frame) -> bool:
        port = self.nics[host][plane]
        if frame.summed or self.taps:
            frame.whole()  # a copy that comes late may find that its sender has changed the payload
        if not port.offer(frame):
            return False
        if port.wire is None:
            self._start(port)
        return True

    def _start(self, port: SimPort) -> None:
        """Where switches cut through, the far switch has a frame from its first bit on; a host only
        when all of it is there."""
        now = self.time
        took = port.take(now)
        frame = port.wire
        if took and frame is not None:
            if frame.ingress >= 0:
                self._let_go(frame)
            frame.port = port.number
            order = port.next_order()
            if not self._cut_through or port.last_hop:
                self._calendar(port).enter(frame, now + took, order)
                return
            self._calendar(port).enter(port, now + took, order)
            if port.host >= 0:
                frame.at = now
                frame.order = order
                self._climb(port, frame)
            else:
                self._over(port, frame)
        elif port.high.first is not None and port.retry_at <= now:
            port.retry_at = port.high_at()
            self._calendar(port).enter(
                Call(self._retry, port, None), port.retry_at, RETRY | port.number
            )

    def _calendar(self, port: SimPort) -> Calendar:
        return self._edge if port.host >= 0 else self._core

    def _retry(self, port: SimPort, _: None) -> None:
        if port.wire is None:
            self._start(port)

    def _land(self, frame: Frame) -> None:
        port = self.ports[frame.port]
        if port.wire is not frame:
            return  # the cable went down meanwhile
        self._free(port)
        if port.host >= 0:
            self._climb(port, frame)
        else:
            self._over(port, frame)

    def _free(self, port: Event) -> None:
        assert isinstance(port, SimPort)
        port.wire = None
        if port.waits():
            self._start(port)

    def _climb(self, port: SimPort, frame: Frame) -> None:
        frame.landed = True
        peers = self.peers
        queue = self._up if peers is None else peers.queue(peers.plane_owner[port.plane], self._up)
        queue.append(frame)

    def _cross(self, frame: Frame) -> None:
        self._over(self.ports[frame.port], frame)

    def _over(self, port: SimPort, frame: Frame) -> None:
        """The frame has crossed the cable from ``port``."""
        frame.landed = False
        self.hops += 1
        if self.taps:
            tap = self.taps.get(frame.port)
            if tap is not None:
                tap(self.time, frame.contents())
        far = port.far
        stats = far.stats
        klass: i64 = 1 if is_high(frame.klass()) else 0
        stats[ARRIVED_BYTES + klass] += frame.size
        stats[ARRIVED_PACKETS + klass] += 1
        if self._faulty[far.number] and self._faulted(far, frame):
            return
        if far.host >= 0:
            frame.landed = True
            frame.port = far.number
            order = ARRIVAL | within_kind(frame.order)
            if self._haul and frame.hop_limit == FAR_HOPS:  # in one process only
                self.delayed[far.host] += 1
                self._edge.enter(frame, self.time + self._local + self._more + self._haul, order)
                return
            frame.at = (
                self.time + self._local + (0 if frame.hop_limit == LOCAL_HOPS else self._more)
            )
            frame.order = order
            peers = self.peers
            queue = (
                self._down if peers is None else peers.queue(peers.host_owner[far.host], self._down)
            )
            queue.append(frame)
            return
        state = self._switch_states[far.switch_number]
        if state:
            stats[SILENT if state == _SILENT else SWITCH_DOWN] += 1
            return
        egress = far.route(frame)
        if egress is None:
            return
        if self._adaptive and far.switch_number in self._uplinks and egress.far.host < 0:
            egress = self._least_loaded(far.switch_number, egress, frame)
        if self._cut_through and egress.rate > port.rate:  # all of it has to be there first
            rest = Call(self._forward, frame, egress)
            self._core.enter(rest, self.time + frame.size * WHOLE // port.rate, port.next_order())
        else:
            self._pass_on(port, frame, egress)

    def _forward(self, frame: Frame, egress: SimPort) -> None:
        self._pass_on(self.ports[frame.port], frame, egress)

    def _pass_on(self, port: SimPort, frame: Frame, egress: SimPort) -> None:
        far = port.far
        if far.lossless and frame.klass() == dscp.ROCE:
            if not far.hold(frame):
                return
            if far.held.must_stop(far.pool):
                self._calendar(port).enter(
                    Call(self._stop, port, None), self.time + self._pfc_ps, PAUSE | port.number
                )
        if egress.offer(frame):
            if egress.wire is None:
                self._start(egress)
        elif frame.ingress >= 0:
            self._let_go(frame)

    # --- adaptive routing -------------------------------------------------------------------------

    def _least_loaded(self, switch: int, named: SimPort, frame: Frame) -> SimPort:
        """Choose the T0's uplink with the least backlog towards the frame's next T0; among equals,
        the one that has waited longest [ours]. The frame's uSIDs then name its T1; that of its
        source, ``named``, if there is no other."""
        uplinks = self._uplinks[switch]
        to = frame.second()
        best: i64 = -1
        least: i64 = NEVER
        for k in range(len(uplinks)):
            port = uplinks[k]
            if port.waiting < least and not port.closed and to not in port.avoided:
                best, least = k, port.waiting
        if best < 0:
            return named
        chosen = uplinks.pop(best)
        uplinks.append(chosen)
        frame.rename(chosen.far.usid)
        return chosen

    def reroute(self, dead_links: Iterable[Link]) -> None:
        lost: dict[int, set[int]] = {}
        for link in dead_links:
            if link.kind == "fabric":
                lower, upper = self.ports[link.a.number], self.ports[link.b.number]
                lost.setdefault(upper.switch_number, set()).add(lower.usid)
        for uplinks in self._uplinks.values():
            for port in uplinks:
                port.avoided = lost.get(int(port.far.switch_number), set())

    # --- PFC --------------------------------------------------------------------------------------

    def _let_go(self, frame: Frame) -> None:
        ingress = self.ports[frame.ingress]
        frame.ingress = -1
        if ingress.held.release(frame.size, ingress.pool):
            port = ingress.far
            self._calendar(port).enter(
                Call(self._resume, port, None),
                self.time + self._pfc_ps,
                PAUSE | 1 << PORT_BITS | port.number,
            )

    def _stop(self, port: SimPort, _: None) -> None:
        if port.far.held.stops and not port.closed and not port.pause.on:
            port.pause.begin(self.time)
            self._tell_paused(port)

    def _resume(self, port: SimPort, _: None) -> None:
        if port.pause.on and not port.far.held.stops:
            port.pause.end(self.time)
            self._tell_paused(port)
            if port.wire is None and port.waits():
                self._start(port)

    def _tell_paused(self, port: SimPort) -> None:
        station = self.stations.get(port.host)
        if station is not None:
            station.port_paused(port.plane, port.pause.on)

    # --- hosts ------------------------------------------------------------------------------------

    def _deliver(self, frames: Fifo) -> None:
        crossed = Fifo()
        while frames.first is not None:
            frame = frames.pop()
            self.delayed[self.ports[frame.port].host] += 1
            if frame.hop_limit == LOCAL_HOPS:  # overtakes what comes across T1s
                self._edge.enter(frame, frame.at, frame.order)
            else:
                crossed.append(frame)
        self._edge.follow(crossed)

    def _arrive(self, frame: Frame) -> None:
        port = self.ports[frame.port]
        self.delayed[port.host] -= 1
        station = self.stations.get(port.host)
        if station is not None:
            station.arrive(port.plane, frame)

    def _faulted(self, port: SimPort, frame: Frame) -> bool:
        words, number = self.fault_words, port.number
        at = number * _WORDS
        flags = words[at]
        if flags & layout.FAULT_LOSS and self._chance_hits(number, at + _LOSS):
            port.stats[FAULT_LOSS] += 1
            return True
        if flags & layout.FAULT_PATH and self._lost_on_path(port, frame):
            port.stats[FAULT_PATH] += 1
            return True
        if flags & layout.FAULT_CORRUPT:
            count, seed = words[at + _CORRUPT + 2], words[at + _CORRUPT + 1]
            if self._chance_hits(number, at + _CORRUPT) and frame.corrupt(
                draw(seed, number, ~count & (1 << 64) - 1)
            ):
                port.stats[CORRUPTED] += 1
        return False

    def _chance_hits(self, number: int, at: i64) -> bool:
        words = self.fault_words
        count = words[at + 2]
        words[at + 2] = count + 1
        return draw(words[at + 1], number, count) < words[at]

    def _lost_on_path(self, port: SimPort, frame: Frame) -> bool:
        if not frame.tunnelled or frame.usid() != port.usid:
            return False
        usids = int(frame.front & 0xFFFF_FFFF) << 16 | int(frame.back >> 32)  # the next three
        key = struct.pack("=I", port.number) + usids.to_bytes(6, "big") + b"\0\0"
        fault = self.path_faults.get(key)
        if fault is None:
            return False
        chance, seed, count = _PATH_FAULT.unpack(fault)
        self.path_faults[key] = _PATH_FAULT.pack(chance, seed, count + 1)
        return draw(seed, port.number, count) < int(chance)

    def set_path_fault(self, key: bytes, fault: bytes | None) -> None:
        if fault is None:
            self.path_faults.pop(key, None)
        else:
            self.path_faults[key] = fault[:16] + self.path_faults.get(key, fault)[16:]

    def set_fault_word(self, at: int, word: int) -> None:
        self.fault_words[at] = word
        if at % _WORDS == 0:
            self._faulty[at // _WORDS] = word

    # --- what faults tell it ----------------------------------------------------------------------

    def set_switch(self, name: str, state: int) -> None:
        self._switch_states[self._numbers[name]] = state

    def set_link(self, link: Link, up: bool) -> None:
        """What was in queues and on the cable is lost in both directions; hosts see their
        carrier."""
        for end in (link.a, link.b):
            port = self.ports[end.number]
            port.closed = not up
            for frame in port.flush(whole=not self._cut_through or port.last_hop):
                if frame.ingress >= 0:
                    self._let_go(frame)
            port.held.stops = False
            if port.pause.on:
                port.pause.end(self.time)
                self._tell_paused(port)
        host = self.ports[link.a.number].host
        station = self.stations.get(host)
        if station is not None:
            station.port_state(link.plane, up)

    def carries(self, host: int) -> list[bool]:
        return [not port.closed for port in self.nics[host]]

    def set_rates(self, rates: Iterable[tuple[int, int]]) -> None:
        for number, rate in rates:
            self.ports[number].set_rate(rate)

    def describe(self, fabric: Fabric, seed: int) -> None:
        """``seed``: 32 bits, for random marking and for the order of what lands at one time."""
        self.fabric, self.reach = fabric, reach_of(fabric)
        self._cut_through = fabric.cut_through
        self._describe_pools(fabric)
        for port in self.ports:
            port.describe(fabric, seed)

    def _describe_pools(self, fabric: Fabric) -> None:
        for number, pool in enumerate(self._pools):
            pool.describe(
                fabric.pool_bytes[
                    number % (fabric.t0_per_plane + fabric.t1_count) >= fabric.t0_per_plane
                ],
                fabric,
            )

    # --- reading ----------------------------------------------------------------------------------

    def quiet(self) -> bool:
        return not any(self.delayed) and all(
            port.wire is None and not port.waits() for port in self.ports
        )

    def data_backlog(self, port: int) -> int:
        return self.ports[port].waiting

    def figures(self) -> bytes:
        out = BytesWriter()
        for port in self.ports:
            for word in port.stats:
                write_i64_le(out, word)
            for flushed in port.flushed:
                write_i64_le(out, flushed)
            write_i64_le(out, port.waiting)
            for count in port.pause.row(self.time):
                write_i64_le(out, count)
            write_i64_le(out, port.pool.used)
            write_i64_le(out, port.pool.peak)
        return out.getvalue()

    def rows(self) -> list[Row]:
        return rows(self.fabric, added([self.figures()]))
