"""A host's kernel sockets behind the surface of :class:`agents.nic.device.Device`: verbs, and one
loop that never blocks on a socket.

The host with the lower number connects, from a port drawn from the run's seed, so that the kernel's
hash of the flow can be drawn again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import secrets
import select
import socket
from collections.abc import Mapping
from typing import Any

from agents.clock import WallClock, run_until_completion
from agents.kernel.connection import CONNECTING, INIT, OPEN, Connection
from agents.kernel.delay import Delay
from agents.kernel.endpoint import Endpoint
from agents.kernel.framing import HEADER_BYTES, HELLO, FramingError, Header
from agents.kernel.info import IPPROTO_MPTCP
from agents.kernel.options import MPTCP
from agents.lateness import WINDOW_RTTS, Lateness
from agents.transport import LONG_AGO, Completion, Event, Note, Region, Remote
from topologies.addressing import host_of_inner, host_of_plane, inner_address, plane_address, text
from topologies.clos import Fabric

LISTEN_PORT, LISTEN_TRIES = 47910, 32
SOURCE_PORTS, SOURCE_TRIES = (10_000, 30_000), 64
"""Ports for connecting, and how many are tried [ours]."""
LOOKS_PER_RTT = 8
LOOK_S = (0.001, 0.01)
"""Least and most wall time between two looks while something is unacknowledged: no event reports an
ACK [ours]."""
GREETING_S = 5.0
MAX_GREETINGS = 1024
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 127),
)
"""After 5 s of wall time without data a connection asks whether the other end is there [ours]:
otherwise a host that only receives would wait for ever for a dead peer."""
MAX_SOCKETS = 900
"""Most sockets of one host; select accepts descriptors up to 1023."""


class KernelDevice:
    """Raises OSError if the host's addresses are not here, ValueError on bad options."""

    def __init__(
        self,
        fabric: Fabric,
        host: int,
        clock: WallClock,
        transport: str,
        options: Mapping[str, object] | None = None,
        seed: int = 0,
    ) -> None:
        self.fabric, self.host, self.kind = fabric, host, transport
        self.wall, self.clock = clock, clock.now
        self.engine = Endpoint(fabric, host, clock, transport, options or {}, seed)
        self.mapper: Any = None
        self.forget_lag()
        self.wakeups = 0
        self._look_ps = min(
            max(fabric.base_rtt_ps // LOOKS_PER_RTT, clock.patience(LOOK_S[0])),
            clock.patience(LOOK_S[1]),
        )
        self._beat_ps = fabric.base_rtt_ps // LOOKS_PER_RTT
        self._look_at = LONG_AGO
        self._woken = self.clock()
        self._qp_counts: dict[int, int] = {}  # queue pairs so far, by peer
        self._bound: dict[int, socket.socket] = {}  # of queue pairs that will connect
        # accepted: bytes of the HELLO, from whom, until when
        self._greetings: dict[socket.socket, tuple[bytearray, int, int]] = {}
        self._delay = Delay.here(fabric)
        self._listeners = self._listen()
        self.engine.open()

    # --- sockets ----------------------------------------------------------------------------------

    def address(self, host: int, plane: int) -> str:
        return text(plane_address(plane, host) if self.kind == MPTCP else inner_address(host))

    def _socket(self) -> socket.socket:
        sock = socket.socket(
            socket.AF_INET6, socket.SOCK_STREAM, IPPROTO_MPTCP if self.kind == MPTCP else 0
        )
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for level, option, value in KEEPALIVE:
            with contextlib.suppress(OSError):  # MPTCP learnt the last three with Linux 6.11 or so
                sock.setsockopt(level, option, value)
        return sock

    def _listen(self) -> list[socket.socket]:
        planes = range(self.fabric.planes) if self.kind == MPTCP else range(1)
        for port in range(LISTEN_PORT, LISTEN_PORT + LISTEN_TRIES):
            sockets: list[socket.socket] = []
            try:
                for plane in planes:
                    sockets.append(self._socket())
                    sockets[-1].bind((self.address(self.host, plane), port))
                    sockets[-1].listen(MAX_SOCKETS)
                self.port = port
                return sockets
            except OSError as error:
                for sock in sockets:
                    sock.close()
                if error.errno != errno.EADDRINUSE:
                    raise OSError(
                        error.errno,
                        f"cannot listen on {self.address(self.host, 0)} port {port}: "
                        f"{error.strerror}",
                    ) from None
        raise OSError(
            errno.EADDRINUSE,
            f"ports {LISTEN_PORT} to {LISTEN_PORT + LISTEN_TRIES - 1} are all in use",
        )

    def _source(self, peer: int, index: int) -> socket.socket:
        sock = self._socket()
        first, last = SOURCE_PORTS
        plane = self._first_plane(peer, index)
        for attempt in range(SOURCE_TRIES):
            digest = hashlib.blake2b(
                f"{self.engine.seed} {self.host} {peer} {index} {attempt}".encode(), digest_size=8
            ).digest()
            try:
                sock.bind(
                    (
                        self.address(self.host, plane),
                        first + int.from_bytes(digest, "big") % (last - first),
                    )
                )
                return sock
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        sock.close()
        raise ValueError(f"no free port among {SOURCE_TRIES} that were drawn: too many connections")

    def _first_plane(self, peer: int, index: int) -> int:
        return (self.host + peer + index) % self.fabric.planes if self.kind == MPTCP else 0

    # --- verbs ------------------------------------------------------------------------------------

    def register(self, memory: Any) -> Region:
        return self.engine.memory.register(memory)

    def create_qp(self, peer: int, evs: int = 0) -> Remote:
        if not 0 <= peer < self.fabric.host_count or peer == self.host:
            raise ValueError(f"peer {peer} is no other host of {self.fabric.name!r}")
        if len(self.engine.connections) >= MAX_SOCKETS:
            raise ValueError(f"more than {MAX_SOCKETS} connections on a host: use fewer qps")
        qpn = len(self.engine.connections) + 1
        index = self._qp_counts.get(peer, 0)
        self._qp_counts[peer] = index + 1
        port = self.port
        if self.host < peer:
            self._bound[qpn] = self._source(peer, index)
            port = int(self._bound[qpn].getsockname()[1])
        token = self.engine.new(qpn, peer, secrets.randbits(63)).token
        return {"qpn": qpn, "port": port, "token": token, "plane": self._first_plane(peer, index)}

    def connect_qp(self, qpn: int, remote: Remote) -> None:
        connection = self.engine.connections[qpn]
        if connection.state not in (INIT, OPEN):
            raise ValueError(f"queue pair {qpn} was connected before")
        now = self.clock()
        plane = int(remote["plane"])
        peer_address, own_address = (
            self.address(connection.peer, plane),
            self.address(self.host, plane),
        )
        local = self.port
        if self.host > connection.peer:
            connection.expect(now)
        else:
            sock = self._bound.pop(qpn)
            local = sock.getsockname()[1]
            connection.connecting(
                now, sock, Header(HELLO, int(remote["token"]), int(remote["qpn"]), 0, self.host)
            )
            number = sock.connect_ex((peer_address, int(remote["port"])))
            if number not in (0, errno.EINPROGRESS):
                connection.fail(
                    now,
                    f"cannot connect: {OSError(number, 'error').strerror} "
                    f"({errno.errorcode.get(number, number)})",
                )
        pack = socket.inet_pton
        self.engine.observed[qpn].expected = (
            pack(socket.AF_INET6, own_address),
            local,
            pack(socket.AF_INET6, peer_address),
            int(remote["port"]),
        )

    def post_recv(self, qpn: int, wr_id: int) -> None:
        self.engine.connections[qpn].post_recv(wr_id)

    def post_write(
        self, qpn: int, wr_id: int, memory: memoryview, va: int, rkey: int, imm: int = -1
    ) -> None:
        self.engine.connections[qpn].post_write(self.clock(), wr_id, memory, va, rkey, imm)

    def poll(self, timeout: int = 0) -> list[Completion]:
        return run_until_completion(self, timeout, self.wall)

    # --- the loop ---------------------------------------------------------------------------------

    def turn(self, until: int, readers: list[Any] | None = None) -> list[Any]:
        """Send, sleep until a socket, a look, ``until`` (ps) or a ready reader, then receive.
        Returns the ready readers."""
        connections = self.engine.connections.values()
        now = self.clock()
        for connection in connections:
            connection.flush(now)
        reading = {c.sock: c for c in connections if c.sock is not None and c.reads}
        writing = {c.sock: c for c in connections if c.sock is not None and c.writes}
        # the TUN does not say when a packet came: a pause shows here
        due = min(until, now + self._beat_ps) if connections else until
        if any(c.waits for c in connections):
            due = min(due, max(now, self._look_at))
        if self._delay is not None:
            due = min(due, self._delay.due)
        wait = 0.0 if self.engine.completed() else self.wall.until(due)
        sources: list[Any] = [*reading, *self._listeners, *self._greetings, *(readers or [])]
        if self._delay is not None:
            sources.append(self._delay)
        readable, writable, _ = select.select(sources, list(writing), [], wait)
        self.wakeups += 1
        former, now = self._woken, self.clock()
        self._woken = now
        # since then: the process may be stopped in the middle of a turn, too
        self.lateness.add(now, now - max(due, former))
        if self._delay is not None:
            if self._delay in readable:
                readable.remove(self._delay)
                self._delay.take(self.clock)
            self._delay.release(now)
        for sock in writable:
            writing[sock].writable(now)
            self._check_congestion(now, writing[sock])
            writing[sock].flush(now)
        ready_readers = []
        for source in readable:
            if source in reading:
                reading[source].readable(now)
            elif source in self._greetings:
                self._greet(now, source)
            elif source in self._listeners:
                self._accept(now, source)
            else:
                ready_readers.append(source)
        if now >= self._look_at or readable:
            self._look_at = now + self._look_ps
            for connection in connections:
                connection.look(now)
            for sock in [sock for sock, (_, _, end) in self._greetings.items() if now > end]:
                self._turn_away(sock)
        return ready_readers

    def _accept(self, now: int, listener: socket.socket) -> None:
        while True:
            try:
                sock, address = listener.accept()
            except OSError:
                return
            sock.setblocking(False)
            packed = socket.inet_pton(socket.AF_INET6, address[0])
            host = max(host_of_inner(packed), host_of_plane(packed)[1])
            self._greetings[sock] = (bytearray(), host, now + self.wall.patience(GREETING_S))
            if len(self._greetings) > MAX_GREETINGS:
                self._turn_away(sock)

    def _greet(self, now: int, sock: socket.socket) -> None:
        have, host, _ = self._greetings[sock]
        try:
            more = sock.recv(HEADER_BYTES - len(have))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        have += more
        if more and len(have) < HEADER_BYTES:
            return
        try:
            hello = Header.unpack(have) if len(have) == HEADER_BYTES else None
        except FramingError:
            hello = None
        connection = (
            self.engine.connections.get(hello.rkey)
            if hello is not None and hello.kind == HELLO
            else None
        )
        if (
            hello is None
            or connection is None
            or connection.token != hello.va
            or connection.peer != host
            or connection.peer != hello.imm
            or self.host < connection.peer
            or connection.sock is not None
            or connection.state not in (INIT, CONNECTING)
        ):
            self._turn_away(sock)
            return
        del self._greetings[sock]
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.adopt(now, sock)
        self._check_congestion(now, connection)

    def _turn_away(self, sock: socket.socket) -> None:
        del self._greetings[sock]
        self.engine.strangers += 1
        sock.close()

    def _check_congestion(self, now: int, connection: Connection) -> None:
        if connection.sock is None or connection.state != OPEN:
            return
        has = (
            connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            .rstrip(b"\0")
            .decode()
        )
        if has != self.engine.options.congestion:
            connection.fail(
                now, f"the kernel uses {has} instead of {self.engine.options.congestion}"
            )

    # --- as agents.nic.device.Device --------------------------------------------------------------

    def start_mapper(self, options: Mapping[str, object], seed: int) -> None:
        """Refuse: probes need the raw sockets of the other transports. Raises ValueError."""
        raise ValueError(f"no clustermapper beside {self.kind}: its agents have no raw sockets")

    def stop_mapper(self) -> None:
        """Do nothing: there is no mapper."""

    def mapper_reports(self) -> list[Note]:
        return []

    def housekeeping(self) -> None:
        """Do nothing: nothing has to be read in time."""

    def forget_lag(self) -> None:
        self.lateness = Lateness(self.clock(), WINDOW_RTTS * self.fabric.base_rtt_ps)

    def lag(self) -> dict[str, int]:
        return {**self.lateness.figures(self.clock()), "wakeups": self.wakeups}

    def events(self) -> list[Event]:
        return self.engine.events()

    def counters(self) -> dict[str, int]:
        delayed = (
            {}
            if self._delay is None
            else {"delayed": self._delay.held, "delay_refused": self._delay.refused}
        )
        return {**self.engine.counters(), **delayed}

    def close(self) -> None:
        for connection in self.engine.connections.values():
            connection.bye()
        for connection in self.engine.connections.values():
            connection.drop()
        for sock in [*self._listeners, *self._greetings, *self._bound.values()]:
            sock.close()
        if self._delay is not None:
            self._delay.close()
        self.engine.close()
