"""Checks: what they see, what they refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from scenarios.figures.stats import medians
from scenarios.schema.checks import CheckError, evaluate, names_in

FIGURES: dict[str, Any] = {
    "mrc": {
        "wrong": 0,
        "busbw_bps": 36e6,
        "ideal_busbw_bps": 40e6,
        "step_time_ns": {"p99": None, "max": 7},
        "failovers": [{"lost": 3}],
    }
}


@pytest.mark.parametrize(
    ("check", "ok"),
    [
        ("mrc.wrong == 0", True),
        ("mrc.busbw_bps / mrc.ideal_busbw_bps >= 0.9", True),
        ("mrc.busbw_bps / mrc.ideal_busbw_bps > 0.9", False),
        ("mrc.failovers[0].lost <= max(2, 3)", True),
        ("mrc.failovers[1].lost <= 3", False),
        ("mrc.step_time_ns.p99 < 5", False),
        ("mrc.step_time_ns.max <= 2 * 3", False),
        ("mrc.busbw_bps / mrc.wrong > 0", False),
        ("-mrc.step_time_ns.max < 0", True),
        ("mrc.failovers[0].lost <= ceil(mrc.step_time_ns.max / 3) + 0", True),
        ("mrc.failovers[0].lost <= floor(mrc.step_time_ns.max / 3)", False),
        ("ceil(mrc.step_time_ns.p99) <= 5", False),
        ("min(mrc.wrong, mrc.step_time_ns.p99) <= 5", False),
    ],
)
def test_evaluate(check: str, ok: bool) -> None:
    result = evaluate(check, FIGURES)
    assert result.name == check and result.expected and result.ok is ok


@pytest.mark.parametrize(
    ("figure", "time"),
    [
        ("mrc.step_time_ns.max", True),
        ("mrc.step_time_ns.max - mrc.typical_step_ns", True),
        ("max(mrc.a_ns, 2 * mrc.killed[0].b_ns)", True),
        ("mrc.a_ns / 3", True),
        ("mrc.a_ns / mrc.b_ns", False),
        ("mrc.wrong + mrc.a_ns", False),
        ("len(mrc.all_ns)", False),
        ("mrc.busbw_bps", False),
    ],
)
def test_what_is_a_time_has_its_unit(figure: str, time: bool) -> None:
    assert evaluate(f"{figure} <= 2_000_000", {}).unit == ("ns" if time else None)


UNMEASURED = {"cpu_percent": "no CPU is measured here", "fidelity.cpu": "no CPU is measured here"}


@pytest.mark.parametrize(
    ("check", "ok"),
    [
        ("mrc.cpu_percent < 80", None),
        ("mrc.fidelity.cpu.agents_percent < 80", None),
        ("max(mrc.wrong, mrc.cpu_percent) < 2 * mrc.busbw_bps", None),
        ("mrc.cpu_percnt < 80", False),  # a typo
        ("mrc.cpu_percent_of < 80", False),
        ("mrc.fidelity.cpus < 80", False),
        ("roce.cpu_percent < 80", False),  # a transport that has no run
        ("mrc.cpu_percent < mrc.typo", False),
        ("mrc.cpu_percent + mrc.failovers[1].lost < 80", False),
        ("mrc.step_time_ns.p99 < 5", False),  # null for a reason of the run's
        ("mrc.wrong == 0", True),
    ],
)
def test_a_figure_that_a_world_cannot_have_makes_a_check_not_apply(
    check: str, ok: bool | None
) -> None:
    figures = {"mrc": {**FIGURES["mrc"], "cpu_percent": None, "fidelity": {"verdict": "valid"}}}
    found = evaluate(check, figures, unmeasured=UNMEASURED)
    assert found.ok is ok
    assert (found["seen"] == "not applicable: no CPU is measured here") is (ok is None)
    assert evaluate(check, figures)["ok"] is bool(ok)  # in a world that has them


@pytest.mark.parametrize(
    "check",
    [
        "mrc.wrong",
        "1 < 2 < 3",
        "__import__('os') == 0",
        "mrc.x() == 0",
        "[1] == 1",
        "mrc.a ** 9 == 0",
        "(lambda: 0) == 0",
        "a in b",
        "x =",
    ],
)
def test_anything_else_is_refused(check: str) -> None:
    with pytest.raises(CheckError):
        names_in(check)


def test_names() -> None:
    assert names_in("min(mrc.wrong, roce.busbw_bps) < roce_1p.packets['lost']") == {
        "mrc",
        "roce",
        "roce_1p",
    }
    with pytest.raises(CheckError, match="no run has the figure packets_per_stp: did you mean "):
        names_in("mrc.packets_per_stp > 3")


def test_medians_of_trees() -> None:
    """Numbers by their place; what differs in kind says nothing. A number that is missing somewhere
    is the worst there could be."""
    one = {
        "a": 1,
        "b": {"c": [1.0, 5]},
        "who": "mrc",
        "key": "s1",
        "p50": None,
        "only": 3,
        "ok": True,
    }
    two = {"a": 4, "b": {"c": [2.0, 7]}, "who": "mrc", "key": "s2", "p50": 3, "ok": True}
    three = {"a": 2, "b": {"c": [9.0, 6]}, "who": "mrc", "key": "s3", "p50": 4, "ok": True}
    assert medians([one, two, three]) == {
        "a": 2,
        "b": {"c": [2.0, 6]},
        "who": "mrc",
        "key": None,
        "p50": 4,
        "ok": True,
    }
    assert medians([one, two, three], -math.inf)["p50"] == 3
    assert medians([one, one, two])["p50"] is None
    assert medians([one]) == one
    assert medians([{"a": np.float64(a)} for a in (3.5, 1.5, 2.5)]) == {"a": 2.5}, (
        "a mean of pandas is such a number"
    )
