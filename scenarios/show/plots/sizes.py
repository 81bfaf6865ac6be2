"""Switches, optics and power over the number of NICs, a line per design. For ``mrcbed fabric size --plot``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from scenarios.show.plots.style import figure
from topologies import FabricError, budget
from topologies.sizing import Size

POINTS = 49
LOOKS = (("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"))


def draw(design: Callable[[int, int], Size], planes: Sequence[int], parts: budget.Parts, nics: int, file: Path) -> None:
    """Draw from a 64th of ``nics`` to four times as many. ``design`` makes the design for a number of NICs and planes. Raises
    :class:`FabricError`."""
    counts = sorted({max(1, round(nics / 64 * 2 ** (8 * i / (POINTS - 1)))) for i in range(POINTS)})
    with figure(3, 5.2, x="NICs") as (fig, axes):
        for number, split in enumerate(planes):
            sizes = []
            for count in counts:
                try:
                    sizes.append(design(count, split))
                except FabricError:  # more than six tiers hold
                    break
            colour, line = LOOKS[number % len(LOOKS)]
            power = [budget.watts(size, parts) / 1e6 for size in sizes]
            columns = ([size.switches / 1e3 for size in sizes], [size.optics / 1e3 for size in sizes], power)
            for ax, values in zip(axes, columns, strict=True):
                ax.plot(counts[: len(values)], values, line, color=colour, label=f"{split} {'plane' if split == 1 else 'planes'}")
        for ax, label in zip(axes, ("switches\n[thousands]", "optics\n[thousands]", "power [MW]"), strict=True):
            ax.set_xscale("log", base=2)
            ax.set(yscale="log", ylabel=label)
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            ax.axvline(nics, color="#999999", linewidth=0.7)
        axes[-1].xaxis.set_major_formatter(lambda value, _: f"{value / 1000:.3g}k")
        axes[0].legend(loc="upper left", frameon=False, fontsize=7)
        axes[0].set_title("A step up is one more tier")
        fig.savefig(file)
