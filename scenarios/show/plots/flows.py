"""Draws flows: goodput, queues on their last hop, and windows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import (
    FLOWS,
    area,
    beside,
    headline,
    legend,
    line,
    look_of,
    panels,
    per_seed,
    run_panels,
    spell,
)
from testbed.results.summary import Run
from testbed.results.values import known

MOST = 20  # More flows are shown as bars.
POINTS = 140  # about as many as a column of text can show
SAMPLES = {"queues": 400, "windows": 200}  # most points
MARKING = ("ECN marking range", "#F0E442", 0.35)


def series(stored: Stored, run: Run, name: str, span_ns: float) -> tuple[Any, Any]:
    """Return (µs since t0, % of line) while a flow receives, at centres of bins that suit a figure
    of ``span_ns``."""
    begin, table = stored.begin_ns(run) or 0, stored.rows("flows", run)
    bins = table[table["flow"] == name]
    if bins.empty:  # it received nothing
        return [], []
    bin_ns = float(table["bin_ns"].max())
    width_ns = bin_ns * max(1, round(span_ns / POINTS / bin_ns))
    edges = np.arange(bins["t_ns"].min(), bins["t_ns"].max() + width_ns + 1, width_ns)
    received, _ = np.histogram(
        bins["t_ns"] + bins["bin_ns"] / 2, bins=edges, weights=bins["rx_bytes"]
    )
    line = run.flows[name].line_bps / 8e9 * width_ns
    return (edges[:-1] + width_ns / 2 - begin) / 1e3, 100 * received / line


def _few(stored: Stored, run: Run) -> bool:
    return (
        bool(run.flows)
        and len(run.flows) <= MOST
        and run.workload != "permutation"
        and len(stored.rows("flows", run)) > 0
    )


@per_seed(_few)
def flows(stored: Stored, runs: list[Run]) -> Any:
    span = max(stored.rows("flows", r)["t_ns"].max() - (stored.begin_ns(r) or 0) for r in runs)
    handles: dict[str, Any] = {}
    names = max(([name for name, _, _ in _line_styles(run)] for run in runs), key=len)
    many = len(names) > len(FLOWS)  # their legend needs room below the panels
    columns = 4 if many and max(map(len, names)) <= 10 else 2
    height = 1.25 + 0.95 * len(runs) + (0.15 * (len(names) // columns - 1) if many else 0)
    victims = all("victim" in run.groups for run in runs)
    head = headline(
        "Victim flow" if victims else "Slowest flow",
        {run.transport: _least(run, victims) for run in runs},
        lambda share: f"{share:.0f} %",
        "Goodput per flow",
    )
    fig, shown = run_panels(stored, runs, head, height=height, y="goodput, % of line", sharey=True)
    for ax, run in shown:
        for group, colour, style in _line_styles(run):
            names = [n for n, flow in run.flows.items() if flow.group == group or n == group]
            thick = 1.3 if len(names) == 1 else 0.6
            for flow in names:
                ax.plot(
                    *series(stored, run, flow, span),
                    color=colour,
                    linewidth=thick,
                    linestyle=style,
                    zorder=3,
                )
                label = spell(group) if len(names) == 1 else f"{spell(group)}, {len(names)} flows"
                handles.setdefault(label, line(label, colour, style, thick))
        incast = run.groups.get("incast")
        for level in (100, *([100 / incast.flows] if incast else [])):
            ax.axhline(level, color="black", linewidth=0.7, linestyle=":", zorder=1)
        for time in known(run.all_on_ns) or ():
            ax.axvline(
                (time - (known(run.t0_ns) or 0)) / 1e3,
                color="#999999",
                linewidth=0.7,
                linestyle="--",
                zorder=1,
            )
        ax.set_xlim(0, span / 1e3)
    highest = max(
        line.get_ydata().max()
        for ax, _ in shown
        for line in ax.get_lines()
        if len(line.get_ydata()) > 2
    )
    if highest > 50:
        ax.set(ylim=(0, 112), yticks=[0, 50, 100])
    else:  # many to one: no flow comes near the line
        ax.set_ylim(0, 1.1 * highest)
    if any(known(r.all_on_ns) for r in runs):
        handles["begin"] = line("begin and end of measurement", "#999999", "--", 0.7)
    return legend(
        fig,
        [
            *handles.values(),
            line("line; fair share" if "incast" in runs[0].groups else "line", "black", ":", 0.7),
        ],
        columns,
    )


def _line_styles(run: Run) -> list[tuple[str, str, str]]:
    """Return (group or flow, colour, line style); incast and victim have a colour each, else every
    flow."""
    if "incast" in run.groups:
        return [("incast", FLOWS[0], "-")] + (
            [("victim", FLOWS[1], "-")] if "victim" in run.groups else []
        )
    styles = ("-", "--", "-.", ":")
    return [
        (name, FLOWS[i % len(FLOWS)], styles[i // len(FLOWS) % 4])
        for i, name in enumerate(run.flows)
    ]


def _shares(run: Run) -> dict[str, float]:
    return {name: 100 * flow.share for name, flow in run.flows.items() if flow.share is not None}


def _least(run: Run, victims: bool) -> float | None:
    """Return % of line of the slowest flow, of the victims if asked."""
    shares = _shares(run)
    wanted = [shares[n] for n in shares if not victims or run.flows[n].group == "victim"]
    return min(wanted, default=None)


@per_seed(lambda stored, run: run.workload == "permutation" and _shares(run))
def permutation(stored: Stored, runs: list[Run]) -> Any:
    names = list(runs[0].flows)
    fig, (ax,) = panels(1, 2.35 + 0.15 * len(runs), x="flow, from host → to host")
    handles = []
    for k, run in enumerate(runs):
        colour, _ = look_of(stored, run.transport)
        shares = _shares(run)
        at = [i + beside(k, len(runs), 0.84) for i, n in enumerate(names) if n in shares]
        ax.bar(
            at,
            [shares[n] for n in names if n in shares],
            0.77 / len(runs),
            color=colour,
            linewidth=0,
            zorder=2,
        )
        group = run.groups["permutation"]
        text = (
            f"least {100 * (group.min_share or 0):.0f} %, mean {100 * (group.of_line or 0):.0f} "
            f"%, Jain {group.jain or 0:.3f}"
        )
        handles.append(area(f"{run.transport} on {run.fabric}: {text}", colour))
    ax.axhline(100, color="black", linewidth=0.7, linestyle=":", zorder=1)
    ax.grid(axis="y", zorder=0)
    ax.set_axisbelow(True)
    arrows = [n.replace("-", "→").replace("h", "") for n in names]
    ax.set_xticks(range(len(names)), arrows, rotation=90 if len(names) > 8 else 0)
    ax.tick_params(axis="x", length=0)
    ax.set(
        xlim=(-0.6, len(names) - 0.4),
        ylim=(0, 106),
        yticks=[0, 25, 50, 75, 100],
        ylabel="goodput, % of line",
    )
    ax.set_title(
        headline(
            "Slowest flow, % of line",
            {run.transport: 100 * (run.groups["permutation"].min_share or 0) for run in runs},
            lambda share: f"{share:.0f}",
            f"Goodput of {len(names)} flows, a permutation{stored.seed_words(runs[0].seed)}",
        )
    )
    return legend(fig, handles, 1)


@per_seed(lambda stored, run: run.queues and len(stored.rows("queues", run)))
def queues(stored: Stored, runs: list[Run]) -> Any:
    groups = list(dict.fromkeys(q.group for r in runs for q in (r.queues or {}).values()))
    marked = False
    head = headline(
        "Longest queue",
        {run.transport: float(stored.rows("queues", run)["bytes"].max()) for run in runs},
        lambda size: f"{size / 1e3:,.0f} kB",
        "Queues on the last hop",
    )
    fig, shown = run_panels(stored, runs, head, height=1.45 + 0.95 * len(runs), y="queue [kB]")
    for ax, run in shown:
        limits = stored.summary.fabrics[run.fabric]
        samples = stored.rows("queues", run)
        begin = stored.begin_ns(run) or 0
        for port, queue in (run.queues or {}).items():
            port_samples = samples[samples["port"] == port]
            step = max(1, len(port_samples) // SAMPLES["queues"])
            # Each point is the largest of several samples, so that no peak falls between two
            # points.
            peaks = port_samples["bytes"].rolling(step, min_periods=1).max().iloc[step - 1 :: step]
            times = port_samples["t_ns"].iloc[step - 1 :: step]
            ax.plot(
                (times - begin) / 1e3,
                peaks / 1e3,
                color=FLOWS[groups.index(queue.group)],
                linewidth=0.6,
            )
        # RoCE is marked on every hop
        if limits.ecn_bytes is not None and (limits.last_hop_ecn or run.kind == "roce"):
            low, high = limits.ecn_bytes
            ax.axhspan(low / 1e3, high / 1e3, color=MARKING[1], alpha=MARKING[2], linewidth=0)
            marked = True
        if limits.trim_last_hop_bytes is not None and run.kind == "mrc":
            ax.axhline(
                limits.trim_last_hop_bytes / 1e3,
                color="black",
                linewidth=0.8,
                linestyle="--",
                zorder=4,
            )
        ax.axhline(limits.buffer_bytes / 1e3, color="black", linewidth=0.8, linestyle=":", zorder=4)
        ax.set_ylim(0, limits.buffer_bytes / 1e3 * 1.08)
        ax.set_xlim(left=0)
    counts = Counter(q.group for q in (runs[0].queues or {}).values())
    handles = [
        line(
            f"last hop of the {spell(g)}, {counts[g]} plane{'s' * (counts[g] > 1)}",
            FLOWS[i],
            "-",
            1.0,
        )
        for i, g in enumerate(groups)
    ]
    handles += [
        line("trimming threshold", "black", "--"),
        line("buffer", "black", ":"),
        *([area(*MARKING)] if marked else []),
    ]
    return legend(fig, handles)


@per_seed(lambda stored, run: run.flows and len(stored.rows("cwnd", run)))
def windows(stored: Stored, runs: list[Run]) -> Any:
    colours: dict[str, str] = {}  # of groups, and of flows without a group
    subject = "Congestion windows"
    fig, shown = run_panels(stored, runs, subject, y="window [host's BDP]", sharey=True)
    most, least = 0.0, dict[str, float | None]()
    for ax, run in shown:
        fabric = stored.fabric(run)
        bdp = stored.summary.fabrics[run.fabric].plane_bdp_bytes * fabric.planes
        begin = stored.begin_ns(run) or 0
        rows = stored.rows("cwnd", run).reset_index(drop=True)
        # DCQCN controls rates and its window is only a distant bound: the figure shows the bytes
        # sent at this rate in a base RTT.
        rate = rows["rate_bps"].replace(0, fabric.nic_rate)  # 0: only the port limits the rate
        window = (rate * run.base_rtt_ns / 8e9).fillna(rows["cwnd_bytes"]).to_numpy(float) / bdp
        least[run.transport] = float(window.min())
        times = (rows["t_ns"].to_numpy() - begin) / 1e3
        pairs = rows.groupby(["flow", "qpn"], sort=True)
        # more have no colour of their own, and no place in a legend
        one = rows["flow"].nunique() > len(FLOWS)
        curves: dict[str, list[Any]] = {}
        for (flow, _), samples in pairs:
            group = run.flows[str(flow)].group
            group = group if group != "flows" else f"{len(run.flows)} flows" if one else str(flow)
            places = samples.index[:: max(1, len(samples) // SAMPLES["windows"])]
            curves.setdefault(group, []).extend(
                ([times[places], window[places]], [[np.nan], [np.nan]])
            )
            most = max(most, float(window[places].max()))
        for group, parts in curves.items():
            colour = colours.setdefault(group, FLOWS[len(colours) % len(FLOWS)])
            ax.plot(*np.concatenate(parts, axis=1), color=colour, linewidth=0.7)
        ax.axhline(1, color="black", linewidth=0.7, linestyle=":")
        by_rate = ", rate × base RTT" if run.kind == "roce" else ""
        ax.set_title(f"{run.transport}, {len(pairs)} QPs{by_rate}: 1 = {bdp / 1e3:.0f} kB")
        ax.set_xlim(left=0)
    ax.set_ylim(0, max(1.1, most * 1.05))
    subject += stored.seed_words(runs[0].seed)
    head = headline("Smallest window, in BDP", least, lambda size: f"{size:.2f}", subject)
    fig.suptitle(head, x=0.01, ha="left")
    handles = [line(spell(group), colour, "-", 1.0) for group, colour in colours.items()]
    return legend(fig, [*handles, line("the host's BDP over all planes", "black", ":", 0.7)])
