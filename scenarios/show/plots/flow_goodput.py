"""Goodput of each flow over time, one panel per transport: what each flow gets when others begin, and which flows lose."""

from __future__ import annotations

from typing import Any

import numpy as np

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import FLOWS, legend, line, panels, per_seed, run_title, spell

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


def _few(stored: Stored, run: dict[str, Any]) -> bool:
    """Say whether a run's flows are drawn here: at most :data:`MOST`, and no permutation (see flow_bars)."""
    return bool(run.get("flows")) and len(run["flows"]) <= MOST and run["workload"] != "permutation" and len(stored.rows("flows", run)) > 0


@per_seed("flows", _few)
def draw(stored: Stored, runs: list[dict[str, Any]]) -> Any:
    span = max(stored.rows("flows", r)["t_ns"].max() - (stored.begin_ns(r) or 0) for r in runs)
    handles: dict[str, Any] = {}
    head, x = f"Goodput per flow{stored.seed_words(runs[0]['seed'])}", "time since the first flow began [µs]"
    fig, axes = panels(len(runs), 1.25 + 0.95 * len(runs), head=head, x=x, y="goodput, % of line", sharey=True)
    for ax, run in zip(axes, runs, strict=True):
        bin_ns = float(stored.rows("flows", run)["bin_ns"].max())
        width = bin_ns * max(1, round(span / POINTS / bin_ns))
        for group, colour, style in _line_styles(run):
            names = [n for n, flow in run["flows"].items() if flow["group"] == group or n == group]
            thick = 1.3 if len(names) == 1 else 0.6
            for flow in names:
                ax.plot(*series(stored, run, flow, width), color=colour, linewidth=thick, linestyle=style, zorder=3)
                label = spell(group) if len(names) == 1 else f"{spell(group)}, {len(names)} flows"
                handles.setdefault(label, line(label, colour, style, thick))
        incast = run["groups"].get("incast")
        for level in (100, *([100 / incast["flows"]] if incast else [])):
            ax.axhline(level, color="black", linewidth=0.7, linestyle=":", zorder=1)
        for time in run["all_on_ns"] or ():
            ax.axvline((time - run["t0_ns"]) / 1e3, color="#999999", linewidth=0.7, linestyle="--", zorder=1)
        run_title(ax, stored, run)
        ax.set_xlim(0, span / 1e3)
    highest = max(line.get_ydata().max() for ax in axes for line in ax.get_lines() if len(line.get_ydata()) > 2)
    if highest > 50:
        axes[0].set(ylim=(0, 112), yticks=[0, 50, 100])
    else:  # many to one: no flow comes near the line
        axes[0].set_ylim(0, 1.1 * highest)
    if any(r["all_on_ns"] for r in runs):
        handles["begin"] = line("begin and end of measurement", "#999999", "--", 0.7)
    legend(fig, [*handles.values(), line("line; fair share" if "incast" in runs[0]["groups"] else "line", "black", ":", 0.7)])
    return fig


def _line_styles(run: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return (group or flow, colour, line style): one colour for the incast and one for its victim, else one per flow."""
    if "incast" in run["groups"]:
        return [("incast", FLOWS[0], "-")] + ([("victim", FLOWS[1], "-")] if "victim" in run["groups"] else [])
    styles = ("-", "--", "-.", ":")
    return [(name, FLOWS[i % len(FLOWS)], styles[i // len(FLOWS) % 4]) for i, name in enumerate(run["flows"])]
