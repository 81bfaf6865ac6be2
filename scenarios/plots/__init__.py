"""Figures of a results directory. Each module draws one kind from :class:`~scenarios.plots.stored.Stored`; none knows how data was made."""

from __future__ import annotations

from pathlib import Path


def draw_all(directory: Path) -> list[Path]:
    """Draw every plot of a results directory into its ``plots/`` (PNG and SVG); returns the files."""
    from scenarios.plots import ev_shares, flow_bars, flow_goodput, goodput, path_states, queue_depth, step_times, windows
    from scenarios.plots.stored import Stored

    stored = Stored(directory)
    where = directory / "plots"
    kinds = (step_times, goodput, path_states, flow_goodput, flow_bars, queue_depth, ev_shares, windows)
    return [path for kind in kinds for path in kind.draw(stored, where)]
