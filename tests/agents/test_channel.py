"""Calls on a program's own data: every kind, in any order of arrival, from call to call; messages
between two ranks; who is lost."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from agents.collectives.channel import BOXES, MOST_CALLS, Channel
from agents.collectives.group import CollectiveError, Group, Wanted
from agents.transport import Region
from tests.agents.collective_rig import VA, LooseWorld

SIZE = 1 << 16
KINDS = (
    "ring-allreduce",
    "hierarchical-allreduce",
    "tree-allreduce",
    "reduce-scatter",
    "all-gather",
    "all-to-all",
    "broadcast",
)


class Rig:
    """``n`` ranks with a channel each, over unruly verbs; each has ``SIZE`` bytes of memory behind
    its arena."""

    def __init__(self, n: int, seed: int, sloth: int = 1) -> None:
        self.world = LooseWorld(n, seed, sloth)
        self.n = n
        self.rng = Random(seed)
        self.groups = []
        for rank in range(n):
            wanted = [Wanted(peer) for peer in range(n) if peer != rank]
            self.groups.append(
                Group(self.world.verbs[rank], list(range(n)), rank, wanted, 1, self.world.clock)
            )
        # The model has one region per host: a program's memory is the arena's last part.
        self.memory = [group.arena[-SIZE:] for group in self.groups]
        for rank, group in enumerate(self.groups):
            group.connect(
                {str(peer): self.groups[peer].local[str(rank)] for peer in range(n) if peer != rank}
            )
            for bundle in group.bundles:
                bundle.memory = Region(VA + len(group.arena) - SIZE, 1, SIZE)
        self.channels = [
            Channel(group, 4, memory)
            for group, memory in zip(self.groups, self.memory, strict=True)
        ]
        self.over: list[set[int]] = [set() for _ in range(n)]

    def run(self, calls: int, turns: int = 200_000, most_failed: int = 1) -> None:
        """Until every rank has ended so many calls, or so many have failed."""

        def look() -> bool:
            for rank, channel in enumerate(self.channels):
                channel.completed(channel.group.take(self.world.collect(rank)))
                channel.idle()
                self.over[rank].update(channel.over)
                channel.over = []
            return sum(c.failure is not None for c in self.channels) >= most_failed or all(
                len(over) >= calls for over in self.over
            )

        assert self.world.run(look, turns)

    def array(self, rank: int, offset: int, count: int, dtype: str = "float32") -> Any:
        return np.frombuffer(self.memory[rank], dtype, count, offset)


def expected(kind: str, given: list[Any], rank: int, root: int) -> Any:
    n = len(given)
    if kind.endswith("allreduce"):
        return sum(given)
    if kind == "broadcast":
        return given[root]
    if kind == "all-gather":
        return np.concatenate(given)
    parts = [np.split(array, n) for array in given]
    if kind == "reduce-scatter":
        return sum(p[rank] for p in parts)
    return np.concatenate([p[rank] for p in parts])


@pytest.mark.parametrize("n", [2, 3, 4, 8])
@pytest.mark.parametrize("seed", range(4))
def test_calls_of_all_kinds_follow_each_other_and_give_what_numpy_gives(n: int, seed: int) -> None:
    rig, rng = Rig(n, seed, sloth=1 + seed), Random(seed)
    kinds = [
        k for k in KINDS if n & n - 1 == 0 or k not in ("tree-allreduce", "hierarchical-allreduce")
    ]
    plan, wanted = [], []
    for number in range(12):  # all posted at once; places of the memory belong to one call each
        kind, root, count = rng.choice(kinds), rng.randrange(n), rng.choice([1, 3, 8, 16]) * n
        base = number * 5000
        given = [np.arange(count, dtype=np.int64) * (rank + 1) + number for rank in range(n)]
        result = [expected(kind, given, rank, root) for rank in range(n)]
        size = count * 8 * (n if kind == "all-gather" else 1)
        if size > 2000:
            continue
        plan.append((number, kind, size, base, root))
        wanted.append((base + 2500, given, base, result))
    for rank in rng.sample(range(n), n):
        for (number, kind, size, base, root), (_, given, _, _) in zip(plan, wanted, strict=True):
            rig.array(rank, base, len(given[rank]), "int64")[:] = given[rank]
            rig.channels[rank].call(number, kind, "int64", size, base, base + 2504, "sum", root)
    rig.run(len(plan))
    for number, (_, _, base, result) in enumerate(wanted):
        for rank in range(n):
            got = rig.array(rank, base + 2504, len(result[rank]), "int64")
            assert (got == result[rank]).all(), (plan[number], rank)
    assert [c.failure for c in rig.channels] == [None] * n


@pytest.mark.parametrize(
    ("op", "numpy"),
    [("sum", np.add), ("prod", np.multiply), ("min", np.minimum), ("max", np.maximum)],
)
def test_reductions(op: str, numpy: Any) -> None:
    rig = Rig(4, 1)
    for rank, channel in enumerate(rig.channels):
        rig.array(rank, 0, 16, "float64")[:] = np.arange(16) + rank / 2
        channel.call(0, "ring-allreduce", "float64", 128, 0, 0, op)
    rig.run(1)
    want = numpy.reduce([np.arange(16) + rank / 2 for rank in range(4)])
    assert all(np.allclose(rig.array(rank, 0, 16, "float64"), want) for rank in range(4))


@pytest.mark.parametrize("seed", range(5))
def test_messages_between_ranks_meet_in_order_beside_collectives(seed: int) -> None:
    rig = Rig(3, seed)
    count = BOXES + 5  # more than a mailbox holds
    for number in range(count):
        rig.array(0, number * 64, 16)[:] = number
        rig.channels[0].send(number, 2, number * 64, 64)
        rig.channels[2].recv(number, 0, 8192 + number * 64, 64)
    for rank, channel in enumerate(rig.channels):
        rig.array(rank, 32768, 12)[:] = rank
        channel.call(1000, "ring-allreduce", "float32", 48, 32768, 32768)
    rig.over[1].update(range(count))
    rig.run(count + 1)
    assert [float(rig.array(2, 8192 + k * 64, 1)[0]) for k in range(count)] == list(range(count))
    assert all((rig.array(rank, 32768, 12) == 3).all() for rank in range(3))


def test_a_message_of_another_size_is_named() -> None:
    rig = Rig(2, 1)
    rig.channels[0].send(0, 1, 0, 64)
    rig.channels[1].recv(0, 0, 0, 32)
    rig.run(1)
    assert rig.channels[0].failure == {
        "peer_rank": 1,
        "reason": "it receives 32 bytes where this rank sends 64",
    }


def test_ranks_that_make_different_calls_are_told() -> None:
    rig = Rig(2, 1)
    rig.channels[0].call(0, "ring-allreduce", "float32", 64, 0, 0)
    rig.channels[1].call(0, "ring-allreduce", "float32", 128, 0, 0)
    rig.run(1)
    reasons = [channel.failure["reason"] for channel in rig.channels if channel.failure]
    assert reasons and "another call" in reasons[0]


def test_calls_that_a_rank_made_before_it_ended_still_end_and_later_ones_name_it() -> None:
    rig = Rig(3, 2)
    for rank, channel in enumerate(rig.channels):
        channel.call(0, "ring-allreduce", "float32", 48, 0, 0)
        if rank != 1:
            channel.call(1, "ring-allreduce", "float32", 48, 64, 64)
    for rank in (0, 2):
        rig.channels[rank].lose(1, "its program was ended by SIGKILL", 1)
    rig.run(2, most_failed=2)
    for rank in (0, 2):
        assert rig.over[rank] == {0}
        assert rig.channels[rank].failure == {
            "peer_rank": 1,
            "reason": "its program was ended by SIGKILL",
        }


def test_bad_calls_are_refused_in_one_line() -> None:
    channel = Rig(2, 1).channels[0]
    for bad, words in (
        (lambda: channel.call(0, "send-recv", "float32", 64, 0, 0), "use send and recv"),
        (
            lambda: channel.call(0, "ring-allreduce", "float32", 64, SIZE, 0),
            "not all in the memory",
        ),
        (lambda: channel.call(0, "ring-allreduce", "float32", 64, -4, 0), "not all in the memory"),
        (lambda: channel.call(0, "ring-allreduce", "float32", 60, 0, 0), "must be a multiple"),
        (lambda: channel.call(0, "ring-allreduce", "complex64", 64, 0, 0), "there are float32"),
        (lambda: channel.call(0, "ring-allreduce", "float32", 64, 0, 0, "xor"), "there are sum"),
        (
            lambda: channel.call(0, "broadcast", "float32", 64, 0, 0, "sum", 2),
            "the ranks are 0 to 1",
        ),
        (lambda: channel.send(0, 0, 0, 4), "this one is 0"),
        (lambda: channel.recv(0, 1, 0, SIZE + 1), "not all in the memory"),
    ):
        with pytest.raises(CollectiveError, match=words):
            bad()
    for number in range(MOST_CALLS + 1):
        if number == MOST_CALLS:
            with pytest.raises(CollectiveError, match="calls are waiting"):
                for extra in range(2):
                    channel.call(number + extra, "ring-allreduce", "float32", 16, 0, 0)
        else:
            channel.call(number, "ring-allreduce", "float32", 16, 0, 0)
