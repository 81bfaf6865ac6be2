"""Collectives and messages for a program of your own, on NumPy arrays (docs/how/jobs.md).

    from agents.communicator import Communicator
    comm = Communicator.open()
    total = comm.all_reduce(gradient)

The program is one rank of several, which ``mrcbed launch`` starts. The agent of the rank's host
moves the data, whether or not the program computes. All ranks of a group make its calls in the same
order, with arrays of one shape and type. With ``wait=False`` a call is asynchronous and returns a
:class:`Handle`.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agents.clock import WallClock
from agents.collectives.data import TYPES
from agents.process.control import AgentError, Lines, Message, result
from agents.transport import Note
from topologies.units import S

Array = NDArray[Any]
MEMORY = 1 << 28
PIECE = 1 << 23
"""Most bytes of a call; larger arrays go in pieces [ours]."""
GRAIN = 64
SLICES = 4
WORLD = "world"
_LINK = threading.local()  # of this rank where ranks are threads


class CommunicatorError(RuntimeError):
    """A call cannot be made, or a rank was lost: then :attr:`rank` is its number. The text is one
    line."""

    def __init__(self, line: str, rank: int | None = None) -> None:
        super().__init__(line)
        self.rank = rank


class Link(Protocol):
    """The way from a rank to its agent: over a socket, or in virtual time
    (testbed.simulated.programs)."""

    rank: int
    hosts: list[int]
    memory: memoryview

    def call(self, request: str, args: Mapping[str, object]) -> Any: ...
    def notes(self, timeout: float | None) -> list[Note]: ...
    def compute(self, seconds: float) -> None: ...
    def now(self) -> float: ...
    def fileno(self) -> int: ...
    def patience(self, seconds: float) -> float: ...


class SocketLink:
    def __init__(self, environment: dict[str, str]) -> None:
        given = json.loads(environment["MRCBED_RANK"])
        self.rank, self.hosts = int(given["rank"]), list(given["hosts"])
        self._clock = WallClock(**given["clock"])
        self.memory = memoryview(mmap.mmap(given["memory"], 0))
        self.lines = Lines(socket.socket(fileno=given["socket"]))
        self.serial = 0
        self.waiting: list[Note] = []

    def fileno(self) -> int:
        return self.lines.sock.fileno()

    def _read(self) -> Message | None:
        answer = None
        for message in self.lines.read():
            if "id" in message:
                answer = message
            else:
                self.waiting.append(message)
        return answer

    def call(self, request: str, args: Mapping[str, object]) -> Any:
        self.serial += 1
        self.lines.write({**args, "id": self.serial, "op": request})
        while (answer := self._read()) is None:
            self._check()
            select.select([self.lines.sock], [], [], None)
        return result(answer)

    def _check(self) -> None:
        if self.lines.closed:
            raise AgentError(f"the agent of this rank (h{self.hosts[self.rank]}) is gone")

    def notes(self, timeout: float | None) -> list[Note]:
        seconds = None if timeout is None else self._clock.wall_s(int(timeout * S))
        if not self.waiting and select.select([self.lines.sock], [], [], seconds)[0]:
            self._read()
            if not self.waiting:
                self._check()
        notes, self.waiting = self.waiting, []
        return notes

    def compute(self, seconds: float) -> None:
        self._clock.sleep(int(seconds * S))

    def now(self) -> float:
        """Return the seconds of the network's time; the same on all ranks."""
        return self._clock.now() / S

    def patience(self, seconds: float) -> float:
        return self._clock.patience(seconds) / S


class Handle:
    """A call under way."""

    def __init__(self, comm: Communicator, what: str) -> None:
        self._comm, self._what = comm, what
        self._open = 0  # pieces that are under way
        self.result: Any = None

    @property
    def over(self) -> bool:
        """Whether it was over when this rank last heard of its agent (:meth:`done`, :meth:`wait`,
        :meth:`Communicator.pause`)."""
        return self._open == 0

    @property
    def done(self) -> bool:
        """Whether it is over. Does not wait."""
        self._comm._hear(0.0)
        return self.over

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for its result and return it. Raises :class:`CommunicatorError`, also after
        ``timeout`` seconds of this machine's clock."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._open:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise CommunicatorError(f"{self._what} is not over after {timeout:g} s")
            self._comm._hear(None if left is None else self._comm._link.patience(left))
        return self.result


class _State:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.used: list[tuple[int, int]] = []  # offset and end of the memory's blocks, in order
        # what to do at the end of each that is under way
        self.calls: dict[int, Callable[[], None]] = {}
        self.number = 0
        self.groups = 0
        self.lost: dict[str, CommunicatorError] = {}  # by group

    def take(self, size: int) -> int | None:
        size = -(-max(size, 1) // GRAIN) * GRAIN
        at = 0
        for place, (begin, end) in enumerate([*self.used, (len(self.link.memory), 0)]):
            if begin - at >= size:
                self.used.insert(place, (at, at + size))
                return at
            at = end
        return None

    def free(self, *offsets: int) -> None:
        self.used = [block for block in self.used if block[0] not in offsets]


class Communicator:
    """One rank's part of a group. Attributes: ``rank``, ``size``, ``name``; ``hosts``: the ranks'
    host numbers."""

    def __init__(self, state: _State, name: str, hosts: Sequence[int], rank: int) -> None:
        self._state = state
        self._link = state.link
        self.name, self.hosts, self.rank, self.size = name, list(hosts), rank, len(hosts)

    @classmethod
    def open(cls) -> Communicator:
        """Make the communicator of all ranks that were started together. Raises
        :class:`CommunicatorError` in a process that is no rank."""
        link: Link | None = getattr(_LINK, "link", None)
        if link is None:
            if "MRCBED_RANK" not in os.environ:
                raise CommunicatorError(
                    "this process is no rank: start the program with mrcbed launch"
                )
            give(link := SocketLink(dict(os.environ)))
        return cls(_LINK.state, WORLD, link.hosts, link.rank)

    # --- collectives ------------------------------------------------------------------------------

    def all_reduce(
        self,
        array: Array,
        op: str = "sum",
        out: Array | None = None,
        wait: bool = True,
        algorithm: str = "ring",
    ) -> Any:
        """Compute the sum (or ``op``: prod, min, max) over all ranks, element by element; the same
        bits on every rank and in every run. ``out`` may be ``array``. ``algorithm``: "ring", or
        "tree" (halving and doubling) for a power of two of ranks, which takes fewer steps in
        sequence and is better for short arrays."""
        if algorithm not in ("ring", "tree"):
            raise CommunicatorError(f"algorithm {algorithm!r}: there are ring, tree")
        unit = self.size * SLICES
        out = self._out(out, array.shape, array.dtype)
        return self._collective(
            f"{algorithm}-allreduce", array, out, 1, 1, unit, wait, reduction=op
        )

    def reduce_scatter(
        self, array: Array, op: str = "sum", out: Array | None = None, wait: bool = True
    ) -> Any:
        """Compute this rank's part of the sum: ``array`` has ``size`` equal parts along its first
        axis."""
        shape = self._parted(array, "reduce_scatter")
        out = self._out(out, shape, array.dtype)
        return self._collective(
            "reduce-scatter", array, out, self.size, 1, SLICES, wait, reduction=op
        )

    def all_gather(self, array: Array, out: Array | None = None, wait: bool = True) -> Any:
        """Collect the arrays of all ranks, along a new first axis."""
        out = self._out(out, (self.size, *array.shape), array.dtype)
        return self._collective("all-gather", array, out, 1, self.size, SLICES, wait)

    def all_to_all(self, array: Array, out: Array | None = None, wait: bool = True) -> Any:
        """Exchange parts: part r of the result is what rank r has as this rank's part; parts are
        equal, along the first axis."""
        self._parted(array, "all_to_all")
        out = self._out(out, array.shape, array.dtype)
        return self._collective("all-to-all", array, out, self.size, self.size, SLICES, wait)

    def broadcast(
        self, array: Array, root: int = 0, out: Array | None = None, wait: bool = True
    ) -> Any:
        """Give the root's array to every rank; the others' arrays give shape and type."""
        out = self._out(out, array.shape, array.dtype)
        return self._collective("broadcast", array, out, 1, 1, SLICES, wait, root=root)

    def barrier(self) -> None:
        """Return once every rank is here."""
        self.broadcast(np.zeros(1, np.int32))

    # --- between two ranks ------------------------------------------------------------------------

    def send(self, array: Array, to: int, wait: bool = True) -> Any:
        """Send a message to one rank, which receives it with an array of the same number of
        bytes."""
        handle = Handle(self, f"send to rank {to}")
        for piece in _pieces(array.nbytes):
            offset = self._block(piece.stop - piece.start)
            self._memory(offset, piece)[:] = _bytes(array)[piece]
            self._post(
                handle,
                "send",
                partial(self._state.free, offset),
                peer=to,
                offset=offset,
                size=piece.stop - piece.start,
            )
        return handle.wait() if wait else handle

    def recv(self, out: Array, source: int, wait: bool = True, at_most: bool = False) -> Any:
        """Receive a message of one rank into ``out`` and return it. With ``at_most`` it may be
        shorter, which only its content can tell; then ``out`` has at most 8 MiB."""
        if not out.flags.c_contiguous or not out.flags.writeable:
            raise CommunicatorError("recv: out must be contiguous and writeable")
        if at_most and out.nbytes > PIECE:
            raise CommunicatorError(
                f"recv: at most {PIECE} bytes of a message whose length is not known"
            )
        handle = Handle(self, f"recv from rank {source}")
        handle.result = out
        for piece in _pieces(out.nbytes):
            offset = self._block(piece.stop - piece.start)

            def end(offset: int = offset, piece: slice = piece) -> None:
                _bytes(out)[piece] = self._memory(offset, piece)
                self._state.free(offset)

            more = {"at_most": True} if at_most else {}
            self._post(
                handle,
                "recv",
                end,
                peer=source,
                offset=offset,
                size=piece.stop - piece.start,
                **more,
            )
        return handle.wait() if wait else handle

    # --- groups and time --------------------------------------------------------------------------

    def group(self, ranks: Sequence[int]) -> Communicator | None:
        """Make a communicator of some ranks of this one, in this order, numbered anew; None on a
        rank that is not among them. All ranks of the new one call it. If there are several, each
        pair of ranks calls them in one order."""
        ranks = list(ranks)
        if (
            len(set(ranks)) != len(ranks)
            or not all(0 <= rank < self.size for rank in ranks)
            or len(ranks) < 2
        ):
            raise CommunicatorError(
                f"group of ranks {ranks}: at least two different ones of 0 to {self.size - 1}"
            )
        if self.rank not in ranks:
            return None
        self._state.groups += 1
        # the first rank's word
        name = self._swap(ranks, f"{self.hosts[self.rank]}.{self._state.groups}")[0]
        hosts, mine = [self.hosts[rank] for rank in ranks], ranks.index(self.rank)
        answers = self._swap(ranks, self._ask("group", group=name, ranks=hosts, rank=mine))
        remotes = {
            str(rank): answer["qps"][str(mine)]
            for rank, answer in enumerate(answers)
            if rank != mine
        }
        self._ask("join", group=name, remotes=remotes)
        self.barrier_of(ranks)
        return Communicator(self._state, name, hosts, mine)

    def barrier_of(self, ranks: Sequence[int]) -> None:
        """Return once these ranks, of which this is one, are here: nobody writes to a queue pair
        before it is connected."""
        token = np.zeros(1, np.int32)
        handles = [self.send(token, rank, wait=False) for rank in ranks if rank != self.rank]
        for rank in ranks:
            if rank != self.rank:
                self.recv(token, rank)
        for handle in handles:
            handle.wait()

    def compute(self, seconds: float) -> None:
        """Let so many seconds of the network's time pass: computing that is declared, not done."""
        self._link.compute(seconds)

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is news. Calls may have read news
        already: after making some, look with ``pause(0)`` until nothing is new."""
        return self._link.fileno()

    def pause(self, seconds: float | None = None) -> None:
        """Return when any call under way is over, of whichever group, or after so many seconds of
        the network's time."""
        self._hear(None if seconds is None else max(0.0, seconds))
        for error in self._state.lost.values():
            raise error

    def now(self) -> float:
        """Return the seconds of the network's time."""
        return self._link.now()

    def tell(self, **what: Any) -> None:
        """Report plain values to the program that started the ranks, and to the agent's log."""
        self._ask("tell", note=what)

    # --- inside -----------------------------------------------------------------------------------

    def _swap(self, ranks: Sequence[int], what: Any) -> list[Any]:
        data = np.frombuffer(json.dumps(what).encode(), np.uint8)
        handles = []
        for rank in ranks:
            if rank != self.rank:
                handles += [
                    self.send(np.array([len(data)]), rank, wait=False),
                    self.send(data, rank, wait=False),
                ]
        answers = []
        for rank in ranks:
            if rank != self.rank:
                size = int(self.recv(np.empty(1, np.int64), rank)[0])
                answers.append(json.loads(self.recv(np.empty(size, np.uint8), rank).tobytes()))
            else:
                answers.append(what)
        for handle in handles:
            handle.wait()
        return answers

    def _out(self, out: Array | None, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        if out is None:
            return np.empty(shape, dtype)
        if (
            out.shape != tuple(shape)
            or out.dtype != dtype
            or not out.flags.c_contiguous
            or not out.flags.writeable
        ):
            raise CommunicatorError(
                f"out must be contiguous, writeable, of shape {tuple(shape)} and type {dtype}"
            )
        return out

    def _parted(self, array: Array, what: str) -> tuple[int, ...]:
        if array.ndim < 1 or array.shape[0] % self.size:
            raise CommunicatorError(
                f"{what}: the first axis of an array of shape {array.shape} is not {self.size} "
                "equal parts"
            )
        return (array.shape[0] // self.size, *array.shape[1:])

    def _collective(
        self,
        name: str,
        array: Array,
        out: Array,
        rows_in: int,
        rows_out: int,
        unit: int,
        wait: bool,
        **more: Any,
    ) -> Any:
        dtype = str(array.dtype)
        if dtype not in TYPES:
            raise CommunicatorError(f"{name} of {dtype}: there are {', '.join(TYPES)}")
        handle = Handle(self, name)
        handle.result = out
        given = (
            np.ascontiguousarray(array).reshape(rows_in, -1)
            if array.size
            else np.empty((rows_in, 0), array.dtype)
        )
        got = out.reshape(rows_out, -1) if out.size else np.empty((rows_out, 0), out.dtype)
        item, columns = array.dtype.itemsize, given.shape[1]
        rows = max(rows_in, rows_out)
        most = max(unit, PIECE // (rows * item) // unit * unit)
        for begin in range(0, max(columns, 1), most):
            part = slice(begin, min(begin + most, columns))
            width = max(unit, math.ceil((part.stop - part.start) / unit) * unit)
            size = rows * width * item
            source, target = (
                self._block(rows_in * width * item),
                self._block(rows_out * width * item),
            )
            placed = self._typed(source, rows_in, width, array.dtype)
            placed[:, : part.stop - part.start] = given[:, part]
            placed[:, part.stop - part.start :] = 0

            def end(
                source: int = source, target: int = target, part: slice = part, width: int = width
            ) -> None:
                got[:, part] = self._typed(target, rows_out, width, array.dtype)[
                    :, : part.stop - part.start
                ]
                self._state.free(source, target)

            self._post(
                handle,
                "call",
                end,
                name=name,
                dtype=dtype,
                size=size,
                source=source,
                target=target,
                **more,
            )
        return handle.wait() if wait else handle

    def _typed(self, offset: int, rows: int, width: int, dtype: np.dtype[Any]) -> Array:
        return np.frombuffer(self._link.memory, dtype, rows * width, offset).reshape(rows, width)

    def _memory(self, offset: int, piece: slice) -> Array:
        return np.frombuffer(self._link.memory, np.uint8, piece.stop - piece.start, offset)

    def _block(self, size: int) -> int:
        while (offset := self._state.take(size)) is None:
            if not self._state.calls:
                raise CommunicatorError(
                    f"{size} bytes do not fit the {len(self._link.memory)} that program and "
                    "agent share"
                )
            self._hear(None)
        return offset

    def _post(self, handle: Handle, request: str, end: Callable[[], None], **args: Any) -> None:
        self._check()
        number = self._state.number = self._state.number + 1

        def over() -> None:
            end()
            handle._open -= 1

        self._ask(request, group=self.name, call=number, **args)
        handle._open += 1
        self._state.calls[number] = over

    def _ask(self, request: str, **args: Any) -> Any:
        try:
            return self._link.call(request, args)
        except AgentError as error:
            self._hear(0.0)  # it may have been refused because a rank was lost: that says which
            raise CommunicatorError(str(error), error.rank) from None

    def _check(self) -> None:
        if self.name in self._state.lost:
            raise self._state.lost[self.name]

    def _hear(self, timeout: float | None) -> None:
        self._check()
        try:
            notes = self._link.notes(timeout)
        except AgentError as error:
            raise CommunicatorError(str(error)) from None
        for note in notes:
            if note["event"] == "over":
                for number in note["calls"]:
                    self._state.calls.pop(number)()
            elif note["event"] == "lost":
                rank = int(note["peer_rank"])
                line = f"rank {rank} (h{note['host']}) was lost: {note['reason']}"
                self._state.lost[note["group"]] = CommunicatorError(line, rank)
        self._check()


def give(link: Link) -> None:
    _LINK.link, _LINK.state = link, _State(link)


def _bytes(array: Array) -> Array:
    return (
        np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if array.nbytes
        else np.empty(0, np.uint8)
    )


def _pieces(size: int) -> list[slice]:
    return [slice(at, min(at + PIECE, size)) for at in range(0, max(size, 1), PIECE)]
