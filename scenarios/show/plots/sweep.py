"""Draws a swept variable's effect on bandwidth or step time."""

from __future__ import annotations

import statistics
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.figures.stats import interval_note
from scenarios.figures.stored import Stored
from scenarios.schema.sweep import short_keys
from scenarios.show.plots.style import (
    FIGURES,
    GREY,
    headline,
    legend,
    line,
    look_of,
    panels,
    save,
    styled,
)
from scenarios.show.plots.times import plain_log
from testbed.results.summary import Run
from testbed.results.values import Setting, number_at
from topologies.units import NS, parse_duration, parse_size


@dataclass(frozen=True)
class Measure:
    # of a run's entry and comparison.parquet; "goodput_bps" is that of all groups of flows
    key: str
    title: str
    label: str
    scale: float
    file: str
    ideal_key: str | None = None

    @property
    def unit(self) -> str:
        return self.label.partition("[")[2].rstrip("]")


BANDWIDTH = Measure(
    "busbw_bps", "Bandwidth", "bus bandwidth [GB/s]", 8e9, "busbw", "ideal_busbw_bps"
)
GOODPUT = Measure("goodput_bps", "Goodput", "goodput of all flows [Gb/s]", 1e9, "goodput")
PANELS = 4  # Further settings are only in comparison.csv [ours].


def sweep(stored: Stored, directory: Path) -> list[Path]:
    """Draw a figure per placement and measure over the variable with most values, a panel per
    setting of the others."""
    settings = [variant.settings or {} for variant in stored.variants]
    if len(settings) < 2:
        return []
    keys = list(settings[0])
    axis = max(keys, key=lambda key: len({str(s[key]) for s in settings}))
    others = list(
        {
            str(rest): rest
            for s in settings
            if (rest := {k: v for k, v in s.items() if k != axis}) is not None
        }.values()
    )
    files: list[Path] = []
    for placement, _ in stored.groups():
        runs = stored.ordered(placement)
        for measure in (
            BANDWIDTH,
            GOODPUT,
            *map(_steps_of, dict.fromkeys(name for r in runs for name in r.jobs)),
        ):
            if any(value_of(r, measure.key) is not None for r in runs):
                with styled():
                    fig = _figure(stored, runs, axis, others[:PANELS], measure)
                    files += save(fig, directory, f"sweep-{measure.file}-{placement}", runs)
    return files


FIGURES["sweep"] = sweep


def _steps_of(job: str) -> Measure:
    return Measure(
        f"jobs.{job}.typical_step_ns",
        f"Median step of job {job}",
        "median step [µs]",
        1e3,
        f"steps-{job}",
    )


def value_of(run: Run, key: str) -> float | None:
    """Return goodput of all groups together for flows. A dot in ``key`` leads into an entry's
    part."""
    if key == "goodput_bps":
        rates = [g.goodput_bps for g in run.groups.values() if g.goodput_bps is not None]
        return sum(rates) if rates else None
    return number_at(run, key)


def as_number(value: Any) -> float | None:
    """Read a number, a size such as "64KiB", or a time such as "20us", in ns."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    with suppress(ValueError):
        return float(parse_size(str(value)))
    with suppress(ValueError):
        return parse_duration(str(value)) / NS
    return None


def points(runs: list[Run], key: str) -> tuple[float, float, float, int] | None:
    values = [v for r in runs if (v := value_of(r, key)) is not None]
    return (statistics.median(values), min(values), max(values), len(values)) if values else None


def intervals(stored: Stored) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Return (transport, placement, figure, settings as text) -> interval of the median."""
    table = stored.table("comparison")
    keys = [k for k in (stored.variants[0].settings or {}) if k in table]
    needed = {"transport", "placement", "figure", "low", "high"}
    if not len(table) or not needed <= set(table):
        return {}
    bounds = {}
    for row in table.to_dict("records"):
        if row["low"] == row["low"] and row["low"] is not None:  # not NaN
            name = (
                row["transport"],
                row["placement"],
                row["figure"],
                str({k: _as_text(row[k]) for k in keys}),
            )
            bounds[name] = (float(row["low"]), float(row["high"]))
    return bounds


def _as_text(value: Any) -> str:
    """Write an integer that a table stores as a float in the same way."""
    return (
        str(float(value))
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else str(value)
    )


def most_apart(runs: list[Run], axis: str, measure: Measure) -> tuple[str, dict[str, float]]:
    """Return the value of the swept variable at which the transports' medians differ most, by their
    ratio, and those medians; none of fewer than two transports."""
    most: tuple[float, str, dict[str, float]] = (0.0, "", {})
    for value in dict.fromkeys(r.settings[axis] for r in runs):
        medians: dict[str, float] = {}
        for transport in dict.fromkeys(r.transport for r in runs):
            own = [r for r in runs if r.transport == transport and r.settings[axis] == value]
            if (point := points(own, measure.key)) is not None:
                medians[transport] = point[0] / measure.scale
        if len(medians) > 1 and min(medians.values()) > 0:
            ratio = max(medians.values()) / min(medians.values())
            most = max(most, (ratio, str(value), medians), key=lambda found: found[0])
    return most[1:]


def _figure(
    stored: Stored, runs: list[Run], axis: str, others: list[dict[str, Setting]], measure: Measure
) -> Any:
    key, scale, ideal_key, placement = (
        measure.key,
        measure.scale,
        measure.ideal_key,
        runs[0].placement,
    )
    values = list(dict.fromkeys(r.settings[axis] for r in runs))
    numbers = [as_number(v) for v in values]
    numeric = None not in numbers and len(set(numbers)) == len(numbers)
    position = {
        str(v): (n if numeric and n is not None else float(i))
        for i, (v, n) in enumerate(zip(values, numbers, strict=True))
    }
    log = (
        numeric
        and min(position.values()) > 0
        and max(position.values()) > 8 * min(position.values())
    )
    bounds_of = intervals(stored)
    transports = list(dict.fromkeys(r.transport for r in runs))
    short = short_keys(list(runs[0].settings))
    height = 0.95 + 1.55 * len(others) + 0.15 * ((len(transports) + 2) // 2)
    subject = f"{measure.title} over {short[axis]}\n{placement} ranks, medians over seeds"
    apart, seen = most_apart(runs, axis, measure) if len(others) == 1 else ("", {})
    head = headline(f"At {apart}", seen, lambda value: f"{value:,.3g} {measure.unit}", subject)
    fig, axes = panels(
        len(others),
        height,
        head=head,
        x=short[axis] + (", log scale" if log else ""),
        y=measure.label,
        sharey=True,
    )
    most, bars, count = 0.0, False, dict[str, int]()
    for ax, rest in zip(axes, others, strict=True):
        panel_runs = [r for r in runs if all(r.settings[k] == v for k, v in rest.items())]
        for k, transport in enumerate(transports):
            colour, marker = look_of(stored, transport)
            x, y = [], []
            for value in values:
                point_runs = [
                    r for r in panel_runs if r.transport == transport and r.settings[axis] == value
                ]
                if (point := points(point_runs, key)) is None:
                    continue
                x.append(position[str(value)])
                y.append(point[0] / scale)
                most, count[transport] = (
                    max(most, point[2] / scale),
                    max(count.get(transport, 0), point[3]),
                )
                name = (
                    transport,
                    placement,
                    key,
                    str({k: _as_text(v) for k, v in point_runs[0].settings.items()}),
                )
                if (bounds := bounds_of.get(name)) is not None:
                    bars = True
                    ax.plot(
                        [x[-1]] * 2,
                        [bounds[0] / scale, bounds[1] / scale],
                        color=colour,
                        linewidth=0.9,
                        marker="_",
                        markersize=4,
                    )
            ax.plot(x, y, color=colour, marker=marker, markersize=4, linewidth=1.1, zorder=3 + k)
        if ideal_key is not None:
            ideal = {
                position[str(r.settings[axis])]: best / scale
                for r in panel_runs
                if (best := value_of(r, ideal_key))
            }
            ax.plot(
                sorted(ideal),
                [ideal[x] for x in sorted(ideal)],
                color="black",
                linewidth=0.8,
                linestyle=":",
            )
            most = max([most, *ideal.values()])
        if rest:
            ax.set_title(", ".join(f"{short[k]} = {v}" for k, v in rest.items()))
        ax.grid(axis="y")
    last = axes[-1]
    last.set_ylim(0, 1.08 * most)
    if log:
        last.set_xscale("log")
        plain_log(last, min(position.values()), max(position.values()))
    turned = sum(map(len, position)) >= 45
    last.set_xticks(
        list(position.values()),
        list(position),
        rotation=45 if turned else 0,
        ha="right" if turned else "center",
    )
    looks = {t: look_of(stored, t) for t in transports if t in count}
    handles = [
        line(f"{t}, n = {count[t]}", colour, "-", 1.3, marker=marker)
        for t, (colour, marker) in looks.items()
    ]
    if ideal_key is not None:
        handles.append(line("ideal", "black", ":"))
    if bars:
        handles.append(line(interval_note(count.values()), GREY, "-", 0.9, marker="_"))
    return legend(fig, handles)
