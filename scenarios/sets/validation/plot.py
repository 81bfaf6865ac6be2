"""One drawing of a validation: every time and rate of theory and of both worlds, over the simulated one's, with the bounds around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios.sets.validation.agreement import THEORY
from scenarios.show.plots import style
from testbed.simulated import EMULATED, SIMULATED

NAME = "validation"
LOOKS = {THEORY: ("#000000", "|"), SIMULATED: ("#0072B2", "o"), EMULATED: ("#D55E00", "s")}
"""Okabe and Ito's; the markers differ as well."""
ROW, EDGES = 0.17, 0.9
"""Inches of height: a row's, and what is around them."""


def points(made: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, dict[str, float]]]:
    """(label, bound, column -> its figure over the first there is of simulated, theory, emulated): times and rates, in order.

    Counts are left out: of few packets their ratio says nothing.
    """
    out = []
    for case in made:
        for row in case["rows"]:
            base = next((row[name] for name in (SIMULATED, THEORY, EMULATED) if row[name]), None)
            if row["unit"] == "%" or not base:
                continue
            at = case["id"] + (f" {row['where'].rpartition('= ')[2]}" if row["where"] else "")
            out.append((f"{at}: {row['title']}", float(row["bound"]), {name: row[name] / base for name in LOOKS if row[name] is not None}))
    return out


def worth(made: Sequence[Mapping[str, Any]]) -> str:
    """How far the runs behind the figures can be trusted."""
    told = [world for case in made for world in case["worlds"].values()]
    total, doubted = sum(w["runs"] for w in told), sum(w["not_trustworthy"] for w in told)
    return f"fidelity: {doubted} of {total} runs not trustworthy" if doubted else f"fidelity: trustworthy ({total} runs)"


def draw(made: Sequence[Mapping[str, Any]], directory: Path) -> list[Path]:
    """``validation.png`` and ``.svg``; nothing, and no old ones, without a figure."""
    found = points(made)
    if not found:
        for path in directory.glob(f"{NAME}.[ps][nv]g"):
            path.unlink()
        return []
    with style.figure(1, EDGES + ROW * len(found)) as (fig, ax):
        for y, (_, bound, values) in enumerate(found):
            ax.barh(y, 2 * bound, 0.8, left=1 - bound, color=style.FAULT, alpha=0.35, linewidth=0, zorder=0)
            for name, value in values.items():
                colour, marker = LOOKS[name]
                ax.plot(value, y, marker, color=colour, markersize=7 if marker == "|" else 4, fillstyle="none" if marker == "o" else "full")
        ax.axvline(1, color=LOOKS[SIMULATED][0], linewidth=0.6, zorder=1)
        ax.set_yticks(range(len(found)), [label for label, _, _ in found])
        ax.set_ylim(len(found) - 0.4, -0.6)
        # At the figure's middle: the axes begin far to the right, behind the names, and a long line would leave the page.
        fig.supxlabel(f"relative to the simulated figure; shaded: within the bound\n{worth(made)}", fontsize="small")
        marks = [ax.plot([], [], marker, color=colour, label=name)[0] for name, (colour, marker) in LOOKS.items()]
        fig.legend(handles=marks, loc="outside upper center", ncols=3)
        return style.save(fig, directory, NAME)
