"""Queues on each kind of hop: the mean backlog that packets met at each port, and the peaks that are known."""

from __future__ import annotations

from typing import Any

import pandas as pd

from scenarios.figures.invariants import hop_of
from scenarios.figures.stored import Stored
from scenarios.show.plots.style import GREY, beside, legend, line, look_of, note, panels, per_placement

NAMES = {"host": "host to T0", "t0_up": "T0 to T1", "t1_across": "T1 to T1", "t1_down": "T1 to T0", "last_hop": "T0 to host"}
"""Hop -> its name in the figure."""
_ORDER = list(NAMES)
FLOOR = 0.1
"""Smaller queues are drawn at this value, kB."""


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


@per_placement("queue-hops")
def draw(stored: Stored, runs: list[dict[str, Any]]) -> Any:
    of = {t: [r for r in runs if r["transport"] == t] for t in dict.fromkeys(r["transport"] for r in runs)}
    frames = {transport: frame for transport, own in of.items() if len(frame := ports(stored, own))}
    if not frames:
        return None
    hops = sorted({int(h) for frame in frames.values() for h in frame["hop"]})
    fig, (ax,) = panels(1, 2.35 + 0.16 * ((len(frames) + 3) // 2))
    handles = []
    for k, (transport, frame) in enumerate(frames.items()):
        colour, marker = look_of(stored, transport)
        for place, hop in enumerate(hops):
            group = frame[frame["hop"] == hop]
            x = place + beside(k, len(frames))
            if len(group):
                least, middle, most = (max(float(v), FLOOR) for v in (group["mean"].min(), group["mean"].median(), group["mean"].max()))
                ax.plot([x] * 2, [least, most], color=colour, linewidth=2.2, alpha=0.45, zorder=2)
                ax.plot(x, middle, linestyle="none", marker=marker, markersize=4, color=colour, zorder=3, clip_on=False)
            if group["peak"].notna().any():
                ax.plot(x, group["peak"].max(), linestyle="none", marker="_", markersize=7, markeredgewidth=1.3, color=colour, zorder=3)
        handles.append(line(f"{transport}, n = {len(of[transport])}", colour, marker=marker))
    handles.append(line("mean: least to most loaded port", GREY, "-", 2.2, alpha=0.5))
    handles.append(line("largest known peak", GREY, marker="_", markersize=7, markeredgewidth=1.3))
    buffers = sorted({stored.summary["fabrics"][r["fabric"]]["buffer_bytes"] / 1e3 for r in runs})
    for size in buffers:
        ax.axhline(size, color="black", linewidth=0.8, linestyle=":", zorder=1)
    note(ax, "buffer", (0.0, buffers[0]), (2, -7), xycoords=("axes fraction", "data"))
    ax.set_yscale("log")
    ticks = [10.0**e for e in range(-1, 7) if 10.0**e <= 1.5 * buffers[-1]]
    ax.set_yticks(ticks, [f"≤ {FLOOR:g}", *(f"{t:,.0f}" for t in ticks[1:])])
    ax.minorticks_off()
    for edge in range(1, len(hops)):
        ax.axvline(edge - 0.5, color="#DDDDDD", linewidth=0.5, zorder=0)
    ax.set_xticks(range(len(hops)), [NAMES[_ORDER[h]] for h in hops])
    ax.tick_params(axis="x", length=0)
    ax.set(xlim=(-0.5, len(hops) - 0.5), ylim=(FLOOR, 1.5 * buffers[-1]), ylabel="queue at a port [kB]")
    ax.set_title(f"Queues by hop, {runs[0]['placement']} ranks{stored.settings_words}")
    legend(fig, handles)
    return fig
