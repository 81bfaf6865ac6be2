"""Figures of a results directory. Each module draws one kind from :class:`~scenarios.figures.stored.Stored`; none knows how data was
made."""

from __future__ import annotations

from pathlib import Path

VARIANTS_SHOWN = 4
"""Of a sweep with more settings only what is over the swept variable is drawn [ours]."""


def draw_all(directory: Path) -> list[Path]:
    """Draw every plot of a results directory into its ``plots/`` (PNG and SVG); returns the files, what sums up first.

    Figures of an earlier drawing that these results no longer give are removed. Raises :class:`scenarios.figures.stored.ResultsError`.
    """
    from scenarios.figures.stored import Stored
    from scenarios.show.plots import (  # fmt: skip
        ev_activity,
        ev_shares,
        failure_cost,
        flap_penalty,
        flow_bars,
        flow_goodput,
        goodput,
        host_goodput,
        losses,
        path_heat,
        path_states,
        plane_loads,
        plane_shares,
        queue_depth,
        queue_hops,
        step_times,
        sweep,
        windows,
    )

    stored = Stored(directory)
    stored.judge()
    where = directory / "plots"
    kinds = (
        failure_cost, step_times, goodput, flow_goodput, flow_bars, host_goodput, plane_loads, plane_shares, path_heat, path_states,
        ev_activity, ev_shares, flap_penalty, queue_hops, queue_depth, losses, windows,
    )  # fmt: skip
    files = sweep.draw(stored, where)
    if len(stored.variants) <= VARIANTS_SHOWN:
        files += [path for variant in stored.variants for kind in kinds for path in kind.draw(variant, where)]
    for old in {*where.glob("*.png"), *where.glob("*.svg")} - set(files):
        old.unlink()
    return files
