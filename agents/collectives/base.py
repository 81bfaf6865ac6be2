"""The base of every collective in steps: numbered steps, two buffer sets in turns, records,
waiting, failure.

A collective is a subclass in a module of its own in this package, found there by its ``name``
(registry.py). Every slice is one WRITE with immediate, which says step, stage and slice.

Why nothing is overwritten while it may still be read
-----------------------------------------------------
Step s uses buffer set s mod 2: what peers write into (arena) and the input (local). Let P be in
step s and write into R's set.

1. *R has checked its result of step s - 2, which lay there.* In every collective but send-recv each
   rank's result of a step depends on every rank's input of it. P ended step s - 1, so every rank
   had begun s - 1. A rank begins a step after it ended the one before, so R ended s - 2. Two sets
   are therefore enough, however ranks and packets are reordered, and what arrives early is for the
   next step at most.
2. *What R itself sent from that set in step s - 2 is at its peers.* They too ended s - 2, for which
   they needed it. R's engine may not know yet and retransmit what was overwritten: a duplicate,
   which a responder never places.
3. *R does not overwrite its own data.* R fills the input of step s, and adds into set s mod 2, only
   after its writes of step s - 2 are acknowledged.

A result has been compared before the next step begins, for its buffers may be written soon after.
With ``OVERLAP`` that may wait until half of the next step's messages are there. This is safe where
every rank's contribution passes through all others: no rank can end a step, and write into the
buffers of the one before, while another has less than that.

Where a result does not depend on every rank (``CREDIT``), 1. does not hold. There a receiver tells
its sender of each step that it has checked, by an empty WRITE with immediate, and step s begins
once s - 2 is known to be checked. Within a step no place is written twice by different ranks, or
the module says why that is safe.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from mypy_extensions import mypyc_attr

from agents.collectives.data import DTYPES, TYPES, Array, StepData, Types
from agents.collectives.group import ARENA, MOST_KEPT, CollectiveError, Group, Wanted
from agents.transport import LONG_AGO, NEVER, RECEIVE, Completion, Event, Note

STEP_BITS, STAGE_BITS, SLICE_BITS = 12, 10, 10
_CHECKED = (1 << STAGE_BITS) - 1
RENDEZVOUS = _CHECKED - 1
"""The stage of messages between two ranks (channel.py), which belong to no collective."""
MAX_RANKS = RENDEZVOUS // 2 + 1
"""Most ranks: a ring has two stages for every other rank."""
MAX_SLICES = (1 << SLICE_BITS) - 1
MARK_BITS = 4
"""Upper bits of a slice's number that tell calls apart (:class:`Given`)."""
_NOTHING = memoryview(b"")
CHUNK = 1 << 15
"""Elements compared or filled between two looks at the network."""


class Given:
    """What a collective takes over: for a call of a channel (channel.py) the program's own data,
    and what earlier calls left.

    ``first``: the step's number among all calls of the group. ``open_writes``: by buffer set,
    including earlier calls'. ``reduce``: how two parts become one. ``root``: who has the data of a
    broadcast. ``mark``: in every immediate; it tells different calls apart in 15 of 16 cases.
    """

    def __init__(
        self,
        data: StepData | None,
        first: int,
        open_writes: list[int],
        reduce: np.ufunc = np.add,
        root: int = 0,
        mark: int = 0,
    ) -> None:
        self.data, self.first, self.open_writes = data, first, open_writes
        self.reduce, self.root = reduce, root
        self.mark = (mark & (1 << MARK_BITS) - 1) << SLICE_BITS - MARK_BITS


class Transfers:
    """Times at which slices were posted here and others' arrived, as a flat list of peer, stage,
    slice and ps since ``begin``."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.posted: list[int] = []
        self.arrived: list[int] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class Collective:
    """One collective, ``warmup`` + ``steps`` times, numbered from 0; it never blocks.
    ``message_bytes`` is what nccl-tests prints as size. Raises :class:`CollectiveError` on what
    cannot be run."""

    name: ClassVar[str] = ""
    CREDIT: ClassVar[bool] = False
    """Whether a rank may run ahead of those it sends to; see the module."""

    IN_PLACE: ClassVar[bool] = False
    """Whether a rank's input lies where its result will."""

    OVERLAP: ClassVar[bool] = False
    """Whether a step may begin before the last result is compared; see the module."""

    @property
    def item(self) -> int:
        return self.dtype.itemsize

    @property
    def previous(self) -> int:
        return (self.rank - 1) % self.n

    @staticmethod
    def peers(n: int, rank: int) -> list[int]:
        raise NotImplementedError

    @staticmethod
    def parts(n: int) -> int:
        """Return the number of equal parts of the message."""
        return n

    @staticmethod
    def sizes(n: int, message_bytes: int) -> tuple[int, int]:
        """Return the bytes that a rank gives, and those that it has in the end."""
        return message_bytes, message_bytes

    @staticmethod
    def refused(n: int) -> str:
        """Say why so many ranks cannot be, if so."""
        return "" if 2 <= n <= MAX_RANKS else f"2 to {MAX_RANKS}"

    @classmethod
    def check_ranks(cls, n: int) -> None:
        """Raises :class:`CollectiveError`."""
        if reason := cls.refused(n):
            raise CollectiveError(f"{cls.name} over {n} ranks: {reason}")

    @classmethod
    def check(
        cls,
        n: int,
        slices: int,
        message_bytes: int,
        dtype: str,
        steps: int,
        warmup: int,
        types: Types = DTYPES,
    ) -> None:
        """Raises :class:`CollectiveError`, which names the fix."""
        cls.check_ranks(n)
        if dtype not in types:
            raise CollectiveError(f"dtype {dtype!r}: there are {', '.join(types)}")
        if not 1 <= slices <= MAX_SLICES:
            raise CollectiveError(f"slices = {slices}: 1 to {MAX_SLICES}")
        item = types[dtype].itemsize
        unit = cls.parts(n) * slices * item
        if message_bytes <= 0 or message_bytes % unit:
            near = max(unit, round(message_bytes / unit) * unit)
            raise CollectiveError(
                f"message_bytes = {message_bytes} must be a multiple of {unit} ({cls.parts(n)} "
                f"parts x {slices} slices x {item} bytes): {near} is"
            )
        if 4 * message_bytes > ARENA:
            raise CollectiveError(f"message_bytes = {message_bytes} is more than {ARENA // 4}")
        if steps < 1 or warmup < 0:
            raise CollectiveError(
                f"steps = {steps}, warmup = {warmup}: at least one step, no negative warm-up"
            )

    @classmethod
    def wanted(cls, n: int, rank: int) -> list[Wanted]:
        cls.check_ranks(n)
        return [Wanted(peer) for peer in sorted(cls.peers(n, rank))]

    def __init__(
        self,
        group: Group,
        slices: int,
        message_bytes: int,
        dtype: str,
        steps: int,
        warmup: int,
        seed: int,
        given: Given | None = None,
    ) -> None:
        types = DTYPES if given is None else TYPES
        self.given = given or Given(None, 0, [0, 0])
        self.check(group.n, slices, message_bytes, dtype, steps, warmup, types)
        self.group = group
        self.n = group.n
        self.rank = group.rank
        self.next = (group.rank + 1) % group.n
        self.bundle = {bundle.peer: bundle for bundle in group.bundles}
        self.slices = slices
        self.message_bytes = message_bytes
        self.part = message_bytes // self.parts(group.n)  # bytes
        self.slice = self.part // slices  # bytes
        self.dtype = types[dtype]
        self.end = self.given.first + steps + warmup
        self.warmup = warmup
        # For lay_out() to set.
        self.set_bytes = 0  # of the arena, per buffer set
        self.arrivals = 0  # messages that make up a step
        self.result: list[Array] = []  # by set
        self.lay_out()
        if 2 * self.set_bytes > ARENA:
            raise CollectiveError(
                f"message_bytes = {message_bytes} needs an arena of {2 * self.set_bytes} bytes: "
                f"there are {ARENA}"
            )
        self.data: StepData = (
            self.given.data if self.given.data is not None else self.drawn(dtype, seed)
        )
        self.input = (
            self.result if self.IN_PLACE else [np.empty_like(self.data.base) for _ in range(2)]
        )
        self.views = [a.data.cast("B") for a in self.input]
        self.step = self.given.first - 1
        self.wrong = 0
        self.remaining = 0
        self.open_writes = self.given.open_writes
        self.checked = 0  # steps that the one we send to has checked, with CREDIT
        # ps, peer, stage, slice of what came for a step not begun here
        self.early: dict[int, list[tuple[int, int, int, int]]] = {}
        # by step: what was accepted, so that nothing is used twice
        self.accepted: dict[int, set[tuple[int, int, int]]] = {}
        self.filled = 0  # elements of the next step's input that are there
        self.to_check = -1  # the step whose result is being compared; -1: none
        self.checked_to = 0  # elements of it that have been
        self.bad = 0  # of them
        self.record: Note = {}  # its log entry
        self.transfers = Transfers(0)
        self.waiting = False  # for what the next step needs of the step whose buffers it reuses
        self.ended = False  # the last result is there
        self.finished = False  # and the peers have everything
        # receive completions that belong to the next collective
        self.leftover: list[Completion] = []
        self.logged: list[Event] = []  # for the log
        self.notes: list[Note] = []  # notifications to the runner or prompt
        self.warm = False  # the warm-up just ended; for the host to reset
        self.failure: Note | None = None

    # --- for subclasses ---------------------------------------------------------------------------

    def lay_out(self) -> None:
        """Set :attr:`set_bytes`, :attr:`arrivals` and :attr:`result`."""
        raise NotImplementedError

    def drawn(self, dtype: str, seed: int) -> StepData:
        raise NotImplementedError

    def send_first(self) -> None:
        """Post what a step sends before anything arrived; copy what stays here."""
        raise NotImplementedError

    def sends(self, peer: int, stage: int) -> bool:
        """Say whether ``peer`` sends this rank slices in ``stage``."""
        raise NotImplementedError

    def arrived(self, peer: int, stage: int, j: int) -> None:
        """Use slice ``j`` of ``stage``, which is in memory, and send what depends on it."""
        raise NotImplementedError

    def placed(self, count: int, offset: int) -> list[Array]:
        """Return an array per buffer set in the arena. Set :attr:`set_bytes` before."""
        if 2 * self.set_bytes > ARENA:
            raise CollectiveError(
                f"message_bytes = {self.message_bytes} is more than the arena of {ARENA} bytes "
                "takes"
            )
        return [
            np.frombuffer(self.group.arena, self.dtype, count, k * self.half + offset)
            for k in range(2)
        ]

    @property
    def half(self) -> int:
        """All calls of a group have their second buffer set at the same place, whatever their kind
        and size."""
        return len(self.group.arena) // 2

    def elements(self, offset: int, size: int) -> slice:
        return slice(offset // self.item, (offset + size) // self.item)

    def send(self, peer: int, memory: memoryview, offset: int, stage: int, j: int) -> None:
        k = self.step & 1
        imm = (
            (self.step & (1 << STEP_BITS) - 1) << (STAGE_BITS + SLICE_BITS)
            | stage << SLICE_BITS
            | j ^ self.given.mark
        )
        self.open_writes[k] += 1
        if stage != _CHECKED:
            self.transfers.posted += (peer, stage, j, self.group.clock() - self.transfers.begin)
        self.group.write(self.bundle[peer], j, k, memory, k * self.half + offset, imm)

    def in_set(self, offset: int, size: int) -> memoryview:
        at = (self.step & 1) * self.half + offset
        return self.group.arena[at : at + size]

    # --- steps ------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.step += 1
        self.accepted.pop(self.step - 1, None)
        self._fill(self.step, len(self.data.base))
        self.filled = 0
        self.remaining = self.arrivals
        self.transfers = Transfers(self.group.clock())
        self.send_first()
        for t, peer, stage, j in self.early.pop(self.step, ()):
            self._take(t, peer, stage, j)

    def completed(self, completions: list[Completion]) -> None:
        self.failure = self.failure or self.group.failure(completions)
        if self.failure:
            return
        now = self.group.clock()
        for c in completions:
            if c.kind != RECEIVE:
                self.open_writes[c.wr_id] -= 1
                continue
            peer = self.group.bundle_of[c.qpn].peer
            step = self._absolute(c.imm >> (STAGE_BITS + SLICE_BITS))
            stage, j = (
                c.imm >> SLICE_BITS & (1 << STAGE_BITS) - 1,
                c.imm & (1 << SLICE_BITS) - 1 ^ self.given.mark,
            )
            if stage == _CHECKED and self.CREDIT and peer == self.next and self.checked < self.end:
                self.checked += 1  # in order: all of them use one queue pair
            elif self.ended or step == self.end:
                if len(self.leftover) < MOST_KEPT:
                    self.leftover.append(c)
                else:
                    self.failure = {
                        "peer_rank": peer,
                        "reason": f"it sent {MOST_KEPT} messages for what has not begun here",
                    }
            else:
                self._received(now, peer, step, stage, j)
        self._go_on()

    def _absolute(self, step: int) -> int:
        half = 1 << (STEP_BITS - 1)
        return self.step + ((step - self.step + half) & (1 << STEP_BITS) - 1) - half

    def _received(self, now: int, peer: int, step: int, stage: int, j: int) -> None:
        """Accept from a peer only what it may send, and only once: anything else is its failure,
        not ours."""
        key = (peer, stage, j)
        if j >= self.slices or not self.sends(peer, stage) or key in self.accepted.get(step, ()):
            reason = (
                f"it sent slice {j} of stage {stage} of step {step}, which is not its to send, "
                "or twice"
            )
            if self.given.mark and j > MAX_SLICES >> MARK_BITS:
                reason = (
                    "it made another call than this rank: every rank makes the same calls, of "
                    "one size, in one order"
                )
            self.failure = {"peer_rank": peer, "reason": reason}
            return
        if step == self.step and self.remaining:
            self.accepted.setdefault(step, set()).add(key)
            self._take(now, peer, stage, j)
        elif self.step < step <= self.step + 1 + self.CREDIT:
            self.accepted.setdefault(step, set()).add(key)
            self.early.setdefault(step, []).append((now, peer, stage, j))
        else:
            self.failure = {
                "peer_rank": peer,
                "reason": f"it sent step {step} while this rank is at step {self.step}",
            }

    def _take(self, t: int, peer: int, stage: int, j: int) -> None:
        if self.to_check >= 0 and self.remaining <= self.arrivals // 2 + 1:
            self._check(len(self.data.expected))
        self.remaining -= 1
        self.transfers.arrived += (peer, stage, j, t - self.transfers.begin)
        self.arrived(peer, stage, j)

    def _may_begin(self) -> bool:
        s = self.step + 1
        return (
            (self.OVERLAP or self.to_check < 0)
            and self.open_writes[s & 1] == 0
            and (not self.CREDIT or self.checked >= s - 1)
        )

    def _go_on(self) -> None:
        while not self.ended and not self.failure:
            if self.waiting:
                if not self._may_begin():
                    return
                self.waiting = False
                self.begin()
            if self.remaining:
                return
            self._end_step()

    def _end_step(self) -> None:
        if self.to_check >= 0:
            self._check(len(self.data.expected))
        now = self.group.clock()
        self.to_check, self.checked_to, self.bad = self.step, 0, 0
        t = self.transfers
        self.record = {"rank": self.rank, "step": self.step, "start_ps": t.begin, "end_ps": now}
        slices = {
            "rank": self.rank,
            "step": self.step,
            "start_ps": t.begin,
            "posted": t.posted,
            "arrived": t.arrived,
        }
        self.logged.append((now, "transfers", slices))
        self.warm = self.warm or self.step + 1 == self.given.first + self.warmup
        self.ended = self.step + 1 >= self.end
        self.waiting = not self.ended
        if len(self.data.expected) <= CHUNK:
            self._check(CHUNK)

    def _check(self, most: int) -> None:
        part = slice(self.checked_to, min(self.checked_to + most, len(self.data.expected)))
        self.bad += self.data.wrong(self.to_check, self.result[self.to_check & 1], part)
        self.checked_to = part.stop
        if self.checked_to < len(self.data.expected):
            return
        self.wrong += self.bad
        record: Note = {**self.record, "ok": self.bad == 0}
        self.logged.append((record["end_ps"], "step", record))
        self.notes.append({"event": "step", **record})
        self.to_check = -1
        if self.CREDIT:  # whoever we receive from may use this step's buffers again
            self.send(self.previous, _NOTHING, 0, _CHECKED, 0)

    def _fill(self, step: int, most: int) -> None:
        part = slice(self.filled, min(self.filled + most, len(self.data.base)))
        self.data.fill(step, self.input[step & 1][part], part)
        self.filled = part.stop

    def idle(self) -> None:
        if self.to_check >= 0:
            self._check(CHUNK)
        elif (
            self.step + 1 < self.end
            and self.filled < len(self.data.base)
            and self.open_writes[self.step + 1 & 1] == 0
        ):
            self._fill(self.step + 1, CHUNK)
        self._go_on()
        if (
            self.ended
            and self.to_check < 0
            and self.open_writes == [0, 0]
            and (not self.CREDIT or self.checked >= self.end)
        ):
            self.finished = True

    def deadline(self) -> int:
        return LONG_AGO if self.to_check >= 0 and (self.waiting or self.ended) else NEVER

    def done(self) -> Note:
        return {"event": "done", "rank": self.rank, "wrong": self.wrong}
