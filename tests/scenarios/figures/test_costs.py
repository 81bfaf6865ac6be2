"""What failures cost, over seeds, and as people read it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scenarios.figures.costs import _NUMBERS, CostRow, costs
from scenarios.show.cost_table import columns, cost_groups, footnotes, shared_fabric
from testbed.results.summary import Run
from tests.made import made

# --- over seeds -----------------------------------------------------------------------------------


def costs_of(*entries: dict[str, Any]) -> list[CostRow]:
    return costs([made(Run, **entry) for entry in entries])


def entry(transport: str, extra: float | None, verdict: str = "ok", **more: Any) -> dict[str, Any]:
    numbers = dict.fromkeys(_NUMBERS) | {
        "extra_ns": extra,
        "healthy_step_ns": 100.0,
        "finished": extra is not None,
    }
    return {
        "transport": transport,
        "fabric": "f",
        "verdict": verdict,
        "failure_cost": numbers | more,
    }


def test_costs_are_medians_over_seeds() -> None:
    rows = costs_of(
        entry("roce", 50),
        entry("mrc", 1),
        entry("mrc", 9, "not trustworthy"),
        entry("roce", None),
        entry("mrc", 3),
    )
    assert [(r.transport, r.n, r.runs, r.extra_ns, r.unfinished, r.doubtful) for r in rows] == [
        ("roce", 1, 2, 50, 1, 0), ("mrc", 2, 3, 2, 0, 1),
    ]  # fmt: skip
    assert (rows[1].extra_low_ns, rows[1].extra_high_ns, rows[1].trusted) == (1, 3, True), (
        "the doubtful run's 9 is in no figure"
    )
    (doubtful,) = costs_of(entry("mrc", None), entry("mrc", 9, "not trustworthy"))
    assert (doubtful.extra_ns, doubtful.n, doubtful.trusted) == (9, 1, False), (
        "but where there is no other it is shown, as such"
    )
    (none,) = costs_of(entry("tcp", None))
    assert none.extra_ns is None and none.n == 0 and none.unfinished == 1


# --- as people read it ----------------------------------------------------------------------------


def said(transport: str, extra: float | None, **more: Any) -> dict[str, Any]:
    numbers = {
        "healthy_step_ns": 1.0 * 1e9,
        "healthy_steps": 3,
        "healthy_from": "before",
        "ideal_extra_ns": 0.5 * 1e9,
        "worst_step_ns": 4 * 1e9,
    }
    numbers["goodput_kept"] = 0.75
    known = (
        {}
        if extra is None
        else {
            "extra_steps": extra / 1e9,
            "extra_rtts": extra / (10 * 1e6),
            "extra_percent": 100 * extra / (8 * 1e9),
        }
    )
    known |= {} if extra is None else {"slowdown": 4.0}
    return (
        entry(transport, extra, **numbers, **known) | {"placement": "packed", "settings": {}} | more
    )


def told(transport: str, extra: float, noise: float) -> dict[str, Any]:
    whole = said(transport, extra)
    return whole | {"failure_cost": whole["failure_cost"] | {"noise_ns": noise}}


def test_what_is_smaller_than_its_own_unevenness_is_said_to_be() -> None:
    rows = costs_of(
        told("mrc", 0.6 * 1e9, 0.1 * 1e9),
        told("roce", 0.6 * 1e9, 0.7 * 1e9),
        told("tcp", -0.6 * 1e9, 0.1 * 1e9),
    )
    heads = dict(columns(rows))
    assert [heads["extra time"](row) for row in rows] == [
        "600 ms ±100 ms",
        "within noise\n(±700 ms)",
        "within noise\n(±600 ms)",
    ]


def test_seeds_that_part_more_than_their_steps_are_the_noise() -> None:
    """Four seeds gain, one loses: the median of a loss is none that can be told from noise, however
    even the steps of each run are."""
    rows = costs_of(*(told("mrc", extra * 1e9, 0.1 * 1e9) for extra in (-0.5, 0.2, 0.3, 0.4, 0.5)))
    assert (rows[0].extra_ns, rows[0].noise, rows[0].within_noise) == (0.3 * 1e9, 0.8 * 1e9, True)
    sure = costs_of(*(told("mrc", extra * 1e9, 0.1 * 1e9) for extra in (0.2, 0.3, 0.4)))
    assert sure[0].noise == pytest.approx(0.1 * 1e9) and not sure[0].within_noise
    assert dict(columns(sure))["range"](sure[0]) == "200 ms to 400 ms"
    many = costs_of(
        *(
            told("mrc", extra * 1e9, 0.1 * 1e9)
            for extra in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 9)
        )
    )
    assert dict(columns(many))["95 % interval"](many[0]) == "200 ms to 800 ms"


def test_goodput_that_healthy_steps_reach_as_well_is_no_loss() -> None:
    rows = costs_of(said("mrc", 1e9), said("roce", 1e9), said("tcp", 1e9), said("mptcp", 1e9))
    kept = [(0.75, 0.1), (0.95, 0.1), (1.2, 0.0), (1.3, None)]
    rows = [
        replace(row, goodput_kept=share, noise_share=off)
        for row, (share, off) in zip(rows, kept, strict=True)
    ]
    assert [dict(columns(rows))["goodput kept"](row) for row in rows] == [
        "75 %",
        "within noise\n(±10 %)",
        "all",
        "all",
    ]


def test_a_doubtful_run_is_marked_and_too_few_healthy_steps_have_no_cost() -> None:
    few = said("tcp", None)
    few["failure_cost"] |= {"unknown": "2 of 5 healthy steps", "finished": True, "healthy_steps": 2}
    rows = costs_of(said("mrc", 0.6 * 1e9, verdict="not trustworthy"), few)
    heads = dict(columns(rows))
    assert [heads["extra time"](row) for row in rows] == [
        "600 ms, doubtful",
        "2 of 5 healthy steps",
    ]
    assert (
        "Fewer than 5 healthy steps do not show how uneven a pace is: begin the failure at a "
        "later step."
    ) in footnotes(rows)


def test_what_is_within_noise_has_no_figure() -> None:
    rows = costs_of(told("mrc", 0.6 * 1e9, 0.1 * 1e9), told("tcp", -0.6 * 1e9, 0.7 * 1e9))
    heads = dict(columns(rows))
    assert [heads["extra time"](row) for row in rows] == [
        "600 ms ±100 ms",
        "within noise\n(±700 ms)",
    ]
    for head in ("in steps", "in base RTTs", "job longer"):
        assert heads[head](rows[0]) != "–" and heads[head](rows[1]) == "–"


def test_the_table() -> None:
    rows = costs_of(
        said("mrc", 0.6 * 1e9),
        said("mrc", 0.8 * 1e9),
        said("roce", None, verdict="not trustworthy"),
    )
    heads = columns(rows)
    assert shared_fabric(rows) == "f", "which their title has"
    assert [head for head, _ in heads] == [
        "transport",
        "n",
        "slowest step",
        "goodput kept",
        "extra time",
        "range",
        "in steps",
        "in base RTTs",
        "job longer",
        "theory",
        "healthy step",
    ]
    assert [[cell(row) for _, cell in heads] for row in rows] == [
        [
            "mrc",
            "2",
            "4.0×",
            "75 %",
            "700 ms ±100 ms",
            "600 ms to 800 ms",
            "0.70",
            "70",
            "8.8 %",
            "500 ms",
            "1.00 s (3)",
        ],
        [
            "roce",
            "0",
            "–",
            "75 %",
            "1 of 1 unfinished",
            "–",
            "–",
            "–",
            "–",
            "500 ms",
            "1.00 s (3)",
        ],
    ]
    assert (
        "Not trustworthy, because the machine was too busy or late: roce (1 of 1 runs)."
        in footnotes(rows)
    )


def test_groups_are_by_setting_and_placement() -> None:
    swept = {"settings": {"workload.message_bytes": "1MiB"}}
    runs = [
        said("mrc", 1.0),
        said("mrc", 2.0, **swept),
        said("mrc", 3.0, placement="interleaved"),
        said("roce", 4.0),
    ]
    seen = [
        (words, [row.extra_ns for row in rows])
        for words, rows in cost_groups([made(Run, **run) for run in runs])
    ]
    assert seen == [
        (["packed ranks"], [1.0, 4.0]),
        (["packed ranks", "message_bytes = 1MiB"], [2.0]),
        (["interleaved ranks"], [3.0]),
    ]
    assert (
        cost_groups([made(Run, **said("mrc", 1.0))])[0][0] == [] and cost_groups([made(Run)]) == []
    )
