"""Ranks that run collectives or flows without processes: over a model of the verbs, or over real
engines in virtual time.

:class:`LooseVerbs` is as unruly as a transport may be: it places messages in any order, delivers
immediates in order per queue pair only, reads a source as late as it may, acknowledges as late as
it likes, and hosts look at their completions when they please.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from agents.collectives.base import Collective
from agents.collectives.flows import Flow, Flows, Slots, bundles_for, parse
from agents.collectives.group import Group, Wanted
from agents.collectives.registry import find
from agents.mrc.endpoint import Endpoint
from agents.transport import OK, RECEIVE, WRITE, Completion, Foreign, Region
from tests.agents.virtual import VirtualNetwork
from topologies.clos import Fabric
from topologies.units import MS

Job = Collective | Flows
VA = 1 << 40


class LooseVerbs:
    """One host's verbs in a :class:`LooseWorld`."""

    def __init__(self, world: LooseWorld, host: int) -> None:
        self.world = world
        self.host = host
        self.memory: memoryview | Foreign | None = None
        self.made: list[Completion] = []
        self.receives: dict[int, int] = {}

    def register(self, memory: Any) -> Region:
        self.memory = memory if isinstance(memory, Foreign) else memoryview(memory)
        return Region(VA, 1, len(self.memory))

    def create_qp(self, peer: int, evs: int = 0) -> dict[str, Any]:
        qpn = len(self.world.queues)
        self.world.queues.append(deque())
        self.world.owner.append(self.host)
        self.receives[qpn] = 0
        return {"qpn": qpn, "host": self.host, "evs": evs}

    def connect_qp(self, qpn: int, remote: dict[str, Any]) -> None:
        self.world.far[qpn] = remote["qpn"]

    def post_recv(self, qpn: int, wr_id: int) -> None:
        self.receives[qpn] += 1

    def post_write(
        self, qpn: int, wr_id: int, memory: memoryview, va: int, rkey: int, imm: int = -1
    ) -> None:
        assert self.memory is not None
        # A user's own memory must stay as it is until the completion; in the arena peers may write
        # as soon as all has arrived.
        own = isinstance(self.memory, memoryview) and memory.obj is self.memory.obj
        was = None if own else (memory, bytes(memory))
        self.world.queues[qpn].append([wr_id, memory, va - VA, imm, False, was])


class LooseWorld:
    """Hosts ``0 .. n-1``; ``seed`` decides every order. ``sloth``: how much rarer host 0 looks at
    its completions than others do."""

    def __init__(self, n: int, seed: int, sloth: int = 1) -> None:
        self.rng = Random(seed)
        # by QPN: wr_id, source, offset, immediate, whether placed, what it was
        self.queues: list[deque[list[Any]]] = []
        self.owner: list[int] = []
        self.far: dict[int, int] = {}
        self.unacknowledged: dict[int, deque[list[Any]]] = {}
        self.verbs = [LooseVerbs(self, host) for host in range(n)]
        self.now = 0
        self.sloth = sloth

    def clock(self) -> int:
        return self.now

    def collect(self, host: int) -> list[Completion]:
        if host == 0 and self.rng.randrange(self.sloth):
            return []
        made, self.verbs[host].made = self.verbs[host].made, []
        return made

    def _place(self, qpn: int, write: list[Any]) -> None:
        _, source, offset, _, placed, _ = write
        if not placed:
            there = self.verbs[self.owner[self.far[qpn]]].memory
            if isinstance(there, Foreign):
                there.write(offset, source)
            else:
                assert there is not None
                there[offset : offset + len(source)] = source
            write[4] = True

    def turn(self) -> bool:
        """One thing happens; False if nothing can."""
        self.now += 1000
        rng = self.rng
        busy = [qpn for qpn, queue in enumerate(self.queues) if queue]
        open_ = [qpn for qpn, queue in self.unacknowledged.items() if queue]
        if not busy and not open_:
            return False
        if open_ and (not busy or rng.random() < 0.3):
            qpn = rng.choice(open_)
            wr_id, source, _, imm, _, was = self.unacknowledged[qpn].popleft()
            assert was is None or was[0] == was[1], "changed before it was acknowledged"
            self.verbs[self.owner[qpn]].made.append(
                Completion(qpn, wr_id, WRITE, OK, imm, len(source))
            )
            return True
        qpn = rng.choice(busy)
        queue = self.queues[qpn]
        if rng.random() < 0.3:
            self._place(qpn, rng.choice(queue))  # out of order
            return True
        write = queue.popleft()
        self._place(qpn, write)
        far = self.verbs[self.owner[self.far[qpn]]]
        assert far.receives[self.far[qpn]] > 0, "no receive request was posted"
        far.receives[self.far[qpn]] -= 1
        far.made.append(Completion(self.far[qpn], 0, RECEIVE, OK, write[3], 0))
        self.unacknowledged.setdefault(qpn, deque()).append(write)
        return True

    def run(self, look: Callable[[], bool], turns: int = 300_000) -> bool:
        """Until ``look()``; False when nothing more happens (after some patience: clocks go on)."""
        idle = 0
        for _ in range(turns):
            if look():
                return True
            idle = 0 if self.turn() else idle + 1
            if idle > 5000:
                return False
        return False


class EngineVerbs:
    """A Device's verbs over an engine in virtual time."""

    def __init__(self, net: VirtualNetwork, host: int) -> None:
        self.net = net
        self.host = host
        self.engine: Any = net.engines[host]
        self.register: Any = self.engine.register
        self.create_qp: Any = self.engine.create_qp
        self.post_recv: Any = self.engine.post_recv
        self.post_write: Any = self.engine.post_write

    def connect_qp(self, qpn: int, remote: dict[str, Any]) -> None:
        self.engine.connect_qp(self.net.now, qpn, remote)


class EngineWorld:
    """All hosts of a fabric, one MRC engine each."""

    def __init__(
        self, fabric: Fabric, seed: int = 1, options: dict[str, Any] | None = None
    ) -> None:
        self.net = VirtualNetwork(
            fabric, [Endpoint(fabric, h, options or {}, seed) for h in range(fabric.host_count)]
        )
        self.verbs = [EngineVerbs(self.net, h) for h in range(fabric.host_count)]

    def clock(self) -> int:
        return self.net.now

    def collect(self, host: int) -> list[Completion]:
        made: list[Completion] = self.verbs[host].engine.completions()
        return made

    def run(self, look: Callable[[], bool], time: int = 6 * MS) -> bool:
        return self.net.run(self.net.now + time, look)


World = LooseWorld | EngineWorld


class Ranks:
    """Connected groups on hosts ``0 .. n-1``, driven as agents.process.host does it."""

    def __init__(
        self,
        world: World,
        n: int,
        needed: Callable[[int], Sequence[Wanted]],
        qps: int = 1,
        slots: bool = False,
    ) -> None:
        self.world = world
        self.n = n
        hosts = list(range(n))
        self.groups = [
            Group(
                world.verbs[r],
                hosts,
                r,
                needed(r),
                qps,
                world.clock,
                slots=Slots() if slots else None,
            )
            for r in hosts
        ]
        for r, group in enumerate(self.groups):
            group.connect({peer: self.groups[int(peer)].local[str(r)] for peer in group.local})
        self.jobs: list[Job | None] = [None] * n
        self.waiting: list[list[Completion]] = [[] for _ in hosts]
        self.records: list[dict[str, Any]] = []
        self.notes: list[dict[str, Any]] = []
        self.log: list[tuple[int, str, dict[str, Any]]] = []
        self.finished: set[int] = set()
        self.failures: dict[int, dict[str, Any]] = {}

    def start(self, rank: int, job: Job) -> None:
        self.jobs[rank] = job
        self.finished.discard(rank)
        job.begin()
        early, self.waiting[rank] = self.waiting[rank], []
        job.completed(early)

    def look(self) -> bool:
        """One turn of every rank's host; whether all are through or one failed."""
        for rank, group in enumerate(self.groups):
            made = group.take(self.world.collect(rank))
            job = self.jobs[rank]
            if job is None:
                self.waiting[rank] += made
                continue
            if made:
                job.completed(made)
            job.idle()
            for note in job.notes:
                self.notes.append(note)
                if note["event"] == "step":
                    self.records.append(note)
            job.notes.clear()
            self.log += job.logged
            job.logged.clear()
            if job.failure:
                self.failures[rank] = job.failure
                self.jobs[rank] = None
            elif job.finished:
                self.finished.add(rank)
                self.waiting[rank] += job.leftover
                self.jobs[rank] = None
        return bool(self.failures) or len(self.finished) == self.n


def collective(
    world: World,
    name: str,
    n: int,
    size: int,
    dtype: str = "int32",
    steps: int = 3,
    slices: int = 2,
    qps: int = 1,
    seed: int = 5,
) -> Ranks:
    """All ranks started."""
    kind = find(name)
    ranks = Ranks(world, n, lambda r: kind.wanted(n, r), qps)
    for r in range(n):
        ranks.start(r, kind(ranks.groups[r], slices, size, dtype, steps, 0, seed))
    return ranks


def flows(
    world: World,
    n: int,
    tables: list[dict[str, Any]],
    size: int,
    outstanding: int = 4,
    qps: int = 1,
    seed: int = 5,
    at: int | None = None,
    slots: bool = False,
) -> Ranks:
    """All ranks started."""
    listed: list[Flow] = parse(tables, n)
    ranks = Ranks(world, n, lambda r: bundles_for(listed, r), qps, slots)
    for r in range(n):
        ranks.start(r, Flows(ranks.groups[r], listed, size, outstanding, seed, at))
    return ranks
