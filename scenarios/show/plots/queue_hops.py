"""Queues on each kind of hop: the mean backlog that packets met at each port, and the peaks that are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scenarios.figures.invariants import hop_of
from scenarios.figures.stored import Stored
from scenarios.show.plots.style import colour_and_marker, figure, save

NAMES = {"host": "host to T0", "t0_up": "T0 to T1", "t1_across": "T1 to T1", "t1_down": "T1 to T0", "last_hop": "T0 to host"}
"""Hop -> its name in the figure."""
_ORDER = list(NAMES)
FLOOR = 0.1
"""Smaller queues are drawn at this value, kB."""


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per placement with counters of backlogs; the seeds of a transport are pooled."""
    files: list[Path] = []
    for placement, _ in stored.groups():
        runs = stored.ordered(placement)
        names = dict.fromkeys(r["transport"] for r in runs)
        frames = {t: f for t in names if len(f := ports(stored, [r for r in runs if r["transport"] == t]))}
        if frames:
            files += _figure(stored, directory, runs, frames, placement)
    return files


def ports(stored: Stored, runs: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per run and port that carried data: ``hop`` (index in :data:`NAMES`), ``mean`` and ``peak`` in kB; an unknown peak is
    NaN. Counters keep a peak for the fabric's whole life, so it is known only for the run that raised it."""
    frames = [stored.rows("counters", r) for r in runs]
    frames = [f for f in frames if len(f) and "backlog_mean_bytes" in f and "met_packets" in f]
    if not frames:
        return pd.DataFrame()
    rows = pd.concat(frames)
    rows = rows[rows["met_packets"] > 0]
    hop = rows["port"].map(lambda name: -1 if (hop := hop_of(name)) is None else _ORDER.index(hop))
    raised = rows["raised_peak_bytes"] if "raised_peak_bytes" in rows else pd.Series(float("nan"), index=rows.index)
    frame = pd.DataFrame({"hop": hop, "mean": rows["backlog_mean_bytes"] / 1e3, "peak": raised.astype(float) / 1e3})
    return frame[frame["hop"] >= 0]


def _figure(stored: Stored, directory: Path, runs: list[dict[str, Any]], frames: dict[str, pd.DataFrame], placement: str) -> list[Path]:
    from matplotlib.lines import Line2D

    width = 0.8 / len(frames)
    hops = sorted({int(h) for frame in frames.values() for h in frame["hop"]})
    with figure(1, 2.35 + 0.16 * ((len(frames) + 3) // 2)) as (fig, ax):
        handles = []
        for k, (transport, frame) in enumerate(frames.items()):
            colour, marker = colour_and_marker(transport)
            for place, hop in enumerate(hops):
                group = frame[frame["hop"] == hop].sort_values("mean")
                x = place + (k - (len(frames) - 1) / 2) * width
                if len(group):
                    least, middle, most = (max(float(v), FLOOR) for v in (group["mean"].min(), group["mean"].median(), group["mean"].max()))
                    ax.plot([x] * 2, [least, most], color=colour, linewidth=2.2, alpha=0.45, zorder=2)
                    ax.plot(x, middle, linestyle="none", marker=marker, markersize=4, color=colour, zorder=3, clip_on=False)
                if group["peak"].notna().any():
                    ax.plot(x, group["peak"].max(), linestyle="none", marker="_", markersize=7, markeredgewidth=1.3, color=colour, zorder=3)
            n = sum(r["transport"] == transport for r in runs)
            handles.append(Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=4, label=f"{transport}, n = {n}"))
        handles += [
            Line2D([], [], color="#666666", linewidth=2.2, alpha=0.5, label="mean: least to most loaded port"),
            Line2D([], [], color="#666666", marker="_", linestyle="none", markersize=7, markeredgewidth=1.3, label="largest known peak"),
        ]
        buffers = {stored.summary["fabrics"][r["fabric"]]["buffer_bytes"] / 1e3 for r in runs}
        for i, size in enumerate(sorted(buffers)):
            ax.axhline(size, color="black", linewidth=0.8, linestyle=":", zorder=1)
            ax.annotate(
                "buffer" if i == 0 else "",
                (0.0, size),
                xycoords=("axes fraction", "data"),
                xytext=(2, -7),
                textcoords="offset points",
                fontsize=6.5,
            )
        ax.set_yscale("log")
        ax.set_ylim(FLOOR, 1.5 * max(buffers))
        ticks = [10.0**e for e in range(-1, 7) if 10.0**e <= 1.5 * max(buffers)]
        ax.set_yticks(ticks, [f"≤ {FLOOR:g}", *(f"{t:,.0f}" for t in ticks[1:])])
        ax.minorticks_off()
        ax.set_xlim(-0.5, len(hops) - 0.5)
        for edge in range(1, len(hops)):
            ax.axvline(edge - 0.5, color="#DDDDDD", linewidth=0.5, zorder=0)
        ax.set_xticks(range(len(hops)), [NAMES[_ORDER[h]] for h in hops])
        ax.tick_params(axis="x", length=0)
        ax.set_ylabel("queue at a port [kB]")
        ax.set_title(f"Queues by hop, {placement} ranks{stored.settings_words}", pad=6)
        fig.legend(handles=handles, loc="outside lower left", ncols=2, handlelength=1.2, columnspacing=1.2)
        return save(fig, directory, f"queue-hops-{placement}{stored.tag}", runs)
