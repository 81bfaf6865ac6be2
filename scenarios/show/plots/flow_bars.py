"""Goodput of each flow of a permutation, with a bar per transport: where a hash puts two flows on one path, the bars are short."""

from __future__ import annotations

from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import area, beside, legend, look_of, panels, per_seed


def _shares(run: dict[str, Any]) -> dict[str, float]:
    """Return flow -> % of line."""
    return {name: 100 * flow["share"] for name, flow in run.get("flows", {}).items() if flow["share"] is not None}


@per_seed("permutation", lambda stored, run: run["workload"] == "permutation" and _shares(run))
def draw(stored: Stored, runs: list[dict[str, Any]]) -> Any:
    names = list(runs[0]["flows"])
    fig, (ax,) = panels(1, 2.35 + 0.15 * len(runs), x="flow, from host → to host")
    handles = []
    for k, run in enumerate(runs):
        colour, _ = look_of(stored, run["transport"])
        shares = _shares(run)
        at = [i + beside(k, len(runs), 0.84) for i, n in enumerate(names) if n in shares]
        ax.bar(at, [shares[n] for n in names if n in shares], 0.77 / len(runs), color=colour, linewidth=0, zorder=2)
        group = run["groups"]["permutation"]
        text = f"least {100 * group['min_share']:.0f} %, mean {100 * group['of_line']:.0f} %, Jain {group['jain']:.3f}"
        handles.append(area(f"{run['transport']} on {run['fabric']}: {text}", colour))
    ax.axhline(100, color="black", linewidth=0.7, linestyle=":", zorder=1)
    ax.grid(axis="y", zorder=0)
    ax.set_axisbelow(True)
    arrows = [n.replace("-", "→").replace("h", "") for n in names]
    ax.set_xticks(range(len(names)), arrows, rotation=90 if len(names) > 8 else 0)
    ax.tick_params(axis="x", length=0)
    ax.set(xlim=(-0.6, len(names) - 0.4), ylim=(0, 106), yticks=[0, 25, 50, 75, 100], ylabel="goodput, % of line")
    ax.set_title(f"Goodput of {len(names)} flows, a permutation{stored.seed_words(runs[0]['seed'])}")
    legend(fig, handles, 1)
    return fig
