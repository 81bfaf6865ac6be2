"""The queue on the last hop over time, a panel per transport, with the thresholds at which the switch marks, trims and drops."""

from __future__ import annotations

from collections import Counter
from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import FLOWS, area, legend, line, panels, per_seed, run_title, spell

POINTS = 400
MARKING = ("ECN marking range", "#F0E442", 0.35)


@per_seed("queues", lambda stored, run: run.get("queues") and len(stored.rows("queues", run)))
def draw(stored: Stored, runs: list[dict[str, Any]]) -> Any:
    groups = list(dict.fromkeys(q["group"] for r in runs for q in r["queues"].values()))
    marked = False
    head, x = f"Queues on the last hop{stored.seed_words(runs[0]['seed'])}", "time since the first flow began [µs]"
    fig, axes = panels(len(runs), 1.3 + 0.95 * len(runs), head=head, x=x, y="queue [kB]")
    for ax, run in zip(axes, runs, strict=True):
        limits = stored.summary["fabrics"][run["fabric"]]
        samples = stored.rows("queues", run)
        begin = stored.begin_ns(run) or 0
        for port, queue in run["queues"].items():
            port_samples = samples[samples["port"] == port]
            step = max(1, len(port_samples) // POINTS)
            # Each point is the largest of several samples, so that no peak falls between two points.
            peaks = port_samples["bytes"].rolling(step, min_periods=1).max().iloc[step - 1 :: step]
            times = port_samples["t_ns"].iloc[step - 1 :: step]
            ax.plot((times - begin) / 1e3, peaks / 1e3, color=FLOWS[groups.index(queue["group"])], linewidth=0.6)
        if limits["ecn_bytes"] is not None and (limits["last_hop_ecn"] or run["kind"] == "roce"):  # RoCE is marked on every hop
            low, high = limits["ecn_bytes"]
            ax.axhspan(low / 1e3, high / 1e3, color=MARKING[1], alpha=MARKING[2], linewidth=0)
            marked = True
        if limits["trim_last_hop_bytes"] is not None and run["kind"] == "mrc":
            ax.axhline(limits["trim_last_hop_bytes"] / 1e3, color="black", linewidth=0.8, linestyle="--", zorder=4)
        ax.axhline(limits["buffer_bytes"] / 1e3, color="black", linewidth=0.8, linestyle=":", zorder=4)
        ax.set_ylim(0, limits["buffer_bytes"] / 1e3 * 1.08)
        ax.set_xlim(left=0)
        run_title(ax, stored, run)
    counts = Counter(q["group"] for q in runs[0]["queues"].values())
    handles = [line(f"last hop of the {spell(g)}, {counts[g]} planes", FLOWS[i], "-", 1.0) for i, g in enumerate(groups)]
    handles += [line("trimming threshold", "black", "--"), line("buffer", "black", ":"), *([area(*MARKING)] if marked else [])]
    legend(fig, handles)
    return fig
