"""Draws figures over time: a job under faults, flows, losses at the start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scenarios.figures.outages import NO_LOSS
from scenarios.figures.stored import Stored
from scenarios.show.plots.goodput import capacity, series
from scenarios.show.plots.style import (
    FLOWS,
    KNOWN,
    fault_area,
    fault_bands,
    figure,
    legend,
    line,
    note,
    panels,
    save,
    styled,
)
from testbed.results.summary import Run
from testbed.results.values import known
from testbed.terminal import duration

BINS = 100  # about as many points as a column can show


def loss_times(stored: Stored, run: Run) -> Any:
    """Return sorted times at which losses were found, µs since the first measured step or t0."""
    begin, events = stored.begin_ns(run), stored.rows("events", run)
    if begin is None or not len(events):
        return np.array([])
    losses = events[events["kind"] == "loss"]
    times_ns = losses["t_ns"][
        [json.loads(detail or "{}").get("rule") not in NO_LOSS for detail in losses["detail"]]
    ]
    return np.sort((times_ns.to_numpy(dtype="float64") - begin) / 1e3)


def _first_runs(stored: Mapping[str, Stored]) -> list[tuple[Stored, Run]]:
    runs = []
    for results in stored.values():
        kinds: set[str] = set()
        for run in results.runs:
            kind = json.dumps([run.placement, run.settings])
            if run.transport == "mrc" and kind not in kinds:
                kinds.add(kind)
                runs.append((results, run))
    return runs


def jobs(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    panel_runs = [
        (part, run, xy)
        for part, run in _first_runs(stored)
        if (xy := series(part, run, float(run.measured_ns))) is not None
    ]
    if not panel_runs:
        return []
    colour = KNOWN["mrc"][0]
    with styled():
        options: dict[str, Any] = {
            "sharex": False,
            "gridspec_kw": {"height_ratios": [2.0, 1.0] * len(panel_runs)},
        }
        fig, axes = panels(
            2 * len(panel_runs),
            0.9 + 1.75 * len(panel_runs),
            x="time since the first measured step [µs]",
            **options,
        )
        for (part, run, (x, y)), top, bottom in zip(panel_runs, axes[::2], axes[1::2], strict=True):
            end_us = float(x[-1]) * 1.02
            begin = part.begin_ns(run) or 0
            for ax in (top, bottom):
                fault_bands(ax, part.outages(run), begin, end_us)
                ax.set_xlim(0, end_us)
            top.plot(
                *capacity(part, run, run.ideal_busbw_bps or 1.0, begin, end_us),
                color="black",
                linewidth=0.8,
                linestyle="--",
            )
            top.plot(x, y, color=colour, linewidth=1.1)
            top.set(ylim=(0, 118), yticks=[0, 50, 100], ylabel="goodput\n[% of ideal]")
            top.tick_params(labelbottom=False)
            title = (
                f"{part.manifest.scenario.name}, {run.world}: {run.placement} ranks, seed "
                f"{run.seed}"
            )
            top.set_title(title, fontsize=7.5)
            lost, _ = np.histogram(loss_times(part, run), bins=np.linspace(0, end_us, BINS + 1))
            bottom.bar(
                np.linspace(0, end_us, BINS + 1)[:-1],
                lost,
                width=end_us / BINS,
                align="edge",
                color="black",
                linewidth=0,
            )
            bottom.set(
                ylim=(0, max(4, 1.1 * lost.max(initial=0))),
                ylabel=f"lost per\n{duration(1e3 * end_us / BINS)}",
            )
            bottom.yaxis.get_major_locator().set_params(integer=True, nbins=3)
        legend(
            fig,
            [
                line("seen", colour, "-", 1.1),
                line("what theory leaves", "black", "--"),
                fault_area(),
            ],
            3,
        )
        return save(fig, directory, name, [run for _, run, _ in panel_runs])


# --- flows ----------------------------------------------------------------------------------------


def rates(stored: Stored, run: Run, name: str, span_us: float) -> tuple[Any, Any]:
    """Return (µs since t0, bits/s) of a flow, as its receiver counted."""
    table = stored.rows("flows", run)
    bins = table[table["flow"] == name]
    begin_ns, bin_ns = stored.begin_ns(run) or 0, float(bins["bin_ns"].max()) if len(bins) else 1.0
    width_ns = bin_ns * max(1, round(span_us * 1e3 / BINS / bin_ns))
    edges = np.arange(begin_ns, begin_ns + span_us * 1e3 + 1, width_ns)
    received_bytes, _ = np.histogram(
        bins["t_ns"] + bin_ns / 2, bins=edges, weights=bins["rx_bytes"]
    )
    return (edges[:-1] + width_ns / 2 - begin_ns) / 1e3, received_bytes * 8e9 / width_ns


def _span_us(run: Run) -> float:
    window, t0_ns = known(run.all_on_ns), known(run.t0_ns)
    return (run.measured_ns if window is None or t0_ns is None else window[1] - t0_ns) / 1e3


def flows(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    runs = [(results, run) for results, run in _first_runs(stored) if run.flows]
    if not runs:
        return []
    with styled():
        fig, axes = panels(
            len(runs),
            0.9 + 1.3 * len(runs),
            x="time since the flows began [µs]",
            y="goodput [% of line]",
            sharey=True,
        )
        for ax, (results, run) in zip(axes, runs, strict=True):
            span, begin = _span_us(run), results.begin_ns(run) or 0
            fault_bands(ax, results.outages(run), begin, span)
            for (flow, row), colour in zip(run.flows.items(), FLOWS, strict=False):
                x, y = rates(results, run, flow, span)
                ax.plot(
                    x,
                    100 * y / row.line_bps,
                    color=colour,
                    linewidth=1.1,
                    label=f"{row.src} to {row.dst}",
                )
            lossy = {f.probability for f in run.failovers if f.kind == "path-loss"}
            what = [f"{100 * rate:g} % loss on one EV" for rate in lossy] or [run.fabric]
            ax.set_title(f"{what[0]}, seed {run.seed}", fontsize=7.5)
            ax.set(xlim=(0, span), ylim=(0, 112))
        legend(fig, axes[0].get_legend_handles_labels()[0])
        return save(fig, directory, name, [run for _, run in runs])


# --- the start ------------------------------------------------------------------------------------


def start_up(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    results = stored["main"]
    runs = [(run, _since_traffic(results, run)) for run in results.runs if run.transport == "mrc"]
    runs = [(run, times) for run, times in runs if len(times)]
    if not runs:
        return []
    colour = KNOWN["mrc"][0]
    styles = ("-", "--", ":", "-.")
    with figure(1, 2.3) as (fig, ax):
        end = 1.15 * max(float(times[-1]) for _, times in runs)
        for number, (run, times) in enumerate(runs):
            y = np.arange(1, len(times) + 1) / run.ranks
            dead, found = run.dead_at_start.evs, run.dead_at_start.found
            label = f"seed {run.seed}: {found} of {dead} dead paths found"
            ax.step(
                [0, *times, end],
                [0, *y, y[-1]],
                where="post",
                color=colour,
                linestyle=styles[number % 4],
                linewidth=1.1,
                label=label,
            )
        ax.axhline(5, color="black", linewidth=0.8, linestyle=":")
        note(ax, "paper: less than 5", (0, 5), (3, 2))
        ax.set(
            xlim=(0, end),
            ylim=(0, None),
            xlabel="time since traffic began [µs]",
            ylabel="packets lost so far\nper queue pair",
        )
        ax.set_title(f"Start of a job with dead paths, {runs[0][0].ranks} queue pairs")
        legend(fig, ax.get_legend_handles_labels()[0], 1)
        return save(fig, directory, name, [run for run, _ in runs])


def _since_traffic(stored: Stored, run: Run) -> Any:
    """Return times since any rank's first packet, warm-up included, µs."""
    steps: pd.DataFrame = stored.table("steps")
    run_steps = steps[steps["run"] == run.run]
    times, begin = loss_times(stored, run), stored.begin_ns(run)
    if begin is None or run_steps.empty:
        return times
    return times + (begin - float(run_steps["start_ns"].min())) / 1e3
