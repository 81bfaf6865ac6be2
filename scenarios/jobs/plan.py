"""What every rank of a job computes and communicates, the checks before the start, and how long it takes at best.

A rank's nodes depend on each other. They run as a GPU with streams runs them: computing one node after the other, calls of a group in one
order, messages of a pair of ranks in order, all streams at once. :func:`rehearse` goes through a plan that way without a network, so what
would never end is found before anything starts. scenarios/jobs/rank.py carries a plan out.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

from topologies.clos import Fabric
from topologies.theory import bus_bandwidth, collective_step_ns

COMPUTE, SEND, RECV, NOTHING = "compute", "send", "recv", "nothing"
"""The last is a node that only others depend on."""
COLLECTIVES = {
    "all_reduce": "ring-allreduce", "all_gather": "all-gather", "reduce_scatter": "reduce-scatter", "all_to_all": "all-to-all",
    "broadcast": "all-gather",
}  # fmt: skip
"""Operation -> the collective by whose traffic its time is estimated; a broadcast's pipeline carries about what an all-gather's does."""
KINDS = (COMPUTE, SEND, RECV, *COLLECTIVES, NOTHING)
MOST_NODES = 200_000
"""Of all ranks together [ours]."""
MOST_GROUPS = 60
"""That one rank is in; an agent keeps 64 [ours]."""
MOST_BYTES = 1 << 30
"""Of one call, after scaling [ours]."""


class PlanError(ValueError):
    """A job that cannot be carried out. One line that names the node."""


@dataclass(frozen=True)
class Node:
    """``number``: as its file has it. ``after``: numbers of nodes of the same rank that come before. ``ns``: of computing, network time.

    ``size``: bytes, as nccl-tests counts them: all that a rank has at the end of an all-gather, and at the begin of the other operations.
    ``group``: ranks of a collective. ``peer``: of a message."""

    number: int
    kind: str
    name: str = ""
    after: tuple[int, ...] = ()
    ns: int = 0
    size: int = 0
    group: tuple[int, ...] = ()
    peer: int = -1
    tag: int = 0
    stage: str = ""
    """What of the job it belongs to; only for people."""

    @property
    def stream(self) -> Hashable:
        """Nodes of one stream begin in the order of the plan."""
        match self.kind:
            case "compute":
                return COMPUTE
            case "send" | "recv":
                return self.kind, self.peer
            case "nothing":
                return NOTHING, self.number
        return self.group

    def __str__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"node {self.number}{name} ({self.kind})"


@dataclass(frozen=True)
class Plan:
    """``ranks``: nodes of each, in order. ``skipped``: what of a trace is not replayed, and how often."""

    ranks: tuple[tuple[Node, ...], ...]
    skipped: dict[str, int] = field(default_factory=dict)

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """Every group of ranks that a collective names, in the order in which they are met."""
        return list(dict.fromkeys(node.group for nodes in self.ranks for node in nodes if node.group))

    @property
    def compute_ns(self) -> list[int]:
        """By rank."""
        return [sum(node.ns for node in nodes) for nodes in self.ranks]

    @property
    def bytes(self) -> int:
        """Of all calls, each counted once on each rank."""
        return sum(node.size for nodes in self.ranks for node in nodes)


def scaled(plan: Plan, sigma: float) -> Plan:
    """Bytes and computing divided by ``sigma``: their ratio stays, but messages become short beside the fabric's bandwidth times delay."""
    if sigma == 1:
        return plan

    def less(value: int, least: int) -> int:
        return max(least, round(value / sigma)) if value else 0

    ranks = tuple(tuple(replace(node, ns=less(node.ns, 0), size=less(node.size, 4)) for node in nodes) for nodes in plan.ranks)
    return Plan(ranks, plan.skipped)


def ordered(nodes: Sequence[Node], rank: int) -> tuple[Node, ...]:
    """The nodes so that each comes after those that it depends on, otherwise by number: equal programs of several ranks come out in equal
    order. Raises :class:`PlanError` for unknown dependencies, numbers given twice, and cycles."""
    by_number: dict[int, Node] = {}
    for node in nodes:
        if node.number in by_number:
            raise PlanError(f"rank {rank}: {node}: two nodes have this number")
        by_number[node.number] = node
    open_count: dict[int, int] = {}
    followers: dict[int, list[int]] = defaultdict(list)
    for node in nodes:
        before = set(node.after)
        for number in before:
            if number not in by_number:
                raise PlanError(f"rank {rank}: {node}: it depends on node {number}, which is not there")
            followers[number].append(node.number)
        open_count[node.number] = len(before)
    ready = [number for number, count in open_count.items() if not count]
    heapq.heapify(ready)
    result: list[Node] = []
    while ready:
        number = heapq.heappop(ready)
        result.append(by_number[number])
        for follower in followers[number]:
            open_count[follower] -= 1
            if not open_count[follower]:
                heapq.heappush(ready, follower)
    if len(result) < len(nodes):
        raise PlanError(f"rank {rank}: {_in_cycle(by_number, open_count)}: it depends on itself, by way of other nodes")
    return tuple(result)


def _in_cycle(by_number: dict[int, Node], open_count: dict[int, int]) -> Node:
    """A node of a cycle: following what is open from any open one ends in one."""
    number, seen = next(number for number, count in open_count.items() if count), set()
    while number not in seen:
        seen.add(number)
        number = next(before for before in by_number[number].after if open_count[before])
    return by_number[number]


def checked(plan: Plan) -> Plan:
    """The plan with the nodes of each rank in order. Raises :class:`PlanError` for a node that cannot be carried out. That the whole comes
    to its end is :func:`rehearse`'s to say."""
    count = len(plan.ranks)
    if count < 2:
        raise PlanError(f"{count} ranks: a job needs two")
    if sum(map(len, plan.ranks)) > MOST_NODES:
        raise PlanError(f"{sum(map(len, plan.ranks)):,} nodes: {MOST_NODES:,} at most: replay fewer layers or ranks")
    for rank, nodes in enumerate(plan.ranks):
        groups: set[tuple[int, ...]] = set()
        for node in nodes:
            where = f"rank {rank}: {node}"
            if node.kind not in KINDS:
                raise PlanError(f"{where}: it cannot be replayed; there are {', '.join(KINDS)}")
            if node.ns < 0 or node.size < 0 or node.size > MOST_BYTES:
                raise PlanError(f"{where}: {node.size:,} bytes: {MOST_BYTES:,} at most: make sigma larger")
            if node.kind in (SEND, RECV) and (not 0 <= node.peer < count or node.peer == rank):
                raise PlanError(f"{where}: its other side is rank {node.peer}; there are ranks 0 to {count - 1}, and this one is {rank}")
            if node.kind in COLLECTIVES:
                if len(node.group) < 2 or rank not in node.group or not all(0 <= r < count for r in node.group):
                    raise PlanError(f"{where}: its group is {_ranks(node.group)}: two or more of ranks 0 to {count - 1}, with {rank}")
                groups.add(node.group)
                if len(groups) > MOST_GROUPS:
                    raise PlanError(f"{where}: it is of the {len(groups)}th group of this rank; {MOST_GROUPS} at most")
    return replace(plan, ranks=tuple(ordered(nodes, rank) for rank, nodes in enumerate(plan.ranks)))


def _ranks(group: Sequence[int]) -> str:
    return ", ".join(map(str, group[:8])) + (", ..." if len(group) > 8 else "") if group else "empty"


class Pass:
    """One rank's way through its nodes: which may begin, given what is over."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.left = len(nodes)
        self.over: set[int] = set()
        self.lines: dict[Hashable, deque[Node]] = defaultdict(deque)  # of what has not begun, by stream
        self._by_number = {node.number: node for node in nodes}
        self._waiting = {node.number: len(set(node.after)) for node in nodes}
        self._followers: dict[int, list[int]] = defaultdict(list)
        self._computing = False
        for node in nodes:
            for before in set(node.after):
                self._followers[before].append(node.number)
            self.lines[node.stream].append(node)

    def begin(self) -> list[Node]:
        """What begins at the start."""
        return [node for stream in list(self.lines) for node in self._startable(stream)]

    def finish(self, node: Node) -> list[Node]:
        """What begins when this one is over."""
        self.left -= 1
        self.over.add(node.number)
        streams: dict[Hashable, None] = {node.stream: None}
        if node.kind == COMPUTE:
            self._computing = False
        for number in self._followers[node.number]:
            self._waiting[number] -= 1
            streams[self._by_number[number].stream] = None
        return [other for stream in streams for other in self._startable(stream)]

    def _startable(self, stream: Hashable) -> list[Node]:
        line, result = self.lines[stream], []
        while line and not self._waiting[line[0].number] and not (stream == COMPUTE and self._computing):
            self._computing = self._computing or stream == COMPUTE
            result.append(line.popleft())
        return result


@dataclass(frozen=True)
class Rehearsal:
    """``ns``: network time of one pass. ``lost_ns``: of it, what each rank did not compute."""

    ns: int
    lost_ns: list[int]


def rehearse(plan: Plan, duration: Callable[[Node], float]) -> Rehearsal:
    """Go through the plan with given times of communication, ns. Raises :class:`PlanError` naming the node that would wait for ever."""
    passes = [Pass(nodes) for nodes in plan.ranks]
    ends: list[tuple[float, int, int, Node]] = []  # time, serial, rank
    calls: dict[tuple[bool, tuple[int, ...]], dict[int, deque[Node]]] = {}  # begun and not met, by members, then by rank
    free_at: dict[Hashable, float] = defaultdict(float)
    serial, now = 0, 0.0

    def finish_at(time: float, rank: int, node: Node) -> None:
        nonlocal serial
        serial += 1
        heapq.heappush(ends, (time, serial, rank, node))

    def begin(rank: int, node: Node) -> None:
        if node.kind in (COMPUTE, NOTHING):
            finish_at(now + node.ns, rank, node)
            return
        message = node.kind in (SEND, RECV)
        members = node.group if not message else (rank, node.peer) if node.kind == SEND else (node.peer, rank)
        where = (message, members)
        meeting = calls.setdefault(where, {member: deque() for member in members})
        meeting[rank].append(node)
        if not all(meeting.values()):
            return
        end = free_at[where] = max(now, free_at[where]) + duration(node)
        for member, line in meeting.items():
            other = line.popleft()
            if (other.size, other.tag) != (node.size, node.tag) or (other.kind != node.kind and not message):
                raise PlanError(
                    f"rank {rank}: {node} of {node.size:,} bytes meets rank {member}'s {other} of {other.size:,} bytes: ranks that "
                    "communicate need the same operations, sizes and tags in the same order"
                )
            finish_at(end, member, other)

    for rank, own in enumerate(passes):
        for node in own.begin():
            begin(rank, node)
    while ends:
        now, _, rank, node = heapq.heappop(ends)
        for follower in passes[rank].finish(node):
            begin(rank, follower)
    if any(own.left for own in passes):
        raise PlanError(_stuck(passes, calls))
    return Rehearsal(round(now), [round(now) - ns for ns in plan.compute_ns])


def _stuck(passes: Sequence[Pass], calls: dict[tuple[bool, tuple[int, ...]], dict[int, deque[Node]]]) -> str:
    """Who waits for whom, where nothing goes on any more: some rank has begun a call that another has not."""
    for (message, members), meeting in calls.items():
        here, missing = [member for member in members if meeting[member]], [member for member in members if not meeting[member]]
        if not here or not missing:
            continue
        node = meeting[here[0]][0]
        wanted = "such call" if not message else RECV if node.kind == SEND else SEND
        stream: Hashable = node.group if not message else (wanted, here[0])
        own = passes[missing[0]].lines
        if not own[stream]:
            return f"rank {here[0]}: {node} would wait for ever: rank {missing[0]} has no {wanted} left for it"
        held = own[stream][0]
        cause = next((f"waits for node {before}" for before in held.after if before not in passes[missing[0]].over), "waits for its turn")
        never = f"rank {missing[0]} never comes to its {held}, which {cause}"
        return f"rank {here[0]}: {node} would wait for ever: {never}"
    raise AssertionError("a plan without cycles only ends in calls")


def estimate(fabric: Fabric, hosts: Sequence[int]) -> Callable[[Node], float]:
    """Times of communication, ns of the network, as if each call had the fabric for itself; ``hosts``: of the ranks, in order. The rate is
    the theory's, and each round waits for one message on its way [ours]."""
    rates: dict[tuple[str, tuple[int, ...]], float] = {}
    real = fabric.real

    def duration(node: Node) -> float:
        if node.kind in (SEND, RECV):
            return real.base_rtt_ns / 2 + node.size * 8e9 / real.host_rate
        n = len(node.group)
        kind = "tree-allreduce" if node.kind == "all_reduce" and not n & n - 1 else COLLECTIVES[node.kind]  # as rank.py chooses
        key = (kind, node.group)
        if key not in rates:
            rates[key] = bus_bandwidth(real, kind, [hosts[rank] for rank in node.group])
        rounds = {"ring-allreduce": 2 * (n - 1), "tree-allreduce": 2 * (n - 1).bit_length(), "all-to-all": 1}.get(kind, n - 1)
        return collective_step_ns(kind, n, node.size, rates[key]) + rounds * real.base_rtt_ns / 2

    return duration
