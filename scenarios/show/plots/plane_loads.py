"""Draws how evenly hosts spread their payload over planes: the share of each plane, for all hosts together and from least to most
loaded."""

from __future__ import annotations

from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import GREY, beside, legend, line, look_of, mark_planes, panels, per_placement


def loads(stored: Stored, runs: list[dict[str, Any]], transport: str) -> list[tuple[float, float, float]]:
    """Return the payload sent per plane, in equal shares of a plane: (all hosts, least loaded host, most loaded host); [] if nothing was
    sent."""
    own_runs = [r for r in runs if r["transport"] == transport]
    planes = stored.fabric(own_runs[0]).planes
    frames = [stored.rows("goodput", r) for r in own_runs]
    per_host = [f.pivot_table(index="host", columns="plane", values="tx_bytes", aggfunc="sum", fill_value=0) for f in frames if len(f)]
    tables = [t.reindex(columns=range(planes), fill_value=0) for t in per_host]
    tables = [t[t.sum(axis=1) > 0] for t in tables]
    total = sum(float(t.to_numpy().sum()) for t in tables)
    if not total:
        return []
    rows = []
    for plane in range(planes):
        hosts = [share for t in tables for share in t[plane] / t.sum(axis=1) * planes]
        rows.append((sum(float(t[plane].sum()) for t in tables) / total * planes, min(hosts), max(hosts)))
    return rows


@per_placement("plane-loads", lambda stored, run: stored.fabric(run).planes > 1)
def draw(stored: Stored, runs: list[dict[str, Any]]) -> Any:
    by_transport = {t: rows for t in dict.fromkeys(r["transport"] for r in runs) if (rows := loads(stored, runs, t))}
    if not by_transport:
        return None
    fig, (ax,) = panels(1, 2.25 + 0.16 * ((len(by_transport) + 1) // 2))
    handles = []
    for k, (transport, rows) in enumerate(by_transport.items()):
        colour, marker = look_of(stored, transport)
        at = [plane + beside(k, len(by_transport)) for plane in range(len(rows))]
        for x, (_, low, high) in zip(at, rows, strict=True):
            ax.plot([x, x], [low, high], color=colour, linewidth=2.2, alpha=0.4, solid_capstyle="butt", zorder=2)
        ax.plot(at, [mean for mean, _, _ in rows], linestyle="none", marker=marker, markersize=4, color=colour, zorder=3, clip_on=False)
        handles.append(line(f"{transport}, n = {sum(r['transport'] == transport for r in runs)}", colour, marker=marker))
    ax.axhline(1, color="black", linewidth=0.8, linestyle=":", zorder=1)
    planes = max(map(len, by_transport.values()))
    mark_planes(ax, planes, axis="x", color="#DDDDDD", linewidth=0.5, zorder=0)
    top = max(high for rows in by_transport.values() for _, _, high in rows)
    ax.set(ylim=(0, max(1.3, 1.08 * top)), xlim=(-0.5, planes - 0.5), ylabel="payload sent [fair shares]")
    ax.set_title(f"Load of the planes, {runs[0]['placement']} ranks{stored.settings_words}")
    legend(fig, [*handles, line("least to most loaded host", GREY, "-", 2.2, alpha=0.5)])
    return fig
