"""The program of a job's ranks (agents.communicator): ``rank.py PLAN``; PLAN is a file of
scenarios/jobs/replay.py.

Computing is declared, not done. What is sent is known to all, so every element that arrives is
compared. After each pass a rank reports the phase, its number, begin and end (seconds of the
network's time), how late the rank itself was, and how many elements were wrong so far.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict, deque
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from agents.communicator import Array, Communicator, Handle
from scenarios.jobs.plan import COMPUTE, NOTHING, RECV, SEND, Node, Pass

PERIOD = 97
"""A prime, so that displaced parts of the pattern are seen [ours]."""
MARK = 128.0
"""Parts of an all-to-all differ by it: all sums stay exact in float32 [ours]."""
PART = 1 << 18  # elements of a message that travel at once [ours]
AHEAD = 4
"""Parts of a peer's messages asked for before they come: four times a link's bandwidth times delay
[ours]."""
MOST_AHEAD = 64
"""Parts of all peers' messages asked for before: a quarter of the memory that program and agent
share."""


class Messages:
    """A part that comes is asked for and compared whether or not its receive has begun
    (plan.py)."""

    def __init__(self, player: Player) -> None:
        self.player, self.comm = player, player.comm
        self.ahead = max(1, min(AHEAD, MOST_AHEAD // max(1, len(player.incoming))))
        self.lines = {
            (RECV, peer): deque(parts for node in nodes for parts in _parts(node))
            for peer, nodes in player.incoming.items()
        }
        self.open: dict[tuple[str, int], list[tuple[Handle, Node, slice]]] = defaultdict(list)
        self.left: dict[int, int] = {}  # parts of a message that are not over, by node
        for nodes in player.incoming.values():
            self.left |= {node.number: len(_parts(node)) for node in nodes}
        self.begun: set[int] = set()

    def begin(self, node: Node) -> None:
        self.begun.add(node.number)
        if node.kind == SEND:
            parts = _parts(node)
            self.left[node.number] = len(parts)
            self.lines.setdefault((SEND, node.peer), deque()).extend(parts)

    def go_on(self) -> list[Node]:
        """Post what comes next; return the nodes that are over."""
        over: list[Node] = []
        for (kind, peer), line in self.lines.items():
            still = []
            for handle, node, part in self.open[kind, peer]:
                if not handle.over:
                    still.append((handle, node, part))
                    continue
                self.left[node.number] -= 1
                if kind == RECV:
                    expected = self.player.pattern(part.stop)[part] + peer
                    self.player.wrong += int(np.count_nonzero(handle.result != expected))
            while line and len(still) < self.ahead:
                node, part = line.popleft()
                if kind == SEND:
                    handle = self.comm.send(
                        self.player.pattern(part.stop)[part] + self.comm.rank, peer, wait=False
                    )
                else:
                    handle = self.comm.recv(
                        np.empty(part.stop - part.start, np.float32), peer, wait=False
                    )
                still.append((handle, node, part))
            self.open[kind, peer] = still
        for number in [number for number in self.begun if not self.left[number]]:
            self.begun.remove(number)
            over.append(self.player.by_number[number])
        return over


def _parts(node: Node) -> list[tuple[Node, slice]]:
    items = max(1, node.size // 4)
    return [(node, slice(at, min(at + PART, items))) for at in range(0, items, PART)]


class Player:
    def __init__(
        self,
        comm: Communicator,
        nodes: list[Node],
        incoming: dict[str, list[int]],
        groups: list[list[int]],
    ) -> None:
        self.comm, self.nodes = comm, nodes
        self.by_number = {node.number: node for node in nodes}
        self.incoming = {
            int(peer): [self.by_number[number] for number in numbers]
            for peer, numbers in incoming.items()
        }
        self.groups: dict[tuple[int, ...], Communicator | None] = {}
        for ranks in groups:
            self.groups[tuple(ranks)] = (
                comm if ranks == list(range(comm.size)) else comm.group(ranks)
            )
        self.base = np.empty(0, np.float32)
        self.wrong = 0

    def pattern(self, count: int) -> Array:
        if count > len(self.base):
            self.base = (np.arange(max(count, 2 * len(self.base))) % PERIOD).astype(np.float32)
        return self.base[:count]

    def play(self) -> float:
        """Return how late this rank was with what it declared, seconds of the network's time."""
        comm, way = self.comm, Pass(self.nodes)
        calls: list[tuple[Handle, Node, Array | float]] = []
        messages = Messages(self)
        computing: Node | None = None
        until = late = 0.0
        ready = deque(way.begin())  # nodes of one stream begin in their order
        while True:
            while ready:
                node = ready.popleft()
                if node.kind == NOTHING:
                    ready += way.finish(node)
                elif node.kind == COMPUTE:
                    computing, until = node, comm.now() + node.ns / 1e9
                elif node.kind in (SEND, RECV):
                    messages.begin(node)
                else:
                    calls.append(self.call(node))
            if over := messages.go_on():
                ready += [follower for node in over for follower in way.finish(node)]
                continue
            if not way.left:
                return late
            left = None if computing is None else until - comm.now()
            if left is None or left > 0:
                comm.pause(left)
            if computing is not None and comm.now() >= until:
                late += comm.now() - until
                ready += way.finish(computing)
                computing = None
            ended = [call for call in calls if call[0].over]
            calls = [call for call in calls if not call[0].over]
            for handle, node, expected in ended:
                self.wrong += int(np.count_nonzero(handle.result != expected))
                ready += way.finish(node)

    def call(self, node: Node) -> tuple[Handle, Node, Array | float]:
        items = max(1, node.size // 4)
        group = self.groups[node.group]
        assert group is not None  # a rank calls only what it is in
        n, rank = group.size, group.rank
        part = self.pattern(max(1, items // n))
        ranks = np.arange(n, dtype=np.float32)[:, None]
        total = float(n * (n - 1) // 2)
        match node.kind:
            case "all_reduce":
                algorithm = "ring" if n & n - 1 else "tree"
                whole = self.pattern(items)
                return (
                    group.all_reduce(whole + rank, wait=False, algorithm=algorithm),
                    node,
                    whole * n + total,
                )
            case "reduce_scatter":
                return (
                    group.reduce_scatter(np.tile(part + rank, (n, 1)), wait=False),
                    node,
                    (part * n + total)[None],
                )
            case "all_gather":
                return group.all_gather(part + rank, wait=False), node, part + ranks
            case "all_to_all":
                return (
                    group.all_to_all(part + rank + MARK * ranks, wait=False),
                    node,
                    part + ranks + MARK * rank,
                )
        whole = self.pattern(items)
        return group.broadcast(whole + rank, wait=False), node, whole


def main(file: str) -> None:
    comm = Communicator.open()
    with Path(file).open(encoding="utf-8") as lines:
        plan: dict[str, Any] = json.loads(next(lines))
        own: dict[str, Any] = json.loads(next(islice(lines, comm.rank, None)))
    nodes = [
        Node(**{**fields, "after": tuple(fields["after"]), "group": tuple(fields["group"])})
        for fields in own.pop("nodes")
    ]
    player = Player(comm, nodes, own["incoming"], plan["groups"])
    for phase, (ranks, passes) in enumerate(plan["phases"]):
        comm.barrier()
        for number in range(passes if comm.rank in ranks else 0):
            begin = comm.now()
            late = player.play()
            comm.tell(step=[phase, number, begin, comm.now(), late, player.wrong])
    comm.barrier()


if __name__ == "__main__":
    main(sys.argv[1])
