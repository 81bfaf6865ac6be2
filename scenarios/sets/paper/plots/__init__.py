"""One drawing per figure of the paper, from stored results. Each function: (part -> Stored, directory, file name) -> files written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from scenarios.figures.stored import Stored
from scenarios.sets.paper.plots.over_time import host_ports, jobs, lossy_throughput, start_up
from scenarios.sets.paper.plots.points import incast, pair, shares, sizes, sizing


def ev_activity(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    """Draw packets per EV over time around the lossy path: the shipped plot, of the first run that has one."""
    from scenarios.show.plots import ev_activity as shipped

    return _first(shipped.draw(stored["main"], directory), directory, name)


def ev_shares(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    """Draw packets per EV of flows that separate: the shipped plot."""
    from scenarios.show.plots import ev_shares as shipped

    return _first(shipped.draw(stored["main"], directory), directory, name)


def _first(drawings: list[Path], directory: Path, name: str) -> list[Path]:
    """Return the first drawing under the figure's name; remove the others, which are of other seeds."""
    renamed = []
    for path in drawings:
        if path.stem == drawings[0].stem:
            renamed.append(path.replace(directory / f"{name}{path.suffix}"))
        else:
            path.unlink()
    return renamed


__all__ = ["ev_activity", "ev_shares", "host_ports", "incast", "jobs", "lossy_throughput", "pair", "shares", "sizes", "sizing", "start_up"]
