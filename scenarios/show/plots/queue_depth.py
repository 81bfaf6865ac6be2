"""The queue on the last hop over time, a panel per transport, with the thresholds at which the switch marks, trims and drops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import FLOWS, colour_and_marker, figure, save, spell

POINTS = 400


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per placement and seed with sampled queues."""
    files: list[Path] = []
    for placement, seed, runs in stored.per_seed(lambda r: r.get("queues") and len(stored.rows("queues", r))):
        files += _figure(stored, directory, runs, f"queues-{placement}-s{seed}{stored.tag}", seed)
    return files


def _figure(stored: Stored, directory: Path, runs: list[dict[str, Any]], name: str, seed: int) -> list[Path]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    groups = list(dict.fromkeys(q["group"] for r in runs for q in r["queues"].values()))
    marked = False
    with figure(len(runs), 1.3 + 0.95 * len(runs), sharex=True, squeeze=False) as (fig, axes):
        for ax, run in zip(axes[:, 0], runs, strict=True):
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
                ax.axhspan(low / 1e3, high / 1e3, color="#F0E442", alpha=0.35, linewidth=0)
                marked = True
            if limits["trim_last_hop_bytes"] is not None and run["kind"] == "mrc":
                ax.axhline(limits["trim_last_hop_bytes"] / 1e3, color="black", linewidth=0.8, linestyle="--", zorder=4)
            ax.axhline(limits["buffer_bytes"] / 1e3, color="black", linewidth=0.8, linestyle=":", zorder=4)
            ax.set_ylim(0, limits["buffer_bytes"] / 1e3 * 1.08)
            ax.set_xlim(left=0)
            ax.set_title(f"{run['transport']} on {run['fabric']}", color=colour_and_marker(run["transport"])[0], pad=3)
        axes[-1, 0].set_xlabel("time since the first flow began [µs]")
        fig.supylabel("queue [kB]", fontsize=7.5)
        counts = [sum(q["group"] == group for q in runs[0]["queues"].values()) for group in groups]
        handles: list[Any] = [
            Line2D([], [], color=FLOWS[i], linewidth=1.0, label=f"last hop of the {spell(g)}, {n} planes")
            for i, (g, n) in enumerate(zip(groups, counts, strict=True))
        ]
        handles += [
            Line2D([], [], color="black", linewidth=0.8, linestyle="--", label="trimming threshold"),
            Line2D([], [], color="black", linewidth=0.8, linestyle=":", label="buffer"),
        ]
        if marked:
            handles.append(Patch(color="#F0E442", alpha=0.35, label="ECN marking range"))
        fig.legend(handles=handles, loc="outside lower center", ncols=2, columnspacing=1.2, handlelength=1.6)
        fig.suptitle(f"Queues on the last hop{stored.seed_words(seed)}", fontsize=8, fontweight="bold", x=0.01, ha="left")
        return save(fig, directory, name, runs)
