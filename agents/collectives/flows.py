"""Flows: any number of one-way streams of messages at once, each on queue pairs of its own. Incast
and permutation are lists of flows.

A sender posts messages back to back, up to ``outstanding`` of them unacknowledged, for a time or a
number. Each is one WRITE with immediate (its number) into a slot of the receiver's arena. Its bytes
are a window of one random sequence, which all flows of a process share and nobody copies: message
after message, and flow beside flow, begins elsewhere.

The receiver compares every byte and answers with a *verdict*: a WRITE with immediate of one word
(how many bytes were wrong) into the sender's arena. A slot is written again only after its verdict
came. With twice as many slots as messages in flight verdicts cost no throughput. At the end an
empty WRITE with immediate tells how many messages there were. It and verdicts may overtake each
other, so both sides count.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypedDict

import numpy as np
import numpy.random  # not on first use, when root is dropped and the clone may be out of reach
from numpy.typing import NDArray

from agents.collectives.group import ARENA, Bundle, CollectiveError, Group, Wanted
from agents.transport import NEVER, RECEIVE, Completion, Event, Foreign, Note

Words = NDArray[np.uint32]
WORD = 4
_PLACES = 1 << 16
_APART, _FLOWS_APART = 40503, 7919
"""Windows begin at one of so many places, two words each; messages of a flow, and flows, lie so
many apart. Primes: no misplaced packet is that far off."""
_VERDICT = 1 << 31
_END = 1 << 30
"""Kinds of immediates; the lower 30 bits are a message's number, or how many there were."""
_NUMBER = _END - 1
_ALIGN = 64
_NOT_DATA = -1  # work request id of verdicts and ends


@dataclass(frozen=True)
class Flow:
    """Times are ps from the run's t0. Exactly one of ``for_ps`` and ``messages`` is set. ``evs``:
    per plane, 0 for all.

    :func:`share` sets ``number``, its place among all flows (-1 before), and how many before it the
    other end ``received`` and ``sent``."""

    name: str
    src: int
    dst: int
    start_ps: int = 0
    for_ps: int | None = None
    messages: int | None = None
    evs: int = 0
    number: int = -1
    received: int = 0
    sent: int = 0


class FlowTable(TypedDict, total=False):
    name: str
    src: int
    dst: int
    start_ps: int
    for_ps: int | None
    messages: int | None
    evs: int
    number: int
    received: int
    sent: int


def parse(tables: Sequence[FlowTable] | None, n: int) -> list[Flow]:
    """Raises :class:`CollectiveError`, which names the fix."""
    result: list[Flow] = []
    for i, table in enumerate(tables or ()):
        numbers = [
            value
            for key, value in table.items()
            if key != "name" and not (value is None and key in ("for_ps", "messages"))
        ]
        if not all(isinstance(value, int) and value >= 0 for value in numbers):
            raise CollectiveError(
                f"flow {i} ({table.get('name')}): ranks, times and counts are whole numbers from 0"
            )
        try:
            flow = Flow(**table)
        except TypeError as error:
            raise CollectiveError(
                f"flow {i}: {str(error).removeprefix('Flow.__init__() ')}"
            ) from None
        if flow.src == flow.dst or max(flow.src, flow.dst) >= n:
            raise CollectiveError(
                f"flow {i} ({flow.name}) goes from rank {flow.src} to {flow.dst}: two different "
                f"ranks below {n}"
            )
        if (flow.for_ps is None) == (flow.messages is None):
            raise CollectiveError(f"flow {i} ({flow.name}): give one of for_ps and messages")
        if 0 in (flow.for_ps, flow.messages) or (flow.messages or 0) > _NUMBER:
            raise CollectiveError(
                f"flow {i} ({flow.name}): for_ps and messages are at least 1, messages at most "
                f"{_NUMBER}"
            )
        result.append(flow)
    if tables is None:
        raise CollectiveError("flows: there are none; give at least one")
    return result


def share(flows: Sequence[Flow], n: int) -> list[list[Flow]]:
    """Return each rank's own flows: all that it needs to know."""
    own: list[list[Flow]] = [[] for _ in range(n)]
    received, sent = [0] * n, [0] * n
    for number, flow in enumerate(flows):
        src, dst = flow.src, flow.dst
        own[src].append(replace(flow, number=number, received=received[dst], sent=sent[dst]))
        own[dst].append(replace(flow, number=number, received=received[src], sent=sent[src]))
        received[dst] += 1
        sent[src] += 1
    return own


def flows_at(flows: Sequence[Flow], rank: int) -> list[Flow]:
    """``flows``: all, or those of the rank as :func:`share` returned them."""
    if all(flow.number >= 0 for flow in flows):
        return list(flows)
    return share(flows, 1 + max(rank, *(max(flow.src, flow.dst) for flow in flows)))[rank]


def bundles_for(flows: Sequence[Flow], rank: int) -> list[Wanted]:
    return [
        Wanted(flow.dst if flow.src == rank else flow.src, flow.evs)
        for flow in flows_at(flows, rank)
    ]


def place(received: int, sent: int, message_bytes: int, slots: int) -> int:
    """Return the byte offset of a flow's slots (as receiver) or verdicts (as sender) after those of
    so many flows."""
    return sum(
        count * -(-slots * size // _ALIGN) * _ALIGN
        for count, size in ((received, message_bytes), (sent, WORD))
    )


def check_room(own: Sequence[Flow], rank: int, message_bytes: int, slots: int) -> None:
    """Raises :class:`CollectiveError` if the rank's arena is too small."""
    received = sum(flow.dst == rank for flow in own)
    at = place(received, len(own) - received, message_bytes, slots)
    if at > ARENA:
        raise CollectiveError(
            f"the flows of rank {rank} need {at} bytes of slots: there are {ARENA}; lower "
            "message_bytes or outstanding"
        )


def peak(posted: Sequence[int], acknowledged: Sequence[int]) -> tuple[int, int]:
    """Find the stretch of the best rate, as perftest's print_report_bw() does
    (src/perftest_parameters.c): from posting i to acknowledgement j >= i, j - i + 1 messages passed
    whole. Returns these messages and ps. Dinkelbach's iteration: the stretch that is furthest ahead
    of a rate gives the next rate."""
    if not posted or acknowledged[-1] <= posted[0]:
        return 0, 0
    count = np.arange(len(posted), dtype=np.float64)
    begun, ended = (np.array(times, np.int64) - posted[0] for times in (posted, acknowledged))
    i, j = 0, len(posted) - 1
    while True:
        rate = (j - i + 1) / (ended[j] - begun[i])
        ahead = rate * begun - count  # of the stretches that begin there
        best = np.maximum.accumulate(ahead)
        last = int(np.argmax(best + count - rate * ended))
        first = int(np.argmax(ahead[: last + 1]))
        if ended[last] <= begun[first] or (last - first + 1) * (ended[j] - begun[i]) <= (
            j - i + 1
        ) * (ended[last] - begun[first]):
            return j - i + 1, int(ended[j] - begun[i])
        i, j = first, last


@lru_cache(maxsize=4)
def _sequence(seed: int, words: int) -> tuple[Words, bytes]:
    sequence: Words = numpy.random.default_rng((seed, words)).integers(
        0, 1 << 32, words + 2 * _PLACES, dtype=np.uint32
    )
    sequence.flags.writeable = False
    return sequence, sequence.tobytes()


class Content:
    def __init__(self, seed: int, flow: int, message_bytes: int) -> None:
        self.words = message_bytes // WORD
        self.sequence, self.bytes = _sequence(seed, self.words)
        self.first = flow * _FLOWS_APART

    def place(self, number: int) -> int:
        return 2 * ((self.first + number * _APART) % _PLACES)

    def message(self, number: int) -> Words:
        at = self.place(number)
        return self.sequence[at : at + self.words]

    def wrong(self, number: int, data: Words) -> int:
        expected = self.message(number)
        if np.array_equal(data, expected):
            return 0
        return int(np.count_nonzero(data.view(np.uint8) != expected.view(np.uint8)))


class Slots(Foreign):
    """The arena of a simulated host's flows. What comes is compared at once and not kept: the
    messages in flight between hundreds of hosts would fill the memory."""

    def __init__(self) -> None:
        super().__init__(ARENA)
        self.job: Flows | None = None
        self.early: list[tuple[int, bytes]] = []  # what peers sent that had begun

    def begin(self, job: Flows) -> None:
        self.job = job
        early, self.early = self.early, []
        for at, data in early:
            job.arrived(at, memoryview(data))

    def write(self, at: int, data: memoryview) -> None:
        if self.job is None or self.job.finished:
            self.early.append((at, bytes(data)))
        else:
            self.job.arrived(at, data)


class Sender:
    def __init__(
        self, job: Flows, number: int, flow: Flow, bundle: Bundle, to: int, verdicts: int
    ) -> None:
        self.job, self.number, self.flow, self.bundle, self.to = job, number, flow, bundle, to
        self.start = job.t0 + flow.start_ps
        self.stop = NEVER if flow.for_ps is None else self.start + flow.for_ps
        self.content = Content(job.seed, number, job.message_bytes)
        # whether a write of this place in turn is not acknowledged yet
        self.flying = [False] * job.outstanding
        # number of the message that fills it, until the receiver's verdict
        self.in_slot = [_NOT_DATA] * job.slots
        self.verdicts: Words = (
            np.zeros(job.slots, np.uint32)
            if job.group.slots
            else np.frombuffer(job.group.arena, np.uint32, job.slots, verdicts)
        )
        self.posted_ps: dict[int, int] = {}  # of messages in flight
        self.posted = 0
        self.checked = 0
        self.wrong = 0
        self.first_ps = 0
        self.last_ps = 0
        # of a counted flow: when each was posted, and when one more was acknowledged
        self.times = (array("q"), array("q"))
        self.end_sent = False
        self.open_writes = 0
        self.complete = False

    @property
    def active(self) -> bool:
        return self.posted > 0 and not self.complete

    def enough(self, now: int) -> bool:
        """A timed flow sends at least one message, however late its host is."""
        if self.flow.messages is not None:
            return self.posted == self.flow.messages
        return now >= self.stop and self.posted > 0

    def go_on(self, now: int) -> None:
        if now < self.start or self.complete:
            return
        job = self.job
        while not self.enough(now):
            n = self.posted
            turn, slot = n % job.outstanding, n % job.slots
            if self.flying[turn] or self.in_slot[slot] != _NOT_DATA:
                break
            self.flying[turn] = True
            self.in_slot[slot] = n
            self.posted_ps[n] = now
            if n == 0:
                self.first_ps = now
            if self.flow.messages is not None:
                self.times[0].append(now)
            self.posted += 1
            self.open_writes += 1
            job.group.write(
                self.bundle,
                n,
                n,
                self.content.message(n).data.cast("B"),
                self.to + slot * job.message_bytes,
                n,
            )
        if self.enough(now) and not self.end_sent:
            self.end_sent = True
            self.open_writes += 1
            job.group.write(self.bundle, 0, _NOT_DATA, memoryview(b""), self.to, _END | self.posted)
        if self.end_sent and self.open_writes == 0 and self.checked == self.posted:
            self.complete = True
            peak_messages, peak_ps = peak(*self.times)
            job.notes.append(
                {
                    "event": "flow",
                    "flow": self.number,
                    "rank": job.group.rank,
                    "messages": self.posted,
                    "bytes": self.posted * job.message_bytes,
                    "wrong": self.wrong,
                    "start_ps": self.first_ps,
                    "end_ps": self.last_ps,
                    "peak_bytes": peak_messages * job.message_bytes,
                    "peak_ps": peak_ps or None,
                }
            )

    def write_done(self, now: int, number: int) -> None:
        self.open_writes -= 1
        if number == _NOT_DATA:
            return
        self.flying[number % self.job.outstanding] = False
        self.last_ps = now
        if self.flow.messages is not None:
            self.times[1].append(now)
        posted = self.posted_ps.pop(number)
        record = {
            "flow": self.number,
            "number": number,
            "bytes": self.job.message_bytes,
            "start_ps": posted,
            "end_ps": now,
        }
        self.job.logged.append((now, "message", record))

    def arrived(self, at: int, data: memoryview) -> None:
        self.verdicts.data.cast("B")[at : at + len(data)] = data

    def on_immediate(self, imm: int) -> bool:
        """Returns False for a verdict that is not awaited."""
        number = imm & _NUMBER
        slot = number % self.job.slots
        if imm != _VERDICT | number or self.in_slot[slot] != number:
            return False
        self.wrong += int(self.verdicts[slot])
        self.in_slot[slot] = _NOT_DATA
        self.checked += 1
        return True

    def due(self) -> int:
        if self.end_sent:
            return NEVER
        return self.stop if self.posted else self.start


class Receiver:
    def __init__(
        self, job: Flows, number: int, flow: Flow, bundle: Bundle, slots: int, verdicts: int
    ) -> None:
        self.job, self.number, self.flow, self.bundle, self.verdicts_at = (
            job,
            number,
            flow,
            bundle,
            verdicts,
        )
        self.content = Content(job.seed, number, job.message_bytes)
        words = job.message_bytes // WORD
        self.slots: list[Words] = []
        if not job.group.slots:
            self.slots = [
                np.frombuffer(job.group.arena, np.uint32, words, slots + k * job.message_bytes)
                for k in range(job.slots)
            ]
        # Otherwise by slot, of what came for it: bytes, the sum of end^2 - begin^2 (size^2 once
        # each byte came once), and bad bytes.
        self.came, self.squares, self.bad = [0] * job.slots, [0] * job.slots, [0] * job.slots
        self.verdicts = np.zeros(job.slots, np.uint32)
        self.views = self.verdicts.data.cast("B")
        self.received = 0
        # by slot: the message that comes next; the sender waits for our verdict before another
        self.awaited = list(range(job.slots))
        self.total = -1  # messages of the flow, -1 until the sender says it
        self.wrong = 0
        self.open_writes = 0

    @property
    def complete(self) -> bool:
        return self.received == self.total and self.open_writes == 0

    def arrived(self, at: int, data: memoryview) -> None:
        slot, begin = divmod(at, self.job.message_bytes)
        end = begin + len(data)
        self.came[slot] += end - begin
        self.squares[slot] += end * end - begin * begin
        expected = WORD * self.content.place(self.awaited[slot]) + begin
        seen, right = bytes(data), self.content.bytes[expected : expected + len(data)]
        if seen != right:
            self.bad[slot] += sum(a != b for a, b in zip(seen, right, strict=True))

    def _wrong(self, number: int, slot: int) -> int:
        """Count the bytes of a message that are not as they were sent."""
        if not self.job.group.slots:
            return self.content.wrong(number, self.slots[slot])
        size, came, squares, bad = (
            self.job.message_bytes,
            self.came[slot],
            self.squares[slot],
            self.bad[slot],
        )
        self.came[slot] = self.squares[slot] = self.bad[slot] = 0
        return (
            bad
            if (came, squares) == (size, size * size)
            else min(size, max(1, bad + abs(size - came)))
        )

    def on_immediate(self, imm: int) -> bool:
        """Returns False for what the sender may not send."""
        number = imm & _NUMBER
        if imm == _END | number:
            fits = self.total < 0 and max(self.awaited) - self.job.slots < number
            self.total = number if fits else self.total
            return fits
        slot = number % self.job.slots
        if imm != number or self.awaited[slot] != number or 0 <= self.total <= number:
            return False
        wrong = self._wrong(number, slot)
        self.awaited[slot] += self.job.slots
        self.wrong += wrong
        self.received += 1
        # the one before has arrived: the sender would not have used the slot again
        self.verdicts[slot] = wrong
        self.open_writes += 1
        at = slot * WORD
        self.job.group.write(
            self.bundle,
            number,
            _NOT_DATA,
            self.views[at : at + WORD],
            self.verdicts_at + at,
            _VERDICT | number,
        )
        return True

    def write_done(self, now: int, number: int) -> None:
        self.open_writes -= 1


class Flows:
    def __init__(
        self,
        group: Group,
        flows: Sequence[Flow],
        message_bytes: int,
        outstanding: int,
        seed: int,
        at: int | None,
    ) -> None:
        if message_bytes < WORD or message_bytes % WORD:
            raise CollectiveError(
                f"message_bytes = {message_bytes} must be a multiple of {WORD} above 0"
            )
        if not 1 <= outstanding <= 256:
            raise CollectiveError(f"outstanding = {outstanding}: 1 to 256")
        rank = group.rank
        if [bundle[0] for bundle in group.wanted] != [
            bundle.peer for bundle in bundles_for(flows, rank)
        ]:
            raise CollectiveError("these are not the flows that were set up: set up again")
        self.group = group
        self.message_bytes = message_bytes
        self.outstanding = outstanding
        self.slots = 2 * outstanding
        self.seed = seed
        self.t0 = group.clock() if at is None else at
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self.ends: dict[Bundle, Sender | Receiver] = {}
        self.offsets: list[int] = []  # of their places in the arena, ascending
        own = flows_at(flows, rank)
        check_room(own, rank, message_bytes, self.slots)
        for flow, bundle in zip(own, group.bundles, strict=True):
            peer_offset = place(flow.received, flow.sent, message_bytes, self.slots)
            own_offset = place(len(self.receivers), len(self.senders), message_bytes, self.slots)
            self.offsets.append(own_offset)
            if flow.src == rank:
                self.senders.append(
                    Sender(self, flow.number, flow, bundle, peer_offset, own_offset)
                )
                self.ends[bundle] = self.senders[-1]
            else:
                self.receivers.append(
                    Receiver(self, flow.number, flow, bundle, own_offset, peer_offset)
                )
                self.ends[bundle] = self.receivers[-1]
        self.logged: list[Event] = []
        self.notes: list[Note] = []
        self.leftover: list[Completion] = []
        self.warm = False
        self.finished = False
        self.failure: Note | None = None
        self.news = True  # something completed since the last look
        self.due = NEVER  # when a flow begins or stops next
        if isinstance(group.slots, Slots):
            group.slots.begin(self)

    def begin(self) -> None:
        self.warm = True  # what start-up cost the host is not the run's
        self.idle()

    def arrived(self, at: int, data: memoryview) -> None:
        """Take what came for ``at`` in the arena (:class:`Slots`)."""
        k = bisect_right(self.offsets, at) - 1
        self.ends[self.group.bundles[k]].arrived(at - self.offsets[k], data)

    def completed(self, completions: list[Completion]) -> None:
        self.failure = self.failure or self.group.failure(completions)
        if self.failure:
            return
        now = self.group.clock()
        self.news = True
        for c in completions:
            end = self.ends[self.group.bundle_of[c.qpn]]
            if c.kind == RECEIVE:
                if not end.on_immediate(c.imm):
                    reason = (
                        f"it sent the immediate {c.imm:#010x}, which is nothing that can come now"
                    )
                    self.failure = {"peer_rank": self.group.bundle_of[c.qpn].peer, "reason": reason}
                    return
            else:
                end.write_done(now, c.wr_id)

    def idle(self) -> None:
        now = self.group.clock()
        if not self.news and now < self.due:
            return  # this is asked at every turn of a host
        self.news = False
        finished = True
        for sender in self.senders:
            sender.go_on(now)
            if not sender.complete:
                finished = False
        for receiver in self.receivers:
            if not receiver.complete:
                finished = False
        self.finished = finished
        self.due = min((sender.due() for sender in self.senders), default=NEVER)

    def deadline(self) -> int:
        return self.due

    def done(self) -> Note:
        return {
            "event": "done",
            "rank": self.group.rank,
            "wrong": sum(r.wrong for r in self.receivers),
        }
