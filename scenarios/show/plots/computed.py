"""Draws switches, optics and power, or step time with dead links, over the number of NICs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from scenarios.show.plots.style import FLOWS, figure
from testbed.fluid.study import Steps
from topologies import FabricError, budget
from topologies.sizing import Size

POINTS = 49
LOOKS = tuple(zip(FLOWS, ("-", "--", "-.", ":", "-", "--"), "os^DvP", strict=True))


def draw_sizes(
    design: Callable[[int, int], Size],
    planes: Sequence[int],
    parts: budget.Parts,
    nics: int,
    file: Path,
) -> None:
    """Draw from a 64th of ``nics`` to four times as many. ``design`` takes numbers of NICs and
    planes. Raises :class:`FabricError`."""
    counts = sorted({max(1, round(nics / 64 * 2 ** (8 * i / (POINTS - 1)))) for i in range(POINTS)})
    with figure(3, 5.2, x="NICs") as (fig, axes):
        for number, split in enumerate(planes):
            sizes = []
            for count in counts:
                try:
                    sizes.append(design(count, split))
                except FabricError:  # more than six tiers hold
                    break
            colour, line, _ = LOOKS[number % len(LOOKS)]
            power = [budget.watts(size, parts) / 1e6 for size in sizes]
            columns = (
                [size.switches / 1e3 for size in sizes],
                [size.optics / 1e3 for size in sizes],
                power,
            )
            for ax, values in zip(axes, columns, strict=True):
                ax.plot(
                    counts[: len(values)],
                    values,
                    line,
                    color=colour,
                    label=f"{split} {'plane' if split == 1 else 'planes'}",
                )
        for ax, label in zip(
            axes, ("switches\n[thousands]", "optics\n[thousands]", "power [MW]"), strict=True
        ):
            ax.set_xscale("log", base=2)
            ax.set(yscale="log", ylabel=label)
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            ax.axvline(nics, color="#999999", linewidth=0.7)
        axes[-1].xaxis.set_major_formatter(lambda value, _: f"{value / 1000:.3g}k")
        axes[0].legend(loc="upper left", frameon=False, fontsize=7)
        axes[0].set_title("A step up is one more tier")
        fig.savefig(file)


def draw_steps(rows: Sequence[Steps], dead_share: float, file: Path) -> None:
    designs = list(dict.fromkeys(row.design for row in rows))
    with figure(1, 2.6) as (fig, axes):
        for design, (colour, _, marker) in zip(designs, LOOKS * len(designs), strict=False):
            line = [row for row in rows if row.design == design]
            typical = [100 * (row.median_ns / row.healthy_ns - 1) for row in line]
            above = [100 * (row.longest_ns - row.median_ns) / row.healthy_ns for row in line]
            x, bars = [row.nics for row in line], [[0] * len(line), above]
            axes.errorbar(
                x,
                typical,
                yerr=bars,
                color=colour,
                marker=marker,
                ms=4,
                lw=1,
                capsize=2,
                label=design,
            )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1024:.3g}k")
        axes.set(xlabel="NICs", ylabel="step longer than healthy by [%]")
        axes.set_ylim(bottom=0)
        axes.set_title(f"{100 * dead_share:g} % of the T0-T1 links dead (computed)")
        axes.legend(frameon=False, fontsize=7)
        fig.savefig(file)
