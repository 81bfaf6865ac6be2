"""Step time over cluster size, a line per design: ``mrcbed fabric fluid --plot``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scenarios.show.plots.style import figure
from testbed.fluid.study import Steps

LOOKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"), ("#332288", "P"))


def draw(rows: Sequence[Steps], dead_share: float, file: Path) -> None:
    """Draw how much longer than a healthy step one takes with dead links: the median, and a bar up to the longest of the draws."""
    designs = list(dict.fromkeys(row.design for row in rows))
    with figure(1, 2.6) as (fig, axes):
        for design, (colour, marker) in zip(designs, LOOKS * len(designs), strict=False):
            line = [row for row in rows if row.design == design]
            typical = [100 * (row.median_ns / row.healthy_ns - 1) for row in line]
            above = [100 * (row.longest_ns - row.median_ns) / row.healthy_ns for row in line]
            x, bars = [row.nics for row in line], [[0] * len(line), above]
            axes.errorbar(x, typical, yerr=bars, color=colour, marker=marker, ms=4, lw=1, capsize=2, label=design)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1024:.3g}k")
        axes.set(xlabel="NICs", ylabel="step longer than healthy by [%]")
        axes.set_ylim(bottom=0)
        axes.set_title(f"{100 * dead_share:g} % of the T0-T1 links dead (computed)")
        axes.legend(frameon=False, fontsize=7)
        fig.savefig(file)
