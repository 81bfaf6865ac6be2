"""Draws how evenly hosts spread payload over planes, also while some port is down."""

from __future__ import annotations

from typing import Any

from scenarios.figures.stored import Stored, by_transport
from scenarios.show.plots.style import (
    FLOWS,
    GREY,
    beside,
    headline,
    legend,
    line,
    look_of,
    mark_planes,
    note,
    panels,
    per_placement,
    per_run,
)
from testbed.results.summary import PlaneLoad, Run
from testbed.results.values import known

LIMIT = 1.0  # deviation from an equal share that has a line, percent [ours]
FEWEST = 1000
"""A plane with fewer packets is pale: too few to resolve 1 %."""
MOST = 4  # senders shown


def loads(stored: Stored, runs: list[Run]) -> list[tuple[float, float, float]]:
    """Return payload per plane, in equal shares: (all hosts, least loaded host, most loaded
    host)."""
    planes = stored.fabric(runs[0]).planes
    frames = [stored.rows("goodput", r) for r in runs]
    per_host = [
        f.pivot_table(index="host", columns="plane", values="tx_bytes", aggfunc="sum", fill_value=0)
        for f in frames
        if len(f)
    ]
    tables = [t.reindex(columns=range(planes), fill_value=0) for t in per_host]
    tables = [t[t.sum(axis=1) > 0] for t in tables]
    total = sum(float(t.to_numpy().sum()) for t in tables)
    if not total:
        return []
    rows = []
    for plane in range(planes):
        hosts = [share for t in tables for share in t[plane] / t.sum(axis=1) * planes]
        rows.append(
            (sum(float(t[plane].sum()) for t in tables) / total * planes, min(hosts), max(hosts))
        )
    return rows


@per_placement(lambda stored, run: stored.fabric(run).planes > 1)
def plane_loads(stored: Stored, runs: list[Run]) -> Any:
    shares = {
        (transport, len(own)): rows
        for transport, own in by_transport(runs).items()
        if (rows := loads(stored, own))
    }
    if not shares:
        return None
    fig, (ax,) = panels(1, 2.25 + 0.16 * ((len(shares) + 1) // 2))
    handles = []
    for k, ((transport, n), rows) in enumerate(shares.items()):
        colour, marker = look_of(stored, transport)
        at = [plane + beside(k, len(shares)) for plane in range(len(rows))]
        for x, (_, low, high) in zip(at, rows, strict=True):
            ax.plot(
                [x, x],
                [low, high],
                color=colour,
                linewidth=2.2,
                alpha=0.4,
                solid_capstyle="butt",
                zorder=2,
            )
        ax.plot(
            at,
            [mean for mean, _, _ in rows],
            linestyle="none",
            marker=marker,
            markersize=4,
            color=colour,
            zorder=3,
            clip_on=False,
        )
        handles.append(line(f"{transport}, n = {n}", colour, marker=marker))
    ax.axhline(1, color="black", linewidth=0.8, linestyle=":", zorder=1)
    planes = max(map(len, shares.values()))
    mark_planes(ax, planes, axis="x", color="#DDDDDD", linewidth=0.5, zorder=0)
    top = max(high for rows in shares.values() for _, _, high in rows)
    ax.set(
        ylim=(0, max(1.3, 1.08 * top)),
        xlim=(-0.5, planes - 0.5),
        ylabel="payload sent [fair shares]",
    )
    ax.set_title(
        headline(
            "Most loaded plane, in fair shares",
            {name: max(mean for mean, _, _ in rows) for (name, _), rows in shares.items()},
            lambda share: f"{share:.2f}",
            f"Load of the planes, {runs[0].placement} ranks{stored.settings_words}",
        )
    )
    return legend(fig, [*handles, line("least to most loaded host", GREY, "-", 2.2, alpha=0.5)])


def deviations(row: PlaneLoad) -> list[tuple[int, float, bool]]:
    """Return (plane, deviation from an equal share in %, whether packets suffice)."""
    loads = enumerate(zip(row.packets, row.equal, strict=True))
    return [
        (plane, 100 * (sent / fair - 1), fair >= FEWEST)
        for plane, (sent, fair) in loads
        if fair > 0
    ]


@per_run(lambda stored, run: known(run.plane_deviation) is not None)
def plane_shares(stored: Stored, run: Run) -> Any:
    rows = [row for row in run.plane_loads or () if row.deviation is not None][:MOST]
    planes = max(len(row.equal) for row in rows)
    fig, (ax,) = panels(1, 2.0 + 0.17 * len(rows))
    handles, most = [], 1.5 * LIMIT
    for k, row in enumerate(rows):
        style: dict[str, Any] = {"color": FLOWS[k % len(FLOWS)], "marker": "os^D"[k % 4]}
        for plane, deviation, enough in deviations(row):
            # A stem and a dot, because a bar of height zero, the best result, would be invisible.
            at = plane + beside(k, len(rows))
            ax.plot(
                [at, at],
                [0, deviation],
                **style,
                markevery=[1],
                markersize=4,
                linewidth=1.2,
                alpha=1.0 if enough else 0.35,
                zorder=2,
            )
            most = max(most, 1.15 * abs(deviation)) if enough else most
        handles.append(
            line(
                f"{row.sender} sends {sum(row.packets):,.0f} packets; ports of {row.host} change",
                **style,
            )
        )
    ax.axhline(0, color="black", linewidth=0.7)
    for side in (-LIMIT, LIMIT):
        ax.axhline(side, color="black", linewidth=0.7, linestyle=":")
        note(
            ax, f"{side:+g} %", (1.0, side), (-2, 2), xycoords=("axes fraction", "data"), ha="right"
        )
    mark_planes(ax, planes, axis="x", linewidth=0)
    ax.set(xlim=(-0.6, planes - 0.4), ylim=(-most, most), ylabel="packets, % off a fair share")
    off = 100 * (known(run.plane_deviation) or 0)
    ax.set_title(
        f"Planes that are up: {off:.2g} % off a fair share\n"
        f"{run.transport} on {run.fabric}, seed {run.seed}, while a NIC port is down"
    )
    return legend(fig, handles, 1)
