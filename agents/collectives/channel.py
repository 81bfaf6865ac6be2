"""Calls on one group, one after the other: collectives on a program's own data, and messages
between two ranks.

Steps are numbered on from call to call, sets of buffers take turns, and writes of earlier calls
count (base.py). So every kind of call here must end on a rank only after all ranks have begun it;
``send-recv`` does not and is refused.

A message between two ranks goes straight from memory to memory. The receiver writes the address and
length of its buffer into the sender's mailbox, at the end of its arena; the sender answers with the
data. Both use immediates. The k-th send to a rank meets the k-th receive there.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque

import numpy as np

from agents.collectives.base import MARK_BITS, RENDEZVOUS, SLICE_BITS, STAGE_BITS, Collective, Given
from agents.collectives.data import ALL, TYPES, Array, StepData
from agents.collectives.group import MOST_KEPT, CollectiveError, Group, LostError
from agents.collectives.registry import find
from agents.transport import NEVER, RECEIVE, Completion, Note

BOXES = 16
"""Places in a mailbox per rank [ours]."""
_WHERE = struct.Struct("!QQ")  # offset in the receiver's memory, bytes
_AT_MOST = 1 << 62  # with the bytes: fewer will do
MOST_CALLS = 4096
"""Most calls that wait [ours]."""
REDUCTIONS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
_DATA = 1 << SLICE_BITS - 1  # of a rendezvous immediate: the message itself, not where it is wanted
_SEND, _ASK = 2, 3  # work request ids; 0 and 1 are the buffer sets


class CallData(StepData):
    def __init__(self, source: Array, target: Array) -> None:
        super().__init__(source, target, 1)

    def fill(self, step: int, out: Array, part: slice = ALL) -> None:
        out[:] = self.base[part]

    def wrong(self, step: int, result: Array, part: slice = ALL) -> int:
        self.expected[part] = result[part]
        return 0


class _Call:
    def __init__(
        self,
        number: int,
        kind: type[Collective],
        slices: int,
        dtype: str,
        size: int,
        reduce: np.ufunc,
        root: int,
    ) -> None:
        self.number = number
        self.kind, self.slices, self.dtype, self.size, self.reduce, self.root = (
            kind,
            slices,
            dtype,
            size,
            reduce,
            root,
        )
        self.data: CallData | None = None


class Channel:
    """``memory`` is the program's; offsets are within it. Calls that have ended are in
    :attr:`over`. :attr:`failure` is final."""

    def __init__(self, group: Group, slices: int, memory: memoryview) -> None:
        self.group = group
        self.slices = slices
        self.memory = memory
        # what collectives leave free: half a message's part at least
        self.mail = len(group.arena) - group.n * BOXES * _WHERE.size
        self.bundle = {bundle.peer: bundle for bundle in group.bundles}
        self.waiting: deque[_Call] = deque()
        self.current: Collective | None = None
        self.number = -1  # of the current call
        self.step = 0  # of the next one
        self.open_writes = [0, 0]
        self.pending: list[Completion] = []  # what peers sent for a call that has not begun here
        self.sends: dict[int, deque[tuple[int, int, int]]] = {}  # by peer: call, offset, bytes
        # by peer: offset and bytes that it asked for and has not got
        self.wanted: dict[int, deque[tuple[int, int]]] = {}
        # by peer: call, offset, bytes; the first `asked` are asked for
        self.receives: dict[int, deque[tuple[int, int, int]]] = {}
        self.asked: dict[int, int] = {}
        self.asked_ever: dict[int, int] = {}
        self.heard_ever: dict[int, int] = {}
        self.sent: dict[int, deque[int]] = {}  # by peer: calls whose data is on its way, in order
        self.over: list[int] = []
        # by rank: after how many collectives its program ended, and why
        self.gone: dict[int, tuple[int, str]] = {}
        self.failure: Note | None = None

    # --- calls ------------------------------------------------------------------------------------

    def call(
        self,
        number: int,
        name: str,
        dtype: str,
        size: int,
        source: int,
        target: int,
        reduction: str = "sum",
        root: int = 0,
    ) -> None:
        """``size`` counts as in nccl-tests. Raises :class:`CollectiveError`."""
        kind, n = find(name), self.group.n
        if kind.CREDIT:
            raise CollectiveError(f"{name} is no call on a program's data: use send and recv")
        if reduction not in REDUCTIONS:
            raise CollectiveError(f"op {reduction!r}: there are {', '.join(REDUCTIONS)}")
        if not 0 <= root < n:
            raise CollectiveError(f"root = {root}: the ranks are 0 to {n - 1}")
        if dtype not in TYPES:
            raise CollectiveError(f"dtype {dtype!r}: there are {', '.join(TYPES)}")
        if len(self.waiting) >= MOST_CALLS:
            raise CollectiveError(f"{MOST_CALLS} calls are waiting: wait for some of them")
        item = TYPES[dtype].itemsize
        unit = kind.parts(n) * item
        slices = next(
            (
                k
                for k in range(min(self.slices, max(1, size // unit)), 0, -1)
                if size % (unit * k) == 0
            ),
            1,
        )
        kind.check(n, slices, size, dtype, 1, 0, TYPES)
        made = _Call(number, kind, slices, dtype, size, REDUCTIONS[reduction], root)
        given, result = kind.sizes(n, size)
        made.data = CallData(self._array(source, given, dtype), self._array(target, result, dtype))
        self.waiting.append(made)
        self._go_on()

    @property
    def outstanding(self) -> int:
        return (
            len(self.waiting)
            + sum(map(len, self.sends.values()))
            + sum(map(len, self.receives.values()))
        )

    def lose(self, peer: int, reason: str, steps: int) -> None:
        """Take that a rank's program has ended after ``steps`` collectives: those still end, later
        ones cannot."""
        self.gone[peer] = (steps, reason)
        if self.sends.get(peer) or self.receives.get(peer):
            self.failure = self.failure or {"peer_rank": peer, "reason": reason}
        self._go_on()

    def _lost(self) -> Note | None:
        for peer, (steps, reason) in self.gone.items():
            if self.current is not None and self.step > steps:
                return {"peer_rank": peer, "reason": reason}
        return None

    def _array(self, offset: int, size: int, dtype: str) -> Array:
        self._check(offset, size)
        return np.frombuffer(self.memory, TYPES[dtype], size // TYPES[dtype].itemsize, offset)

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > len(self.memory):
            raise CollectiveError(
                f"bytes {offset} to {offset + size} are not all in the memory of {len(self.memory)}"
            )

    def send(self, number: int, peer: int, offset: int, size: int) -> None:
        """Raises :class:`CollectiveError`."""
        self._check_peer(peer)
        self._check(offset, size)
        self.sends.setdefault(peer, deque()).append((number, offset, size))
        self._match(peer)

    def recv(self, number: int, peer: int, offset: int, size: int, at_most: bool = False) -> None:
        """With ``at_most`` the message may be shorter. Raises :class:`CollectiveError`."""
        self._check_peer(peer)
        self._check(offset, size)
        if at_most:
            size |= _AT_MOST
        self.receives.setdefault(peer, deque()).append((number, offset, size))
        self._ask(peer)

    def _check_peer(self, peer: int) -> None:
        if peer not in self.bundle:
            raise CollectiveError(
                f"rank {peer}: there are ranks 0 to {self.group.n - 1}, and this one is "
                f"{self.group.rank}"
            )
        if peer in self.gone:
            raise LostError(peer, self.group.ranks[peer], self.gone[peer][1])

    # --- between two ranks ------------------------------------------------------------------------

    def _ask(self, peer: int) -> None:
        line = self.receives[peer]
        asked = self.asked.get(peer, 0)
        while asked < min(len(line), BOXES):
            _, offset, size = line[asked]
            place = self.asked_ever.get(peer, 0)
            self.asked_ever[peer] = place + 1
            asked += 1
            at = self.mail + (self.group.rank * BOXES + place % BOXES) * _WHERE.size
            self.group.write(
                self.bundle[peer],
                0,
                _ASK,
                memoryview(_WHERE.pack(offset, size)),
                at,
                RENDEZVOUS << SLICE_BITS,
            )
        self.asked[peer] = asked

    def _match(self, peer: int) -> None:
        sends, wanted = self.sends.get(peer), self.wanted.get(peer)
        while sends and wanted:
            number, offset, size = sends.popleft()
            far, room = wanted.popleft()
            region = self.bundle[peer].memory
            fits = size <= room - _AT_MOST if room >= _AT_MOST else size == room
            if not fits or far + size > region.length:
                self.failure = {
                    "peer_rank": peer,
                    "reason": f"it receives {room % _AT_MOST} bytes where this rank sends {size}",
                }
                return
            self.sent.setdefault(peer, deque()).append(number)
            bundle = self.bundle[peer]
            self.group.device.post_write(
                bundle.qpns[0],
                _SEND,
                self.memory[offset : offset + size],
                region.va + far,
                region.rkey,
                RENDEZVOUS << SLICE_BITS | _DATA,
            )

    def _mail(self, peer: int, imm: int) -> None:
        if imm & _DATA:
            line = self.receives.get(peer)
            if not line or not self.asked.get(peer, 0):
                self.failure = {
                    "peer_rank": peer,
                    "reason": "it sent a message that this rank has not asked for",
                }
                return
            self.over.append(line.popleft()[0])
            self.asked[peer] -= 1
            self._ask(peer)
            return
        place = self.heard_ever.get(peer, 0)
        self.heard_ever[peer] = place + 1
        at = self.mail + (peer * BOXES + place % BOXES) * _WHERE.size
        far, room = _WHERE.unpack_from(self.group.arena, at)
        line2 = self.wanted.setdefault(peer, deque())
        if len(line2) >= BOXES:
            self.failure = {
                "peer_rank": peer,
                "reason": f"it asked for more than {BOXES} messages at once",
            }
            return
        line2.append((far, room))
        self._match(peer)

    # --- as time goes by --------------------------------------------------------------------------

    def completed(self, completions: list[Completion]) -> None:
        self.failure = self.failure or self.group.failure(completions)
        if self.failure:
            return
        mine: list[Completion] = []
        for c in completions:
            if c.kind == RECEIVE:
                if c.imm >> SLICE_BITS & (1 << STAGE_BITS) - 1 == RENDEZVOUS:
                    self._mail(self.group.bundle_of[c.qpn].peer, c.imm)
                else:
                    mine.append(c)
            elif c.wr_id == _SEND:
                self.over.append(self.sent[self.group.bundle_of[c.qpn].peer].popleft())
            elif c.wr_id < _SEND:
                self.open_writes[c.wr_id] -= 1
        if self.current is not None:
            self.current.completed(mine)
        elif len(self.pending) + len(mine) <= MOST_KEPT:
            self.pending += mine
        else:
            self.failure = {
                "peer_rank": -1,
                "reason": f"more than {MOST_KEPT} messages for what has not begun here",
            }
        self._go_on()

    def _go_on(self) -> None:
        while not self.failure:
            job = self.current
            if job is not None:
                self.failure = job.failure or self._lost()
                if self.failure or not job.ended or job.to_check >= 0:
                    return
                self.over.append(self.number)
                self.pending += job.leftover
                self.current = None
            if not self.waiting or self.open_writes[self.step & 1]:
                return
            call = self.waiting.popleft()
            assert call.data is not None
            what = (
                f"{call.kind.name} {call.size} {call.slices} {call.root} {call.dtype} {call.reduce}"
            )
            mark = zlib.crc32(what.encode()) % ((1 << MARK_BITS) - 1) + 1
            given = Given(call.data, self.step, self.open_writes, call.reduce, call.root, mark)
            self.number = call.number
            self.step += 1
            self.current = call.kind(self.group, call.slices, call.size, call.dtype, 1, 0, 0, given)
            self.current.begin()
            pending, self.pending = self.pending, []
            self.current.completed(pending)

    def idle(self) -> None:
        if self.current is not None and not self.failure:
            self.current.idle()
            self._go_on()

    def deadline(self) -> int:
        return NEVER if self.current is None or self.failure else self.current.deadline()
