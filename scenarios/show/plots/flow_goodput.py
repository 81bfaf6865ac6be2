"""Goodput of each flow over time, one panel per transport: what each flow gets when others begin, and which flows lose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import FLOWS, colour_and_marker, figure, save, spell

MOST = 20
"""More flows than this are shown as bars, not as lines."""
POINTS = 140
"""Points over time: about as many as a column of text can show."""


def series(stored: Stored, run: dict[str, Any], name: str, width_ns: int) -> tuple[Any, Any]:
    """Return (µs since t0, % of line) of a flow, at the centres of the bins."""
    bins = stored.rows("flows", run)
    bins = bins[bins["flow"] == name]
    begin = stored.begin_ns(run) or 0
    edges = np.arange(bins["t_ns"].min(), bins["t_ns"].max() + width_ns + 1, width_ns)
    received, _ = np.histogram(bins["t_ns"] + bins["bin_ns"] / 2, bins=edges, weights=bins["rx_bytes"])
    line = run["flows"][name]["line_bps"] / 8e9 * width_ns
    return (edges[:-1] + width_ns / 2 - begin) / 1e3, 100 * received / line


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per placement and seed of at most :data:`MOST` flows, except permutations (see flow_bars)."""
    files: list[Path] = []
    for placement, seed, runs in stored.per_seed(lambda r: r.get("flows") and len(stored.rows("flows", r))):
        if len(runs[0]["flows"]) <= MOST and runs[0]["workload"] != "permutation":
            files += _figure(stored, directory, runs, f"flows-{placement}-s{seed}{stored.tag}", seed)
    return files


def _figure(stored: Stored, directory: Path, runs: list[dict[str, Any]], name: str, seed: int) -> list[Path]:
    span = max(stored.rows("flows", r)["t_ns"].max() - (stored.begin_ns(r) or 0) for r in runs)
    handles: dict[str, Any] = {}
    with figure(len(runs), 1.25 + 0.95 * len(runs), sharex=True, sharey=True, squeeze=False) as (fig, axes):
        for ax, run in zip(axes[:, 0], runs, strict=True):
            bin_ns = float(stored.rows("flows", run)["bin_ns"].max())
            width = bin_ns * max(1, round(span / POINTS / bin_ns))
            window = run["all_on_ns"]
            for group, colour, style in _line_styles(run):
                names = [n for n, flow in run["flows"].items() if flow["group"] == group or n == group]
                for flow in names:
                    x, y = series(stored, run, flow, width)
                    (line,) = ax.plot(x, y, color=colour, linewidth=1.3 if len(names) == 1 else 0.6, linestyle=style, zorder=3)
                    handles.setdefault(spell(group) if len(names) == 1 else f"{spell(group)}, {len(names)} flows", line)
            incast = run["groups"].get("incast")
            if incast:
                ax.axhline(100 / incast["flows"], color="black", linewidth=0.7, linestyle=":", zorder=1)
            if window:
                ax.axvline((window[0] - run["t0_ns"]) / 1e3, color="#999999", linewidth=0.7, linestyle="--", zorder=1)
                ax.axvline((window[1] - run["t0_ns"]) / 1e3, color="#999999", linewidth=0.7, linestyle="--", zorder=1)
            ax.axhline(100, color="black", linewidth=0.7, linestyle=":", zorder=1)
            ax.set_title(f"{run['transport']} on {run['fabric']}", color=colour_and_marker(run["transport"])[0], pad=3)
            ax.set_xlim(0, span / 1e3)
        highest = max(line.get_ydata().max() for ax in axes[:, 0] for line in ax.get_lines() if len(line.get_ydata()) > 2)
        if highest > 50:
            axes[0, 0].set_ylim(0, 112)
            axes[0, 0].set_yticks([0, 50, 100])
        else:  # many to one: no flow comes near the line
            axes[0, 0].set_ylim(0, 1.1 * highest)
        axes[-1, 0].set_xlabel("time since the first flow began [µs]")
        fig.supylabel("goodput, % of line", fontsize=7.5)
        from matplotlib.lines import Line2D

        if any(r["all_on_ns"] for r in runs):
            handles["begin and end of measurement"] = Line2D([], [], color="#999999", linewidth=0.7, linestyle="--")
        line_label = "line; fair share" if "incast" in runs[0]["groups"] else "line"
        handles[line_label] = Line2D([], [], color="black", linewidth=0.7, linestyle=":")
        fig.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2, columnspacing=1.2, handlelength=1.8)
        fig.suptitle(f"Goodput per flow{stored.seed_words(seed)}", fontsize=8, fontweight="bold", x=0.01, ha="left")
        return save(fig, directory, name, runs)


def _line_styles(run: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return (group or flow, colour, line style): one colour for the incast and one for its victim, else one per flow."""
    if "incast" in run["groups"]:
        return [("incast", FLOWS[0], "-")] + ([("victim", FLOWS[1], "-")] if "victim" in run["groups"] else [])
    styles = ("-", "--", "-.", ":")
    return [(name, FLOWS[i % len(FLOWS)], styles[i // len(FLOWS) % 4]) for i, name in enumerate(run["flows"])]
