"""Compares transports: for each figure the median over the seeds, its interval, and what theory
allows."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import filter as matching
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from scenarios.figures.rows import VARIABLES, settings_of, table, write_table
from scenarios.figures.stats import median_interval

Theory = str | float | None
_THEORY: dict[str, tuple[Theory, Theory]] = {
    "busbw_bps": ("ideal_busbw_bps", "degraded_busbw_bps"),
    "typical_step_ns": ("ideal_step_ns", "degraded_step_ns"),
    "step_time_ns.*": ("ideal_step_ns", "degraded_step_ns"),
    "outside_busbw_share": (1.0, None),
    "whole_busbw_share": (1.0, None),
    "failure_cost.goodput_kept": (1.0, None),
    "failure_cost.extra_ns": ("failure_cost.ideal_extra_ns", None),
    "groups.*.of_line": (1.0, None),
    "groups.*.jain": (1.0, None),
    "groups.*.kept": (1.0, None),
    "kept_during": (1.0, None),
    "kept_after": (1.0, None),
    "wrong": (0.0, None),
    "false_bad": (0.0, None),
}
"""Figure -> theory with all cables up, and without those that the scenario breaks: a column or a
number."""
FIGURES = (
    "busbw_bps",
    "typical_step_ns",
    "step_time_ns.p99",
    "step_time_ns.max",
    "transfer_time_ns.p50",
    "transfer_time_ns.p99",
    "transfer_time_ns.p999",
    "transfer_time_ns.max",
    "failure_cost.slowdown",
    "failure_cost.goodput_kept",
    "failure_cost.extra_ns",
    "failure_cost.noise_ns",
    "failure_cost.extra_steps",
    "failure_cost.extra_rtts",
    "failure_cost.extra_percent",
    "failure_cost.worst_step_ns",
    "failure_cost.undelivered_bytes",
    "failure_cost.back_ns",
    "outside_busbw_share",
    "whole_busbw_share",
    "groups.*.goodput_bps",
    "groups.*.of_line",
    "groups.*.jain",
    "groups.*.min_share",
    "groups.*.kept",
    "groups.*.message_ns.p50",
    "groups.*.message_ns.p99",
    "groups.*.message_ns.max",
    "groups.*.queue_p99_bytes",
    "jobs.*.steps",
    "jobs.*.typical_step_ns",
    "jobs.*.step_time_ns.max",
    "jobs.*.gpu_lost_share",
    "jobs.*.alone_step_ns",
    "jobs.*.slowdown",
    "kept_during",
    "kept_after",
    "last_on_dead_rtts",
    "packets.sent",
    "packets.lost",
    "packets.retransmitted",
    "packets.trimmed",
    "packets.marked",
    "timeouts.rto",
    "untrimmed_loss",
    "false_bad",
    "wrong",
    "cpu_percent",
)
_UNITS = (
    ("_ns", "ns"),
    ("_ns.*", "ns"),
    ("_bps", "bit/s"),
    ("_bytes", "bytes"),
    ("_percent", "%"),
    ("_rtts", "base RTTs"),
    ("_steps", "steps"),
    ("jobs.*.slowdown", "steps alone"),
    ("slowdown", "healthy steps"),
    ("packets.*", "packets"),
    ("_loss", "packets"),
    ("timeouts.rto", "timeouts"),
    ("wrong", "elements"),
    ("false_bad", "verdicts"),
)
NOT_COMPARED = ("failed", "interrupted")
"""Verdicts of runs whose figures mean nothing: the run ended early, or its results were wrong."""
COLUMNS = {
    "figure": "as in runs.csv",
    "unit": "ns and bit/s of the network, and so on",
    "n": "runs that have the figure",
    "median": "over these runs",
    "low": "lower end of the interval; empty for one run",
    "high": "its upper end",
    "ideal": "what theory allows with everything up; of the cost of failures, the lost capacity; 1 "
    "for shares and Jain's index; 0 for wrong sums and false verdicts",
    "degraded": "the same without the cables that the scenario breaks, if that differs",
    "failed": (
        "runs of the group that ended early, gave wrong sums, or were interrupted; they are in "
        "no figure"
    ),
    "doubtful": "runs that are not trustworthy; they are in the figures, and marked in every table",
}
"""Columns behind those of the run -> what each is."""


class Compared(msgspec.Struct):
    figure: str
    n: int
    median: float | None
    low: float | None
    high: float | None
    ideal: float | None


def unit_of(figure: str) -> str:
    return next(
        (
            unit
            for end, unit in _UNITS
            if fnmatchcase(figure, f"*{end}") or fnmatchcase(figure, end)
        ),
        "",
    )


def compare(rows: pd.DataFrame, figures: Sequence[str] = FIGURES) -> pd.DataFrame:
    """Make one row per (scenario, workload, fabric, placement, settings, transport, figure) that
    some run of the workload has.

    ``low`` and ``high``: the median's interval, below six runs the range. ``ideal`` and
    ``degraded``: medians of theory. ``n``, ``failed`` and ``doubtful``: numbers of runs with the
    figure, of runs that no figure counts, and of untrustworthy runs included.
    """
    settings = settings_of(rows)
    keys = [key for key in VARIABLES if key != "seed"] + settings
    lines: list[dict[str, Any]] = []
    present = (
        {
            workload: _present(group, figures)
            for workload, group in rows.groupby("workload", sort=False)
        }
        if len(rows)
        else {}
    )
    for values, group in rows.groupby(keys, sort=False, dropna=False) if len(rows) else ():
        variables = {key: _plain(value) for key, value in zip(keys, values, strict=True)}
        counted = group[~group["verdict"].isin(NOT_COMPARED)]
        for figure in present[variables["workload"]]:
            numbers = _numbers(counted, figure)
            low, high = median_interval(numbers) or (None, None)
            sources = next(
                (both for name, both in _THEORY.items() if fnmatchcase(figure, name)), (None, None)
            )
            ideal, degraded = (
                _median(_numbers(counted, source)) if isinstance(source, str) else source
                for source in sources
            )
            lines.append(
                {
                    **variables,
                    "figure": figure,
                    "unit": unit_of(figure),
                    "n": len(numbers),
                    "median": _median(numbers),
                    "low": low,
                    "high": high,
                    "ideal": ideal,
                    "degraded": None if degraded == ideal else degraded,
                    "failed": len(group) - len(counted),
                    "doubtful": int((counted["verdict"] == "not trustworthy").sum()),
                }
            )
    frame = table(lines, floats=("median", "low", "high", "ideal", "degraded"))
    return (
        frame.reindex(columns=[*keys, *COLUMNS])
        if len(lines)
        else pd.DataFrame(columns=[*keys, *COLUMNS])
    )


def _present(rows: pd.DataFrame, figures: Sequence[str]) -> list[str]:
    columns = [str(column) for column in rows.columns]
    found = list(
        dict.fromkeys(column for figure in figures for column in matching(columns, figure))
    )
    known = rows[found].notna().any()
    return [column for column in found if known[column]]


def _numbers(rows: pd.DataFrame, column: str) -> list[float]:
    return sorted(float(value) for value in rows[column].dropna()) if column in rows else []


def _median(numbers: Sequence[float]) -> float | None:
    return float(pd.Series(numbers).median()) if numbers else None


def _plain(value: Any) -> Any:
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value


def write_comparison(rows: pd.DataFrame, directory: Path) -> pd.DataFrame:
    frame = compare(rows)
    write_table(frame, directory, "comparison")
    return frame
