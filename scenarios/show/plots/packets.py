"""Draws packets: lost by cause, marked, trimmed; and by hop the backlog that they met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from scenarios.figures.invariants import hop_of
from scenarios.figures.stored import Stored, by_transport
from scenarios.show.plots.style import (
    GREY,
    NAMED,
    area,
    beside,
    headline,
    legend,
    line,
    look_of,
    note,
    panels,
    per_placement,
)
from testbed.results.summary import Run

CAUSES = {
    "drop_link_down": ("link down", "#0072B2"),
    "flushed": ("in the queue of a link that died", "#56B4E9"),
    "drop_tail": ("buffer full", "#D55E00"),
    "drop_silent": ("silent switch", "#CC79A7"),
    "drop_switch_down": ("dead switch", "#882255"),
    "drop_fault_loss": ("lossy link", "#009E73"),
    "drop_fault_path": ("lossy path", "#117733"),
    "drop_trunk": ("between machines", "#AA4499"),
    "tx_refused": ("refused at the sender", "#E69F00"),
    "rx_ring_drops": ("receive socket full", "#000000"),
}  # Counter -> (label, colour); others are grey.

SWITCHES = {"marked": ("marked (ECN)", "#999933"), "trimmed": ("trimmed", "#332288")}
NAMES = {
    "host": "host to T0",
    "t0_up": "T0 to T1",
    "t1_across": "T1 to T1",
    "t1_down": "T1 to T0",
    "last_hop": "T0 to host",
}
_ORDER = list(NAMES)
FLOOR = 0.1  # Smaller queues, in kB, are drawn at this value.


def totals(runs: list[Run]) -> list[dict[str, Any]]:
    """Return packets ``sent``, and per thousand of them ``marked``, ``trimmed`` and ``causes``, per
    transport."""
    rows = []
    for transport, own in by_transport(runs).items():
        packets = [r.packets for r in own]
        sent = sum(p.sent for p in packets)
        if sent:
            all_causes = dict.fromkeys(cause for p in packets for cause in p.causes)
            causes = {
                cause: 1e3 * sum(p.causes.get(cause, 0) for p in packets) / sent
                for cause in all_causes
            }
            switch_counts = {
                key: 1e3 * sum(getattr(p, key) or 0 for p in packets) / sent
                for key in ("marked", "trimmed")
            }
            rows.append(
                {
                    "transport": transport,
                    "n": len(packets),
                    "sent": sent,
                    "causes": causes,
                    **switch_counts,
                }
            )
    return rows


@per_placement()
def losses(stored: Stored, runs: list[Run]) -> Any:
    rows = totals(runs)  # the seeds of a transport are added up
    lost = any(row["causes"] for row in rows)
    altered = any(row["marked"] or row["trimmed"] for row in rows)
    if not lost and not altered:
        return None
    others = sorted({c for row in rows for c in row["causes"]} - set(CAUSES))
    styles = {c: CAUSES[c] for c in CAUSES if any(c in row["causes"] for row in rows)}
    styles |= {
        c: (c.replace("_", " "), ("#777777", "#AAAAAA", "#CCCCCC")[i % 3])
        for i, c in enumerate(others)
    }
    count = lost + altered
    height = 0.75 + count * (0.35 + 0.22 * len(rows)) + 0.15 * ((len(styles) + 3) // 2)
    where = f"{runs[0].placement} ranks{stored.settings_words}"
    head = headline(
        "Lost packets in 1,000",
        {row["transport"]: sum(row["causes"].values()) for row in rows},
        lambda share: f"{share:.3g}",
        f"by cause, {where}",
    )
    fig, axes = panels(
        count, height, head=head if lost else "", x="packets per 1,000 sent", sharex=False
    )
    for y, row in enumerate(rows):
        if lost:
            left = 0.0
            for cause, (_, colour) in styles.items():
                axes[0].barh(
                    y,
                    row["causes"].get(cause, 0.0),
                    left=left,
                    height=0.62,
                    color=colour,
                    linewidth=0,
                )
                left += row["causes"].get(cause, 0.0)
            note(axes[0], f"{left:.3g}", (left, y), (3, 0), va="center")
        for k, (key, (_, colour)) in enumerate(SWITCHES.items() if altered else ()):
            at = y + (k - 0.5) * 0.34
            axes[-1].barh(at, row[key], height=0.3, color=colour, linewidth=0)
            note(axes[-1], f"{row[key]:.3g}", (row[key], at), (3, 0), fontsize=6, va="center")
    if altered:
        axes[-1].set_title("Marked or trimmed, but delivered" + ("" if lost else f"\n{where}"))
    for ax in axes:
        ax.set_yticks(range(len(rows)), [f"{row['transport']}, n = {row['n']}" for row in rows])
        for label, row in zip(ax.get_yticklabels(), rows, strict=True):
            label.set_color(look_of(stored, row["transport"])[0])
        ax.tick_params(axis="y", length=0)
        ax.set(
            ylim=(len(rows) - 0.5, -0.5),
            xlim=(0, 1.16 * max(p.get_x() + p.get_width() for p in ax.patches)),
        )
    return legend(
        fig, [area(*style) for style in [*styles.values(), *(SWITCHES.values() if altered else ())]]
    )


def ports(stored: Stored, runs: list[Run]) -> pd.DataFrame:
    """Make a row per run and port that carried data: ``hop`` (index in :data:`NAMES`), ``mean`` and
    ``peak`` in kB. Counters keep the fabric's peak, so only the run that raised it knows it; else
    it is NaN."""
    frames = [stored.rows("counters", r) for r in runs]
    frames = [f for f in frames if len(f) and "backlog_mean_bytes" in f and "met_packets" in f]
    if not frames:
        return pd.DataFrame()
    rows = pd.concat(frames)
    rows = rows[rows["met_packets"] > 0]
    hop = rows["port"].map(lambda name: -1 if (hop := hop_of(name)) is None else _ORDER.index(hop))
    raised = (
        rows["raised_peak_bytes"]
        if "raised_peak_bytes" in rows
        else pd.Series(float("nan"), index=rows.index)
    )
    frame = pd.DataFrame(
        {"hop": hop, "mean": rows["backlog_mean_bytes"] / 1e3, "peak": raised.astype(float) / 1e3}
    )
    return frame[frame["hop"] >= 0]


def buffer_of(names: Sequence[str], sizes: int) -> str:
    """Name the buffer of transports, where there are several ``sizes``; a few names have room."""
    if sizes == 1:
        return "buffer"
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED + 1 else ""
    return f"buffer of {', '.join(names[:NAMED] if more else names)}{more}"


@per_placement()
def queue_hops(stored: Stored, runs: list[Run]) -> Any:
    of = by_transport(runs)
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
                least, middle, most = (
                    max(float(v), FLOOR)
                    for v in (group["mean"].min(), group["mean"].median(), group["mean"].max())
                )
                ax.plot([x] * 2, [least, most], color=colour, linewidth=2.2, alpha=0.45, zorder=2)
                ax.plot(
                    x,
                    middle,
                    linestyle="none",
                    marker=marker,
                    markersize=4,
                    color=colour,
                    zorder=3,
                    clip_on=False,
                )
            if group["peak"].notna().any():
                ax.plot(
                    x,
                    group["peak"].max(),
                    linestyle="none",
                    marker="_",
                    markersize=7,
                    markeredgewidth=1.3,
                    color=colour,
                    zorder=3,
                )
        handles.append(line(f"{transport}, n = {len(of[transport])}", colour, marker=marker))
    handles.append(line("mean: least to most loaded port", GREY, "-", 2.2, alpha=0.5))
    handles.append(line("largest known peak", GREY, marker="_", markersize=7, markeredgewidth=1.3))
    owners: dict[float, list[str]] = {}
    for transport, own in of.items():
        size = stored.summary.fabrics[own[0].fabric].buffer_bytes / 1e3
        owners.setdefault(size, []).append(transport)
    buffers = sorted(owners)
    for size, names in owners.items():
        ax.axhline(size, color="black", linewidth=0.8, linestyle=":", zorder=1)
        note(
            ax,
            buffer_of(names, len(owners)),
            (0.0, size),
            (2, -7),
            xycoords=("axes fraction", "data"),
        )
    ax.set_yscale("log")
    ticks = [10.0**e for e in range(-1, 7) if 10.0**e <= 1.5 * buffers[-1]]
    ax.set_yticks(ticks, [f"≤ {FLOOR:g}", *(f"{t:,.0f}" for t in ticks[1:])])
    ax.minorticks_off()
    for edge in range(1, len(hops)):
        ax.axvline(edge - 0.5, color="#DDDDDD", linewidth=0.5, zorder=0)
    ax.set_xticks(range(len(hops)), [NAMES[_ORDER[h]] for h in hops])
    ax.tick_params(axis="x", length=0)
    ax.set(
        xlim=(-0.5, len(hops) - 0.5), ylim=(FLOOR, 1.5 * buffers[-1]), ylabel="queue at a port [kB]"
    )
    ax.set_title(
        headline(
            "Longest queue",
            {
                name: float(frame["peak"].max()) if frame["peak"].notna().any() else None
                for name, frame in frames.items()
            },
            lambda size: f"{size:,.0f} kB",
            f"Queues by hop, {runs[0].placement} ranks{stored.settings_words}",
        )
    )
    return legend(fig, handles)
