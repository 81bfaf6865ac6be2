"""Ring all-reduce: reduce-scatter, then all-gather, in slices that flow through the ring like a pipeline.

Rank r sends to r + 1. In reduce-scatter step s it sends chunk (r - s), into the successor's scratch of that step, which adds its own
part; after n - 1 steps it holds the finished chunk (r + 1). In all-gather step s it sends chunk (r + 1 - s) straight to where the
successor's result keeps it. Every slice is one WRITE with immediate; the immediate says which.

Nothing is overwritten while it may still be read: a rank can be at most one step ahead of its successor, so two sets of buffers, used
in turns, are enough; a late retransmission of what was overwritten meanwhile is a duplicate that the responder never places.
"""

from __future__ import annotations

import mmap
import time
from typing import Any

import numpy as np

from agents.collectives.data import DTYPES, RingData
from agents.device import Device
from agents.transport import FLUSHED, OK, RECEIVE, STATUS_NAMES, Region

ARENA = 1 << 28
"""Bytes of registered memory per agent; the kernel commits only what is touched."""
STEP_BITS, RING_BITS, SLICE_BITS = 12, 10, 10
_CREDITS = 64


class CollectiveError(ValueError):
    """A collective that cannot be run as asked. One line."""


class Ring:
    """A rank's place in a ring: queue pairs to both neighbours and one arena that the predecessor writes into."""

    def __init__(self, device: Device, ranks: list[int], rank: int, qps: int, slices: int) -> None:
        n = len(ranks)
        if n < 2 or len(set(ranks)) != n or not 0 <= rank < n or ranks[rank] != device.host:
            raise CollectiveError(f"a ring needs at least two different hosts and this one (h{device.host}) at its own rank")
        if not 1 <= slices < 1 << SLICE_BITS or not 1 <= qps <= 64 or n > 1 << (RING_BITS - 1):
            raise CollectiveError(
                f"slices = {slices}, qps = {qps}, {n} ranks: at most {(1 << SLICE_BITS) - 1}, 64 and {1 << (RING_BITS - 1)}"
            )
        self.device = device
        self.ranks = ranks
        self.rank = rank
        self.n = n
        self.slices = slices
        self.next = (rank + 1) % n
        self.previous = (rank - 1) % n
        self.memory = mmap.mmap(-1, ARENA)
        self.arena = memoryview(self.memory)
        self.region: Region = device.register(self.arena)
        self.qps: dict[int, list[int]] = {}
        self.local: dict[str, list[dict[str, Any]]] = {}
        for peer in {self.next, self.previous}:
            made = [device.create_qp(ranks[peer]) for _ in range(qps)]
            self.qps[peer] = [q["qpn"] for q in made]
            self.local[str(peer)] = [{**q, "arena": list(self.region)} for q in made]
        self.peer_of = {qpn: peer for peer, qpns in self.qps.items() for qpn in qpns}
        self.remote = Region(0, 0, 0)
        self.run: RingAllReduce | None = None

    def connect(self, remotes: dict[str, list[dict[str, Any]]]) -> None:
        """Connect every queue pair with what the neighbours' :attr:`local` say."""
        for peer, qpns in self.qps.items():
            theirs = remotes[str(peer)]
            for qpn, remote in zip(qpns, theirs, strict=True):
                self.device.connect_qp(qpn, remote)
                for _ in range(_CREDITS):
                    self.device.post_recv(qpn, 0)
            if peer == self.next:
                self.remote = Region(*theirs[0]["arena"])


class RingAllReduce:
    """``warmup`` + ``steps`` all-reduces, numbered from 0. Drive it with :meth:`completed` and :meth:`idle`; it never blocks."""

    def __init__(self, ring: Ring, message_bytes: int, dtype: str, steps: int, warmup: int, seed: int) -> None:
        if dtype not in DTYPES:
            raise CollectiveError(f"dtype {dtype!r}: there are {', '.join(DTYPES)}")
        n = ring.n
        item = DTYPES[dtype].itemsize
        unit = n * ring.slices * item
        if message_bytes <= 0 or message_bytes % unit:
            raise CollectiveError(f"message_bytes = {message_bytes} must be a multiple of {unit} (ranks x slices x {item} bytes)")
        if 4 * message_bytes > ARENA:
            raise CollectiveError(f"message_bytes = {message_bytes} is more than {ARENA // 4}")
        if steps < 1 or warmup < 0:
            raise CollectiveError(f"steps = {steps}, warmup = {warmup}: at least one step, no negative warm-up")
        self.ring = ring
        self.total_steps = steps + warmup
        self.warmup = warmup
        self.count = message_bytes // item
        self.message_bytes = message_bytes
        self.chunk = message_bytes // n
        self.slice = self.chunk // ring.slices
        self.data = RingData(n, ring.rank, self.count, dtype, seed)
        dt = DTYPES[dtype]
        scratch = self.chunk * (n - 1)
        self.set_bytes = message_bytes + scratch
        self.result = [np.frombuffer(ring.arena, dt, self.count, k * self.set_bytes) for k in range(2)]
        self.scratch = [np.frombuffer(ring.arena, dt, scratch // item, k * self.set_bytes + message_bytes) for k in range(2)]
        self.input = [np.empty(self.count, dt) for _ in range(2)]
        self.views = [a.data.cast("B") for a in self.input]
        self.item = item
        self.step = -1
        self.wrong = 0
        self.started_ns = 0
        self.remaining = 0
        self.open_writes = [0, 0]
        self.early: dict[int, list[tuple[int, int]]] = {}  # what the predecessor sent for a step not begun here
        self.waiting = False  # for acknowledgements of the step whose buffers the next one reuses
        self.ended = False  # the last result is there
        self.finished = False  # and the neighbours have everything
        self.leftover: list[Any] = []  # receives that belong to the next collective
        self.records: list[dict[str, Any]] = []
        self.failure: dict[str, Any] | None = None

    def begin(self) -> None:
        """Start the next step."""
        self.step += 1
        k = self.step & 1
        self.data.fill(self.step, self.input[k])
        self.remaining = 2 * (self.ring.n - 1) * self.ring.slices
        self.started_ns = time.monotonic_ns()
        for j in range(self.ring.slices):
            self._send(0, j)
        for ring_step, j in self.early.pop(self.step, ()):
            self._arrived(ring_step, j)

    def _send(self, ring_step: int, j: int) -> None:
        """Slice ``j`` of what this ring step sends."""
        ring = self.ring
        n = ring.n
        k = self.step & 1
        gather = ring_step >= n - 1
        chunk = (ring.rank + 1 - (ring_step - (n - 1))) % n if gather else (ring.rank - ring_step) % n
        at = chunk * self.chunk + j * self.slice
        if ring_step == 0:
            memory = self.views[k][at : at + self.slice]
        else:
            memory = ring.arena[k * self.set_bytes + at : k * self.set_bytes + at + self.slice]
        if gather:
            target = k * self.set_bytes + at
        else:
            target = k * self.set_bytes + self.message_bytes + ring_step * self.chunk + j * self.slice
        imm = self.step % (1 << STEP_BITS) << (RING_BITS + SLICE_BITS) | ring_step << SLICE_BITS | j
        qpns = ring.qps[ring.next]
        self.open_writes[k] += 1
        ring.device.post_write(qpns[j % len(qpns)], k, memory, ring.remote.va + target, ring.remote.rkey, imm)

    def _arrived(self, ring_step: int, j: int) -> None:
        """Slice ``j`` of the predecessor's ring step is in memory: reduce it, pass it on."""
        ring = self.ring
        n = ring.n
        k = self.step & 1
        if ring_step < n - 1:
            chunk = (ring.rank - 1 - ring_step) % n
            a = (chunk * self.chunk + j * self.slice) // self.item
            b = (ring_step * self.chunk + j * self.slice) // self.item
            m = self.slice // self.item
            np.add(self.input[k][a : a + m], self.scratch[k][b : b + m], out=self.result[k][a : a + m])
        self.remaining -= 1
        if ring_step + 1 < 2 * (n - 1):
            self._send(ring_step + 1, j)

    def completed(self, completions: list[Any]) -> None:
        """Take completions; begins steps, ends them, and sets :attr:`failure` when a request failed."""
        for c in completions:
            if c.qpn not in self.ring.peer_of:
                continue  # of a ring that was given up
            if c.status != OK:
                if self.failure is None:
                    # Flushed receives come before the write that has the cause.
                    cause = next((x for x in completions if x.status not in (OK, FLUSHED)), c)
                    peer = self.ring.peer_of.get(cause.qpn, -1)
                    self.failure = {"peer_rank": peer, "reason": STATUS_NAMES[cause.status]}
                return
            if c.kind != RECEIVE:
                self.open_writes[c.wr_id] -= 1
                continue
            if self.ended:
                self.leftover.append(c)
                continue
            self.ring.device.post_recv(c.qpn, 0)
            step = c.imm >> (RING_BITS + SLICE_BITS)
            ring_step, j = c.imm >> SLICE_BITS & (1 << RING_BITS) - 1, c.imm & (1 << SLICE_BITS) - 1
            if step == self.step % (1 << STEP_BITS) and self.remaining:
                self._arrived(ring_step, j)
            else:
                self.early.setdefault(self.step + 1, []).append((ring_step, j))
        if self.remaining == 0 and self.step >= 0 and not self.ended and not self.waiting:
            self._end_step()

    def _end_step(self) -> None:
        now = time.monotonic_ns()
        wrong = self.data.wrong(self.step, self.result[self.step & 1])
        self.wrong += wrong
        self.records.append({"rank": self.ring.rank, "step": self.step, "start_ns": self.started_ns, "end_ns": now, "ok": wrong == 0})
        if self.step + 1 >= self.total_steps:
            self.ended = True
        elif self.open_writes[self.step + 1 & 1] == 0:
            self.begin()
        else:
            self.waiting = True

    def idle(self) -> None:
        """Go on once the writes that the next step, or the end, waits for are acknowledged."""
        if self.waiting and self.open_writes[self.step + 1 & 1] == 0:
            self.waiting = False
            self.begin()
        elif self.ended and self.open_writes == [0, 0]:
            self.finished = True
