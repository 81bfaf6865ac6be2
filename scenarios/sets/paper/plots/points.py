"""Figures of points: bandwidth over message sizes, an incast's shares, two hosts, and the sizes of fabrics. From summaries alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios.figures.stored import Stored
from scenarios.schema.values import parse_size
from scenarios.sets.paper.claims import bus_share, value_of
from scenarios.show.plots.style import FLOWS, colour_and_marker, figure, save

SIZE, LOSS = "workload.message_bytes", "fault.0.probability"


def middle(values: Sequence[float]) -> tuple[float, list[list[float]]]:
    """(median, error bar down to the least and up to the largest)."""
    median = statistics.median(values)
    return median, [[median - min(values)], [max(values) - median]]


def seeds_words(runs: Sequence[Mapping[str, Any]]) -> str:
    """``n = 3 seeds``."""
    n = len({run["seed"] for run in runs})
    return f"n = {n} seed{'s' if n != 1 else ''}"


def sizes(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    """Bus bandwidth in % of ideal over message sizes, a line per transport; a panel per loss rate if one is swept."""
    runs = stored["main"].runs
    losses = list(dict.fromkeys(run["settings"].get(LOSS) for run in runs))
    transports = list(dict.fromkeys(run["transport"] for run in runs))
    if not runs:
        return []
    with figure(len(losses), 1.0 + 1.35 * len(losses), sharex=True, sharey=True, squeeze=False) as (fig, axes):
        for ax, loss in zip(axes[:, 0], losses, strict=True):
            for transport in transports:
                colour, marker = colour_and_marker(transport)
                points = []
                for size in dict.fromkeys(run["settings"][SIZE] for run in runs):
                    mine = [r for r in runs if (r["transport"], r["settings"][SIZE], r["settings"].get(LOSS)) == (transport, size, loss)]
                    told = [100 * s for r in mine if (s := bus_share(r)) is not None]
                    if told:
                        points.append((parse_size(size), *middle(told), any(r["outcome"] != "done" for r in mine)))
                if not points:
                    continue
                points.sort(key=lambda p: p[0])
                x, y = [p[0] for p in points], [p[1] for p in points]
                ax.plot(x, y, color=colour, marker=marker, markersize=4, linewidth=1.1, label=transport, clip_on=False, zorder=3)
                for size, value, bar, late in points:
                    ax.errorbar([size], [value], yerr=bar, color=colour, linewidth=0.7, capsize=1.5)
                    if late:
                        ax.annotate(
                            "out of time", (size, value), xytext=(0, 4), textcoords="offset points", fontsize=5.5, color=colour, ha="right"
                        )
            ax.set_title((f"{100 * loss:g} % loss, " if loss is not None else "") + seeds_words(runs), pad=3, fontsize=7.5)
            ax.set_xscale("log", base=2)
            ticks = sorted({parse_size(run["settings"][SIZE]) for run in runs})
            ax.set_xticks(ticks, [_shown(tick) for tick in ticks])
            ax.minorticks_off()
            ax.set_ylim(0, 105)
            ax.grid(axis="y", linewidth=0.3, color="#DDDDDD")
        axes[-1, 0].set_xlabel("message size")
        fig.supylabel("bus bandwidth [% of ideal]", fontsize=7.5)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside lower center", ncols=3, columnspacing=1.0, handlelength=1.8)
        return save(fig, directory, name, runs)


def _shown(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def incast(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    """Per transport: what each of the incast's flows got of an equal share, and what the victim kept of what it has alone."""
    runs = [run for run in stored["main"].runs if run.get("groups", {}).get("victim")]
    if not runs:
        return []
    transports = list(dict.fromkeys(run["transport"] for run in runs))
    with figure(2, 3.2, sharex=True) as (fig, (top, low)):
        for at, transport in enumerate(transports):
            colour, marker = colour_and_marker(transport)
            mine = [run for run in runs if run["transport"] == transport]
            for run in mine:
                got = [f["share"] for f in run["flows"].values() if f["group"] == "incast" and f["share"] is not None]
                top.plot(
                    [at + 0.06 * (i - (len(got) - 1) / 2) for i in range(len(got))],
                    [100 * g * len(got) for g in sorted(got)],
                    linestyle="none",
                    marker=marker,
                    markersize=3,
                    color=colour,
                    alpha=0.8,
                )
            kept = [100 * run["groups"]["victim"]["kept"] for run in mine if run["groups"]["victim"]["kept"] is not None]
            if kept:
                value, bar = middle(kept)
                low.bar([at], [value], width=0.55, color=colour)
                low.errorbar([at], [value], yerr=bar, color="black", linewidth=0.8, capsize=2)
                low.annotate(f"{value:.0f} %", (at, value), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=6.5)
        for ax in (top, low):
            ax.axhline(100, color="black", linewidth=0.7, linestyle=":")
            ax.set_xticks(range(len(transports)), transports)
        top.set_ylabel("incast flow\n[% of an equal share]")
        top.set_ylim(0, None)
        low.set_ylabel("victim\n[% of alone]")
        low.set_ylim(0, 122)
        top.set_title(f"7 to 1, with a victim flow; {seeds_words(runs)}", pad=3)
        return save(fig, directory, name, runs)


def pair(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    """Latency of a small message in base RTTs, and bandwidth with 32 KiB messages, under one T0 and across T1s."""
    panels = (
        ("latency", "post to completion\n[base RTTs]", "groups.flows.message_ns.p50", "base_rtt_ns"),
        ("bandwidth", "goodput\n[share of line]", "groups.flows.of_line", ""),
    )
    with figure(2, 2.9, sharex=True) as (fig, axes):
        for ax, (part, label, figure_of, unit) in zip(axes, panels, strict=True):
            runs = stored[part].runs if part in stored else []
            for at, dst in enumerate(("h1", "h4")):
                mine = [run for run in runs if run["settings"].get("workload.flow.pair.dst") == dst]
                seen = [(value_of(run, figure_of), value_of(run, unit) if unit else 1.0) for run in mine]
                told = [value / of for value, of in seen if value is not None and of]
                if told:
                    shown, bar = middle(told)
                    ax.errorbar([at], [shown], yerr=bar, color=FLOWS[0], marker="o", markersize=4, linewidth=0.8, capsize=2)
                    ax.annotate(f"{shown:.2f}", (at, shown), xytext=(6, -9), textcoords="offset points", fontsize=6.5)
            ax.axhline(1, color="black", linewidth=0.7, linestyle=":")
            ax.set_ylim(0, 1.2)
            ax.set_ylabel(label)
            ax.set_xlim(-0.5, 1.5)
            ax.set_xticks([0, 1], ["under one T0", "across T1s"])
            ax.set_title(f"{part.capitalize()}, {seeds_words(runs)}", pad=3, fontsize=7.5)
        return save(fig, directory, name, [run for part, *_ in panels if part in stored for run in stored[part].runs])


def sizing(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    """Switches and transceivers for the paper's NICs, by how the NIC is split."""
    from topologies.sizing import GBIT, PAPER_NICS, splits

    found = splits()
    labels = [f"{s.planes} × {s.port_rate // GBIT} Gb/s\n{s.tiers} tiers" for s in found]
    with figure(2, 3.2, sharex=True) as (fig, axes):
        for ax, what, of in zip(axes, ("switches", "transceivers"), ([s.switches for s in found], [s.optics for s in found]), strict=True):
            ax.bar(range(len(found)), [v / 1000 for v in of], width=0.6, color=[FLOWS[0] if s.tiers == 2 else "#999999" for s in found])
            for at, value in enumerate(of):
                ax.annotate(f"{value:,}", (at, value / 1000), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=6.5)
            ax.set_ylabel(f"{what}\n[thousands]")
            ax.set_ylim(0, 1.18 * max(of) / 1000)
            ax.set_xticks(range(len(found)), labels)
        axes[0].set_title(f"Full bisection for {PAPER_NICS:,} NICs of 800 Gb/s", pad=3)
        return save(fig, directory, name, [])
