"""Draws figures of a results directory from :class:`~scenarios.figures.stored.Stored`; no module knows how the data was produced."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from scenarios.show.plots.style import FIGURES, Draw

MODULES = ("sweep", "failure_cost", "loss", "times", "goodput", "flows", "ports", "planes", "path_heat", "paths", "evs", "packets")
VARIANTS_SHOWN = 4
"""The most settings of a sweep with which all figures are drawn: with more, only those over the swept variable [ours]."""


def figures() -> dict[str, Draw]:
    """Return kind -> what draws its figures, those with an overview first."""
    for name in MODULES:
        import_module(f"{__name__}.{name}")
    return FIGURES


def draw_all(directory: Path) -> list[Path]:
    """Draw all plots of a results directory into its ``plots/`` (PNG and SVG); return the files, those with an overview first. Files of an
    earlier call that are no longer drawn are removed. Raises :class:`scenarios.figures.stored.ResultsError`."""
    from scenarios.figures.stored import Stored

    stored = Stored(directory)
    stored.judge()
    plots = directory / "plots"
    plots.mkdir(exist_ok=True)  # a sweep may have nothing to draw
    variants = stored.variants if len(stored.variants) <= VARIANTS_SHOWN else []
    drawings = [(draw, results) for kind, draw in figures().items() for results in ([stored] if kind == "sweep" else variants)]
    files = [path for draw, results in drawings for path in draw(results, plots)]
    for stale in {*plots.glob("*.png"), *plots.glob("*.svg")} - set(files):
        stale.unlink()
    return files
