"""Draws figures of a results directory."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from scenarios.show.plots.style import FIGURES, Draw

MODULES = (
    "sweep",
    "failure_cost",
    "loss",
    "times",
    "goodput",
    "flows",
    "ports",
    "planes",
    "path_heat",
    "paths",
    "evs",
    "packets",
)
# With more settings of a sweep, only figures over the swept variable are drawn [ours].
VARIANTS_SHOWN = 4


def figures() -> dict[str, Draw]:
    for name in MODULES:
        import_module(f"{__name__}.{name}")
    return FIGURES


def draw_all(directory: Path) -> list[Path]:
    """Draw all plots into ``plots/`` (PNG and SVG), remove an earlier call's others, and return the
    files. Raises
    :class:`scenarios.figures.stored.ResultsError`."""
    from scenarios.figures.stored import Stored

    stored = Stored(directory)
    stored.judge()
    plots = directory / "plots"
    plots.mkdir(exist_ok=True)  # a sweep may have nothing to draw
    variants = stored.variants if len(stored.variants) <= VARIANTS_SHOWN else []
    drawings = [
        (draw, results)
        for kind, draw in figures().items()
        for results in ([stored] if kind == "sweep" else variants)
    ]
    files = [path for draw, results in drawings for path in draw(results, plots)]
    for stale in {*plots.glob("*.png"), *plots.glob("*.svg")} - set(files):
        stale.unlink()
    return files
