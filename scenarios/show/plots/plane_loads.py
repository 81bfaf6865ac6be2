"""Draws how evenly hosts spread their payload over planes: the share of each plane, for all hosts together and from least to most
loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import colour_and_marker, figure, save


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per placement, with the transports on fabrics of several planes; the seeds are pooled."""
    files: list[Path] = []
    for placement, _ in stored.groups():
        runs = [r for r in stored.ordered(placement) if stored.fabric(r).planes > 1]
        by_transport = {t: rows for t in dict.fromkeys(r["transport"] for r in runs) if (rows := loads(stored, runs, t))}
        if by_transport:
            files += _figure(stored, directory, runs, by_transport, placement)
    return files


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


def _figure(stored: Stored, directory: Path, runs: list[dict[str, Any]], by_transport: dict[str, Any], placement: str) -> list[Path]:
    from matplotlib.lines import Line2D

    planes = max(map(len, by_transport.values()))
    width = 0.8 / len(by_transport)
    with figure(1, 2.25 + 0.16 * ((len(by_transport) + 1) // 2)) as (fig, ax):
        handles = []
        for k, (transport, rows) in enumerate(by_transport.items()):
            colour, marker = colour_and_marker(transport)
            at = [plane + (k - (len(by_transport) - 1) / 2) * width for plane in range(len(rows))]
            for x, (_, low, high) in zip(at, rows, strict=True):
                ax.plot([x, x], [low, high], color=colour, linewidth=2.2, alpha=0.4, solid_capstyle="butt", zorder=2)
            ax.plot(at, [mean for mean, _, _ in rows], linestyle="none", marker=marker, markersize=4, color=colour, zorder=3, clip_on=False)
            n = sum(r["transport"] == transport for r in runs)
            handles.append(Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=4, label=f"{transport}, n = {n}"))
        handles.append(Line2D([], [], color="#666666", linewidth=2.2, alpha=0.5, label="least to most loaded host"))
        ax.axhline(1, color="black", linewidth=0.8, linestyle=":", zorder=1)
        top = max(high for rows in by_transport.values() for _, _, high in rows)
        ax.set_ylim(0, max(1.3, 1.08 * top))
        ax.set_xlim(-0.5, planes - 0.5)
        for edge in range(1, planes):
            ax.axvline(edge - 0.5, color="#DDDDDD", linewidth=0.5, zorder=0)
        ax.set_xticks(range(planes), [f"plane {p}" if planes <= 4 else str(p) for p in range(planes)])
        ax.set_xlabel("" if planes <= 4 else "plane")
        ax.tick_params(axis="x", length=0)
        ax.set_ylabel("payload sent [fair shares]")
        ax.set_title(f"Load of the planes, {placement} ranks{stored.settings_words}", pad=6)
        fig.legend(handles=handles, loc="outside lower left", ncols=2, handlelength=1.2, columnspacing=1.2)
        return save(fig, directory, f"plane-loads-{placement}{stored.tag}", runs)
