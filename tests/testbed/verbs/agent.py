"""A host's agent as the verbs library sees it, without a fabric: ``python -m
tests.testbed.verbs.agent PROGRAM ARGS`` runs the program with the library preloaded beside it, and
executes the WRITEs between its own queue pairs through the descriptor of /proc/self/mem.

It is a judge of the library, too: it checks what must hold of each request, and ends with a line on
stderr where it does not. What a test wants of it comes in the environment: ``AGENT`` is a list of
words, see :data:`WORDS`.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import selectors
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from agents.verbs import layout, rings
from testbed.verbs import build

WORDS = ("roce", "deaf", "slow", "die-on-post", "old")
"""roce: the transport. deaf: sleeps always, so that each post needs a doorbell. slow: takes one
entry at a time, and looks at its sockets between them. die-on-post: goes away at
the first WRITE. old: refuses HELLO with EPROTO."""
GUID = 0x0200_0A4E_0000_0001
MOST_QPS, MOST_WRS, MOST_CQES, SLOTS = 64, 1024, 1 << 12, 256
WRITE, WRITE_IMM = 0, 1
SUCCESS, LOC_PROT, FLUSHED, REM_ACCESS = 0, 4, 5, 10
WC_WRITE, WC_RECV_IMM, WITH_IMM = 1, 129, 2
RESET, INIT, RTR, RTS, ERR = 0, 1, 2, 3, 6
CQ_ERR, QP_FATAL = 0, 1
F_ADD_SEALS, SEALS = 1033, 2 | 4 | 1


class Refusal(Exception):
    """An errno for the program."""


def check(held: bool, what: str) -> None:
    if not held:
        print(f"agent: {what}", file=sys.stderr, flush=True)
        os._exit(3)


class Ring:
    """Shared memory of counters and entries."""

    def __init__(self, entries: int) -> None:
        size = layout.RINGS_AT + entries * layout.SLOT
        self.fd = os.memfd_create("ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, F_ADD_SEALS, SEALS)
        self.memory = mmap.mmap(self.fd, size)
        self.words = memoryview(self.memory).cast("I")
        self.entries = entries

    def get(self, at: int) -> int:
        return self.words[at // 4]

    def put(self, at: int, value: int) -> None:
        self.words[at // 4] = value & 0xFFFF_FFFF

    def at(self, place: int) -> int:
        return layout.RINGS_AT + (place & (self.entries - 1)) * layout.SLOT


@dataclass
class Completions:
    ring: Ring
    channel: int
    tail: int = 0
    pairs: int = 0


@dataclass
class Pair:
    qpn: int
    pd: int
    send: int
    recv: int
    attributes: dict[str, int]
    granted: list[int]
    sig_all: int
    receives: deque[tuple[int, list[tuple[int, int, int]]]] = field(default_factory=deque)
    sent: int = 0
    received: int = 0


@dataclass
class Region:
    pd: int
    address: int
    size: int
    iova: int
    access: int
    file: int
    offset: int


class Session:
    """One connection: one opened device."""

    def __init__(self, connection: socket.socket, words: set[str]) -> None:
        self.connection, self.words = connection, words
        self.memory = -1
        self.ring = Ring(SLOTS)
        self.head = 0
        self.events, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.handle = 0
        self.pds: set[int] = set()
        self.channels: dict[int, tuple[socket.socket, socket.socket]] = {}
        self.queues: dict[int, Completions] = {}
        self.pairs: dict[int, Pair] = {}
        self.regions: dict[int, Region] = {}
        self.calls: dict[int, Callable[[list[int], list[int]], tuple[list[int], list[int]]]] = {
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
        self.ring.put(layout.FLAG_AT, 1)

    # --- requests ---

    def serve(self) -> bool:
        """Take one request; return whether there may be more."""
        try:
            data, fds, _, _ = socket.recv_fds(self.connection, layout.REQUEST.size, 4)
        except ConnectionError:
            return False
        if not data:
            return False
        check(len(data) == layout.REQUEST.size, f"a request of {len(data)} bytes")
        op, serial, *arguments = layout.REQUEST.unpack(data)
        if "die-on-post" in self.words and op == layout.DOORBELL:
            return False
        self.work()
        if op == layout.DOORBELL:
            return True
        results: list[int] = []
        gifts: list[int] = []
        error = 0
        try:
            check(op in self.calls, f"request {op}")
            check(op == layout.HELLO or self.memory >= 0, "no HELLO before other requests")
            results, gifts = self.calls[op](arguments, fds)
        except Refusal as refusal:
            error = refusal.args[0]
        answer = layout.ANSWER.pack(
            serial, error, *results, *[0] * (layout.ARGUMENTS - len(results))
        )
        socket.send_fds(self.connection, [answer], gifts)
        return True

    def new(self) -> int:
        self.handle += 1
        return self.handle

    def hello(self, given: list[int], fds: list[int]) -> tuple[list[int], list[int]]:
        check(given[0] == layout.VERSION and len(fds) == 1, "HELLO without version or memory")
        if "old" in self.words:
            raise Refusal(errno.EPROTO)
        self.memory = fds[0]
        transport = layout.ROCE if "roce" in self.words else layout.MRC
        numbers = [
            3,
            GUID,
            transport,
            MOST_QPS,
            MOST_WRS,
            layout.MOST_SGES,
            layout.MOST_INLINE,
            64,
            MOST_CQES,
            4096,
            1 << 32,
            64,
            2,
        ]
        return [*numbers, SLOTS, 10_000, 1], [self.ring.fd, self.theirs.fileno()]

    def query_port(self, given: list[int], _: list[int]) -> tuple[list[int], list[int]]:
        if given[0] != 1:
            raise Refusal(errno.EINVAL)
        return [4, 5, 800_000, 5], []

    def query_gid(self, given: list[int], _: list[int]) -> tuple[list[int], list[int]]:
        if given[0] != 1 or given[1] > 1:
            raise Refusal(errno.EINVAL)
        gid = bytes.fromhex("fd00000000000000000000000000000400000000000000000000ffff0a4e0004")[
            given[1] * 16 :
        ][:16]
        return [int.from_bytes(gid[:8], "little"), int.from_bytes(gid[8:], "little"), 1], []

    def alloc_pd(self, _: list[int], __: list[int]) -> tuple[list[int], list[int]]:
        self.pds.add(self.new())
        return [self.handle], []

    def dealloc_pd(self, given: list[int], _: list[int]) -> tuple[list[int], list[int]]:
        users: list[Pair | Region] = [*self.pairs.values(), *self.regions.values()]
        if any(user.pd == given[0] for user in users):
            raise Refusal(errno.EBUSY)
        self.pds.remove(given[0])
        return [], []

    def reg_mr(self, given: list[int], fds: list[int]) -> tuple[list[int], list[int]]:
        pd, address, size, iova, access, offset, comes = given[:7]
        check(
            bool(comes) == bool(fds),
            "a region's descriptor that was not announced, or the other way round",
        )
        check(pd in self.pds and size > 0, "a region without a protection domain or bytes")
        file = -1
        if fds:
            check(
                bool(fcntl.fcntl(fds[0], 1034) & 2),
                "a region's file that is not sealed against shrinking",
            )
            check(offset + size <= os.fstat(fds[0]).st_size, "a region beyond its file's end")
            mine, theirs = os.pread(fds[0], size, offset), os.pread(self.memory, size, address)
            check(mine == theirs, "a region's file that shows other bytes than the region")
            file = fds[0]
        self.regions[self.new()] = Region(pd, address, size, iova, access, file, offset)
        if file >= 0:
            print(f"agent: region {self.handle} is a file", flush=True)
        return [self.handle, self.handle, self.handle | 1 << 20], []

    def dereg_mr(self, given: list[int], _: list[int]) -> tuple[list[int], list[int]]:
        del self.regions[given[0]]
        return [], []

    def create_channel(self, _: list[int], __: list[int]) -> tuple[list[int], list[int]]:
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channels[self.new()] = pair
        return [self.handle], [pair[1].fileno()]

    def destroy_channel(self, given: list[int], _: list[int]) -> tuple[list[int], list[int]]:
        for end in self.channels.pop(given[0]):
            end.close()
        return [], []

    def create_cq(self, given: list[int], _: list[int]) -> tuple[list[int], list[int]]:
        if given[0] > MOST_CQES:
            raise Refusal(errno.EINVAL)
        check(given[1] == 0 or given[1] in self.channels, "a CQ of an unknown channel")
        self.queues[self.new()] = Completions(Ring(1 << (given[0] - 1).bit_length()), given[1])
        return [self.handle, self.queues[self.handle].ring.entries], [
            self.queues[self.handle].ring.fd
        ]

    def destroy_cq(self, given: list[int], _: list[int]) -> tuple[list[int], list[int]]:
        if self.queues[given[0]].pairs:
            raise Refusal(errno.EBUSY)
        del self.queues[given[0]]
        return [], []

    def create_qp(self, given: list[int], _: list[int]) -> tuple[list[int], list[int]]:
        pd, send, recv, kind, *wanted, sig_all = given[:10]
        check(
            pd in self.pds and send in self.queues and recv in self.queues and kind == 2,
            "a queue pair of unknown parts",
        )
        if wanted[0] > MOST_WRS or wanted[1] > MOST_WRS or max(wanted[2:4]) > layout.MOST_SGES:
            raise Refusal(errno.EINVAL)
        granted = [max(1, number) for number in wanted]
        pair = Pair(
            0x100 + self.new(),
            pd,
            send,
            recv,
            dict.fromkeys(layout.QP_ATTRIBUTES, 0),
            granted,
            sig_all,
        )
        self.pairs[pair.qpn] = pair
        for queue in (send, recv):
            self.queues[queue].pairs += 1
        return [pair.qpn, *granted], []

    def destroy_qp(self, given: list[int], _: list[int]) -> tuple[list[int], list[int]]:
        pair = self.pairs.pop(given[0])
        for queue in (pair.send, pair.recv):
            self.queues[queue].pairs -= 1
        return [], []

    def modify_qp(self, given: list[int], _: list[int]) -> tuple[list[int], list[int]]:
        pair = self.pairs[given[0]]
        new = dict(zip(layout.QP_ATTRIBUTES, given[2:], strict=False))
        bits = {
            "access": 8,
            "pkey_index": 16,
            "port": 32,
            "path_mtu": 256,
            "dest_qpn": 1 << 20,
            "rq_psn": 1 << 12,
            "sq_psn": 1 << 16,
        }
        bits |= dict.fromkeys(
            ("dgid_first", "dgid_last", "is_global", "sgid_index", "hop_limit", "traffic_class"),
            128,
        )
        bits |= {
            "timeout": 512,
            "retry_cnt": 1024,
            "rnr_retry": 2048,
            "max_rd_atomic": 1 << 13,
            "max_dest_rd_atomic": 1 << 17,
        }
        bits |= {"min_rnr_timer": 1 << 15, "state": 1}
        if given[1] & 1 and new["state"] not in (RESET, ERR, pair.attributes["state"] + 1):
            raise Refusal(errno.EINVAL)
        pair.attributes |= {name: new[name] for name, bit in bits.items() if given[1] & bit}
        pair.attributes["cur_state"] = pair.attributes["state"]
        if given[1] & 1 and new["state"] == RESET:
            pair.receives.clear()
            pair.sent = pair.received = 0
        if given[1] & 1 and new["state"] == ERR:
            self.fail(pair)
        return [pair.attributes["state"]], []

    def query_qp(self, given: list[int], _: list[int]) -> tuple[list[int], list[int]]:
        return list(self.pairs[given[0]].attributes.values()), []

    # --- work ---

    def work(self) -> None:
        """Take entries of the work ring: all, or one where the test wants a slow agent."""
        ring = self.ring
        if "deaf" not in self.words:
            ring.put(layout.FLAG_AT, 0)
        while self.head != ring.get(layout.TAIL_AT):
            check(
                (ring.get(layout.TAIL_AT) - self.head) & 0xFFFF_FFFF <= SLOTS,
                "a work ring fuller than it is",
            )
            at = ring.at(self.head)
            first = layout.WORK.unpack_from(ring.memory, at)
            slots = first[10]
            check(
                1 <= slots <= SLOTS - (self.head & (SLOTS - 1)),
                f"an entry of {slots} slots, over the ring's end",
            )
            entry = bytes(ring.memory[at : at + slots * layout.SLOT])
            self.head = (self.head + slots) & 0xFFFF_FFFF
            ring.put(layout.HEAD_AT, self.head)
            if first[0] != layout.PADDING:
                self.execute(first, entry)
            if "slow" in self.words:
                break
        ring.put(layout.FLAG_AT, 1)
        rings.fence()

    def behind(self) -> bool:
        """Say whether there is work for which nobody rings: left, or posted before our flag was
        seen."""
        return "deaf" not in self.words and self.head != self.ring.get(layout.TAIL_AT)

    def execute(self, first: tuple[int, ...], entry: bytes) -> None:
        kind, opcode, flags, count, qpn, wr_id, remote, rkey, immediate, inline, slots, *sge = first
        pair = self.pairs[qpn]
        more = entry[layout.SLOT :]
        check(kind in (layout.SEND, layout.RECV), f"an entry of kind {kind}")
        sges: list[tuple[int, int, int]] = []
        if not flags & layout.INLINE:
            sges = [(sge[0], sge[1], sge[2])] if count else []
            sges += [layout.SGE.unpack_from(more, i * layout.SGE.size) for i in range(count - 1)]
        check(
            slots
            == 1
            + (-(-inline // layout.SLOT) if flags & layout.INLINE else -(-max(0, count - 1) // 4)),
            f"{slots} slots of an entry",
        )
        check(not flags & layout.INLINE or count == 0, "SGEs beside inline data")
        if kind == layout.RECV:
            check(
                len(pair.receives) < pair.granted[1] and count <= pair.granted[3],
                "more receives than the queue takes",
            )
            pair.receives.append((wr_id, sges))
            if pair.attributes["state"] == ERR:
                self.fail(pair)
            return
        check(
            opcode in (WRITE, WRITE_IMM) and count <= pair.granted[2],
            f"opcode {opcode}, {count} SGEs",
        )
        status, data = SUCCESS, b""
        if pair.attributes["state"] == ERR:
            status = FLUSHED
        elif flags & layout.INLINE:
            data = more[:inline]
        else:
            parts = [self.read(pair, *one) for one in sges]
            status = LOC_PROT if None in parts else SUCCESS
            data = b"".join(part for part in parts if part is not None)
        peer = self.pairs.get(pair.attributes["dest_qpn"])
        if status == SUCCESS and (
            peer is None
            or not self.write(peer, remote, rkey, data)
            or (opcode == WRITE_IMM and not peer.receives)
        ):
            status = REM_ACCESS
        if status == SUCCESS and opcode == WRITE_IMM and peer is not None:
            receive = peer.receives.popleft()[0]
            peer.received += 1
            what = (
                receive,
                SUCCESS,
                WC_RECV_IMM,
                0,
                len(data),
                immediate,
                peer.qpn,
                qpn,
                WITH_IMM,
                peer.received,
                0,
                123_000,
            )
            self.complete(peer.recv, what, flags & layout.SOLICITED)
        pair.sent += 1
        if status != SUCCESS or flags & layout.SIGNALED:
            what = (
                wr_id,
                status,
                WC_WRITE,
                7 * (status != SUCCESS),
                len(data),
                0,
                qpn,
                0,
                0,
                pair.sent,
                1,
                456_000,
            )
            self.complete(pair.send, what, 0)
        if status not in (SUCCESS, FLUSHED):
            self.fail(pair)
            self.event(QP_FATAL, pair.qpn)

    def fail(self, pair: Pair) -> None:
        pair.attributes["state"] = pair.attributes["cur_state"] = ERR
        while pair.receives:
            receive = pair.receives.popleft()[0]
            pair.received += 1
            self.complete(
                pair.recv,
                (receive, FLUSHED, WC_RECV_IMM, 0, 0, 0, pair.qpn, 0, 0, pair.received, 0, 0),
                0,
            )

    def read(self, pair: Pair, address: int, size: int, lkey: int) -> bytes | None:
        region = self.regions.get(lkey)
        if (
            region is None
            or region.pd != pair.pd
            or not region.iova <= address <= address + size <= region.iova + region.size
        ):
            return None
        data = os.pread(self.memory, size, region.address + address - region.iova)
        return data if len(data) == size else None

    def write(self, peer: Pair, remote: int, rkey: int, data: bytes) -> bool:
        if not data:
            return True
        region = self.regions.get(rkey ^ 1 << 20)
        if region is None or region.pd != peer.pd or not region.access & 2:
            return False
        if not region.iova <= remote <= remote + len(data) <= region.iova + region.size:
            return False
        if region.file >= 0:  # so the test sees whether the program has the same pages
            return os.pwrite(region.file, data, region.offset + remote - region.iova) == len(data)
        return os.pwrite(self.memory, data, region.address + remote - region.iova) == len(data)

    def complete(self, handle: int, fields: tuple[int, ...], solicited: int) -> None:
        queue = self.queues[handle]
        ring = queue.ring
        if (queue.tail - ring.get(layout.HEAD_AT)) & 0xFFFF_FFFF >= ring.entries:
            ring.put(layout.FAILED_AT, 1)
            self.event(CQ_ERR, handle)
            return
        layout.CQE.pack_into(ring.memory, ring.at(queue.tail), *fields)
        queue.tail = (queue.tail + 1) & 0xFFFF_FFFF
        ring.put(layout.TAIL_AT, queue.tail)
        armed = ring.get(layout.FLAG_AT)
        if queue.channel and (armed == 1 or (armed == 2 and (solicited or fields[1] != SUCCESS))):
            ring.put(layout.FLAG_AT, 0)
            self.channels[queue.channel][0].send(layout.CHANNEL_EVENT.pack(handle))

    def event(self, kind: int, number: int) -> None:
        self.events.send(layout.EVENT.pack(kind, 0, number))

    def close(self) -> None:
        for end in (
            self.connection,
            self.events,
            self.theirs,
            *(end for pair in self.channels.values() for end in pair),
        ):
            end.close()


class Agent:
    """Listens, and serves all sessions until the program has ended."""

    def __init__(self, words: set[str]) -> None:
        self.words = words
        self.sessions: list[Session] = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(layout.SOCKET)
        self.listener.listen(16)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ, None)

    def run(self, program: subprocess.Popen[bytes]) -> int:
        """Serve until the program ends; return its exit status."""
        self.selector.register(os.pidfd_open(program.pid), selectors.EVENT_READ, program)
        while True:
            behind = [session for session in self.sessions if session.behind()]
            for session in behind:
                session.work()
            for key, _ in self.selector.select(0 if behind else None):
                if key.data is None:
                    connection = self.listener.accept()[0]
                    self.sessions.append(Session(connection, self.words))
                    self.selector.register(connection, selectors.EVENT_READ, self.sessions[-1])
                elif isinstance(key.data, Session):
                    if not key.data.serve():
                        self.drop(key.data)
                else:
                    return program.wait()

    def drop(self, session: Session) -> None:
        self.selector.unregister(session.connection)
        self.sessions.remove(session)
        session.close()


def main(command: list[str]) -> int:
    agent = Agent(set(os.environ.get("AGENT", "").split()))
    library = os.environ.get("LIBRARY") or str(build.library())
    return agent.run(subprocess.Popen(command, env=os.environ | {"LD_PRELOAD": library}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
