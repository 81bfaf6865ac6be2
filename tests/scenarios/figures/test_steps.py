"""Steps: the time of a step, and the bandwidth that it stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.figures.summary import run_summary
from tests.scenarios.broken import NET_S, at, write
from topologies.theory import bus_factor

SIZE = 1 << 20


def step(rank: int, number: int, start: float, end: float) -> dict[str, Any]:
    return {
        "t": at(end),
        "kind": "step",
        "host": rank,
        "rank": rank,
        "step": number,
        "start_ps": at(start),
        "end_ps": at(end),
        "ok": True,
    }


def test_a_stall_that_holds_ranks_in_two_steps_costs_bandwidth_once(tmp_path: Path) -> None:
    """Two ranks are through with the first step before the stall of 8 s, two are not: both steps
    are long on some rank."""
    ends = {0: (1, 10, 11), 1: (1, 10, 11), 2: (9, 10, 11), 3: (9, 10, 11)}
    spans = {rank: list(zip((0, *times), times, strict=False)) for rank, times in ends.items()}
    run = write(
        tmp_path,
        [],
        [step(rank, k, a, b) for rank, each in spans.items() for k, (a, b) in enumerate(each)],
    )
    figures = run_summary(run)
    assert [int(ns) for ns in run.step_times] == [
        9 * NET_S,
        9 * NET_S,
        NET_S,
    ] and figures.step_time_ns.max == 9 * NET_S
    # three steps in 11 s, not in 19
    assert figures.algbw_bps == pytest.approx(3 * SIZE * 8 / 11 * 10**4)
    assert figures.busbw_bps == pytest.approx(figures.algbw_bps * bus_factor("ring-allreduce", 4))


def test_a_step_that_a_rank_did_not_finish_counts_for_nobody(tmp_path: Path) -> None:
    lines = [step(rank, 0, 0, 1 + rank) for rank in range(4)] + [
        step(rank, 1, 4, 50) for rank in range(3)
    ]
    run = write(tmp_path, [], lines)
    assert dict(run.step_times) == {0: 4 * NET_S} and run_summary(run).algbw_bps == pytest.approx(
        SIZE * 8 / 2.5 * 10**4
    )
    none = write(tmp_path / "none", [], [], steps=2)
    figures = run_summary(none)
    assert (figures.steps, figures.failed_steps, figures.algbw_bps, figures.typical_step_ns) == (
        0,
        2,
        None,
        None,
    )
