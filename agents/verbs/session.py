"""One opened device of a program: its protection domains, regions, queues and queue pairs, and the
answers to its requests.

A wrong argument is an errno. What no library of ours sends ends the session.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import TYPE_CHECKING, Any, Final

from agents.verbs import layout, states
from agents.verbs.completion_queue import Channel, CompletionQueue
from agents.verbs.faults import DEAD, ERROR, LOST, SEND, SLOW, Rule, names_of
from agents.verbs.memory import (
    HIGHEST,
    Gathered,
    MappedMemory,
    Piece,
    ProcessMemory,
    is_process_memory,
    mapped,
)
from agents.verbs.queue_pair import (
    LOC_LEN_ERR,
    LOC_PROT_ERR,
    LOC_QP_OP_ERR,
    RDMA_WRITE,
    RDMA_WRITE_WITH_IMM,
    SUCCESS,
    QueuePair,
    Send,
    swapped,
)
from agents.verbs.rings import CompletionRing, Garbage, WorkRing
from topologies.units import NS

if TYPE_CHECKING:
    from agents.verbs.server import Server

RC: Final = 2
"""enum ibv_qp_type."""
LOCAL_WRITE: Final = 1
REMOTE_WRITE: Final = 2
ACCESS_KNOWN: Final = 0b1111 | 1 << 20
"""enum ibv_access_flags: also remote read and atomic, which no operation uses here."""
CQ_ERR: Final = 0
QP_FATAL: Final = 1
PORT_ACTIVE: Final = 9
PORT_ERR: Final = 10
"""enum ibv_event_type."""

MOST_PDS: Final = 1024
MOST_MRS: Final = 1 << 16
MOST_CQS: Final = 4096
MOST_CQES: Final = 1 << 16
MOST_WRS: Final = 1 << 13
MOST_CHANNELS: Final = 32
"""Most channels of a session [ours]."""
MOST_SHARED: Final = 1 << 20
"""CQEs of all CQs of a session [ours]."""
MOST_MR_BYTES: Final = 1 << 40
MOST_BYTES: Final = 1 << 31
"""Most bytes of a message (InfiniBand)."""
AT_ONCE: Final = 64
"""Entries of the work ring that a session gets done in a turn [ours]."""


_PID: Final = struct.Struct("i")
_CREDENTIALS: Final = 12

_DOORBELL: Final = layout.DOORBELL.to_bytes(4, "little")


class Refused(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


class MemoryRegion:
    """``rkey`` is -1 where peers may not write."""

    def __init__(
        self, pd: int, address: int, memory: ProcessMemory | MappedMemory, rkey: int
    ) -> None:
        self.pd = pd
        self.address = address
        self.memory = memory
        self.rkey = rkey


class ProtectionDomain:
    def __init__(self, domain: Any) -> None:
        self.domain = domain
        self.users = 0  # regions and queue pairs


class Session:
    """``control``: its socket. ``pid`` is from the kernel, 0 where the kernel cannot say."""

    def __init__(self, server: Server, control: socket.socket) -> None:
        self.server = server
        self.control = control
        # not by flags, which Python 3.11's send_fds ignores: who does not read is not waited for
        control.setblocking(False)
        self.pid = 0
        self.known_as: set[str] = set()
        self.memory_fd = -1
        self.ring: WorkRing | None = None
        self.events: socket.socket | None = None
        self.pds: dict[int, ProtectionDomain] = {}
        self.mrs: dict[int, MemoryRegion] = {}
        self.cqs: dict[int, CompletionQueue] = {}
        self.channels: dict[int, Channel] = {}
        self.qps: dict[int, QueuePair] = {}
        self.next_handle = 1
        self.next_lkey = 1
        self.cqes = 0
        self.closed = False
        self.dropped = 0  # entries of the work ring that mean nothing
        self.handlers = {
            layout.HELLO: self.hello,
            layout.QUERY_PORT: self.query_port,
            layout.QUERY_GID: self.query_gid,
            layout.ALLOC_PD: self.alloc_pd,
            layout.DEALLOC_PD: self.dealloc_pd,
            layout.REG_MR: self.reg_mr,
            layout.DEREG_MR: self.dereg_mr,
            layout.CREATE_CHANNEL: self.create_channel,
            layout.DESTROY_CHANNEL: self.destroy_channel,
            layout.CREATE_CQ: self.create_cq,
            layout.DESTROY_CQ: self.destroy_cq,
            layout.CREATE_QP: self.create_qp,
            layout.DESTROY_QP: self.destroy_qp,
            layout.MODIFY_QP: self.modify_qp,
            layout.QUERY_QP: self.query_qp,
        }

    # --- requests ---------------------------------------------------------------------------------

    def answer(self, request: bytes, given: list[int]) -> None:
        """Raises :class:`Garbage`, OSError if the program is gone."""
        if len(request) != layout.REQUEST.size:
            raise Garbage(f"a request of {len(request)} bytes")
        if request.startswith(_DOORBELL):
            if self.ring is not None:
                self.ring.wake()
            return
        op, serial, *arguments = layout.REQUEST.unpack(request)
        handler = self.handlers.get(op)
        if handler is None or (op == layout.HELLO) == (self.ring is not None):
            raise Garbage(f"request {op}")
        error = 0
        results: list[int] = []
        fds: list[int] = []
        try:
            error = self.server.faults.refusal(self, op)
            if not error:
                results, fds = handler(arguments, given)
        except Refused as refused:
            error = refused.number
        except OSError as problem:
            error = problem.errno or errno.EIO
        results += [0] * (layout.ARGUMENTS - len(results))
        try:
            answer = layout.ANSWER.pack(serial, error, *results)
            if socket.send_fds(self.control, [answer], fds) != len(answer):
                raise OSError(errno.EPIPE, "the program does not read")
        finally:
            for fd in fds:
                os.close(fd)

    def hello(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        if arguments[0] != layout.VERSION:
            raise Refused(errno.EPROTO)
        if not given or not is_process_memory(given[0]):
            raise Refused(errno.EINVAL)
        self.pid = _PID.unpack_from(
            self.control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS)
        )[0]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            ring = WorkRing()
        except OSError:
            ours.close()
            theirs.close()
            raise
        self.memory_fd, self.events, self.ring = given.pop(0), ours, ring
        s = self.server
        results = [
            s.host,
            s.guid,
            s.transport,
            s.limits.qps,
            MOST_WRS,
            layout.MOST_SGES,
            layout.MOST_INLINE,
            MOST_CQS,
            MOST_CQES,
            MOST_MRS,
            MOST_MR_BYTES,
            MOST_PDS,
            len(s.gids),
            layout.SLOTS,
            s.dilation_k,
            1,
        ]
        return results, [ring.take_fd(), theirs.detach()]

    def query_port(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        if arguments[0] != 1:
            raise Refused(errno.EINVAL)
        up = 0 if self.server.faults.port_down(self) else self.server.ports.count(True)
        return [
            4 if up else 1,
            5 if up else 3,
            self.server.port_mbps * up,
            self.server.mtu_code,
        ], []

    def query_gid(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        if arguments[0] != 1 or arguments[1] >= len(self.server.gids):
            raise Refused(errno.EINVAL)
        gid = self.server.gids[arguments[1]]
        return [int.from_bytes(gid[:8], "little"), int.from_bytes(gid[8:], "little"), 1], []

    def names(self) -> set[str]:
        if not self.known_as:
            self.known_as = names_of(self.pid)
        return self.known_as

    def handle(self) -> int:
        handle = self.next_handle
        self.next_handle += 1
        return handle

    def pd(self, handle: int) -> ProtectionDomain:
        pd = self.pds.get(handle)
        if pd is None:
            raise Refused(errno.EINVAL)
        return pd

    def alloc_pd(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        if len(self.pds) >= MOST_PDS:
            raise Refused(errno.ENOMEM)
        handle = self.handle()
        self.pds[handle] = ProtectionDomain(self.server.device.domain())
        return [handle], []

    def dealloc_pd(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        if self.pd(arguments[0]).users:
            raise Refused(errno.EBUSY)
        del self.pds[arguments[0]]
        return [], []

    def reg_mr(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        handle, address, length, iova, access, offset, with_file = arguments[:7]
        pd = self.pd(handle)
        if not 0 < length <= MOST_MR_BYTES or max(address, iova) + length > HIGHEST:
            raise Refused(errno.EINVAL)
        if access & ~ACCESS_KNOWN:
            raise Refused(errno.EOPNOTSUPP)
        if len(self.mrs) >= MOST_MRS:
            raise Refused(errno.ENOMEM)
        memory: ProcessMemory | MappedMemory
        if with_file:
            if not given:
                raise Refused(errno.EINVAL)
            memory = MappedMemory(mapped(given[0], offset, length))
            os.close(given.pop(0))
        else:
            memory = ProcessMemory(self.memory_fd, address, length)
        rkey = pd.domain.register(memory, iova).rkey if access & REMOTE_WRITE else -1
        lkey = self.next_lkey
        self.next_lkey += 1
        self.mrs[lkey] = MemoryRegion(handle, address, memory, rkey)
        pd.users += 1
        return [lkey, lkey, lkey if rkey < 0 else rkey], []

    def dereg_mr(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        region = self.mrs.pop(arguments[0], None)
        if region is None:
            raise Refused(errno.EINVAL)
        region.memory.gone = True
        pd = self.pds[region.pd]
        if region.rkey >= 0:
            pd.domain.deregister(region.rkey)
        pd.users -= 1
        return [], []

    def create_channel(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        if (
            len(self.channels) >= MOST_CHANNELS
            or self.server.channels >= self.server.limits.channels
        ):
            raise Refused(errno.ENOMEM)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handle = self.handle()
        self.channels[handle] = Channel(ours)
        self.server.channels += 1
        return [handle], [theirs.detach()]

    def destroy_channel(
        self, arguments: list[int], given: list[int]
    ) -> tuple[list[int], list[int]]:
        channel = self.channels.get(arguments[0])
        if channel is None:
            raise Refused(errno.EINVAL)
        if channel.cqs:
            raise Refused(errno.EBUSY)
        channel.sock.close()
        del self.channels[arguments[0]]
        self.server.channels -= 1
        return [], []

    def create_cq(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        wanted, channel_handle = arguments[:2]
        channel = self.channels.get(channel_handle)
        if not 0 < wanted <= MOST_CQES or (channel_handle and channel is None):
            raise Refused(errno.EINVAL)
        entries = max(1 << (wanted - 1).bit_length(), 2)
        if len(self.cqs) >= MOST_CQS or self.cqes + entries > MOST_SHARED:
            raise Refused(errno.ENOMEM)
        ring = CompletionRing(entries)
        handle = self.handle()
        self.cqs[handle] = CompletionQueue(handle, ring, channel, self.overflowed)
        self.cqes += entries
        if channel is not None:
            channel.cqs += 1
        return [handle, entries], [ring.take_fd()]

    def destroy_cq(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        cq = self.cqs.get(arguments[0])
        if cq is None:
            raise Refused(errno.EINVAL)
        if cq.queue_pairs:
            raise Refused(errno.EBUSY)
        del self.cqs[arguments[0]]
        self.cqes -= cq.ring.entries
        if cq.channel is not None:
            cq.channel.cqs -= 1
        return [], []

    def create_qp(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        pd_handle, send_handle, recv_handle, kind = arguments[:4]
        sends, receives, send_sges, recv_sges, inline = caps = arguments[4:9]
        pd, send_cq, recv_cq = (
            self.pd(pd_handle),
            self.cqs.get(send_handle),
            self.cqs.get(recv_handle),
        )
        if send_cq is None or recv_cq is None:
            raise Refused(errno.EINVAL)
        if kind != RC:
            raise Refused(errno.EOPNOTSUPP)
        if (
            max(sends, receives) > MOST_WRS
            or max(send_sges, recv_sges) > layout.MOST_SGES
            or inline > layout.MOST_INLINE
        ):
            raise Refused(errno.EINVAL)
        if (
            self.server.count >= self.server.limits.qps
            or self.server.requests + sends + receives > self.server.limits.requests
        ):
            raise Refused(errno.ENOMEM)
        qpn = self.server.device.reserve_qp()
        self.qps[qpn] = qp = QueuePair(qpn, pd_handle, send_cq, recv_cq, caps)
        qp.met = self.met
        self.server.owners[qpn] = self
        self.server.count += 1
        self.server.requests += sends + receives
        pd.users += 1
        send_cq.queue_pairs += 1
        recv_cq.queue_pairs += 1
        return [qp.qpn, *caps], []

    def destroy_qp(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        qp = self.qp(arguments[0])
        self.leave(qp)
        del self.qps[qp.qpn]
        if qp.told != (qp.messages, qp.bytes, qp.immediates):
            self.server.ended.append((self.pid, qp))
        del self.server.owners[qp.qpn]
        self.server.count -= 1
        self.server.requests -= qp.caps[0] + qp.caps[1]
        self.pds[qp.pd].users -= 1
        qp.send_cq.queue_pairs -= 1
        qp.recv_cq.queue_pairs -= 1
        return [], []

    def qp(self, qpn: int) -> QueuePair:
        qp = self.qps.get(qpn)
        if qp is None:
            raise Refused(errno.EINVAL)
        return qp

    def query_qp(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        return list(self.qp(arguments[0]).attributes.values()), []

    def modify_qp(self, arguments: list[int], given: list[int]) -> tuple[list[int], list[int]]:
        qp, mask = self.qp(arguments[0]), arguments[1]
        values = dict(zip(layout.QP_ATTRIBUTES, arguments[2:], strict=False))
        before = qp.state
        after = values["state"] if mask & states.STATE else before
        if mask & states.CUR_STATE and values["cur_state"] != before:
            raise Refused(errno.EINVAL)
        if not states.permitted(before, after, mask):
            raise Refused(errno.EINVAL)
        self.check(mask, values)
        if after == states.RESET:
            self.leave(qp)
            qp.attributes = dict.fromkeys(layout.QP_ATTRIBUTES, 0)
        elif after == states.ERROR:
            self.fail(qp)
        elif before == states.INIT and after == states.RTR:
            peer = self.server.host_of(values["dgid_first"], values["dgid_last"])
            if peer < 0:
                raise Refused(errno.EINVAL)
            qp.attribute(mask, values)
            self.connect(qp, peer)
        elif before == states.RTR and after == states.RTS and qp.made:
            timeout = 4096 * NS << values["timeout"] if values["timeout"] else 0
            try:
                self.server.device.start_qp(qp.qpn, values["sq_psn"], timeout, values["retry_cnt"])
            except ValueError as known:
                # the engine has given it up, and we have not heard of it yet
                self.server.failed(self.server.clock(), qp.qpn)
                raise Refused(errno.EINVAL) from known
        if after not in (states.RESET, states.ERROR):
            qp.attribute(mask, values)
            qp.enter(after)
        entered = qp.state
        if after == states.RTS != before:
            self.meet_death(qp)
        return [entered], []

    def check(self, mask: int, values: dict[str, int]) -> None:
        """Raises :class:`Refused`."""
        bad = (
            (mask & states.PORT and values["port"] != 1)
            or (mask & states.PKEY_INDEX and values["pkey_index"] != 0)
            or (mask & states.ACCESS and values["access"] & ~ACCESS_KNOWN)
            or (mask & states.PATH_MTU and not 1 <= values["path_mtu"] <= self.server.mtu_code)
            or (
                mask & states.AV
                and (not values["is_global"] or values["sgid_index"] >= len(self.server.gids))
            )
            or (mask & (states.DEST_QPN) and values["dest_qpn"] >> 24)
            or (mask & states.RQ_PSN and values["rq_psn"] >> 24)
            or (mask & states.SQ_PSN and values["sq_psn"] >> 24)
            or (mask & states.TIMEOUT and values["timeout"] > 31)
            or (mask & states.RETRY_CNT and values["retry_cnt"] > 7)
            or (mask & states.RNR_RETRY and values["rnr_retry"] > 7)
        )
        if bad:
            raise Refused(errno.EINVAL)

    def connect(self, qp: QueuePair, peer: int) -> None:
        qp.peer = peer
        if peer == self.server.host:
            return
        device = self.server.device
        writable = qp.attributes["access"] & REMOTE_WRITE
        device.create_qp(
            peer, qpn=qp.qpn, domain=self.pds[qp.pd].domain if writable else self.server.nothing
        )
        qp.made = qp.known = True
        qp.made_ps = self.server.clock()
        device.connect_qp(qp.qpn, device.remote_of(peer, qp.dest(), qp.attributes["rq_psn"]))
        for wr_id in qp.receives:
            device.post_recv(qp.qpn, wr_id)

    def leave(self, qp: QueuePair) -> None:
        if qp.known:
            self.server.device.destroy_qp(qp.qpn)
            qp.made = qp.known = False
        qp.forget()
        for cq in (qp.send_cq, qp.recv_cq):
            cq.forget(qp.qpn)
        self.server.local.pop(qp.qpn, None)

    def fail(self, qp: QueuePair) -> None:
        if qp.state == states.ERROR:
            return
        qp.enter(states.ERROR)
        if qp.made:
            self.server.device.fail_qp(qp.qpn)
        self.server.flush_soon(self, qp)

    def met(self, qp: QueuePair, of: str, shown: bool) -> Rule | None:
        if not self.server.faults.rules:
            return None
        rule = (
            self.server.faults.find(self, of, ERROR, LOST, SLOW)
            if shown
            else self.server.faults.find(self, of, ERROR)
        )
        if rule is not None and rule.what == ERROR:
            self.fail(qp)
        elif rule is not None and rule.what == SLOW:
            cq = qp.send_cq if of == SEND else qp.recv_cq
            cq.delay(self.server.clock() + rule.value)
            self.server.late = True
        return rule

    def meet_death(self, qp: QueuePair) -> None:
        if qp.state == states.RTS and self.server.faults.find(self, "", DEAD) is not None:
            self.fail(qp)
            self.event(QP_FATAL, qp.qpn)

    def overflowed(self, handle: int) -> None:
        self.event(CQ_ERR, handle)
        for qp in self.qps.values():
            if handle in (qp.send_cq.handle, qp.recv_cq.handle):
                self.fail(qp)

    def event(self, kind: int, number: int) -> None:
        """A program that never reads asynchronous events loses those that do not fit."""
        if self.events is not None:
            try:
                self.events.send(
                    layout.EVENT.pack(kind, 0, number), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
                )
            except OSError:
                self.dropped += 1

    # --- work requests ----------------------------------------------------------------------------

    def work(self) -> bool:
        """Take up to :data:`AT_ONCE` entries; returns whether there was any. Raises
        :class:`Garbage`."""
        ring = self.ring
        if ring is None:
            return False
        waiting = ring.waiting()
        if not waiting and ring.awake:
            ring.sleep()
            waiting = ring.waiting()
        if not waiting:
            return False
        ring.wake()
        for _ in range(AT_ONCE):
            at = ring.place()
            entry = layout.WORK.unpack_from(ring.map, at)
            slots = entry[10]
            if not 0 < slots <= waiting or at + slots * layout.SLOT > len(ring.map):
                raise Garbage(f"an entry of {slots} slots where {waiting} wait")
            kind = entry[0]
            if kind == layout.SEND:
                self.post_send(entry, at)
            elif kind == layout.RECV:
                self.post_recv(entry)
            elif kind != layout.PADDING:
                raise Garbage(f"an entry of kind {kind}")
            ring.taken(slots)
            waiting -= slots
            if not waiting:
                break
        return True

    def post_recv(self, entry: tuple[int, ...]) -> None:
        qp = self.qps.get(entry[4])
        if qp is None or qp.state == states.RESET or len(qp.receives) >= qp.caps[1]:
            self.dropped += 1
            return
        qp.receives.append(entry[5])
        if qp.state == states.ERROR:
            self.server.flush_soon(self, qp)
        elif qp.made:
            self.server.device.post_recv(qp.qpn, entry[5])

    def post_send(self, entry: tuple[int, ...], at: int) -> None:
        _, opcode, flags, count, qpn, wr_id, va, rkey, imm, inline, slots = entry[:11]
        qp = self.qps.get(qpn)
        if qp is None or qp.state not in (states.RTS, states.ERROR) or len(qp.sends) >= qp.caps[0]:
            self.dropped += 1
            return
        status = SUCCESS
        memory: Any = memoryview(b"")
        if opcode not in (RDMA_WRITE, RDMA_WRITE_WITH_IMM):
            status = LOC_QP_OP_ERR
        elif flags & layout.INLINE:
            begin = at + layout.SLOT
            if inline > min((slots - 1) * layout.SLOT, layout.MOST_INLINE):
                raise Garbage(f"{inline} bytes inline in {slots} slots")
            assert self.ring is not None
            memory = memoryview(bytes(self.ring.map[begin : begin + inline]))
        elif count:
            pieces = self.pieces(qp.pd, entry, at, count, slots)
            if pieces is None:
                status = LOC_PROT_ERR
            else:
                memory = Gathered(pieces)
        if len(memory) > MOST_BYTES or va + len(memory) > 1 << 64:
            status = LOC_LEN_ERR
        target = va, rkey, swapped(imm) if opcode == RDMA_WRITE_WITH_IMM else -1
        qp.sends.append(Send(wr_id, flags, memory, target, status))
        if qp.state == states.ERROR:
            self.server.flush_soon(self, qp)
        else:
            self.give(qp)

    def pieces(
        self, pd: int, entry: tuple[int, ...], at: int, count: int, slots: int
    ) -> list[Piece] | None:
        """Return None if a region does not allow it."""
        assert self.ring is not None
        if count > layout.MOST_SGES or count > 1 + 4 * (slots - 1):
            raise Garbage(f"{count} elements in {slots} slots")
        pieces: list[Piece] = []
        for k in range(count):
            address, length, lkey = (
                entry[11:14]
                if not k
                else layout.SGE.unpack_from(
                    self.ring.map, at + layout.SLOT + (k - 1) * layout.SGE.size
                )
            )
            region = self.mrs.get(lkey)
            if not length:
                continue
            if region is None or region.pd != pd or address < region.address:
                return None
            offset = address - region.address
            if offset + length > len(region.memory):
                return None
            pieces.append(Piece(region.memory, offset, length))
        return pieces

    def give(self, qp: QueuePair) -> None:
        """A wrong send waits until all before it are over: they are not to blame."""
        if not qp.made:
            if qp.peer == self.server.host and qp.sends:
                self.server.local[qp.qpn] = self
            return
        device = self.server.device
        while qp.given < len(qp.sends):
            send = qp.sends[qp.given]
            if send.status == SUCCESS:
                try:
                    device.post_write(
                        qp.qpn, send.wr_id & 0x7FFF_FFFF, send.memory, send.va, send.rkey, send.imm
                    )
                except ValueError:
                    # the engine has just given the queue pair up: its completions, which come
                    # first, say why
                    qp.enter(states.ERROR)
                    self.server.flush_soon(self, qp)
                    return
                qp.given += 1
            elif qp.given:
                return
            else:
                self.blame(qp, send.status)
                return

    def blame(self, qp: QueuePair, status: int) -> None:
        now = self.server.clock()
        qp.send_over(now, status, 0)
        self.fail(qp)

    # --- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.handlers.clear()  # which refer to this object, and nothing collects cycles here
        for qp in list(self.qps.values()):
            self.destroy_qp([qp.qpn], [])
        for lkey in list(self.mrs):
            self.dereg_mr([lkey], [])
        for channel in self.channels.values():
            channel.sock.close()
        self.server.channels -= len(self.channels)
        self.pds.clear()
        self.cqs.clear()
        self.channels.clear()
        if self.memory_fd >= 0:
            os.close(self.memory_fd)
        if self.events is not None:
            self.events.close()
        self.server.closer.close(self.control.detach())  # with what it has not read
