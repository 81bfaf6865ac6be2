"""A rank's place among others: queue pairs to the peers that it talks to, and one arena that they
write into.

The ``qps`` queue pairs to one peer that serve one purpose are a *bundle*. Its messages may overtake
each other between its queue pairs, never on one. Every immediate uses up a receive request, which
is replaced at once, whether or not a collective runs: so a peer that began earlier never finds
none.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypedDict

from agents.transport import (
    FLUSHED,
    OK,
    RECEIVE,
    STATUS_NAMES,
    Completion,
    Foreign,
    Note,
    Region,
    Remote,
    check_target,
)

ARENA = 1 << 28
"""Bytes of registered memory per group; the kernel commits only what is touched."""
MAX_QPS = 64
MOST_KEPT = 1 << 16
"""Most immediates kept until their collective or flow begins here [ours]."""
RECEIVES = 1024
"""As many immediates as MRC lets be in flight on a queue pair (``max_wimm``)."""


class CollectiveError(ValueError):
    """A collective cannot be run as asked. The text is one line."""


class LostError(CollectiveError):
    """A call needs a rank (``host``) whose program has ended."""

    def __init__(self, rank: int, host: int, reason: str) -> None:
        super().__init__(f"rank {rank} (h{host}) was lost: {reason}")
        self.rank, self.host = rank, host


class Verbs(Protocol):
    @property
    def host(self) -> int: ...
    def register(self, memory: Any) -> Region: ...
    def create_qp(self, peer: int, evs: int = 0) -> Remote: ...
    def connect_qp(self, qpn: int, remote: Remote) -> None: ...
    def post_recv(self, qpn: int, wr_id: int) -> None: ...
    def post_write(
        self, qpn: int, wr_id: int, memory: memoryview, va: int, rkey: int, imm: int = -1
    ) -> None: ...


class SetUp(TypedDict):
    qps: dict[str, list[Remote]]
    connected: bool


class Wanted(NamedTuple):
    """``evs``: how many EVs per plane, 0 for all."""

    peer: int
    evs: int = 0


class Bundle:
    def __init__(self, peer: int, qpns: list[int]) -> None:
        self.peer = peer
        self.qpns = qpns
        self.remote = Region(0, 0, 0)
        self.memory = Region(0, 0, 0)


class Group:
    """``ranks``: host number by rank. Both ends share the order of ``wanted`` per pair. ``clock``
    gives ps. ``memory``: more memory that peers may write into (channel.py). ``slots``: an arena of
    flows that keeps nothing (flows.py)."""

    def __init__(
        self,
        device: Verbs,
        ranks: list[int],
        rank: int,
        wanted: Sequence[Wanted],
        qps: int,
        clock: Callable[[], int] = time.monotonic_ns,
        memory: Region | None = None,
        slots: Foreign | None = None,
    ) -> None:
        n = len(ranks)
        if n < 2 or len(set(ranks)) != n or not 0 <= rank < n or ranks[rank] != device.host:
            raise CollectiveError(
                f"ranks = {ranks}: at least two different hosts, and this one (h{device.host}) "
                f"at its own rank ({rank})"
            )
        if not 1 <= qps <= MAX_QPS:
            raise CollectiveError(f"qps = {qps}: 1 to {MAX_QPS}")
        self.device = device
        self.clock = clock
        self.ranks = _one_copy(tuple(ranks))
        self.rank = rank
        self.n = n
        self.qps = qps
        self.wanted = list(wanted)
        self.connected = False
        self.slots = slots
        # shared: a fork would have to promise copies of private ones
        self.arena = memoryview(b"" if slots else mmap.mmap(-1, ARENA))
        self.region: Region = device.register(slots or self.arena)
        self.bundles: list[Bundle] = []
        self.bundle_of: dict[int, Bundle] = {}
        extra: Remote = {"memory": list(memory)} if memory is not None else {}
        self.local: dict[str, list[Remote]] = {}
        for peer, evs in wanted:
            own_qps = [device.create_qp(ranks[peer], evs) for _ in range(qps)]
            bundle = Bundle(peer, [q["qpn"] for q in own_qps])
            self.bundles.append(bundle)
            for q in own_qps:
                self.bundle_of[q["qpn"]] = bundle
            self.local.setdefault(str(peer), []).extend(
                {**q, "arena": list(self.region), **extra} for q in own_qps
            )

    def is_for(
        self, ranks: list[int], rank: int, wanted: Sequence[Wanted], qps: int, slots: bool = False
    ) -> bool:
        own = (self.ranks, self.rank, self.wanted, self.qps, self.slots is not None)
        return own == (tuple(ranks), rank, list(wanted), qps, slots)

    def connect(self, remotes: dict[str, list[Remote]]) -> None:
        # All regions are read before the first queue pair is connected, because connecting is
        # final.
        regions = {
            bundle.peer: [_region(remote["arena"]) for remote in remotes[str(bundle.peer)]]
            for bundle in self.bundles
        }
        used: dict[int, int] = {}
        for bundle in self.bundles:
            first = used.get(bundle.peer, 0)
            remote_qps = remotes[str(bundle.peer)][first : first + self.qps]
            used[bundle.peer] = first + self.qps
            for qpn, remote in zip(bundle.qpns, remote_qps, strict=True):
                self.device.connect_qp(qpn, remote)
                for _ in range(RECEIVES):
                    self.device.post_recv(qpn, 0)
            bundle.remote = regions[bundle.peer][first]
            if "memory" in remote_qps[0]:
                bundle.memory = _region(remote_qps[0]["memory"])
        self.connected = True

    def write(
        self, bundle: Bundle, lane: int, wr_id: int, memory: memoryview, offset: int, imm: int
    ) -> None:
        qpn = bundle.qpns[lane % len(bundle.qpns)]
        self.device.post_write(
            qpn, wr_id, memory, bundle.remote.va + offset, bundle.remote.rkey, imm
        )

    def take(self, completions: list[Completion]) -> list[Completion]:
        own = [c for c in completions if c.qpn in self.bundle_of]
        for c in own:
            if c.kind == RECEIVE and c.status == OK:
                self.device.post_recv(c.qpn, 0)
        return own

    def failure(self, completions: list[Completion]) -> Note | None:
        failed = [c for c in completions if c.status != OK]
        if not failed:
            return None
        # Flushed receives come before the write that has the cause.
        cause = next((c for c in failed if c.status != FLUSHED), failed[0])
        return {"peer_rank": self.bundle_of[cause.qpn].peer, "reason": STATUS_NAMES[cause.status]}


@lru_cache(maxsize=8)
def _one_copy(ranks: tuple[int, ...]) -> tuple[int, ...]:
    """All simulated hosts are in one process, and each has the same."""
    return ranks


def _region(values: Sequence[Any]) -> Region:
    va, rkey, length = values
    if not all(isinstance(value, int) for value in (va, rkey, length)):
        raise CollectiveError(
            f"arena = {list(values)}: they must be whole numbers, as the peer's setup answered"
        )
    check_target(va, rkey, ARENA, -1)
    return Region(va, rkey, length)
