"""Figures of a results directory. Each module draws one kind from :class:`~scenarios.plots.stored.Stored`; none knows how data was made."""

from __future__ import annotations

from pathlib import Path


def draw_all(directory: Path) -> list[Path]:
    """Draw every plot of a results directory into its ``plots/`` (PNG and SVG); returns the files."""
    from scenarios.plots import (  # isort: skip
        ev_activity, ev_shares, flap_penalty, flow_bars, flow_goodput, goodput, host_goodput, path_states, plane_shares, queue_depth,
        step_times, windows,
    )  # fmt: skip
    from scenarios.plots.stored import Stored

    stored = Stored(directory)
    where = directory / "plots"
    kinds = (
        step_times, goodput, path_states, flow_goodput, flow_bars, queue_depth, ev_shares, windows, host_goodput, plane_shares,
        flap_penalty, ev_activity,
    )  # fmt: skip
    return [path for kind in kinds for path in kind.draw(stored, where)]
