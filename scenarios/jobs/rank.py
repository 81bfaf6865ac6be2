"""What every rank of a job runs (agents.communicator): ``rank.py PLAN``; PLAN is a JSON file of scenarios/jobs/replay.py.

Computing is declared, not done. What is sent is known to all, so that every element that arrives is compared. In each phase some ranks make
passes. After each pass a rank tells the phase, its number, when it began and ended (seconds of the network's time), how late the rank
itself was, and how many elements were wrong so far.
"""

import json
import sys
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from agents.communicator import Array, Communicator, Handle
from scenarios.jobs.plan import COMPUTE, NOTHING, RECV, SEND, Node, Pass

PERIOD = 97
"""Of the pattern that is sent, elements: a prime, so that displaced parts are seen [ours]."""
MARK = 128.0
"""Between the parts of an all-to-all: all sums stay exact in float32 [ours]."""


class Player:
    """Carries out one rank's nodes."""

    def __init__(self, comm: Communicator, nodes: list[Node], groups: list[list[int]]) -> None:
        self.comm, self.nodes = comm, nodes
        self.groups: dict[tuple[int, ...], Communicator | None] = {}
        for ranks in groups:
            self.groups[tuple(ranks)] = comm if ranks == list(range(comm.size)) else comm.group(ranks)
        self.base = np.empty(0, np.float32)
        self.wrong = 0

    def pattern(self, count: int) -> Array:
        """The first elements of what everybody sends."""
        if count > len(self.base):
            self.base = (np.arange(max(count, 2 * len(self.base))) % PERIOD).astype(np.float32)
        return self.base[:count]

    def play(self) -> float:
        """One pass; how late this rank itself was with what it declared, seconds of the network's time."""
        comm, way = self.comm, Pass(self.nodes)
        calls: list[tuple[Handle, Node, Array | float | None]] = []
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
                else:
                    calls.append(self.call(node))
            if not way.left:
                return late
            left = None if computing is None else until - comm.now()
            if left is None or left > 0:
                comm.pause(left)
            if computing is not None and comm.now() >= until:
                late += comm.now() - until
                ready += way.finish(computing)
                computing = None
            over = [call for call in calls if call[0].over]
            calls = [call for call in calls if not call[0].over]
            for handle, node, expected in over:
                if expected is not None:
                    self.wrong += int(np.count_nonzero(handle.result != expected))
                ready += way.finish(node)

    def call(self, node: Node) -> tuple[Handle, Node, Array | float | None]:
        """Begin a call; what its result is to be comes with it."""
        items = max(1, node.size // 4)
        if node.kind == SEND:
            return self.comm.send(self.pattern(items) + self.comm.rank, node.peer, wait=False), node, None
        if node.kind == RECV:
            return self.comm.recv(np.empty(items, np.float32), node.peer, wait=False), node, self.pattern(items) + node.peer
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
                return group.all_reduce(whole + rank, wait=False, algorithm=algorithm), node, whole * n + total
            case "reduce_scatter":
                return group.reduce_scatter(np.tile(part + rank, (n, 1)), wait=False), node, (part * n + total)[None]
            case "all_gather":
                return group.all_gather(part + rank, wait=False), node, part + ranks
            case "all_to_all":
                return group.all_to_all(part + rank + MARK * ranks, wait=False), node, part + ranks + MARK * rank
        whole = self.pattern(items)
        return group.broadcast(whole + rank, wait=False), node, whole


def main(file: str) -> None:
    comm = Communicator.open()
    plan: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
    nodes = [Node(**{**fields, "after": tuple(fields["after"]), "group": tuple(fields["group"])}) for fields in plan["ranks"][comm.rank]]
    player = Player(comm, nodes, plan["groups"])
    for phase, (ranks, passes) in enumerate(plan["phases"]):
        comm.barrier()
        for number in range(passes if comm.rank in ranks else 0):
            begin = comm.now()
            late = player.play()
            comm.tell(step=[phase, number, begin, comm.now(), late, player.wrong])
    comm.barrier()


if __name__ == "__main__":
    main(sys.argv[1])
