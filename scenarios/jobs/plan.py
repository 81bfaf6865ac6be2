"""Plans what every rank of a job computes and communicates, checks it before the start, and
estimates its time.

A rank's nodes depend on each other. They run as on a GPU with streams: computing one node after the
other, calls of a group in one order, messages as soon as they can, all at once. A message is eager,
as in ASTRA-sim: a send ends when its bytes are over, whether or not the other side has come to its
receive, which takes the oldest message of its tag. :func:`rehearse` goes through a plan that way
without a network, so what would never end is found before the start, and the order of messages is
known.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from topologies.clos import Fabric
from topologies.theory import bus_bandwidth, collective_step_ns
from topologies.units import NS

COMPUTE, SEND, RECV, NOTHING = "compute", "send", "recv", "nothing"
"""Kinds of nodes beside collectives; others depend on one of kind "nothing"."""
COLLECTIVES = {
    "all_reduce": "ring-allreduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "broadcast": "all-gather",
}
"""Operation -> the collective that estimates its time; a broadcast's pipeline carries about what an
all-gather's does."""
KINDS = (COMPUTE, SEND, RECV, *COLLECTIVES, NOTHING)
MOST_NODES = 200_000  # of all ranks together that do something [ours]
MOST_TIES = 64  # dependencies of a node that is taken out [ours]
MOST_GROUPS = 60
"""Groups that one rank is in; an agent keeps 64 [ours]."""
MOST_BYTES = 1 << 30  # of one call, after scaling [ours]


class PlanError(ValueError):
    """A job cannot be carried out. The text is one line that names the node."""


class NeedsHosts(PlanError):
    """A job has more ranks than there are hosts; it takes ``hosts``."""

    def __init__(self, line: str, hosts: int) -> None:
        super().__init__(line)
        self.hosts = hosts


@dataclass(frozen=True)
class Node:
    """``number``: as its file has it. ``after``: numbers of nodes of the same rank that come
    before. ``ns``: of computing, network time. ``size``: bytes, as nccl-tests counts them: all that
    a rank has at the end of an all-gather, and at the begin of the other operations. ``group``:
    ranks of a collective. ``peer``: of a message."""

    number: int
    kind: str
    name: str = ""
    after: tuple[int, ...] = ()
    ns: int = 0
    size: int = 0
    group: tuple[int, ...] = ()
    peer: int = -1
    tag: int = 0
    stage: str = ""  # part of the job, for people

    @property
    def stream(self) -> Hashable:
        """Nodes of one stream begin in the order of the plan."""
        match self.kind:
            case "compute":
                return COMPUTE
            case "send":
                return SEND, self.peer
            case "recv" | "nothing":
                return self.kind, self.number
        return self.group

    def __str__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"node {self.number}{name} ({self.kind})"


@dataclass(frozen=True)
class Plan:
    """``ranks``: nodes of each, in order. ``skipped``: what of a trace is not replayed, and how
    often."""

    ranks: tuple[tuple[Node, ...], ...]
    skipped: dict[str, int] = field(default_factory=dict)

    @property
    def groups(self) -> list[tuple[int, ...]]:
        return list(
            dict.fromkeys(node.group for nodes in self.ranks for node in nodes if node.group)
        )

    @property
    def compute_ns(self) -> list[int]:
        return [sum(node.ns for node in nodes) for nodes in self.ranks]

    @property
    def bytes(self) -> int:
        """Bytes of all calls, each counted once on each rank."""
        return sum(node.size for nodes in self.ranks for node in nodes)

    @property
    def incoming(self) -> list[dict[int, list[int]]]:
        """The receives by rank and peer, in the order in which the peer sends; each takes the
        oldest message of its tag."""
        lines: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
        for rank, nodes in enumerate(self.ranks):
            for node in nodes:
                if node.kind == RECV:
                    lines[rank, node.peer, node.tag].append(node.number)
        result: list[dict[int, list[int]]] = [{} for _ in self.ranks]
        for rank, nodes in enumerate(self.ranks):
            for node in nodes:
                if node.kind == SEND:
                    result[node.peer].setdefault(rank, []).append(
                        lines[node.peer, rank, node.tag].popleft()
                    )
        return result


def moved(plan: Plan) -> tuple[int, int]:
    """Return (payload bytes, messages) that all ranks send in a pass."""
    calls = [node for nodes in plan.ranks for node in nodes if node.group or node.kind == SEND]
    payload = sum(node.size * (2 if node.kind == "all_reduce" else 1) for node in calls)
    return payload, sum(
        _rounds(algorithm(node), len(node.group)) if node.group else 1 for node in calls
    )


def algorithm(node: Node) -> str:
    n = len(node.group)
    return (
        "tree-allreduce" if node.kind == "all_reduce" and not n & n - 1 else COLLECTIVES[node.kind]
    )


def _rounds(kind: str, n: int) -> int:
    return {"ring-allreduce": 2 * (n - 1), "tree-allreduce": 2 * (n - 1).bit_length()}.get(
        kind, n - 1
    )


def scaled(plan: Plan, sigma: float) -> Plan:
    """Divide bytes and computing by ``sigma``: their ratio stays, but messages become short beside
    the fabric's bandwidth times delay."""
    if sigma == 1:
        return plan

    def less(value: int, least: int) -> int:
        return max(least, round(value / sigma)) if value else 0

    ranks = tuple(
        tuple(replace(node, ns=less(node.ns, 0), size=less(node.size, 4)) for node in nodes)
        for nodes in plan.ranks
    )
    return Plan(ranks, plan.skipped)


def ordered(nodes: Sequence[Node], rank: int) -> tuple[Node, ...]:
    """Order working nodes after their dependencies, otherwise by number: equal programs of several
    ranks come out in equal order. Raises
    :class:`PlanError` for unknown dependencies, numbers given twice, and cycles."""
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
                raise PlanError(
                    f"rank {rank}: {node}: it depends on node {number}, which is not there"
                )
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
        raise PlanError(
            f"rank {rank}: {_in_cycle(by_number, open_count)}: it depends on itself, by way of "
            "other nodes"
        )
    return tuple(_without_nothing(result))


def _without_nothing(nodes: Sequence[Node]) -> list[Node]:
    """Take out idle nodes: who depended on one depends on what that one depended on. They are nine
    tenths of PyTorch's traces."""
    left_out: dict[int, tuple[int, ...]] = {}
    result = []
    for node in nodes:
        if not left_out.keys().isdisjoint(node.after):
            node = replace(
                node,
                after=tuple(
                    dict.fromkeys(
                        n for before in node.after for n in left_out.get(before, (before,))
                    )
                ),
            )
        if node.kind == NOTHING and len(node.after) <= MOST_TIES:
            left_out[node.number] = node.after
        else:
            result.append(node)
    return result


def _in_cycle(by_number: dict[int, Node], open_count: dict[int, int]) -> Node:
    """Find a cycle: following what is open from any open node ends in one."""
    number, seen = next(number for number, count in open_count.items() if count), set()
    while number not in seen:
        seen.add(number)
        number = next(before for before in by_number[number].after if open_count[before])
    return by_number[number]


def checked(plan: Plan) -> Plan:
    """Put each rank's nodes in order. Raises :class:`PlanError` for a node that cannot be carried
    out; :func:`rehearse` finds what never ends."""
    count = len(plan.ranks)
    if count < 2:
        raise PlanError(f"{count} ranks: a job needs two")
    for rank, nodes in enumerate(plan.ranks):
        groups: set[tuple[int, ...]] = set()
        for node in nodes:
            where = f"rank {rank}: {node}"
            if node.kind not in KINDS:
                raise PlanError(f"{where}: it cannot be replayed; there are {', '.join(KINDS)}")
            if node.ns < 0 or node.size < 0 or node.size > MOST_BYTES:
                raise PlanError(f"{where}: {node.size:,} bytes: {MOST_BYTES:,} at most")
            if node.kind in (SEND, RECV) and (not 0 <= node.peer < count or node.peer == rank):
                raise PlanError(
                    f"{where}: its other side is rank {node.peer}; there are ranks 0 to "
                    f"{count - 1}, and this one is {rank}"
                )
            if node.kind in COLLECTIVES:
                if (
                    len(node.group) < 2
                    or rank not in node.group
                    or not all(0 <= r < count for r in node.group)
                ):
                    raise PlanError(
                        f"{where}: its group is {_ranks(node.group)}: two or more of ranks 0 to "
                        f"{count - 1}, with {rank}"
                    )
                groups.add(node.group)
                if len(groups) > MOST_GROUPS:
                    raise PlanError(
                        f"{where}: it is of the {len(groups)}th group of this rank; "
                        f"{MOST_GROUPS} at most"
                    )
    ranks = tuple(ordered(nodes, rank) for rank, nodes in enumerate(plan.ranks))
    if not (total := sum(map(len, ranks))):
        raise PlanError("no rank computes or communicates: there is nothing to replay")
    if total > MOST_NODES:
        raise PlanError(
            f"{total:,} nodes that do something: {MOST_NODES:,} at most: replay fewer ranks, "
            "layers or steps"
        )
    return replace(plan, ranks=ranks)


def _ranks(group: Sequence[int]) -> str:
    return (
        ", ".join(map(str, group[:8])) + (", ..." if len(group) > 8 else "") if group else "empty"
    )


class Pass:
    """A rank's way through its nodes. ``free``: computing and sends begin as soon as they can,
    otherwise in the order of the plan."""

    def __init__(self, nodes: Sequence[Node], free: bool = False) -> None:
        self.left = len(nodes)
        self.over: set[int] = set()
        self.free = free
        self.idle: list[tuple[int, Node]] = []  # computing that may begin, by its place in the plan
        # of what has not begun, by stream
        self.lines: dict[Hashable, deque[Node]] = defaultdict(deque)
        self._place = {node.number: place for place, node in enumerate(nodes)}
        self._by_number = {node.number: node for node in nodes}
        self._waiting = {node.number: len(set(node.after)) for node in nodes}
        self._followers: dict[int, list[int]] = defaultdict(list)
        self._computing = False
        for node in nodes:
            for before in set(node.after):
                self._followers[before].append(node.number)
            self.lines[self._stream(node)].append(node)

    def _stream(self, node: Node) -> Hashable:
        return (
            (node.kind, node.number) if self.free and node.kind in (COMPUTE, SEND) else node.stream
        )

    def begin(self) -> list[Node]:
        return self._now([node for stream in list(self.lines) for node in self._startable(stream)])

    def finish(self, node: Node) -> list[Node]:
        self.left -= 1
        self.over.add(node.number)
        streams: dict[Hashable, None] = {self._stream(node): None}
        if node.kind == COMPUTE:
            self._computing = False
        for number in self._followers[node.number]:
            self._waiting[number] -= 1
            streams[self._stream(self._by_number[number])] = None
        return self._now([other for stream in streams for other in self._startable(stream)])

    def _startable(self, stream: Hashable) -> list[Node]:
        line, result = self.lines[stream], []
        while line and not self._waiting[line[0].number]:
            result.append(line.popleft())
        return result

    def _now(self, nodes: list[Node]) -> list[Node]:
        """One node computes at a time."""
        result = []
        for node in nodes:
            if node.kind == COMPUTE:
                heapq.heappush(self.idle, (self._place[node.number], node))
            else:
                result.append(node)
        if self.idle and not self._computing:
            self._computing = True
            result.append(heapq.heappop(self.idle)[1])
        return result


@dataclass(frozen=True)
class Rehearsal:
    """``ns``: network time of one pass. ``lost_ns``: of it, what each rank did not compute.
    ``ranks``: nodes in the order in which they began: carried out so, no message waits behind one
    that waits for it."""

    ns: int
    lost_ns: list[int]
    ranks: tuple[tuple[Node, ...], ...]


def rehearse(plan: Plan, duration: Callable[[Node], float]) -> Rehearsal:
    """Go through the plan. ``duration``: of communication, ns. Raises :class:`PlanError` naming the
    node that would wait for ever."""
    passes = [Pass(nodes, free=True) for nodes in plan.ranks]
    begun: list[list[Node]] = [[] for _ in passes]
    ends: list[tuple[float, int, int, Node]] = []  # time, serial, rank
    # begun and not met, by members, then by rank
    calls: dict[tuple[int, ...], dict[int, deque[Node]]] = {}
    # by sender, receiver, tag: when it is there
    sent: dict[tuple[int, int, int], deque[tuple[float, Node]]] = defaultdict(deque)
    wanted: dict[tuple[int, int, int], deque[Node]] = defaultdict(deque)  # receives that have begun
    free_at: dict[Hashable, float] = defaultdict(float)
    serial, now = 0, 0.0

    def finish_at(time: float, rank: int, node: Node) -> None:
        nonlocal serial
        serial += 1
        heapq.heappush(ends, (time, serial, rank, node))

    def begin(rank: int, node: Node) -> None:
        begun[rank].append(node)
        if node.kind in (COMPUTE, NOTHING):
            finish_at(now + node.ns, rank, node)
        elif node.kind in (SEND, RECV):
            here, there = (rank, node.peer) if node.kind == SEND else (node.peer, rank)
            where = (here, there, node.tag)
            if node.kind == SEND:
                link = (SEND, here, there)
                free_at[link] = max(now, free_at[link]) + duration(node)
                finish_at(free_at[link], rank, node)
                sent[where].append((free_at[link], node))
            else:
                wanted[where].append(node)
            if sent[where] and wanted[where]:
                time, message = sent[where].popleft()
                receive = wanted[where].popleft()
                if message.size != receive.size:
                    raise PlanError(
                        f"rank {here}: {message} of {message.size:,} bytes meets rank {there}'s "
                        f"{receive} of {receive.size:,} bytes: messages of one tag need the same "
                        "sizes in the same order"
                    )
                finish_at(max(now, time), there, receive)
        else:
            meet(rank, node)

    def meet(rank: int, node: Node) -> None:
        meeting = calls.setdefault(node.group, {member: deque() for member in node.group})
        meeting[rank].append(node)
        if not all(meeting.values()):
            return
        end = free_at[node.group] = max(now, free_at[node.group]) + duration(node)
        for member, line in meeting.items():
            other = line.popleft()
            if (other.size, other.kind) != (node.size, node.kind):
                raise PlanError(
                    f"rank {rank}: {node} of {node.size:,} bytes meets rank {member}'s {other} "
                    f"of {other.size:,} bytes: ranks that communicate need the same operations "
                    "and sizes in the same order"
                )
            finish_at(end, member, other)

    for rank, own in enumerate(passes):
        for node in own.begin():
            begin(rank, node)
    while ends:
        now, _, rank, node = heapq.heappop(ends)
        for follower in passes[rank].finish(node):
            begin(rank, follower)
    if any(own.left for own in passes) or any(sent.values()):
        raise PlanError(_stuck(passes, calls, sent, wanted))
    return Rehearsal(
        round(now), [round(now) - ns for ns in plan.compute_ns], tuple(map(tuple, begun))
    )


def _stuck(
    passes: Sequence[Pass],
    calls: dict[tuple[int, ...], dict[int, deque[Node]]],
    sent: dict[tuple[int, int, int], deque[tuple[float, Node]]],
    wanted: dict[tuple[int, int, int], deque[Node]],
) -> str:
    """Return who waits for whom: a rank has begun what another has not."""

    def line(here: int, node: Node, there: int, what: str, own: Iterable[Node]) -> str:
        held = next(iter(own), None)
        if held is None:
            return (
                f"rank {here}: {node} would wait for ever: rank {there} has no {what} left for it"
            )
        cause = next(
            (
                f"waits for node {before}"
                for before in held.after
                if before not in passes[there].over
            ),
            "waits for its turn",
        )
        return (
            f"rank {here}: {node} would wait for ever: rank {there} never comes to its {held}, "
            f"which {cause}"
        )

    def unbegun(rank: int, kind: str, peer: int, tag: int) -> Iterator[Node]:
        nodes = (node for stream in passes[rank].lines.values() for node in stream)
        return (node for node in nodes if (node.kind, node.peer, node.tag) == (kind, peer, tag))

    lines = []
    for (here, there, tag), receives in wanted.items():
        if receives:
            lines.append(
                (
                    here,
                    line(
                        there,
                        receives[0],
                        here,
                        f"send of tag {tag}",
                        unbegun(here, SEND, there, tag),
                    ),
                )
            )
    for members, meeting in calls.items():
        begun, missing = (
            [rank for rank in members if meeting[rank]],
            [rank for rank in members if not meeting[rank]],
        )
        if begun and missing:
            there = missing[0]
            lines.append(
                (
                    begun[0],
                    line(
                        begun[0],
                        meeting[begun[0]][0],
                        there,
                        "such call",
                        passes[there].lines[members],
                    ),
                )
            )
    for (here, there, tag), messages in sent.items():
        if messages:
            lines.append(
                (
                    here,
                    line(
                        here,
                        messages[0][1],
                        there,
                        f"recv of tag {tag}",
                        unbegun(there, RECV, here, tag),
                    ),
                )
            )
    return lines[0][1]


def estimate(fabric: Fabric, hosts: Sequence[int]) -> Callable[[Node], float]:
    """Estimate network ns as if each call had the fabric for itself; ``hosts``: of the ranks, in
    order. The rate is the theory's, and each round waits for one message on its way [ours]."""
    rates: dict[tuple[str, tuple[int, ...]], float] = {}

    def duration(node: Node) -> float:
        if node.kind in (SEND, RECV):
            return fabric.base_rtt_ps / NS / 2 + node.size * 8e9 / fabric.host_rate
        n = len(node.group)
        kind = algorithm(node)
        key = (kind, node.group)
        if key not in rates:
            rates[key] = bus_bandwidth(fabric, kind, [hosts[rank] for rank in node.group])
        rounds = 1 if kind == "all-to-all" else _rounds(kind, n)
        return (
            collective_step_ns(kind, n, node.size, rates[key])
            + rounds * fabric.base_rtt_ps / NS / 2
        )

    return duration
