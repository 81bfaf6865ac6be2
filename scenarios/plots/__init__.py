"""Figures of a results directory. Each module draws one kind from :class:`~scenarios.plots.stored.Stored`; none knows how data was made."""

from __future__ import annotations

from pathlib import Path


def draw_all(directory: Path) -> list[Path]:
    """Draw every plot of a results directory into its ``plots/`` (PNG and SVG); returns the files."""
    from scenarios.plots import goodput, path_states, step_times
    from scenarios.plots.stored import Stored

    stored = Stored(directory)
    where = directory / "plots"
    return [path for kind in (step_times, goodput, path_states) for path in kind.draw(stored, where)]
