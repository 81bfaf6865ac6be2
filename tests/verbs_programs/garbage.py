"""A program that speaks to its host's agent without a verbs library, and says nothing that makes
sense for long: garbage requests, descriptors of wrong kinds, and garbage in all bytes of the rings
that it shares with the agent.

``python garbage.py SEED ROUNDS`` on an emulated host; in one process with a server
tests/agents/verbs/test_garbage.py uses it. Whatever the memory is that it names, it is that of a
child which does nothing else.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from random import Random

from agents.verbs import layout

RTR, RTS = 0b100101001000110000001, 0b10010111000000001
"""Attribute masks: state and all that the transition must have."""
COUNTERS = (layout.TAIL_AT, layout.HEAD_AT, layout.FLAG_AT, layout.FAILED_AT)


class Ended(Exception):
    """The agent has closed the session."""


class Stranger:
    """A connection to the agent. ``pump`` lets the agent work, where it is in this process."""

    def __init__(
        self,
        sock: socket.socket,
        memory: int,
        drawn: Random,
        pump: Callable[[], None] = lambda: None,
    ) -> None:
        self.sock, self.memory, self.drawn, self.pump = sock, memory, drawn, pump
        self.stack = ExitStack()
        self.stack.callback(sock.close)
        self.serial = 0
        self.errors = 0
        self.work: mmap.mmap | None = None
        self.rings: list[mmap.mmap] = []
        self.handles = [0, 1]
        self.qpns = [0]
        self.keys = [0]
        self.tail = 0

    def send(self, data: bytes, fds: list[int] | None = None) -> None:
        try:
            socket.send_fds(self.sock, [data], fds or [], socket.MSG_NOSIGNAL)
        except OSError as problem:
            raise Ended from problem
        self.pump()

    def call(self, op: int, *arguments: int, fds: list[int] | None = None) -> list[int]:
        """Ask; returns the results, all 0 if it was refused."""
        self.serial += 1
        self.send(
            layout.REQUEST.pack(
                op, self.serial, *arguments, *[0] * (layout.ARGUMENTS - len(arguments))
            ),
            fds,
        )
        if op == layout.DOORBELL:
            return [0] * layout.ARGUMENTS
        try:
            answer, got, _, _ = socket.recv_fds(self.sock, layout.ANSWER.size, 4)
        except OSError as problem:
            raise Ended from problem
        if not answer:
            raise Ended
        _, error, *results = layout.ANSWER.unpack(answer)
        self.errors += error != 0
        for fd in got:
            with suppress(OSError, ValueError):  # a socket cannot be mapped
                ring = self.stack.enter_context(mmap.mmap(fd, 0))
                if op == layout.HELLO:
                    self.work = ring
                else:
                    self.rings.append(ring)
            os.close(fd)
        return results

    def begin(self) -> None:
        """Have one of everything, and two queue pairs that write to each other."""
        self.call(layout.HELLO, layout.VERSION, os.getpid(), fds=[self.memory])
        pd = self.call(layout.ALLOC_PD)[0]
        channel = self.call(layout.CREATE_CHANNEL)[0]
        cq = self.call(layout.CREATE_CQ, 16, channel)[0]
        self.handles += [pd, channel, cq]
        region = self.call(layout.REG_MR, pd, 1 << 20, 1 << 20, 1 << 20, 3)
        self.keys += region[1:3]
        gid = self.call(layout.QUERY_GID, 1, self.drawn.randrange(2))
        pairs = [
            self.call(layout.CREATE_QP, pd, cq, cq, 2, 64, 64, 4, 4, 256, 0)[0] for _ in range(2)
        ]
        self.qpns += pairs
        for mine, other in (pairs, pairs[::-1]):
            self.modify(mine, 0b111001, state=1, port=1, access=2)
            dgid = {"dgid_first": gid[0], "dgid_last": gid[1], "is_global": 1}
            self.modify(mine, RTR, state=2, path_mtu=1, dest_qpn=other, **dgid)
            self.modify(mine, RTS, state=3)

    def modify(self, qpn: int, mask: int, **values: int) -> None:
        self.call(
            layout.MODIFY_QP, qpn, mask, *(values.get(name, 0) for name in layout.QP_ATTRIBUTES)
        )

    # --- what is drawn ----------------------------------------------------------------------------

    def number(self, bits: int = 64) -> int:
        """A number that may mean something, or is at an edge, or anything."""
        drawn = self.drawn
        known = self.handles + self.qpns + self.keys
        edge = (1 << drawn.randrange(bits + 1)) + drawn.randrange(-2, 3)
        return (
            drawn.choice(
                (drawn.choice(known), drawn.randrange(8), edge, drawn.getrandbits(bits), 1 << 20)
            )
            & (1 << bits) - 1
        )

    def request(self) -> None:
        op = (
            self.drawn.randrange(layout.REQUESTS + 3)
            if self.drawn.random() < 0.1
            else self.drawn.randrange(2, layout.REQUESTS)
        )
        fds = self.strange_fds() if self.drawn.random() < 0.1 else []
        try:
            results = self.call(
                op,
                *(self.number() for _ in range(self.drawn.randrange(layout.ARGUMENTS + 1))),
                fds=fds,
            )
        finally:
            for fd in fds:
                os.close(fd)
        if op == layout.REG_MR:
            self.keys += results[1:3]
        elif op == layout.CREATE_QP:
            self.qpns.append(results[0])
        elif op in (layout.ALLOC_PD, layout.CREATE_CQ, layout.CREATE_CHANNEL):
            self.handles.append(results[0])

    def strange_fds(self) -> list[int]:
        """Descriptors of all kinds, up to as many as a message may have."""
        read, write = os.pipe()
        one, other = socket.socketpair()
        empty = os.memfd_create("empty", os.MFD_ALLOW_SEALING)
        holed = os.memfd_create("holed", os.MFD_ALLOW_SEALING)
        os.ftruncate(holed, 1 << 40)
        for fd in (empty, holed):
            fcntl.fcntl(
                fd,
                fcntl.F_ADD_SEALS,
                self.drawn.choice(
                    (0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)
                ),
            )
        made = [
            read,
            write,
            one.detach(),
            other.detach(),
            empty,
            holed,
            os.open("/dev/zero", os.O_RDWR),
            os.open("/proc/self/mem", os.O_RDONLY),
            os.open("/", os.O_RDONLY),
            os.eventfd(0),
            os.open("/proc/self/maps", os.O_RDONLY),
            os.open("/", os.O_PATH),
            os.dup(self.memory),
            os.dup(self.sock.fileno()),
        ]
        self.drawn.shuffle(made)
        kept = self.drawn.choice((1, 1, 2, 3, len(made)))
        for fd in made[kept:]:
            os.close(fd)
        return made[:kept]

    def entry(self) -> bytes:
        """A work request: one in thirty has a form that no library writes, the others are of
        anything."""
        drawn = self.drawn
        odd = drawn.random() < 0.03
        kind, more = drawn.choice((0, 1, 1, 1, 1, 1, 2, 2)), drawn.choice((0, 0, 0, 1, 4, 8))
        opcode, flags = (
            drawn.choice((0, 1, 1, drawn.getrandbits(8))),
            drawn.getrandbits(drawn.choice((3, 4, 8))),
        )
        sges, inline, slots = (
            drawn.randrange(min(16, 1 + 4 * more) + 1),
            drawn.randrange(more * layout.SLOT + 1),
            1 + more,
        )
        if odd:
            wrong = (0, 17, 255, drawn.getrandbits(32))
            kind, sges, inline, slots = (
                right if drawn.random() < 0.6 else drawn.choice(wrong)
                for right in (kind, sges, inline, slots)
            )
        qpn, rkey, lkey = drawn.choice(self.qpns), drawn.choice(self.keys), drawn.choice(self.keys)
        fields = (
            qpn & 0xFFFF_FFFF,
            self.number(),
            self.number(),
            rkey & 0xFFFF_FFFF,
            self.number(32),
            inline,
            slots,
        )
        head = layout.WORK.pack(
            kind & 0xFF,
            opcode,
            flags,
            sges & 0xFF,
            *fields,
            self.number(),
            self.number(32),
            lkey & 0xFFFF_FFFF,
        )
        return head + drawn.randbytes(more * layout.SLOT)

    def post(self) -> None:
        """Put entries into the work ring, and move its tail: rightly as a rule."""
        assert self.work is not None
        for _ in range(self.drawn.randrange(1, 20)):
            data = self.entry()
            at = layout.RINGS_AT + self.tail % layout.SLOTS * layout.SLOT
            self.work[at : at + len(data)] = data[: len(self.work) - at]
            self.tail = (
                self.tail
                + (
                    len(data) // layout.SLOT
                    if self.drawn.random() < 0.99
                    else self.drawn.getrandbits(15)
                )
                & 0xFFFF_FFFF
            )
        struct.pack_into("=I", self.work, layout.TAIL_AT, self.tail)
        self.call(layout.DOORBELL)

    def scribble(self) -> None:
        """Write into a ring: a counter, or all of its entries."""
        assert self.work is not None
        ring = self.drawn.choice([self.work, *self.rings])
        if self.drawn.random() < 0.8:
            struct.pack_into("=I", ring, self.drawn.choice(COUNTERS), self.number(32))
        else:
            size = len(ring) - layout.RINGS_AT
            ring[layout.RINGS_AT :] = (self.drawn.randbytes(1 << 10) * (1 + size // (1 << 10)))[
                :size
            ]
        self.call(layout.DOORBELL)

    def shout(self) -> None:
        """Say what is no request."""
        fds = self.strange_fds() if self.drawn.random() < 0.3 else []
        try:
            self.send(
                self.drawn.randbytes(
                    self.drawn.choice(
                        (1, 100, layout.REQUEST.size - 1, layout.REQUEST.size + 1, 5000)
                    )
                ),
                fds,
            )
        finally:
            for fd in fds:
                os.close(fd)
        self.request()

    def deaf(self) -> None:
        """Ask and ask, and never listen."""
        for _ in range(1000):
            self.send(layout.REQUEST.pack(layout.QUERY_PORT, 1, 1, *[0] * (layout.ARGUMENTS - 1)))

    def go_on(self, steps: int) -> None:
        """Do ``steps`` things. Raises :class:`Ended` as soon as the agent has had enough."""
        if self.drawn.random() < 0.9:
            self.begin()
        else:
            self.request()
        for _ in range(steps):
            if self.work is None:
                self.request()
            else:
                ways = (self.request, self.post, self.scribble, self.shout, self.deaf)
                self.drawn.choices(ways, (40, 40, 10, 1, 0.2))[0]()


def sacrifice() -> tuple[subprocess.Popen[bytes], int]:
    """A child, and its memory, with a megabyte of its own at 1 << 20."""
    text = (
        "import ctypes, sys; m = ctypes.CDLL(None).mmap; m.restype = m.argtypes = None; "
        "m(ctypes.c_void_p(1 << 20), ctypes.c_size_t(1 << 20), 3, 0x32, -1, ctypes.c_long(0)); "
        "print(flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        (sys.executable, "-c", text), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child, os.open(f"/proc/{child.pid}/mem", os.O_RDWR | os.O_CLOEXEC)


def main(seed: int, rounds: int) -> None:
    drawn = Random(seed)
    child, memory = sacrifice()
    ended = errors = 0
    try:
        for _ in range(rounds):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.connect(layout.SOCKET)
            stranger = Stranger(sock, memory, drawn)
            with stranger.stack:
                try:
                    stranger.go_on(drawn.randrange(60))
                except Ended:
                    ended += 1
            errors += stranger.errors
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    print(
        f"seed {seed}: {rounds} sessions, {ended} ended by the agent, {errors} requests refused",
        flush=True,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
