"""Times of transfers, from both ends' logs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from scenarios.figures.measure import tables_of
from scenarios.figures.summary import run_summary
from scenarios.show.plots.times import POINTS, curve
from testbed.results import log
from testbed.results.summary import Spread
from tests.scenarios.broken import MS, NET_MS, at, steps, write


def line(
    rank: int, step: int, begin: float, posted: list[int], arrived: list[int]
) -> dict[str, Any]:
    """What a rank logs at the end of a step; ms since its begin."""
    lists = {"posted": posted, "arrived": arrived}
    in_ps = {
        name: [value * MS if i % 4 == 3 else value for i, value in enumerate(values)]
        for name, values in lists.items()
    }
    return {
        "t": at(begin),
        "kind": "transfers",
        "host": rank,
        "rank": rank,
        "step": step,
        "start_ps": at(begin),
        **in_ps,
    }


def test_a_transfer_lasts_from_its_posting_at_one_end_to_its_arrival_at_the_other(
    tmp_path: Path,
) -> None:
    logs = [
        *steps([(0.0, 1.0), (1.0, 2.0)], ranks=2),
        line(0, 0, 0.0, [1, 0, 0, 5, 1, 0, 1, 6], [1, 0, 0, 130]),
        # the first one came before the rank began its step
        line(1, 0, 0.1, [0, 0, 0, 2], [0, 0, 0, -20, 0, 0, 1, 40]),
        line(0, 1, 1.0, [1, 0, 0, 0], []),
        line(1, 1, 1.0, [], [0, 0, 0, 70]),
    ]
    run = write(tmp_path, [], logs, ranks=(0, 1))
    table = tables_of(run)["transfers"]
    rows = {
        (r.step, r.stage, r.slice, r.src, r.dst): (r.end_ns - r.start_ns) / NET_MS
        for r in table.itertuples()
    }
    assert rows == {
        (0, 0, 0, 0, 1): 75.0,
        (0, 0, 1, 0, 1): 134.0,
        (0, 0, 0, 1, 0): 28.0,
        (1, 0, 0, 0, 1): 70.0,
    }
    assert not run.of(log.Transfers), "they would fill the memory"


def test_only_steps_that_all_ranks_finished_count(tmp_path: Path) -> None:
    logs = [
        *steps([(0.0, 1.0), (1.0, 2.0)], ranks=2),
        *(line(0, k, k, [1, 0, 0, 0], []) for k in (0, 1, 2)),
    ]
    logs += [line(1, k, k, [], [0, 0, 0, 10 + k]) for k in (0, 1, 2)]
    logs = [
        entry for entry in logs if (entry["kind"], entry["host"], entry["step"]) != ("step", 1, 1)
    ]
    run = write(tmp_path, [], logs, ranks=(0, 1), warmup_steps=0)
    assert list(run.transfers["step"]) == [0]
    assert run_summary(run)["transfer_time_ns"] == Spread(
        n=1, p50=None, p99=None, p999=None, max=10 * NET_MS
    )


def test_warm_up_is_left_out_and_a_run_without_transfers_has_none(tmp_path: Path) -> None:
    logs = [
        *steps([(0.0, 1.0), (1.0, 2.0)], ranks=1),
        *(line(0, k, k, [0, 0, 0, 0], [0, 0, 0, 9]) for k in (0, 1)),
    ]
    assert list(write(tmp_path / "a", [], logs, ranks=(0,), warmup_steps=1).transfers["step"]) == [
        0
    ]
    without = write(tmp_path / "b", [], steps([(0.0, 1.0)], ranks=2), ranks=(0, 1))
    assert not len(without.transfers)
    assert run_summary(without)["transfer_time_ns"] == Spread(
        n=0, p50=None, p99=None, p999=None, max=None
    )


def test_a_curve_has_every_value_of_few_and_the_whole_tail_of_many() -> None:
    assert list(curve(POINTS)) == list(range(POINTS + 1))
    ranks = list(curve(1_000_000))
    assert ranks[:2] == [0, 1] and len(ranks) < 2 * POINTS + 2
    assert ranks[-10:] == list(range(1_000_000 - 9, 1_000_001)), "the ten longest"
    gaps = [b - a for a, b in pairwise(ranks)]
    assert max(gaps) <= 1_000_000 // (POINTS - 1) + 1
