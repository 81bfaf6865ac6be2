"""Draws message sizes, incasts, two hosts, and the sizes of fabrics, from summaries only."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from scenarios.figures.stored import Stored
from scenarios.sets.paper.claims import bus_share, value_of, values
from scenarios.show.plots.style import FLOWS, figure, legend, look_of, note, panels, save, styled
from testbed.results.summary import Run
from topologies.units import parse_size

FEW = 4  # names that fit beside each other below the axes
SIZE, LOSS = "workload.message_bytes", "fault.0.probability"


def median_and_error(values: Sequence[float]) -> tuple[float, list[list[float]]]:
    """Return (median, error bar from the least to the largest value)."""
    median = statistics.median(values)
    return median, [[median - min(values)], [max(values) - median]]


def seeds_text(runs: Sequence[Run]) -> str:
    n = len({run.seed for run in runs})
    return f"n = {n} seed{'s' if n != 1 else ''}"


def sizes(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    made = []
    for part, results in stored.items():
        if len({run.settings.get(SIZE) for run in results.runs}) > 1:
            made += _over_sizes(results, directory, name if part == "main" else f"{name}-{part}")
    return made


def _over_sizes(results: Stored, directory: Path, name: str) -> list[Path]:
    runs = results.runs
    losses = list(dict.fromkeys(run.settings.get(LOSS) for run in runs))
    with styled():
        fig, axes = panels(
            len(losses),
            1.0 + 1.35 * len(losses),
            x="message size",
            y="bus bandwidth [% of ideal]",
            sharey=True,
        )
        for ax, loss in zip(axes, losses, strict=True):
            for transport in dict.fromkeys(run.transport for run in runs):
                colour, marker = look_of(results, transport)
                points = []
                for size in dict.fromkeys(run.settings[SIZE] for run in runs):
                    group = [
                        r
                        for r in runs
                        if (r.transport, r.settings[SIZE], r.settings.get(LOSS))
                        == (transport, size, loss)
                    ]
                    shares = [100 * s for r in group if (s := bus_share(r)) is not None]
                    if shares:
                        points.append(
                            (
                                parse_size(size),
                                *median_and_error(shares),
                                any(r.outcome != "done" for r in group),
                            )
                        )
                if not points:
                    continue
                points.sort(key=lambda p: p[0])
                x, y = [p[0] for p in points], [p[1] for p in points]
                ax.plot(
                    x,
                    y,
                    color=colour,
                    marker=marker,
                    markersize=4,
                    linewidth=1.1,
                    label=transport,
                    clip_on=False,
                    zorder=3,
                )
                for size, value, bar, out_of_time in points:
                    ax.errorbar([size], [value], yerr=bar, color=colour, linewidth=0.7, capsize=1.5)
                    if out_of_time:
                        note(
                            ax,
                            "out of time",
                            (size, value),
                            (0, 4),
                            fontsize=5.5,
                            color=colour,
                            ha="right",
                        )
            hosts = f"{runs[0].ranks} hosts, {runs[0].world}, "
            ax.set_title(
                hosts + (f"{100 * loss:g} % loss, " if loss is not None else "") + seeds_text(runs),
                fontsize=7.5,
            )
            ax.set_xscale("log", base=2)
            ticks = sorted({parse_size(run.settings[SIZE]) for run in runs})
            ax.set_xticks(ticks, [_shown(tick) for tick in ticks])
            ax.minorticks_off()
            ax.set_ylim(0, 105)
            ax.grid(axis="y")
        legend(fig, axes[0].get_legend_handles_labels()[0], 3)
        return save(fig, directory, name, runs)


def _shown(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def incast(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    """Draw the incast's flows in equal shares, and the victim as a share of what it has alone."""
    runs = [run for run in stored["main"].runs if run.groups.get("victim")]
    if not runs:
        return []
    transports = list(dict.fromkeys(run.transport for run in runs))
    with figure(2, 3.2) as (fig, (top, bottom)):
        for x, transport in enumerate(transports):
            colour, marker = look_of(stored["main"], transport)
            transport_runs = [run for run in runs if run.transport == transport]
            for run in transport_runs:
                shares = [
                    f.share
                    for f in run.flows.values()
                    if f.group == "incast" and f.share is not None
                ]
                x_of = [x + 0.06 * (i - (len(shares) - 1) / 2) for i in range(len(shares))]
                y = [100 * share * len(shares) for share in sorted(shares)]
                top.plot(
                    x_of, y, linestyle="none", marker=marker, markersize=3, color=colour, alpha=0.8
                )
            kept_percents = [
                100 * kept
                for run in transport_runs
                if (kept := run.groups["victim"].kept) is not None
            ]
            if kept_percents:
                value, bar = median_and_error(kept_percents)
                bottom.bar([x], [value], width=0.55, color=colour)
                bottom.errorbar([x], [value], yerr=bar, color="black", linewidth=0.8, capsize=2)
                note(bottom, f"{value:.0f} %", (x, value), (0, 3), ha="center")
        for ax in (top, bottom):
            ax.axhline(100, color="black", linewidth=0.7, linestyle=":")
            ax.set_xticks(
                range(len(transports)),
                transports,
                **({"rotation": 30, "ha": "right"} if len(transports) > FEW else {}),
            )
        top.set(ylim=(0, None), ylabel="incast flow\n[% of an equal share]")
        bottom.set(ylim=(0, 122), ylabel="victim\n[% of alone]")
        top.set_title(f"7 to 1, with a victim flow; {seeds_text(runs)}")
        return save(fig, directory, name, runs)


def shares(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    runs = [run for run in stored["main"].runs if run.flows]
    if not runs:
        return []
    transports = list(dict.fromkeys(run.transport for run in runs))
    with figure(1, 0.9 + 0.27 * len(transports)) as (fig, ax):
        for y, transport in enumerate(transports):
            colour, marker = look_of(stored["main"], transport)
            found = [
                100 * f.share
                for r in runs
                if r.transport == transport
                for f in r.flows.values()
                if f.share is not None
            ]
            ax.plot(
                found,
                [y] * len(found),
                linestyle="none",
                marker=marker,
                markersize=3,
                color=colour,
                alpha=0.5,
            )
            if found:
                mean = statistics.mean(found)
                ax.plot([mean, mean], [y - 0.35, y + 0.35], color="black", linewidth=1.2)
        ax.set_yticks(range(len(transports)), transports)
        ax.invert_yaxis()
        ax.set(xlim=(0, 104), xlabel="goodput of a flow [% of line]; bar: mean")
        ax.set_title(f"every flow; {seeds_text(runs)}")
        return save(fig, directory, name, runs)


def profiles(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    runs = [run for run in stored["main"].runs if run.groups.get("incast")]
    if not runs:
        return []
    shown: tuple[tuple[str, str, float], ...] = (
        ("last hop used\n[% of line]", "groups.incast.of_line", 100),
        ("mean queue\n[MB]", "groups.incast.queue_mean_bytes", 1e-6),
        ("pauses", "pfc.pauses", 1),
    )
    with figure(len(shown), 3.6, x="flows to one host") as (fig, axes):
        for ax, (label, key, unit) in zip(axes, shown, strict=True):
            for transport in dict.fromkeys(run.transport for run in runs):
                colour, marker = look_of(stored["main"], transport)
                points = []
                for count in sorted({run.settings["workload.senders"] for run in runs}):
                    group = [
                        r
                        for r in runs
                        if (r.transport, r.settings["workload.senders"]) == (transport, count)
                    ]
                    points.append(
                        (count, *median_and_error([unit * value for value in values(group, key)]))
                    )
                ax.plot(
                    [p[0] for p in points],
                    [p[1] for p in points],
                    color=colour,
                    marker=marker,
                    markersize=4,
                    label=transport,
                )
                for x, y, bar in points:
                    ax.errorbar([x], [y], yerr=bar, color=colour, linewidth=0.7, capsize=1.5)
            ax.set(ylim=(0, None), ylabel=label)
        axes[0].set_title(f"Profiles of DCQCN; {seeds_text(runs)}")
        legend(fig, axes[0].get_legend_handles_labels()[0], 3)
        return save(fig, directory, name, runs)


def pair(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    parts = (
        (
            "latency",
            "post to completion\n[base RTTs]",
            "groups.flows.message_ns.p50",
            "base_rtt_ns",
        ),
        ("bandwidth", "goodput\n[share of line]", "groups.flows.of_line", ""),
    )
    with figure(2, 2.9) as (fig, axes):
        for ax, (part, label, figure_of, unit) in zip(axes, parts, strict=True):
            runs = stored[part].runs if part in stored else []
            for x, dst in enumerate(("h1", "h2")):
                pair_runs = [
                    run for run in runs if run.settings.get("workload.flow.pair.dst") == dst
                ]
                samples = [
                    (value_of(run, figure_of), value_of(run, unit) if unit else 1.0)
                    for run in pair_runs
                ]
                ratios = [value / base for value, base in samples if value is not None and base]
                if ratios:
                    median, bar = median_and_error(ratios)
                    ax.errorbar(
                        [x],
                        [median],
                        yerr=bar,
                        color=FLOWS[0],
                        marker="o",
                        markersize=4,
                        linewidth=0.8,
                        capsize=2,
                    )
                    note(ax, f"{median:.2f}", (x, median), (6, -9))
            ax.axhline(1, color="black", linewidth=0.7, linestyle=":")
            ax.set(xlim=(-0.5, 1.5), ylim=(0, 1.2), ylabel=label)
            ax.set_xticks([0, 1], ["under one T0", "across T1s"])
            ax.set_title(f"{part.capitalize()}, {seeds_text(runs)}", fontsize=7.5)
        return save(
            fig,
            directory,
            name,
            [run for part, *_ in parts if part in stored for run in stored[part].runs],
        )


def sizing(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    from topologies.sizing import GBIT, PAPER_NICS, splits

    choices = splits()
    labels = [f"{s.planes} × {s.port_rate // GBIT} Gb/s\n{s.tiers} tiers" for s in choices]
    with figure(2, 3.2) as (fig, axes):
        columns = ([s.switches for s in choices], [s.optics for s in choices])
        for ax, what, counts in zip(axes, ("switches", "transceivers"), columns, strict=True):
            colours = [FLOWS[0] if s.tiers == 2 else "#999999" for s in choices]
            ax.bar(
                range(len(choices)), [count / 1000 for count in counts], width=0.6, color=colours
            )
            for x, value in enumerate(counts):
                note(ax, f"{value:,}", (x, value / 1000), (0, 2), ha="center")
            ax.set(ylim=(0, 1.18 * max(counts) / 1000), ylabel=f"{what}\n[thousands]")
            ax.set_xticks(range(len(choices)), labels)
        axes[0].set_title(f"Full bisection for {PAPER_NICS:,} NICs of 800 Gb/s")
        return save(fig, directory, name, [])
