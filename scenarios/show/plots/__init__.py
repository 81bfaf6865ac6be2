"""Draws figures of a results directory. Each module draws one kind from :class:`~scenarios.figures.stored.Stored`; none knows how the data
was produced."""

from __future__ import annotations

from pathlib import Path

VARIANTS_SHOWN = 4
"""The most settings of a sweep with which all figures are drawn: with more, only those over the swept variable [ours]."""


def draw_all(directory: Path) -> list[Path]:
    """Draw all plots of a results directory into its ``plots/`` (PNG and SVG); return the files, those with an overview first. Files of an
    earlier call that are no longer drawn are removed. Raises :class:`scenarios.figures.stored.ResultsError`."""
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
        loss,
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
    plots = directory / "plots"
    kinds = (
        failure_cost, loss, step_times, goodput, flow_goodput, flow_bars, host_goodput, plane_loads, plane_shares, path_heat, path_states,
        ev_activity, ev_shares, flap_penalty, queue_hops, queue_depth, losses, windows,
    )  # fmt: skip
    plots.mkdir(exist_ok=True)  # a sweep may have nothing to draw
    files = sweep.draw(stored, plots)
    if len(stored.variants) <= VARIANTS_SHOWN:
        files += [path for variant in stored.variants for kind in kinds for path in kind.draw(variant, plots)]
    for stale in {*plots.glob("*.png"), *plots.glob("*.svg")} - set(files):
        stale.unlink()
    return files
