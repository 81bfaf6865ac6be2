"""Bytes that T0s send over each cable to a T1, a panel per transport: a spray spreads them, a hash piles them up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import colour_and_marker, figure, save

_UPLINK = re.compile(r"p(\d+)-t0-(\d+)-u(\d+)")
MOST = 3.0
"""Top of the colour scale, in means of a panel."""


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per placement and seed with counters of uplinks."""
    files: list[Path] = []
    for placement, seed, runs in stored.per_seed(lambda r: uplinks(stored, r) is not None):
        which = f"{placement} ranks{stored.seed_words(seed)}"
        files += _figure(stored, directory, runs, f"path-heat-{placement}-s{seed}{stored.tag}", which)
    return files


def uplinks(stored: Stored, run: dict[str, Any]) -> Any:
    """Return bytes admitted per T0 (row) and uplink (column, plane by plane); None without such counters, or if all are 0."""
    rows, fabric = stored.rows("counters", run), stored.fabric(run)
    if not len(rows) or "admitted_bytes" not in rows:
        return None
    totals = np.zeros((fabric.t0_per_plane, fabric.planes * fabric.t1_per_plane))
    for port, n in zip(rows["port"], rows["admitted_bytes"], strict=True):
        if match := _UPLINK.fullmatch(port):
            plane, t0, t1 = map(int, match.groups())
            totals[t0, plane * fabric.t1_per_plane + t1 % fabric.t1_per_plane] += float(n)  # uplinks count within a site
    return totals if totals.sum() > 0 else None


def _figure(stored: Stored, directory: Path, runs: list[dict[str, Any]], name: str, which: str) -> list[Path]:
    rows = [0.14 * min(8, stored.fabric(r).t0_per_plane) for r in runs]
    with figure(len(runs), 1.0 + sum(rows) + 0.36 * len(runs), squeeze=False, gridspec_kw={"height_ratios": rows}) as (fig, axes):
        for ax, run in zip(axes[:, 0], runs, strict=True):
            fabric, sent = stored.fabric(run), uplinks(stored, run)
            heat = sent / sent.mean()
            picture = ax.imshow(heat, aspect="auto", interpolation="nearest", cmap="cividis", vmin=0, vmax=MOST)
            per_plane = fabric.t1_per_plane
            for plane in range(1, fabric.planes):
                ax.axvline(plane * per_plane - 0.5, color="white", linewidth=1.5)
            ax.set_xticks(
                [p * per_plane + (per_plane - 1) / 2 for p in range(fabric.planes)],
                [f"plane {p}" if fabric.planes <= 4 else str(p) for p in range(fabric.planes)],
                fontsize=6.5,
            )
            ax.set_yticks([0, fabric.t0_per_plane - 1] if fabric.t0_per_plane > 1 else [0])
            ax.set_yticklabels([f"T0 {i}" for i in ax.get_yticks()], fontsize=6)
            ax.tick_params(length=0, pad=1.5)
            for side in ax.spines.values():
                side.set_visible(False)
            spread = f"{heat.min():.2f} to {heat.max():.2f} × mean"
            ax.set_title(
                f"{run['transport']} on {run['fabric']}: {spread}", color=colour_and_marker(run["transport"])[0], pad=2.5, fontsize=7
            )
        bar = fig.colorbar(picture, ax=list(axes[:, 0]), location="bottom", shrink=0.7, aspect=38, pad=0.02, extend="max")
        bar.set_label("bytes that a T0 sends over a cable [mean of all cables]", fontsize=6.5)
        bar.ax.tick_params(labelsize=6.5)
        fig.suptitle(f"Load of the T0s' uplinks, {which}", fontsize=8, fontweight="bold", x=0.01, ha="left")
        return save(fig, directory, name, runs)
