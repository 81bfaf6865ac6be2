"""Goodput of each flow of a permutation, with a bar per transport: where a hash puts two flows on one path, the bars are short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import colour_and_marker, figure, save


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per placement and seed."""
    files: list[Path] = []
    for placement, seed, runs in stored.per_seed(lambda r: r["workload"] == "permutation" and _shares(r)):
        files += _figure(directory, runs, f"permutation-{placement}-s{seed}{stored.tag}", stored.seed_words(seed))
    return files


def _shares(run: dict[str, Any]) -> dict[str, float]:
    """Return flow -> % of line."""
    return {name: 100 * flow["share"] for name, flow in run.get("flows", {}).items() if flow["share"] is not None}


def _figure(directory: Path, runs: list[dict[str, Any]], name: str, seed: str) -> list[Path]:
    names = list(runs[0]["flows"])
    width = 0.84 / len(runs)
    with figure(1, 2.35 + 0.15 * len(runs)) as (fig, ax):
        handles = []
        for k, run in enumerate(runs):
            colour, _ = colour_and_marker(run["transport"])
            shares = _shares(run)
            at = [i + (k - (len(runs) - 1) / 2) * width for i, n in enumerate(names) if n in shares]
            bars = ax.bar(at, [shares[n] for n in names if n in shares], width * 0.92, color=colour, linewidth=0, zorder=2)
            group = run["groups"]["permutation"]
            text = f"least {100 * group['min_share']:.0f} %, mean {100 * group['of_line']:.0f} %, Jain {group['jain']:.3f}"
            handles.append((bars[0], f"{run['transport']} on {run['fabric']}: {text}"))
        ax.axhline(100, color="black", linewidth=0.7, linestyle=":", zorder=1)
        for part in (25, 50, 75):
            ax.axhline(part, color="#DDDDDD", linewidth=0.4, zorder=0)
        arrows = [n.replace("-", "→").replace("h", "") for n in names]
        ax.set_xticks(range(len(names)), arrows, rotation=90 if len(names) > 8 else 0)
        ax.tick_params(axis="x", length=0)
        ax.set_xlim(-0.6, len(names) - 0.4)
        ax.set_ylim(0, 106)
        ax.set_yticks([0, 25, 50, 75, 100])
        ax.set_ylabel("goodput, % of line")
        ax.set_xlabel("flow, from host → to host")
        ax.set_title(f"Goodput of {len(names)} flows, a permutation{seed}", pad=6)
        fig.legend([h for h, _ in handles], [t for _, t in handles], loc="outside lower left", handlelength=1.2)
        return save(fig, directory, name, runs)
