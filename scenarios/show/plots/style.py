"""The style of all figures: looks of transports, panels, legends, loops over runs, files."""

from __future__ import annotations

import re
import textwrap
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.figures.fidelity import DOUBTFUL, INVALID, TRUSTWORTHY
from testbed.results.summary import Run
from testbed.world import SIMULATED

if TYPE_CHECKING:
    from scenarios.figures.stored import Stored

# draws one kind's figures of a results directory into another
Draw = Callable[["Stored", Path], list[Path]]
# kind, the first part of a file's name; decorators below enter theirs
FIGURES: dict[str, Draw] = {}
Look = tuple[str, str]  # colour, marker

WIDTH = 3.6  # inches: one column of a paper
LATE = 0.7  # A later fault, as share of the figure, has its name to the left of its end.
AXES_WIDTH = 0.85  # of the figure's width, about
LETTER = 3.3  # width in points, about
UNBROKEN = re.compile(r"(?<=\d) (?=[µmnkMG]?[sB%]|Gb/s)|(?<=seed) ")  # a number and its unit
BETWEEN = 6  # pixels between two labels of an axis [ours]
NAMED = 2  # transports that a title names; of more, the least and the most
STRIP = 0.15  # inches of the line on fidelity below every figure
COLOURS = {TRUSTWORTHY: "#707070", DOUBTFUL: "#B25000", INVALID: "#C00000"}
KNOWN = {
    "mrc": ("#0072B2", "o"),
    "roce": ("#D55E00", "s"),
    "tcp": ("#44AA99", ">"),
    "mptcp": ("#CC79A7", "v"),
}
_COLOURS = {
    "mrc": ("#56B4E9", "#009E73", "#332288", "#999933", "#117733", "#88CCEE", "#AA4499", "#000000"),
    "roce": ("#E69F00", "#882255", "#661100", "#CC6677", "#F0C000", "#999999"),
}
"""Colours of Okabe and Ito, and of Tol: colour-blind people can tell them apart."""
_MARKERS = "^DPX*hvpd<H"
LOOKS = 6 * len(_MARKERS)  # So many transports of a kind differ in colour or marker.
FAULT = "#B0B0B0"
GREY = "#666666"
FLOWS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
PLANES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
_RC: Any = {
    **dict.fromkeys(("font.size", "axes.labelsize", "figure.labelsize"), 7.5),
    **dict.fromkeys(("axes.titlesize", "figure.titlesize"), 8),
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 7),
    **dict.fromkeys(("axes.titleweight", "figure.titleweight"), "bold"),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "axes.titlelocation": "left",
    "axes.titlepad": 4,
    "lines.linewidth": 1.3,
    "grid.linewidth": 0.3,
    "grid.color": "#DDDDDD",
    "text.parse_math": False,  # the name of a fault may contain any characters
    "svg.hashsalt": "mrcbed",
    # both: a layout for fewer dots has narrower letters, and cut titles
    **dict.fromkeys(("figure.dpi", "savefig.dpi"), 240),
    "figure.constrained_layout.use": True,
}


# --- looks ----------------------------------------------------------------------------------------


def kind_look(name: str, kind: str, n: int) -> Look:
    family = kind if kind in _COLOURS else "roce"
    colours = _COLOURS[family]
    return KNOWN.get(name) or (
        colours[n % len(colours)],
        _MARKERS[(n + n // len(colours) + (family != "mrc")) % len(_MARKERS)],
    )


def looks(transports: Iterable[tuple[str, str]]) -> dict[str, Look]:
    found: dict[str, Look] = {}
    seen: Counter[bool] = Counter()
    for name, kind in transports:
        if name not in found:
            found[name] = kind_look(name, kind, seen[kind == "mrc"])
            seen[kind == "mrc"] += name not in KNOWN
    return found


def look_of(stored: Stored, transport: str) -> Look:
    """The look is the same in all figures of a scenario's results, also with only some of its
    transports."""
    known = [(t.name, t.kind) for t in stored.manifest.scenario.transports]
    known += [(run.transport, run.kind) for run in stored.summary.runs]
    return _stored_looks(stored.manifest.scenario_file, tuple(dict.fromkeys(known)))[transport]


@lru_cache
def _stored_looks(text: str, transports: tuple[tuple[str, str], ...]) -> dict[str, Look]:
    written: list[tuple[str, str]] = []
    with suppress(
        tomllib.TOMLDecodeError, AttributeError, KeyError, TypeError
    ):  # of several scenarios, or damaged: the order of the manifest
        written = [
            (str(t.get("name", t["kind"])), str(t["kind"]))
            for t in tomllib.loads(text)["transport"]
        ]
    return looks([*written, *transports])


# --- loops over runs: each makes a Draw of a function that draws one figure -----------------------


def _drawing(
    groups: Callable[[Stored], Iterable[tuple[str, Any]]],
    wanted: Callable[[Stored, Run], Any] = lambda stored, run: True,
) -> Callable[[Callable[[Stored, Any], Any]], Draw]:
    """``groups`` yields (name, runs, or one run); those with ``wanted`` are drawn. The decorated
    function, named like its kind, returns a figure or None."""

    def decorate(one: Callable[[Stored, Any], Any]) -> Draw:
        kind = one.__name__.replace("_", "-")

        def draw(stored: Stored, directory: Path) -> list[Path]:
            files: list[Path] = []
            for name, group in groups(stored):
                runs = [
                    run
                    for run in ([group] if isinstance(group, Run) else group)
                    if wanted(stored, run)
                ]
                with styled():
                    if (
                        runs
                        and (fig := one(stored, group if isinstance(group, Run) else runs))
                        is not None
                    ):
                        files += save(fig, directory, f"{kind}-{name}", runs)
            return files

        FIGURES[kind] = draw
        return draw

    return decorate


per_run = partial(_drawing, lambda stored: ((run.run, run) for run in stored.shown_runs))
per_seed = partial(
    _drawing,
    lambda s: (
        (f"{p}-s{seed}{s.tag}", s.ordered(p, seed))
        for p, seeds in s.groups()
        for seed in s.shown_seeds(seeds)
    ),
)
per_placement = partial(
    _drawing, lambda stored: ((f"{p}{stored.tag}", stored.ordered(p)) for p, _ in stored.groups())
)


# --- figures --------------------------------------------------------------------------------------


@contextmanager
def styled() -> Iterator[None]:
    from matplotlib import rc_context

    with rc_context(_RC), warnings.catch_warnings():
        # of a name; a box stands for it
        warnings.filterwarnings("ignore", r"Glyph \d+ ", UserWarning)
        yield


def panels(
    rows: int, height: float, *, head: str = "", x: str = "", y: str = "", **options: Any
) -> tuple[Any, list[Any]]:
    """Return (figure, axes from top to bottom). ``x`` labels the lowest, ``y`` all; ``height``:
    inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(fig)
    axes = list(fig.subplots(rows, 1, squeeze=False, **{"sharex": True, **options})[:, 0])
    axes[-1].set_xlabel(x)
    if y:
        fig.supylabel(y)
    if head:
        fig.suptitle(head, x=0.01, ha="left")
    return fig, axes


def run_panels(
    stored: Stored, runs: Sequence[Run], head: str, **options: Any
) -> tuple[Any, list[tuple[Any, Run]]]:
    """Return (figure, (axes, run) from top to bottom), a titled panel per run."""
    options = {"height": 1.25 + 0.95 * len(runs), "x": stored.since(runs[0]), **options}
    fig, axes = panels(len(runs), head=f"{head}{stored.seed_words(runs[0].seed)}", **options)
    for ax, run in zip(axes, runs, strict=True):
        run_title(ax, stored, run)
    return fig, list(zip(axes, runs, strict=True))


@contextmanager
def figure(rows: int, height: float, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (figure, axes) of :func:`panels`; of one row its axes themselves."""
    with styled():
        fig, axes = panels(rows, height, **options)
        yield fig, axes if rows > 1 else axes[0]


def run_title(ax: Any, stored: Stored, run: Run, more: str = "") -> None:
    ax.set_title(f"{run.transport} on {run.fabric}{more}", color=look_of(stored, run.transport)[0])


def headline(
    what: str, values: Mapping[str, float | None], form: Callable[[float], str], subject: str
) -> str:
    """Return a title of two lines: what is seen, ``WHAT: mrc 1, roce 2``, and the subject. Of more
    than :data:`NAMED` transports it names the least and the most; without values the subject is
    all."""
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        return subject
    if len(known) <= NAMED:
        seen = ", ".join(f"{name} {form(value)}" for name, value in known.items())
    else:
        ends = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
        seen = " to ".join(f"{form(known[name])} ({name})" for name in ends)
    return f"{what}: {seen}\n{subject}"


def line(
    label: str, color: str = "black", linestyle: Any = "none", linewidth: float = 0.8, **more: Any
) -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        color=color,
        linestyle=linestyle,
        linewidth=linewidth,
        label=label,
        **{"markersize": 4, **more},
    )


def area(label: str, color: str, alpha: float | None = None) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=color, alpha=alpha, label=label)


def fault_area() -> Any:
    return area("fault", FAULT, 0.35)


def legend(fig: Any, handles: Sequence[Any], columns: int = 2) -> Any:
    fig.legend(
        handles=handles,
        loc="outside lower left",
        ncols=columns,
        handlelength=2.0,
        columnspacing=1.2,
    )
    return fig


def note(
    ax: Any, text: str, at: tuple[Any, Any], shift: tuple[float, float] = (2, 2), **more: Any
) -> None:
    ax.annotate(
        text,
        at,
        xytext=shift,
        textcoords="offset points",
        **{"fontsize": 6.5, "annotation_clip": False, **more},
    )


def margin_note(ax: Any, text: str, y: float, **more: Any) -> None:
    note(ax, text, (1.0, y), (2, 0), xycoords=("axes fraction", "data"), va="center", **more)


def beside(k: int, n: int, width: float = 0.8) -> float:
    return (k - (n - 1) / 2) * width / n


def mark_planes(ax: Any, planes: int, per_plane: int = 1, axis: str = "y", **style: Any) -> None:
    for edge in range(1, planes):
        (ax.axhline if axis == "y" else ax.axvline)(edge * per_plane - 0.5, **style)
    short = axis == "x" and planes > 4
    names = [str(p) if short else f"plane {p}" for p in range(planes)]
    ax.set(
        **{
            f"{axis}ticks": [p * per_plane + (per_plane - 1) / 2 for p in range(planes)],
            f"{axis}ticklabels": names,
        }
    )
    ax.tick_params(axis=axis, length=0)
    if short:
        ax.set_xlabel("plane")


def colour_bar(fig: Any, picture: Any, axes: Any, label: str) -> None:
    bar = fig.colorbar(
        picture, ax=axes, location="bottom", shrink=0.75, aspect=38, pad=0.02, extend="max"
    )
    bar.set_label(label, fontsize=6.5)
    bar.ax.tick_params(labelsize=6.5)


def heat(ax: Any, values: Any, cmap: str, most: float, **more: Any) -> Any:
    return ax.imshow(
        values, aspect="auto", interpolation="nearest", cmap=cmap, vmin=0, vmax=most, **more
    )


def fault_bands(
    ax: Any, outages: Sequence[Any], begin: float, last: float, y: float | None = None
) -> None:
    """``begin``: ns; ``last``: µs after it; ``y``: height of faults' names, if given."""
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
            note(
                ax, outage.fault, at, shift, fontsize=6, va="center", ha=side, annotation_clip=None
            )


def save(fig: Any, directory: Path, name: str, runs: Sequence[Run] | None = None) -> list[Path]:
    """Write PNG and SVG. A line states the fidelity of ``runs`` (None: the figure does)."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    directory.mkdir(parents=True, exist_ok=True)
    if runs is not None:
        width, height = fig.get_size_inches()
        share = STRIP / (height + STRIP)
        fig.set_size_inches(width, height + STRIP)
        fig.get_layout_engine().set(rect=(0, share, 1, 1 - share))
        text, colour = worth(runs)
        line = fig.text(
            0.012, 0.35 * share, text, color=colour, fontsize=5.5, ha="left", va="center"
        )
        line.set_in_layout(False)
    layout = fig.get_layout_engine()
    layout.execute(fig)
    # other lines of a title may move the axes, and so the title
    while wrap_titles(fig) or thin_ticks(fig):
        layout.execute(fig)
    fig.set_layout_engine("none")  # the layout is done
    # its last digits differ between processes, and the SVG has names made of them
    for ax in fig.axes:
        for which, box in (("original", ax.get_position(True)), ("active", ax.get_position())):
            ax.set_position([round(edge, 9) for edge in box.bounds], which=which)
    # The layout left room for the legend above the line on fidelity, but the legend would be drawn
    # across that line.
    for legend in fig.legends if runs is not None else ():
        legend.set_bbox_to_anchor((0, share, 1, 1 - share), fig.transFigure)
    # Not savefig: it draws each figure once more, for a layout that is done.
    png, svg = directory / f"{name}.png", directory / f"{name}.svg"
    fig.canvas.print_png(png)
    canvas: Any = FigureCanvasSVG(fig)
    canvas.print_svg(svg, metadata={"Date": None})
    return [png, svg]


def worth(runs: Sequence[Run]) -> tuple[str, str]:
    distinct = {run.run: run for run in runs}.values()
    if not distinct:
        return "computed: no run is in this figure", COLOURS[TRUSTWORTHY]
    verdicts = [run.fidelity.verdict for run in distinct]
    count = f"{len(verdicts)} run{'s' if len(verdicts) != 1 else ''}"
    if n := sum(run.world == SIMULATED for run in distinct):
        count += ", simulated" if n == len(verdicts) else f", {n} of them simulated"
    worst = next(verdict for verdict in (INVALID, DOUBTFUL, TRUSTWORTHY) if verdict in verdicts)
    if len(set(verdicts)) == 1:
        return f"fidelity: {worst} ({count})", COLOURS[worst]
    parts = ", ".join(
        f"{verdicts.count(verdict)} {verdict}"
        for verdict in (INVALID, DOUBTFUL, TRUSTWORTHY)
        if verdict in verdicts
    )
    return f"fidelity: {parts} ({count})", COLOURS[worst]


def wrap_titles(fig: Any) -> bool:
    """Return whether a title or label was broken into lines. The figure must be drawn."""
    right, changed = fig.bbox.x1 - 2, False
    centred = [fig._supxlabel, *(ax.xaxis.label for ax in fig.axes)]
    for text in [fig._suptitle, *(ax._left_title for ax in fig.axes), *centred]:
        if text is None or (box := text.get_window_extent()).x1 <= right:
            continue
        lines = text.get_text().split("\n")
        free = 2 * right - box.x0 - box.x1 if text in centred else right - box.x0
        room = max(10, int(max(map(len, lines)) * free / box.width) - 1)
        bound = (UNBROKEN.sub("\N{NO-BREAK SPACE}", line) for line in lines)
        wrapped = [part for line in bound for part in textwrap.wrap(line, room) or [""]]
        changed = changed or wrapped != lines
        text.set_text("\n".join(wrapped))
    return changed


def thin_ticks(fig: Any) -> bool:
    """Return whether an axis of times has fewer ticks now, because their labels met."""
    from matplotlib.ticker import AutoLocator

    met = {}
    for ax in fig.axes:
        left, right = sorted(ax.get_xlim())
        boxes = [
            tick.label1.get_window_extent()
            for tick in ax.xaxis.get_major_ticks()
            if left <= tick.get_loc() <= right and tick.label1.get_visible()
        ]
        if any(b.x0 < a.x1 + BETWEEN for a, b in pairwise(boxes)):
            met[ax.xaxis.get_major_locator()] = len(boxes) - 2  # axes may share it
    automatic = {
        locator: bins
        for locator, bins in met.items()
        if isinstance(locator, AutoLocator) and bins > 1  # with one it may keep its ticks
    }
    for locator, bins in automatic.items():
        locator.set_params(nbins=bins)
    return bool(automatic)


def title(run: Run) -> str:
    kind = str(run.workload)
    names = {
        "ring-allreduce": "All-reduce",
        "tree-allreduce": "Tree all-reduce",
        "hierarchical-allreduce": "Hierarchical all-reduce",
    }
    return names.get(kind) or ("Training" if kind == "job" else kind.capitalize())


def spell(group: str) -> str:
    return "victim flow" if group == "victim" else group
