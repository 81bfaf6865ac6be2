"""Every collective gives exactly NumPy's result on every rank and step, whatever order a transport
may bring things in.

The model of the verbs (:class:`LooseWorld`) tries orders that no test of real engines would meet;
the engines show that it all fits.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from agents.collectives.base import Collective, Given
from agents.collectives.data import ALL, Array, StepData, draw
from agents.collectives.group import ARENA, MOST_KEPT, CollectiveError, Group, Wanted
from agents.collectives.registry import collectives, find
from agents.transport import FLUSHED, OK, RECEIVE, RETRY_EXCEEDED, WRITE, Completion
from tests.agents.collective_rig import EngineWorld, LooseWorld, Ranks, collective
from tests.fabrics import near
from topologies.clos import Fabric

NAMES = (
    "all-gather",
    "all-to-all",
    "broadcast",
    "hierarchical-allreduce",
    "reduce-scatter",
    "ring-allreduce",
    "send-recv",
    "tree-allreduce",
)
"""Over any number of ranks; ping-pong is between two."""
SMALL = near(Fabric("small", 2, 4, 2, 2, mtu=256))
"""8 hosts, short packets: many PSNs for little time on the wire."""
SERVED = [("ping-pong", 2)] + [
    (name, n)
    for name in NAMES
    for n in (2, 3, 4, 8)
    if n % 2 == 0 or name not in ("tree-allreduce", "hierarchical-allreduce")
]


def inputs(name: str, n: int, size: int, dtype: str, seed: int, step: int) -> list[Array]:
    """Every rank's input, by the rules of agents/collectives/data.py."""
    count = size // 4 // (n if name == "all-gather" else 1)
    bases = draw(n, count, dtype, seed)
    if dtype == "int32":
        return [base + np.int32(step) for base in bases]
    return [base * np.float32(2.0 ** (step % 8 - 4)) for base in bases]


def reference(name: str, given: list[Array], rank: int) -> Array:
    """What a rank must have, written down as simply as it can be said; sums are nested as the
    algorithm's description nests them."""
    n = len(given)
    if name == "all-gather":
        return np.concatenate(given)
    if name in ("send-recv", "ping-pong"):
        return given[rank - 1]
    if name == "broadcast":
        return given[0]
    cut = [np.split(array, n) for array in given]
    if name == "all-to-all":
        return np.concatenate([parts[rank] for parts in cut])
    if name == "tree-allreduce":
        # by rank; only a part of it is its to keep, but every part is summed alike
        held = list(given)
        distance = n // 2
        while distance:
            held = [held[r] + held[r ^ distance] for r in range(n)]
            distance //= 2
        return held[rank]
    if name == "hierarchical-allreduce":
        m = n // 2
        cut = [np.split(array, m) for array in given]
        sums = []
        for c in range(m):
            groups = []
            for first in (0, m):
                total = cut[first + c][c]
                for k in range(1, m):
                    total = cut[first + (c + k) % m][c] + total
                groups.append(total)
            sums.append(groups[0] + groups[1])
        return np.concatenate(sums)
    chunks = []
    for c in range(n):
        # whose part of the chunk starts on its way round
        first = c if name == "ring-allreduce" else c + 1
        total = cut[first % n][c]
        for k in range(1, n):
            total = cut[(first + k) % n][c] + total
        chunks.append(total)
    return np.concatenate(chunks) if name == "ring-allreduce" else chunks[rank]


def compare(ranks: Ranks, name: str, size: int, dtype: str, seed: int = 5) -> list[str]:
    """Every result against :func:`reference` at the moment when its rank checks it; fills the list
    returned."""
    bad: list[str] = []
    known: dict[tuple[int, int], Array] = {}  # some jobs check element by element

    class Watched(StepData):
        def __init__(self, job: Collective) -> None:
            super().__init__(job.data.base, job.data.expected, job.data.terms)
            self.n, self.rank = job.n, job.rank

        def wrong(self, step: int, result: Array, part: slice = ALL) -> int:
            if (step, self.rank) not in known:
                known[step, self.rank] = reference(
                    name, inputs(name, self.n, size, dtype, seed, step), self.rank
                )
            expected = known[step, self.rank][part]
            got = result[part]
            if not np.array_equal(got.view(np.uint32), expected.view(np.uint32)):
                bad.append(
                    f"rank {self.rank} step {step}: {int(np.count_nonzero(got != expected))} of "
                    f"{len(expected)} elements"
                )
            return super().wrong(step, result, part)

    for made in ranks.jobs:
        assert isinstance(made, Collective)
        made.data = Watched(made)
    return bad


def in_order(ranks: Ranks, steps: int, first: int = 0) -> bool:
    """Every rank ended every step once, in order, and found it right."""
    told = [
        [(r["step"], r["ok"]) for r in ranks.records if r["rank"] == rank]
        for rank in range(ranks.n)
    ]
    return told == [[(first + s, True) for s in range(steps)]] * ranks.n


# --- orders ---------------------------------------------------------------------------------------


def orders(name: str, n: int, dtype: str, seeds: Iterable[int]) -> None:
    """Five steps in as many orders."""
    for seed in seeds:
        slices, qps = 1 + seed % 3, 1 + seed % 2
        size = n * slices * 4 * (1 + seed % 6)
        with pytest.MonkeyPatch.context() as patch:
            # comparing takes several turns
            patch.setattr("agents.collectives.base.CHUNK", (1 << 15, 7, 1)[seed % 3])
            world = LooseWorld(n, seed, sloth=1 + 40 * (seed % 2))
            ranks = collective(world, name, n, size, dtype, steps=5, slices=slices, qps=qps)
            bad = compare(ranks, name, size, dtype)
            assert world.run(ranks.look), f"seed {seed}: no end; {ranks.failures}"
        assert not bad, f"seed {seed}: {bad}"
        assert in_order(ranks, 5), f"seed {seed}: {ranks.failures}"


@pytest.mark.parametrize(("name", "n"), SERVED)
def test_exact_in_whatever_order_things_come(name: str, n: int) -> None:
    orders(name, n, "float32", range(3))
    orders(name, n, "int32", range(3, 5))


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_that_hardly_gets_to_look_is_never_overrun(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are as far ahead as they can get; a sender of send-recv would be steps ahead but for
    credit. It compares bit by bit, too."""
    for seed, chunk in enumerate((1 << 15, 1)):
        monkeypatch.setattr("agents.collectives.base.CHUNK", chunk)
        world = LooseWorld(4, seed, sloth=400)
        ranks = collective(world, name, 4, 4 * 2 * 4, steps=9, slices=2)
        bad = compare(ranks, name, 4 * 2 * 4, "int32")
        assert world.run(ranks.look)
        assert not bad and in_order(ranks, 9), f"seed {seed}: {bad}, {ranks.failures}"


@pytest.mark.parametrize("name", NAMES)
def test_both_ends_log_every_transfer_once_with_its_times(name: str) -> None:
    world = LooseWorld(4, 3, sloth=60)  # slices for steps that a rank has not begun come, too
    ranks = collective(world, name, 4, 4 * 2 * 4, steps=6, slices=2)
    assert world.run(ranks.look)
    ends: dict[str, dict[tuple[int, ...], int]] = {"posted": {}, "arrived": {}}
    for _, kind, line in ranks.log:
        for end, known in ends.items() if kind == "transfers" else ():
            values = line[end]
            for peer, stage, part, ps in zip(
                values[::4], values[1::4], values[2::4], values[3::4], strict=True
            ):
                pair = (line["rank"], peer) if end == "posted" else (peer, line["rank"])
                key = (line["step"], stage, part, *pair)
                assert key not in known
                known[key] = line["start_ps"] + ps
    posted, arrived = ends["posted"], ends["arrived"]
    assert posted.keys() == arrived.keys()
    assert len(posted) == 6 * sum(job.arrivals for job in begun(name, 4))
    assert all(posted[key] <= arrived[key] for key in posted)


def begun(name: str, n: int) -> list[Collective]:
    """The jobs of all ranks, slices of one element."""
    ranks = collective(LooseWorld(n, 3), name, n, n * 2 * 4, slices=2)
    return [job for job in ranks.jobs if isinstance(job, Collective)]


def test_how_far_ahead_a_rank_gets() -> None:
    """The proof in base.py, measured: between any two ranks never more than two steps begun, one
    ended."""
    for name in NAMES:
        world = LooseWorld(4, 1, sloth=100)
        ranks = collective(world, name, 4, 32, steps=12, slices=1)
        most = 0

        def look(ranks: Ranks = ranks) -> bool:
            nonlocal most
            through = ranks.look()
            near = [j.step for j in ranks.jobs if isinstance(j, Collective)]
            if len(near) == ranks.n:
                most = max(most, max(abs(near[r] - near[r - 1]) for r in range(ranks.n)))
            return through

        assert world.run(look)
        assert 1 <= most <= (2 if name == "send-recv" else 1), name


@pytest.mark.parametrize("name", NAMES)
def test_more_steps_than_an_immediate_can_number(name: str) -> None:
    first, steps, kind, world = 4090, 12, find(name), LooseWorld(2, 3)
    ranks = Ranks(world, 2, lambda r: kind.wanted(2, r))
    for r in range(2):
        made = kind(ranks.groups[r], 1, 8, "int32", steps, 0, 5, Given(None, first, [0, 0]))
        made.checked = first  # as a channel has it for a call after others
        ranks.start(r, made)
    assert world.run(ranks.look)
    assert in_order(ranks, steps, first)


@pytest.mark.parametrize("name", NAMES)
def test_a_rank_may_begin_before_the_others_and_run_the_next_on_the_same_queue_pairs(
    name: str,
) -> None:
    n, kind, world = 4, find(name), LooseWorld(4, 7)
    ranks = Ranks(world, n, lambda r: kind.wanted(n, r))
    for round_ in range(3):
        before = len(ranks.records)
        for r in (2, 0, 3, 1):
            ranks.start(r, kind(ranks.groups[r], 2, 64, "float32", 4, 0, round_))
            for _ in range(200):
                world.turn()
                ranks.look()
        ranks.finished -= {r for r in range(n) if ranks.jobs[r] is not None}
        assert world.run(ranks.look)
        made = ranks.records[before:]
        assert len(made) == 4 * n and all(r["ok"] for r in made)
    assert not any(ranks.waiting), "nothing is left over"


# --- engines --------------------------------------------------------------------------------------


def over_mrc(name: str, n: int, qps: int, dtype: str, seed: int) -> int:
    """Packets are lost, copied and late; how many were lost."""
    size, steps = n * 2 * 4 * 96, 3
    world = EngineWorld(SMALL, seed=seed)
    rng = Random(seed)
    world.net.fate = lambda frame, link, now: rng.random() > 0.01
    world.net.copies = lambda frame, link, now: 2 if rng.random() < 0.02 else 1
    world.net.jitter = lambda frame, link, now: (
        rng.randrange(SMALL.base_rtt_ps) if rng.random() < 0.1 else 0
    )
    ranks = collective(world, name, n, size, dtype, steps, qps=qps)
    bad = compare(ranks, name, size, dtype)
    assert world.run(ranks.look), ranks.failures
    assert not bad and in_order(ranks, steps), f"{bad}, {ranks.failures}"
    return world.net.dropped


@pytest.mark.parametrize("name", NAMES)
def test_exact_over_mrc_with_loss_copies_and_reordering(name: str) -> None:
    assert over_mrc(name, 4, 2, "float32", 4) > 0


@pytest.mark.parametrize("name", [name for name, n in SERVED if n == 3])
def test_three_ranks_over_mrc(name: str) -> None:
    world = EngineWorld(SMALL)
    ranks = collective(world, name, 3, 3 * 2 * 4 * 50, steps=3)
    assert world.run(ranks.look)
    assert in_order(ranks, 3)


@pytest.mark.parametrize("name", NAMES)
def test_a_dead_peer_is_named(name: str) -> None:
    """Rank 1 is cut off. Whoever talks to it names it, with the reason."""
    world = EngineWorld(SMALL, options={"timeout": 1, "linear": 1, "exponential": 1})
    world.net.down.update(link.name for link in SMALL.links if "h1" in (link.a.node, link.b.node))
    ranks = collective(world, name, 4, 4 * 2 * 4 * 8)
    assert world.run(ranks.look)
    for rank, failure in ranks.failures.items():
        assert rank == 1 or failure["peer_rank"] == 1
        assert failure["reason"] == "retries exhausted"


# --- the base -------------------------------------------------------------------------------------


def job(name: str = "ring-allreduce", n: int = 4, size: int = 64) -> Collective:
    world = LooseWorld(n, 0)
    kind = find(name)
    group = Group(world.verbs[0], list(range(n)), 0, kind.wanted(n, 0), 1, world.clock)
    group.connect({peer: [{"qpn": 99, "arena": [0, 0, 0]}] for peer in group.local})
    return kind(group, 2, size, "int32", 2, 0, 1)


@pytest.mark.parametrize(
    ("arena", "said"),
    [
        ([-1, 7, 64], "fit"),
        ([1 << 64, 7, 64], "fit"),
        ([0, 1 << 32, 64], "fit"),
        ([0, 7.5, 64], "whole"),
    ],
)
def test_an_arena_that_no_header_can_name_is_refused_before_anything_is_connected(
    arena: list[Any], said: str
) -> None:
    """A client of the control channel told one, and the first WRITE there ended the host
    process."""
    world = LooseWorld(4, 0)
    group = Group(
        world.verbs[0], list(range(4)), 0, find("ring-allreduce").wanted(4, 0), 1, world.clock
    )
    sound, bad = [{"qpn": 99, "arena": [0, 7, 64]}], [{"qpn": 99, "arena": arena}]
    with pytest.raises(ValueError, match=said):
        group.connect({peer: bad if peer == max(group.local) else sound for peer in group.local})
    assert not group.connected
    group.connect(dict.fromkeys(group.local, sound))
    assert group.connected


def test_the_cause_is_told_not_what_it_flushed() -> None:
    made = job()
    made.begin()
    qpn = made.bundle[3].qpns[0]
    made.completed(
        [
            Completion(qpn, 0, RECEIVE, FLUSHED, -1, 0),
            Completion(qpn, 0, WRITE, RETRY_EXCEEDED, -1, 8),
        ]
    )
    assert made.failure == {"peer_rank": 3, "reason": "retries exhausted"}
    made.idle()
    assert not made.finished


def test_a_peer_at_an_impossible_step_ends_the_collective() -> None:
    made = job()
    made.begin()
    made.completed([Completion(made.bundle[3].qpns[0], 0, RECEIVE, OK, 5 << 20, 0)])
    assert made.failure == {"peer_rank": 3, "reason": "it sent step 5 while this rank is at step 0"}


@pytest.mark.parametrize(
    "name, rank, stage, j",
    [
        ("ring-allreduce", 3, 6, 0),
        ("ring-allreduce", 3, 5, 2),
        ("ring-allreduce", 1, 0, 0),
        ("tree-allreduce", 2, 1, 0),
        ("tree-allreduce", 1, 4, 0),
        ("all-to-all", 2, 1, 0),
        ("all-to-all", 2, 0, 2),
        ("reduce-scatter", 3, 3, 0),
        ("reduce-scatter", 1, 0, 0),
        ("all-gather", 3, 3, 0),
        ("send-recv", 3, 1, 0),
        ("send-recv", 1, 0, 0),
    ],
)
@pytest.mark.parametrize("early", [0, 1])
def test_a_slice_that_is_not_the_peers_to_send_ends_the_collective(
    name: str, rank: int, stage: int, j: int, early: int
) -> None:
    """Found by fuzzing: an index beyond its array ended the process. Of the step under way and of
    the next."""
    made = job(name)
    made.begin()
    made.completed(
        [Completion(made.bundle[rank].qpns[0], 0, RECEIVE, OK, early << 20 | stage << 10 | j, 0)]
    )
    said = f"it sent slice {j} of stage {stage} of step {early}, which is not its to send, or twice"
    assert made.failure == {"peer_rank": rank, "reason": said}


@pytest.mark.parametrize("step", [0, 1])
def test_a_slice_that_comes_twice_ends_the_collective(step: int) -> None:
    """Else what is kept for the next step would grow as long as a peer sends."""
    made = job()
    made.begin()
    slice_0 = Completion(made.bundle[3].qpns[0], 0, RECEIVE, OK, step << 20, 0)
    made.completed([slice_0])
    assert made.failure is None
    made.completed([slice_0])
    assert made.failure is not None and made.failure["peer_rank"] == 3


def test_what_comes_after_the_end_is_kept_for_the_next_up_to_a_limit() -> None:
    made = job()
    made.ended = True
    later = [Completion(made.bundle[3].qpns[0], 0, RECEIVE, OK, 0, 0)]
    made.completed(later * MOST_KEPT)
    assert made.failure is None and len(made.leftover) == MOST_KEPT
    made.completed(later)
    assert made.failure is not None and len(made.leftover) == MOST_KEPT


def test_a_step_that_is_complete_as_it_begins_ends_at_once() -> None:
    """Nothing more would come to wake the host."""
    made = job("all-gather", 2, 16)
    qpn = made.bundle[1].qpns[0]
    made.begin()

    def from_peer(step: int) -> list[Completion]:
        return [Completion(qpn, 0, RECEIVE, OK, step << 20 | j, 0) for j in range(2)]

    made.completed(from_peer(1) + from_peer(0))
    assert made.step == 1 and made.ended and len(made.notes) == 2
    made.completed([Completion(qpn, k, WRITE, OK, -1, 4) for k in (0, 1, 0)])
    made.idle()
    assert not made.finished
    made.completed([Completion(qpn, 1, WRITE, OK, -1, 4)])
    made.idle()
    assert made.finished


def test_every_immediate_is_replaced_and_strangers_are_left_out() -> None:
    made = job()
    group = made.group
    qpn = made.bundle[1].qpns[0]
    verbs = group.device
    before = verbs.receives[qpn]  # type: ignore[attr-defined]
    taken = group.take(
        [
            Completion(qpn, 0, RECEIVE, OK, 1, 0),
            Completion(777, 0, RECEIVE, OK, 1, 0),
            Completion(qpn, 0, WRITE, OK, -1, 8),
        ]
    )
    assert [c.qpn for c in taken] == [qpn, qpn]
    assert verbs.receives[qpn] == before + 1  # type: ignore[attr-defined]


def test_a_wrong_element_is_counted_and_said() -> None:
    world = LooseWorld(2, 1)
    ranks = collective(world, "all-gather", 2, 64, steps=2)
    first = ranks.jobs[0]
    assert isinstance(first, Collective)
    first.data.expected[5] ^= 1
    assert world.run(ranks.look)
    assert [r["ok"] for r in ranks.records if r["rank"] == 0] == [False, False]
    assert first.done() == {"event": "done", "rank": 0, "wrong": 2}


def test_warm_up_is_told_once() -> None:
    world = LooseWorld(2, 1)
    kind = find("all-gather")
    ranks = Ranks(world, 2, lambda r: kind.wanted(2, r))
    made = [kind(ranks.groups[r], 1, 64, "int32", 2, 1, 0) for r in range(2)]
    for r in range(2):
        ranks.start(r, made[r])
    assert world.run(ranks.look)
    assert all(m.warm for m in made) and len(ranks.records) == 6


def test_all_are_found_by_name() -> None:
    assert tuple(collectives()) == tuple(sorted([*NAMES, "ping-pong"]))
    assert all(kind.name == name for name, kind in collectives().items())


OWN = """
from agents.collectives.ring import RingAllReduce


class Own(RingAllReduce):
    name = "my-allreduce"
"""


def test_one_file_adds_one(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    code = (
        "import sys, agents.collectives as c; c.__path__.append(sys.argv[1]); from "
        "agents.collectives.registry import find\n"
    )
    code += "print(find('my-allreduce').name, find('ring-allreduce').__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "my-allreduce RingAllReduce\n"


def test_peers_agree() -> None:
    for name, kind in collectives().items():
        for n in (2, 4, 8, 16) if name != "ping-pong" else (2,):
            near = [set(kind.peers(n, r)) for r in range(n)]
            assert all(r in near[p] and r != p for r in range(n) for p in near[r]), name


@pytest.mark.parametrize(
    ("name", "n", "changed", "says"),
    [
        ("gossip", 4, {}, "no collective 'gossip': there are all-gather, all-to-all, "),
        (
            "tree-allreduce",
            6,
            {},
            "over 6 ranks: it takes a power of two, like 4; ring-allreduce takes any number",
        ),
        (
            "ring-allreduce",
            3,
            {"size": 64},
            r"message_bytes = 64 must be a multiple of 24 \(3 parts x 2 slices x 4 bytes\): 72 is",
        ),
        ("all-to-all", 4, {"size": 0}, "must be a multiple of 32 .*: 32 is"),
        ("send-recv", 4, {"size": 12}, "must be a multiple of 8 "),
        ("all-gather", 2, {"size": ARENA}, f"is more than {ARENA // 4}"),
        ("all-gather", 2, {"dtype": "float64"}, "dtype 'float64': there are float32, int32"),
        ("all-gather", 2, {"slices": 0}, "slices = 0: 1 to 1023"),
        ("all-gather", 2, {"steps": 0}, "at least one step"),
        ("all-gather", 2, {"qps": 65}, "qps = 65: 1 to 64"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    name: str, n: int, changed: dict[str, object], says: str
) -> None:
    given = {"size": 64, "dtype": "int32", "steps": 2, "slices": 2, "qps": 1, **changed}
    with pytest.raises(CollectiveError, match=says) as caught:
        collective(LooseWorld(n, 0), name, n, **given)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_most_ranks_are_a_matter_of_stages() -> None:
    """Also compiled, where a class method has no class in super()."""
    ring, tree = find("ring-allreduce"), find("tree-allreduce")
    tree.check_ranks(4096)
    for kind, n, says in (
        (ring, 513, "^ring-allreduce over 513 ranks: 2 to 512$"),
        (tree, 1 << 17, "^tree-allreduce over 131072 ranks: 2 to 65536$"),
        (
            find("hierarchical-allreduce"),
            1024,
            "^hierarchical-allreduce over 1024 ranks: 2 to 512$",
        ),
    ):
        with pytest.raises(CollectiveError, match=says):
            kind.check_ranks(n)


def test_a_group_needs_this_host_at_its_rank() -> None:
    verbs = LooseWorld(2, 0).verbs[0]
    for hosts, rank in (([0], 0), ([0, 0], 0), ([1, 0], 0), ([0, 1], 2)):
        with pytest.raises(CollectiveError, match="at least two different hosts, and this one"):
            Group(verbs, hosts, rank, [Wanted(1)], 1)
