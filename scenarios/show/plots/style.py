"""The style of all figures: fixed colour and marker per transport, column width, Agg. Knows nothing about how data was produced."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scenarios.show.plots.worth import worth

WIDTH = 3.6
"""Width of a figure, inches: one column of a paper."""
LATE = 0.7
"""A fault that begins after this share of a figure has its name to the left of its end."""
AXES_WIDTH = 0.85
"""The share of a figure's width that its axes have, about."""
LETTER = 3.3
"""Width of a letter of a fault's name, points, about."""
STRIP = 0.15
"""Height, inches, of the line below every figure on the fidelity of its runs."""
_FIXED = {
    "mrc": ("#0072B2", "o"),
    "mrc-1p": ("#56B4E9", "^"),
    "mrc-no-trim": ("#56B4E9", "P"),
    "mrc-no-skip": ("#332288", "X"),
    "mrc-oblivious": ("#117733", "D"),
    "mrc-one-ev": ("#999933", "h"),
    "mrc-no-order": ("#88CCEE", "p"),
    "mrc-hint": ("#009E73", "*"),
    "mrc-last-hop-ecn": ("#009E73", "D"),
    "mrc-4": ("#009E73", "v"),
    "mrc-16": ("#332288", "P"),
    "mrc-8": ("#56B4E9", "s"),
    "mrc-strict": ("#332288", "v"),
    "mrc-weighted": ("#009E73", "s"),
    "mrc-mapped": ("#E69F00", "D"),
    "mrc-mapped-1ms": ("#CC79A7", "h"),
    "alone": ("#0072B2", "o"),
    "hint": ("#009E73", "*"),
    "denylist": ("#E69F00", "D"),
    "mrc-no-penalty": ("#88CCEE", "X"),
    "mrc-ecmp": ("#009E73", "P"),
    "mrc-ecmp-static": ("#117733", "h"),
    "mrc-ecmp-no-swap": ("#44AA99", "p"),
    "uet-reps": ("#332288", "*"),
    "uet-oblivious": ("#AA4499", "D"),
    "adaptive": ("#F0C000", "H"),
    "irn": ("#999999", "p"),
    "roce-pfc": ("#CC6677", "X"),
    "roce-pfc-8": ("#882255", "P"),
    "roce-dcqcn": ("#D55E00", "v"),
    "roce-dcqcn-8": ("#661100", "d"),
    "roce": ("#D55E00", "s"),
    "roce-1p": ("#E69F00", "^"),
    "roce-8": ("#882255", "<"),
    "roce-16": ("#661100", "d"),
    "default": ("#0072B2", "o"),
    "aggressive": ("#E69F00", "^"),
    "most-aggressive": ("#D55E00", "s"),
    "tcp": ("#44AA99", ">"),
    "tcp-bbr": ("#999999", "H"),
    "mptcp": ("#CC79A7", "v"),
}
_SPARE = (("#000000", "X"), ("#999999", "*"), ("#332288", "h"), ("#999933", "p"))
"""Colours of Okabe and Ito, which colour-blind people can tell apart."""
FAULT = "#B0B0B0"
FLOWS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of flows and their groups, in panels of one transport."""
PLANES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
"""Colours of planes, stacked."""
_RC: Any = {
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 7.5,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "text.parse_math": False,  # the name of a fault may contain any characters
    "svg.hashsalt": "mrcbed",
    "figure.dpi": 240,  # as in files: a layout for fewer dots has narrower letters, and cut titles
    "savefig.dpi": 240,
    "figure.constrained_layout.use": True,
}


def colour_and_marker(transport: str) -> tuple[str, str]:
    """Return colour and marker of a transport, the same in all figures; a name that the user chose gets a spare pair, by its letters."""
    return _FIXED.get(transport) or _SPARE[sum(transport.encode()) % len(_SPARE)]


def fault_bands(ax: Any, outages: Sequence[Any], begin: float, last: float, y: float | None = None) -> None:
    """Shade the outages from ``begin`` (ns) to ``last`` (µs after it); write the name of each fault once at height ``y``, if given."""
    names: list[str] = []
    points_per_us = AXES_WIDTH * 72 * WIDTH / last
    upper_end = 0.0  # points from the left: where the last name on the upper line ends
    for outage in outages:
        a, b = (outage.begin - begin) / 1e3, min(last, (outage.end - begin) / 1e3)
        if b <= 0 or a >= last:
            continue
        if not outage.entry.heals:
            ax.axvline(a, color="black", linewidth=0.9, linestyle="--", zorder=1)
        else:
            ax.axvspan(max(a, 0), b, color=FAULT, alpha=0.35, linewidth=0, zorder=0)
        if y is not None and outage.fault not in names:
            names.append(outage.fault)
            late = a > LATE * last  # to the right, its name would leave the axes
            at, side = ((min(b, last), y), "right") if late else ((max(a, 0), y), "left")
            width = LETTER * len(outage.fault)
            left = at[0] * points_per_us - (width if late else 0)
            lower = left < upper_end  # two names do not touch: the second one stands a line lower
            upper_end = upper_end if lower else left + width
            shift = (-2 if late else 2, -5 if lower else 1)
            ax.annotate(outage.fault, at, xytext=shift, textcoords="offset points", fontsize=6, va="center", ha=side)


def margin_note(ax: Any, text: str, y: float, size: float = 6.5, color: str = "black") -> None:
    """Write ``text`` in the right margin, beside the data coordinate ``y``; ``size`` in points."""
    ax.annotate(
        text,
        (1.0, y),
        xycoords=("axes fraction", "data"),
        xytext=(2, 0),
        textcoords="offset points",
        fontsize=size,
        va="center",
        color=color,
        annotation_clip=False,
    )


@contextmanager
def figure(rows: int, height: float, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (figure, axes) in the common style."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ ", UserWarning)  # of a name; a box stands for it
        fig = Figure(figsize=(WIDTH, height))
        FigureCanvasAgg(fig)
        yield fig, fig.subplots(rows, 1, **options)


def save(fig: Any, directory: Path, name: str, runs: Sequence[Mapping[str, Any]] | None = None) -> list[Path]:
    """Write PNG and SVG; return both paths. ``runs``: the runs in the figure, as in summary.json; a line below it states their fidelity.
    None: the figure states it itself.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    directory.mkdir(parents=True, exist_ok=True)
    if runs is not None:
        width, height = fig.get_size_inches()
        share = STRIP / (height + STRIP)
        fig.set_size_inches(width, height + STRIP)
        fig.get_layout_engine().set(rect=(0, share, 1, 1 - share))
        text, colour = worth(runs)
        line = fig.text(0.012, 0.35 * share, text, color=colour, fontsize=5.5, ha="left", va="center")
        line.set_in_layout(False)
    fig.draw_without_rendering()
    while wrap_titles(fig):  # other lines of a title may move the axes, and so the title
        fig.draw_without_rendering()
    fig.set_layout_engine("none")  # the layout is done
    # The layout left room for the legend above the line on fidelity, but the legend would be drawn across that line.
    for legend in fig.legends if runs is not None else ():
        legend.set_bbox_to_anchor((0, share, 1, 1 - share), fig.transFigure)
    # Not savefig: it draws each figure once more, for a layout that is done.
    png, svg = directory / f"{name}.png", directory / f"{name}.svg"
    fig.canvas.print_png(png)
    canvas: Any = FigureCanvasSVG(fig)
    canvas.print_svg(svg, metadata={"Date": None})
    return [png, svg]


def wrap_titles(fig: Any) -> bool:
    """Break titles that are wider than the figure into lines, between words; return whether one changed. The figure must be drawn."""
    right, changed = fig.bbox.x1 - 2, False
    for text in [fig._suptitle, *(ax._left_title for ax in fig.axes)]:
        if text is None or (box := text.get_window_extent()).x1 <= right:
            continue
        lines = text.get_text().split("\n")
        room = max(10, int(max(map(len, lines)) * (right - box.x0) / box.width) - 1)
        wrapped = [part for line in lines for part in textwrap.wrap(line, room) or [""]]
        changed = changed or wrapped != lines
        text.set_text("\n".join(wrapped))
    return changed


def title(run: dict[str, Any]) -> str:
    """Name a run's collective, as the first word of a title."""
    kind = str(run["workload"])
    names = {"ring-allreduce": "All-reduce", "tree-allreduce": "Tree all-reduce", "hierarchical-allreduce": "Hierarchical all-reduce"}
    return names.get(kind) or ("Training" if kind == "job" else kind.capitalize())


def spell(group: str) -> str:
    """Name a group of flows in a legend."""
    return {"incast": "incast", "victim": "victim flow", "permutation": "permutation"}.get(group, group)
