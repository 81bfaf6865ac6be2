"""The NIC of programs: listens in its host's namespace, has a session for each opened device, and
lets the engine carry their WRITEs.

Everything happens in bounded turns: no program holds up others.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from agents.transport import (
    LOCAL_PROTECTION,
    NEVER,
    OK,
    REMOTE_ACCESS,
    REMOTE_OPERATION,
    RETRY_EXCEEDED,
    WRITE,
    Completion,
)
from agents.verbs import layout, states
from agents.verbs.closer import Closer
from agents.verbs.faults import DEAD, MOST_RULES, SLOW, Faults, Rule
from agents.verbs.queue_pair import QueuePair, Send
from agents.verbs.rings import Garbage
from agents.verbs.session import PORT_ACTIVE, PORT_ERR, QP_FATAL, REMOTE_WRITE, Session
from topologies.addressing import inner_address, management_address
from topologies.clos import Fabric

MOST_SESSIONS: Final = 64
MOST_QPS: Final = 4096
"""Most queue pairs of a host [ours]."""
LOCAL_PIECE: Final = 1 << 16
"""Bytes that a WRITE to the same host moves in a turn [ours]."""
PIECES_AT_ONCE: Final = 64
"""Pieces of such WRITEs in a turn [ours]."""
FLUSHES_AT_ONCE: Final = 1024
"""Requests that a turn flushes [ours]."""
MOST_REQUESTS: Final = 1 << 20
"""Requests of all queue pairs of a host [ours]."""
MOST_FDS: Final = 253
"""Descriptors beside a message, as many as Linux allows."""
MOST_CLOSING: Final = 64
"""With so many descriptors to close no program is accepted [ours]."""
MOST_FD: Final = 900
"""The highest descriptor of a session: select() takes 1,024 [ours]."""
MOST_CHANNELS: Final = 256


def listen() -> socket.socket:
    """Only root can enter the namespace. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    sock.bind(layout.SOCKET)
    sock.listen(64)
    return sock


class Limits:
    def __init__(self) -> None:
        self.qps = MOST_QPS
        self.channels = MOST_CHANNELS
        self.requests = MOST_REQUESTS
        self.flushes = FLUSHES_AT_ONCE
        self.pieces = PIECES_AT_ONCE


class Server:
    def __init__(
        self,
        fabric: Fabric,
        host: int,
        device: Any,
        listener: socket.socket,
        clock: Callable[[], int],
        dilation: float,
    ) -> None:
        self.fabric = fabric
        self.host = host
        self.device = device
        self.listener = listener
        self.clock = clock
        self.transport = (
            layout.ROCE if type(device.engine).__module__.startswith("agents.roce") else layout.MRC
        )
        self.guid = 0x024D_52FF_FE00_0000 | host  # locally administered [ours]
        self.gids = [self._gid(host), self._mapped(host)]
        self.hosts = {
            gid: other
            for other in range(fabric.host_count)
            for gid in (self._gid(other), self._mapped(other))
        }
        self.mtu_code = max(code for code in range(1, 6) if code == 1 or 128 << code <= fabric.mtu)
        self.port_mbps = fabric.nic_rate // 10**6
        self.dilation_k = round(dilation * 1000)
        self.limits = Limits()
        self.count = 0  # queue pairs of all sessions
        self.requests = 0
        self.channels = 0
        self.nothing = device.domain()  # for queue pairs that no peer may write through
        self.closer = Closer()
        self.sessions: list[Session] = []
        self.owners: dict[int, Session] = {}  # by QPN
        self.local: dict[int, Session] = {}  # by QPN of those with something to write on this host
        self.to_flush: dict[int, tuple[Session, QueuePair]] = {}  # by QPN
        # destroyed, with their programs, until the log has what they did
        self.ended: list[tuple[int, QueuePair]] = []
        self.ports: list[bool] = device.ports_up()
        self.sockets: list[socket.socket] = [listener]
        self.strangers = 0  # refused for want of room
        self.garbage = 0  # sessions that ended for what they sent
        self.awake = False
        self.faults = Faults()
        self.late = False  # whether a fault may hold completions back

    def _gid(self, host: int) -> bytes:
        return inner_address(host)

    def _mapped(self, host: int) -> bytes:
        return b"\0" * 10 + b"\xff\xff" + socket.inet_aton(management_address(host))

    def host_of(self, first: int, last: int) -> int:
        """Return -1 if no host has the GID."""
        return self.hosts.get(first.to_bytes(8, "little") + last.to_bytes(8, "little"), -1)

    # --- sockets ----------------------------------------------------------------------------------

    def readers(self) -> list[socket.socket]:
        return self.sockets

    def serve(self, ready: Sequence[socket.socket]) -> None:
        if self.listener in ready:
            with suppress(OSError):
                control, _ = self.listener.accept()
                if (
                    len(self.sessions) >= MOST_SESSIONS
                    or control.fileno() >= MOST_FD
                    or self.closer.behind() > MOST_CLOSING
                ):
                    self.strangers += 1
                    self.closer.close(control.detach())
                else:
                    self.sessions.append(Session(self, control))
                    self.sockets = [*self.sockets, control]
        for session in self.sessions:
            if session.control in ready:
                try:
                    self._serve(session)
                except Garbage:
                    self.garbage += 1
                    session.close()
                except OSError:
                    session.close()
        self._forget_closed()

    def _serve(self, session: Session) -> None:
        request, ancillary, flags, _ = session.control.recvmsg(
            layout.REQUEST.size + 1,
            socket.CMSG_SPACE(4 * MOST_FDS),
            socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC,
        )
        given: list[int] = []
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                given += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
        try:
            if not request:
                raise OSError(errno.EPIPE, "the program is gone")
            if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
                raise Garbage("a request with more than fits")
            session.answer(request, given)
        finally:
            for fd in given:
                self.closer.close(fd)

    def _forget_closed(self) -> None:
        if any(session.closed for session in self.sessions):
            self.sessions = [session for session in self.sessions if not session.closed]
            self.sockets = [self.listener, *(session.control for session in self.sessions)]

    # --- turns ------------------------------------------------------------------------------------

    def take(self, completions: list[Completion]) -> list[Completion]:
        if not self.owners:
            return completions
        rest: list[Completion] = []
        now = self.clock() if completions else 0
        for c in completions:
            owner = self.owners.get(c.qpn)
            if owner is None:
                rest.append(c)
                continue
            qp = owner.qps[c.qpn]
            if c.kind == WRITE:
                if qp.given:  # else it is of before a reset
                    qp.write_over(now, c.status)
            elif qp.receives and c.status == OK:
                qp.receive_over(now, OK, c.imm, c.length)
            if c.status != OK and qp.state != states.ERROR:
                qp.enter(states.ERROR)
                self.flush_soon(owner, qp)
                if not qp.refused:
                    owner.event(QP_FATAL, qp.qpn)
            elif c.kind == WRITE and not qp.given and qp.state == states.RTS:
                owner.give(qp)  # what waited for all before it
        return rest

    def failed(self, t: int, qpn: int) -> None:
        """Events come late: the queue pair may have been reset since, and be another by now. ``t``:
        ps."""
        owner = self.owners.get(qpn)
        if owner is not None:
            qp = owner.qps[qpn]
            if qp.made and t >= qp.made_ps and qp.state not in (states.ERROR, states.RESET):
                qp.enter(states.ERROR)
                self.flush_soon(owner, qp)
                owner.event(QP_FATAL, qpn)

    def flush_soon(self, session: Session, qp: QueuePair) -> None:
        self.to_flush[qp.qpn] = session, qp

    def advance(self) -> None:
        """Do what programs have posted; call after :meth:`take`."""
        # as in every run without programs; ports are looked at between a session's begin and its
        # first request
        if not self.sessions:
            self.to_flush.clear()
            self.local.clear()
            self.awake = False
            return
        if self.to_flush:
            room = self.limits.flushes
            waiting, self.to_flush = self.to_flush, {}
            for session, qp in waiting.values():
                if (
                    qp.state == states.ERROR
                    and not session.closed
                    and session.qps.get(qp.qpn) is qp
                ):
                    room -= qp.flush(self.clock(), room)
                    if qp.sends or qp.receives:
                        self.flush_soon(session, qp)
        if self.device.ports_up() != self.ports:
            self._ports_changed()
        busy = False
        for session in self.sessions:
            try:
                busy |= session.work()
            except Garbage:
                self.garbage += 1
                session.close()
        if self.local:
            self._write_here()
        if self.late:
            self._deliver()
        self._forget_closed()
        self.awake = busy or bool(self.to_flush) or bool(self.local)

    def _ports_changed(self) -> None:
        now: list[bool] = list(self.device.ports_up())
        for before, after in zip(self.ports, now, strict=True):
            if before != after:
                for session in self.sessions:
                    # else it has heard of one, and of no end
                    if not self.faults.port_down(session):
                        session.event(PORT_ACTIVE if after else PORT_ERR, 1)
        self.ports = now

    # --- faults -----------------------------------------------------------------------------------

    def begin(self, number: int, rule: Rule) -> None:
        """Raises ValueError if there are too many faults."""
        if len(self.faults.rules) >= MOST_RULES:
            raise ValueError(f"there are {MOST_RULES} faults of verbs here: heal one")
        heard = self._heard_of_port()
        self.faults.rules[number] = rule
        self._tell_of_port(heard)
        if rule.what == DEAD:
            for session in self.sessions:
                for qp in list(session.qps.values()):
                    session.meet_death(qp)

    def end(self, number: int) -> int:
        """Returns how many the fault hit, -1 if it was not there."""
        heard = self._heard_of_port()
        rule = self.faults.rules.pop(number, None)
        if rule is None:
            return -1
        self._tell_of_port(heard)
        if rule.what == SLOW:
            now = self.clock()
            for session in self.sessions:
                for cq in list(session.cqs.values()):
                    cq.deliver_all(now)
        return rule.hits

    def _heard_of_port(self) -> list[bool]:
        return [self.faults.port_down(session) for session in self.sessions]

    def _tell_of_port(self, before: list[bool]) -> None:
        for session, was in zip(self.sessions, before, strict=True):
            if self.faults.port_down(session) != was and any(self.ports):
                session.event(PORT_ACTIVE if was else PORT_ERR, 1)

    def _deliver(self) -> None:
        now, self.late = self.clock(), False
        for session in self.sessions:
            for cq in list(session.cqs.values()):
                cq.deliver(now)
                if cq.late:
                    self.late = True

    def due(self) -> int:
        due = NEVER
        if self.late:
            for session in self.sessions:
                for cq in session.cqs.values():
                    if cq.late:
                        due = min(due, cq.late[0][0])
        return due

    # --- WRITEs to this host ----------------------------------------------------------------------

    def _write_here(self) -> None:
        """Move pieces of WRITEs to this host itself: no packet leaves a NIC."""
        for qpn in list(self.local)[: self.limits.pieces]:
            session = self.local.pop(qpn)
            qp = session.qps.get(qpn)
            if qp is None or not qp.sends or qp.state != states.RTS:
                continue
            self.local[qpn] = session  # behind the others
            send = qp.sends[0]
            if send.status:
                session.blame(qp, send.status)
                continue
            status = self._piece(session, qp, send)
            if status < 0:
                continue
            qp.offset = 0
            qp.write_over(self.clock(), status)
            if status != OK:
                qp.enter(states.ERROR)
                self.flush_soon(session, qp)

    def _piece(self, session: Session, qp: QueuePair, send: Send) -> int:
        """Returns a status once the WRITE is over, else -1."""
        other = self.owners.get(qp.dest())
        far = None if other is None else other.qps[qp.dest()]
        if (
            other is None
            or far is None
            or far.state not in (states.RTR, states.RTS)
            or far.peer != self.host
            or far.dest() != qp.qpn
        ):
            return RETRY_EXCEEDED
        end = min(qp.offset + LOCAL_PIECE, send.length)
        if end > qp.offset:
            try:
                data = (
                    send.memory[qp.offset : end]
                    if isinstance(send.memory, memoryview)
                    else send.memory.read(qp.offset, end)
                )
            except OSError:
                return LOCAL_PROTECTION
            domain = other.pds[far.pd].domain
            if not far.attributes["access"] & REMOTE_WRITE or not domain.allowed(
                send.rkey, send.va, send.length
            ):
                return self._refuse(other, far, REMOTE_ACCESS)
            if not domain.place(send.rkey, send.va + qp.offset, data, 0, len(data)):
                return self._refuse(other, far, REMOTE_ACCESS)
            qp.offset = end
        if end < send.length:
            return -1
        if send.imm >= 0:
            if not far.receives:
                return self._refuse(other, far, REMOTE_OPERATION)
            far.receive_over(self.clock(), OK, send.imm, send.length)
        return OK

    def _refuse(self, session: Session, qp: QueuePair, status: int) -> int:
        if qp.state != states.ERROR:
            session.fail(qp)
            session.event(QP_FATAL, qp.qpn)
        return status

    # --- what is told of it -----------------------------------------------------------------------

    def done(self) -> list[dict[str, int]]:
        rows: list[dict[str, int]] = []
        ended, self.ended = self.ended, []
        for pid, qp in ended + [
            (session.pid, qp) for session in self.sessions for qp in session.qps.values()
        ]:
            now = qp.messages, qp.bytes, qp.immediates
            if now != qp.told:
                sent, size, immediates = (
                    after - before for after, before in zip(now, qp.told, strict=True)
                )
                rows.append(
                    {
                        "pid": pid,
                        "qpn": qp.qpn,
                        "peer": qp.peer,
                        "messages": sent,
                        "bytes": size,
                        "immediates": immediates,
                    }
                )
                qp.told = now
        return rows

    def table(self) -> list[dict[str, int]]:
        return [
            {
                "pid": session.pid,
                "qps": len(session.qps),
                "mrs": len(session.mrs),
                "cqs": len(session.cqs),
                "dropped": session.dropped,
                "messages": sum(qp.messages for qp in session.qps.values()),
                "bytes": sum(qp.bytes for qp in session.qps.values()),
            }
            for session in self.sessions
        ]

    def close(self) -> None:
        for session in self.sessions:
            session.close()
        self.sessions = []
        self.listener.close()
        self.closer.end()
