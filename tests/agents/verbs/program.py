"""A verbs library in Python, on a virtual network: what a program does, byte by byte as
agents/verbs/layout.py has it."""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import socket
import struct
from contextlib import suppress
from typing import Any, NamedTuple

from agents.nic.device import Nic
from agents.transport import Engine
from agents.verbs import layout, states
from agents.verbs.server import Server
from agents.verbs.session import RC, Session
from tests.agents.virtual import VirtualNetwork
from topologies.clos import Fabric

RTR_MASK = (
    states.STATE
    | states.AV
    | states.PATH_MTU
    | states.DEST_QPN
    | states.RQ_PSN
    | states.MAX_DEST_RD_ATOMIC
    | states.MIN_RNR_TIMER
)
RTS_MASK = (
    states.STATE
    | states.TIMEOUT
    | states.RETRY_CNT
    | states.RNR_RETRY
    | states.SQ_PSN
    | states.MAX_RD_ATOMIC
)
INIT_MASK = states.STATE | states.PKEY_INDEX | states.PORT | states.ACCESS


class Wc(NamedTuple):
    """layout.CQE."""

    wr_id: int
    status: int
    opcode: int
    vendor: int
    length: int
    imm: int
    qpn: int
    source: int
    flags: int
    retired: int
    is_send: int
    time: int


class _Ports:
    """The part of a host's packet I/O that agents.nic.device.Nic asks when it is made."""

    def __init__(self, planes: int) -> None:
        self.planes = planes

    def port_states(self) -> list[bool]:
        return [True] * self.planes


class Rig:
    """A fabric of engines, each with the NIC of programs upon it."""

    def __init__(self, fabric: Fabric, engines: list[Engine]) -> None:
        self.net = VirtualNetwork(fabric, engines)
        self.nics = [
            Nic(fabric, host, engine, _Ports(fabric.planes), lambda: self.net.now)
            for host, engine in enumerate(engines)
        ]
        self.servers: list[Server] = []
        for host, nic in enumerate(self.nics):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            self.servers.append(Server(fabric, host, nic, listener, nic.clock, 1000.0))
        self.rest: list[Any] = []

    def turn(self) -> None:
        """What each agent does in a turn of its loop."""
        for server in self.servers:
            server.serve(select.select(server.sockets, [], [], 0)[0])
            self.rest += server.take(server.device.engine.completions())
            server.advance()
            for t, kind, fields in server.device.engine.events():
                if kind == "qp" and fields["state"] == "ERROR":
                    server.failed(t, fields["qpn"])

    def run(self, span: int) -> None:
        """Let so much time pass, ps."""
        until = self.net.now + span
        while True:
            self.turn()
            if not self.net.step(until) and not any(server.awake for server in self.servers):
                break
        self.net.now = max(self.net.now, until)
        self.turn()

    def close(self) -> None:
        for server in self.servers:
            server.close()


class Program:
    """A program on a host, with one opened device."""

    def __init__(self, rig: Rig, host: int, hello: bool = True) -> None:
        self.rig, self.server = rig, rig.servers[host]
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.session = Session(self.server, theirs)
        self.server.sessions.append(self.session)
        self.server.sockets.append(theirs)
        self.serial = 0
        self.error = 0
        self.rings: dict[int, mmap.mmap] = {}  # by CQ
        self.heads: dict[int, int] = {}
        self.channels: dict[int, socket.socket] = {}
        self.tail = 0
        if hello:
            fd = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
            try:
                self.attributes, (ring, events) = self.call(
                    layout.HELLO, layout.VERSION, os.getpid(), fds=[fd]
                )
            finally:
                os.close(fd)
            self.work = mmap.mmap(ring, 0)
            os.close(ring)
            self.events = socket.socket(fileno=events)

    def call(
        self, op: int, *arguments: int, fds: list[int] | None = None
    ) -> tuple[list[int], list[int]]:
        """Ask; returns results and descriptors; ``error`` is the answer's errno."""
        self.serial += 1
        request = layout.REQUEST.pack(
            op, self.serial, *arguments, *[0] * (layout.ARGUMENTS - len(arguments))
        )
        socket.send_fds(self.sock, [request], fds or [])
        self.serve()
        answer, got, _, _ = socket.recv_fds(self.sock, layout.ANSWER.size, 2)
        serial, self.error, *results = layout.ANSWER.unpack(answer)
        assert serial == self.serial
        return results, got

    def serve(self) -> None:
        """Let the server answer, one request after the other."""
        while (
            self.session.control.fileno() >= 0
            and select.select([self.session.control], [], [], 0)[0]
        ):
            self.server.serve([self.session.control])

    def ask(self, op: int, *arguments: int, fds: list[int] | None = None) -> int:
        return self.call(op, *arguments, fds=fds)[0][0]

    def cq(self, entries: int = 64, channel: int = 0) -> int:
        results, (fd,) = self.call(layout.CREATE_CQ, entries, channel)
        self.rings[results[0]] = mmap.mmap(fd, 0)
        self.heads[results[0]] = 0
        os.close(fd)
        return results[0]

    def channel(self) -> int:
        results, (fd,) = self.call(layout.CREATE_CHANNEL)
        self.channels[results[0]] = socket.socket(fileno=fd)
        self.channels[results[0]].setblocking(False)
        return results[0]

    def arm(self, cq: int, what: int = 1) -> None:
        struct.pack_into("=I", self.rings[cq], layout.FLAG_AT, what)

    def qp(self, pd: int, cq: int, sends: int = 64, receives: int = 64, kind: int = RC) -> int:
        return self.ask(layout.CREATE_QP, pd, cq, cq, kind, sends, receives, 4, 4, 256, 0)

    def modify(self, qpn: int, mask: int, **values: int) -> int:
        """Returns the errno."""
        self.call(
            layout.MODIFY_QP, qpn, mask, *(values.get(name, 0) for name in layout.QP_ATTRIBUTES)
        )
        return self.error

    def state(self, qpn: int) -> int:
        return self.ask(layout.QUERY_QP, qpn)

    def to_init(self, qpn: int, access: int = 2) -> int:
        return self.modify(qpn, INIT_MASK, state=states.INIT, port=1, access=access)

    def to_rts(
        self, qpn: int, host: int, dest: int, rq_psn: int = 7, sq_psn: int = 7, timeout: int = 14
    ) -> None:
        self.to_init(qpn)
        assert self.to_rtr(qpn, host, dest, rq_psn) == 0
        assert (
            self.modify(
                qpn,
                RTS_MASK,
                state=states.RTS,
                sq_psn=sq_psn,
                timeout=timeout,
                retry_cnt=2,
                rnr_retry=7,
            )
            == 0
        )

    def to_rtr(self, qpn: int, host: int, dest: int, rq_psn: int = 7, gid: int = 0) -> int:
        results, _ = self.call(layout.QUERY_GID, 1, gid)
        mine = self.server.gids[gid]
        assert results[:2] == [
            int.from_bytes(mine[:8], "little"),
            int.from_bytes(mine[8:], "little"),
        ]
        theirs = self.rig.servers[host].gids[gid]
        return self.modify(
            qpn,
            RTR_MASK,
            state=states.RTR,
            path_mtu=self.server.mtu_code,
            dest_qpn=dest,
            rq_psn=rq_psn,
            is_global=1,
            sgid_index=gid,
            dgid_first=int.from_bytes(theirs[:8], "little"),
            dgid_last=int.from_bytes(theirs[8:], "little"),
        )

    # --- work -------------------------------------------------------------------------------------

    def put(self, entry: bytes) -> None:
        """Write an entry of whole slots, and ring if the agent sleeps."""
        slots = len(entry) // layout.SLOT
        place = self.tail % layout.SLOTS
        if place + slots > layout.SLOTS:
            left = layout.SLOTS - place
            self.raw(
                layout.WORK.pack(layout.PADDING, 0, 0, 0, 0, 0, 0, 0, 0, 0, left, 0, 0, 0), left
            )
        self.raw(entry, slots)

    def raw(self, entry: bytes, slots: int) -> None:
        at = layout.RINGS_AT + self.tail % layout.SLOTS * layout.SLOT
        self.work[at : at + len(entry)] = entry
        self.tail = (self.tail + slots) & 0xFFFF_FFFF
        struct.pack_into("=I", self.work, layout.TAIL_AT, self.tail)
        if struct.unpack_from("=I", self.work, layout.FLAG_AT)[0]:
            with suppress(BlockingIOError):  # it has rung often enough
                self.sock.send(
                    layout.REQUEST.pack(layout.DOORBELL, 0, *[0] * layout.ARGUMENTS),
                    socket.MSG_DONTWAIT,
                )

    def write(
        self,
        qpn: int,
        sges: list[tuple[int, int, int]],
        va: int,
        rkey: int,
        imm: int = -1,
        **more: int,
    ) -> None:
        """Post a WRITE. ``sges``: (address, bytes, lkey). ``more``: wr_id, flags, opcode."""
        opcode = more.get("opcode", 1 if imm >= 0 else 0)
        rest = b"".join(layout.SGE.pack(*sge) for sge in sges[1:])
        rest += b"\0" * (-len(rest) % layout.SLOT)
        slots = 1 + len(rest) // layout.SLOT
        first = sges[0] if sges else (0, 0, 0)
        flags = more.get("flags", layout.SIGNALED)
        head = layout.WORK.pack(
            layout.SEND,
            opcode,
            flags,
            len(sges),
            qpn,
            more.get("wr_id", 0),
            va,
            rkey,
            max(imm, 0),
            0,
            slots,
            *first,
        )
        self.put(head + rest)

    def inline(self, qpn: int, data: bytes, va: int, rkey: int, wr_id: int = 0) -> None:
        rest = data + b"\0" * (-len(data) % layout.SLOT)
        slots = 1 + len(rest) // layout.SLOT
        flags = layout.SIGNALED | layout.INLINE
        self.put(
            layout.WORK.pack(
                layout.SEND, 0, flags, 0, qpn, wr_id, va, rkey, 0, len(data), slots, 0, 0, 0
            )
            + rest
        )

    def recv(self, qpn: int, wr_id: int = 0) -> None:
        self.put(layout.WORK.pack(layout.RECV, 0, 0, 0, qpn, wr_id, 0, 0, 0, 0, 1, 0, 0, 0))

    def poll(self, cq: int) -> list[Wc]:
        """Take what is there."""
        ring, found = self.rings[cq], []
        size = (len(ring) - layout.RINGS_AT) // layout.SLOT
        tail = struct.unpack_from("=I", ring, layout.TAIL_AT)[0]
        while self.heads[cq] != tail:
            found.append(
                Wc(
                    *layout.CQE.unpack_from(
                        ring, layout.RINGS_AT + self.heads[cq] % size * layout.SLOT
                    )
                )
            )
            self.heads[cq] = (self.heads[cq] + 1) & 0xFFFF_FFFF
        struct.pack_into("=I", ring, layout.HEAD_AT, self.heads[cq])
        return found

    def async_events(self) -> list[tuple[int, int]]:
        found = []
        self.events.setblocking(False)
        with suppress(BlockingIOError):
            while data := self.events.recv(64):
                kind, _, number = layout.EVENT.unpack(data)
                found.append((kind, number))
        return found

    def end(self) -> None:
        for sock in (self.sock, self.events, *self.channels.values()):
            sock.close()
        for ring in (self.work, *self.rings.values()):
            ring.close()
        self.serve()


class Buffer:
    """Memory of this process, as a program would register it."""

    def __init__(self, size: int) -> None:
        self.map = mmap.mmap(-1, max(size, 1))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.size = size

    def register(self, program: Program, pd: int, access: int = 3) -> tuple[int, int]:
        """Returns (lkey, rkey)."""
        results, _ = program.call(layout.REG_MR, pd, self.address, self.size, self.address, access)
        assert program.error == 0
        return results[1], results[2]
