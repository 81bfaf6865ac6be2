"""Draws theory and both worlds relative to the simulated one, with the bounds around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios.sets.validation.agreement import THEORY
from scenarios.sets.validation.cases import SLOWER, SLOWER_BY
from scenarios.show.plots import style
from testbed.world import EMULATED, SIMULATED

NAME = "validation"
LOOKS = {
    THEORY: ("#000000", "|"),
    SIMULATED: ("#0072B2", "o"),
    EMULATED: ("#D55E00", "s"),
    SLOWER: ("#CC79A7", "^"),
}
ROW, EDGES = 0.17, 1.1  # height of a row, and of the margins, in inches


def points(conclusions: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, dict[str, float]]]:
    """Return (label, bound, column -> its figure relative to simulated, theory or emulated, the
    first available), for times and rates.

    Counts are dropped: the ratio of few packets says nothing.
    """
    rows = []
    for case in conclusions:
        for row in case["rows"]:
            base = next((row[name] for name in (SIMULATED, THEORY, EMULATED) if row[name]), None)
            if row["unit"] == "%" or not base:
                continue
            prefix = case["id"] + (f" {row['where'].rpartition('= ')[2]}" if row["where"] else "")
            ratios = {name: row[name] / base for name in LOOKS if row.get(name) is not None}
            rows.append((f"{prefix}: {row['title']}", float(row["bound"]), ratios))
    return rows


def fidelity_line(conclusions: Sequence[Mapping[str, Any]]) -> str:
    worlds = [world for case in conclusions for world in case["worlds"].values()]
    total, doubted = (
        sum(world["runs"] for world in worlds),
        sum(world["not_trustworthy"] for world in worlds),
    )
    return (
        f"fidelity: {doubted} of {total} runs not trustworthy"
        if doubted
        else f"fidelity: trustworthy ({total} runs)"
    )


def draw(conclusions: Sequence[Mapping[str, Any]], directory: Path) -> list[Path]:
    rows = points(conclusions)
    if not rows:
        for path in directory.glob(f"{NAME}.[ps][nv]g"):
            path.unlink()
        return []
    with style.figure(1, EDGES + ROW * len(rows)) as (fig, ax):
        for y, (_, bound, values) in enumerate(rows):
            ax.barh(
                y,
                2 * bound,
                0.8,
                left=1 - bound,
                color=style.FAULT,
                alpha=0.35,
                linewidth=0,
                zorder=0,
            )
            for name, value in values.items():
                colour, marker = LOOKS[name]
                ax.plot(
                    value,
                    y,
                    marker,
                    color=colour,
                    markersize=7 if marker == "|" else 4,
                    fillstyle="none" if marker == "o" else "full",
                )
        ax.axvline(1, color=LOOKS[SIMULATED][0], linewidth=0.6, zorder=1)
        ax.set_yticks(range(len(rows)), [label for label, _, _ in rows])
        ax.set_ylim(len(rows) - 0.4, -0.6)
        # At the figure's middle: the axes begin far to the right, behind the names, and a long line
        # would leave the page.
        fig.supxlabel(
            "relative to the simulated figure; shaded: within the bound\n"
            f"{fidelity_line(conclusions)}",
            fontsize="small",
        )
        names = {SLOWER: f"{SLOWER_BY} x slower"}
        marks = [
            ax.plot([], [], marker, color=colour, label=names.get(name, name))[0]
            for name, (colour, marker) in LOOKS.items()
        ]
        fig.legend(handles=marks, loc="outside upper center", ncols=3, columnspacing=1.2)
        return style.save(fig, directory, NAME)
