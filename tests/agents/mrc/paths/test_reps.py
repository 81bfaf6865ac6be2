"""REPS, step by step: explore, recycle what came through, and freeze on a loss."""

from __future__ import annotations

from random import Random

from agents.mrc.paths.path import Path
from agents.mrc.paths.reps import BUFFER, Recycler


def recycler(explore: int = 4) -> Recycler:
    return Recycler([Path(i, i, 0, 3) for i in range(100)], explore, 1000, Random(1))


def test_a_bdp_of_packets_explores_and_then_what_came_through_is_used_again_oldest_first() -> None:
    r = recycler()
    first = [r.next() for _ in range(4)]
    assert len(set(first)) == 4 and r.exploring == 0
    good = first[:3]
    for path in good:
        assert path is not None
        r.came_through(10, path)
    assert [r.next() for _ in range(3)] == good, "each once"
    assert r.next() not in good, "nothing is left to recycle: a random one of a hundred"


def test_only_the_latest_are_kept() -> None:
    r = recycler(0)
    for path in r.paths[:20]:
        r.came_through(0, path)
    assert [r.next() for _ in range(BUFFER)] == r.paths[20 - BUFFER : 20]


def test_after_a_loss_only_what_came_through_is_used_until_the_time_is_over() -> None:
    r = recycler(0)
    for path in r.paths[:3]:
        r.came_through(0, path)
    r.lost(100)
    used = [r.next() for _ in range(9)]
    assert set(used) == set(r.paths[:3]) and used[:3] == used[3:6] == used[6:]
    r.came_through(500, r.paths[7])
    assert r.next() is r.paths[7]
    r.came_through(1101, r.paths[8])
    assert r.exploring == r.explore, "then it explores anew"


def test_a_loss_while_exploring_freezes_nothing() -> None:
    r = recycler(4)
    r.came_through(0, r.paths[0])
    r.lost(1)
    assert r.next() is not None and r.exploring == 3


def test_without_a_path_there_is_none() -> None:
    assert Recycler([], 4, 1000, Random(1)).next() is None
