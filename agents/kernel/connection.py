"""A queue pair over one connection: posted requests in, completions out.

States: INIT (made), CONNECTING (requests are taken and wait), OPEN, ERROR, CLOSED (both ends meant
it). A WRITE is complete when the peer's *kernel* has acknowledged all its bytes: the peer's agent
then places them whatever becomes of us, as with a NIC.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from agents.kernel.framing import BYE, HELLO, WRITE, FramingError, Header, Inbound, Memory
from agents.kernel.info import unacknowledged, unsent
from agents.transport import (
    FLUSHED,
    LONG_AGO,
    OK,
    RECEIVE,
    REMOTE_ACCESS,
    RETRY_EXCEEDED,
    Completion,
    Event,
)
from agents.transport import WRITE as WRITE_DONE
from topologies.units import MS

INIT, CONNECTING, OPEN, ERROR, CLOSED = range(5)
STATES = ("INIT", "CONNECTING", "OPEN", "ERROR", "CLOSED")
IOV = 16
MOST = 1 << 18
"""Most bytes received from one connection in a turn [ours]."""
HELD = 1024
"""Most immediates kept for want of a receive request; then nothing more is read [ours]."""


class Outgoing(NamedTuple):
    wr_id: int
    imm: int
    length: int  # of the payload
    start: int  # of the header in the stream
    end: int  # of the payload


class Connection:
    """``token``: what a peer must know to connect."""

    def __init__(
        self,
        qpn: int,
        peer: int,
        token: int,
        memory: Memory,
        timeout_ps: int,
        completions: list[Completion],
        log: Callable[[Event], None],
    ) -> None:
        self.qpn, self.peer, self.token, self.timeout_ps = qpn, peer, token, timeout_ps
        self.state = INIT
        self.sock: socket.socket | None = None
        self.inbound = Inbound(memory)
        self.blocked = False  # the kernel's buffer is full, or the connection is not there yet
        self.quiesced = False  # the kernel gets no more bytes
        self.leaving = False  # the peer said BYE
        self.counts = {
            "tx_messages": 0,
            "rx_messages": 0,
            "rx_refused_access": 0,
            "rx_bad_header": 0,
        }
        self._completions, self._log = completions, log
        self._unsent: deque[memoryview] = deque()
        self._outgoing: deque[Outgoing] = deque()
        self._recvs: deque[int] = deque()
        # (imm, length) without a receive request
        self._immediates: deque[tuple[int, int]] = deque()
        self._written = self._posted = self._acked = 0  # bytes of the stream
        self._acked_payload = 0
        self._progress_at = LONG_AGO

    # --- verbs ------------------------------------------------------------------------------------

    def post_recv(self, wr_id: int) -> None:
        if self.state in (ERROR, CLOSED):
            self._completions.append(Completion(self.qpn, wr_id, RECEIVE, FLUSHED, -1, 0))
        elif self._immediates:
            self._arrived(wr_id, *self._immediates.popleft())
        else:
            self._recvs.append(wr_id)

    def post_write(
        self, now: int, wr_id: int, memory: memoryview, va: int, rkey: int, imm: int
    ) -> None:
        """Raises ValueError on a queue pair that was not connected, or is in ERROR."""
        if self.state not in (CONNECTING, OPEN):
            raise ValueError(
                f"queue pair {self.qpn} is {STATES[self.state]}: nothing can be posted"
            )
        flat = memory.cast("B") if memory.format != "B" or memory.ndim != 1 else memory
        if not self._outgoing:
            self._progress_at = now
        start = self._posted
        self._queue(Header(WRITE, va, rkey, len(flat), imm).pack())
        if len(flat):
            self._queue(flat)
        self._outgoing.append(Outgoing(wr_id, imm, len(flat), start, self._posted))

    def _queue(self, data: bytes | memoryview) -> None:
        self._unsent.append(memoryview(data))
        self._posted += len(data)

    # --- the socket -------------------------------------------------------------------------------

    def connecting(self, now: int, sock: socket.socket, hello: Header) -> None:
        self.sock, self.state, self.blocked, self._progress_at = sock, CONNECTING, True, now
        self._queue(hello.pack())

    def expect(self, now: int) -> None:
        if self.state == INIT:
            self.state, self.blocked, self._progress_at = CONNECTING, True, now

    def adopt(self, now: int, sock: socket.socket) -> None:
        self.sock, self.state, self.blocked, self._progress_at = sock, OPEN, False, now

    @property
    def reads(self) -> bool:
        return self.sock is not None and self.state == OPEN and len(self._immediates) < HELD

    @property
    def writes(self) -> bool:
        waiting = self.blocked and bool(self._unsent) and not self.quiesced
        return self.sock is not None and waiting and self.state in (CONNECTING, OPEN)

    @property
    def waits(self) -> bool:
        return self.state in (CONNECTING, OPEN) and (
            bool(self._outgoing) or self.state == CONNECTING
        )

    def writable(self, now: int) -> None:
        assert self.sock is not None
        if self.state == CONNECTING:
            number = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                self.fail(now, f"cannot connect: {os.strerror(number)}")
                return
            self.state, self._progress_at = OPEN, now
        self.blocked = False

    def flush(self, now: int) -> None:
        while (
            self._unsent
            and not self.blocked
            and not self.quiesced
            and self.state == OPEN
            and self.sock is not None
        ):
            try:
                count = self.sock.sendmsg(list(islice(self._unsent, IOV)))
            except BlockingIOError:
                self.blocked = True
                return
            except OSError as error:
                self.fail(now, error.strerror or str(error))
                return
            self._written += count
            while count:
                first = self._unsent[0]
                if count < len(first):
                    self._unsent[0] = first[count:]
                    break
                count -= len(first)
                self._unsent.popleft()

    def readable(self, now: int) -> None:
        left = MOST
        while left > 0 and self.reads:
            assert self.sock is not None
            try:
                count = self.sock.recvmsg_into(self.inbound.buffers())[0]
            except BlockingIOError:
                return
            except OSError as error:
                self.fail(now, error.strerror or str(error))
                return
            if not count:
                self.fail(now, "the peer has closed the connection")
                return
            left -= count
            try:
                for message in self.inbound.took(count):
                    self._message(now, message)
            except FramingError as error:
                self.counts[error.cause] += 1
                self.fail(now, str(error), REMOTE_ACCESS)
                return

    def _message(self, now: int, message: Header) -> None:
        if message.kind == BYE:
            self.leaving = True
            return
        if message.kind == HELLO:
            raise FramingError("rx_bad_header", "a second HELLO")
        self.counts["rx_messages"] += 1
        if message.imm < 0:
            return
        if self._recvs:
            self._arrived(self._recvs.popleft(), message.imm, message.length)
        else:
            self._immediates.append((message.imm, message.length))

    def _arrived(self, wr_id: int, imm: int, length: int) -> None:
        self._completions.append(Completion(self.qpn, wr_id, RECEIVE, OK, imm, length))

    def look(self, now: int) -> None:
        if self.sock is not None and self.state == OPEN and self._outgoing:
            try:
                acked = self._written - unacknowledged(self.sock)
                # A connection that has just ended counts nothing as outstanding.
                number = (
                    self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if acked > self._acked
                    else 0
                )
            except OSError as error:
                self.fail(now, error.strerror or str(error))
                return
            if number:
                self.fail(now, os.strerror(number))
                return
            if acked > self._acked:
                self._acked, self._progress_at = acked, now
            while self._outgoing and self._outgoing[0].end <= self._acked:
                request = self._outgoing.popleft()
                self._acked_payload += request.length
                self.counts["tx_messages"] += 1
                self._completions.append(
                    Completion(self.qpn, request.wr_id, WRITE_DONE, OK, request.imm, request.length)
                )
        if self.waits and now - self._progress_at > self.timeout_ps:
            self.fail(now, f"no progress for {self.timeout_ps / MS:g} ms")

    # --- the end ----------------------------------------------------------------------------------

    def fail(self, now: int, reason: str, status: int = RETRY_EXCEEDED) -> None:
        """The first outstanding WRITE has the cause. After a BYE nothing is logged."""
        if self.state in (ERROR, CLOSED):
            return
        self.state = CLOSED if self.leaving and not self._outgoing else ERROR
        if self.state == ERROR:
            self._log(
                (now, "qp", {"peer": self.peer, "qpn": self.qpn, "state": "ERROR", "cause": reason})
            )
        for i, request in enumerate(self._outgoing):
            self._completions.append(
                Completion(
                    self.qpn,
                    request.wr_id,
                    WRITE_DONE,
                    FLUSHED if i else status,
                    request.imm,
                    request.length,
                )
            )
        for wr_id in self._recvs:
            self._completions.append(Completion(self.qpn, wr_id, RECEIVE, FLUSHED, -1, 0))
        self._outgoing.clear()
        self._unsent.clear()
        self._recvs.clear()
        self.drop()

    def bye(self) -> None:
        if self.state == OPEN and not self._unsent and self.sock is not None:
            try:
                self.sock.send(Header(BYE, 0, 0, 0, -1).pack())
            except OSError:
                pass

    def drop(self) -> None:
        """Close the socket without a state that would outlive us in the kernel."""
        if self.sock is not None:
            try:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            except OSError:
                pass
            self.sock.close()
            self.sock = None

    # --- figures ----------------------------------------------------------------------------------

    def payload_sent(self) -> int:
        if self.sock is None or self.state != OPEN:
            return self._acked_payload
        try:
            departed = self._written - unsent(self.sock)
        except OSError:
            return self._acked_payload
        return self._acked_payload + sum(
            max(0, min(o.length, departed - (o.end - o.length))) for o in self._outgoing
        )
