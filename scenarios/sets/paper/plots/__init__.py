"""One drawing per figure of the paper, from stored results. Each function: (part -> Stored, directory, file name) -> files written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from scenarios.figures.stored import Stored
from scenarios.sets.paper.plots.over_time import host_ports, jobs, lossy_throughput, start_up
from scenarios.sets.paper.plots.points import incast, pair, sizes, sizing


def ev_activity(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    """Packets per EV over time around the lossy path: the shipped plot, of the first run that has one."""
    from scenarios.show.plots import ev_activity as shipped

    return _first(shipped.draw(stored["main"], directory), directory, name)


def ev_shares(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    """Packets per EV of flows that part: the shipped plot."""
    from scenarios.show.plots import ev_shares as shipped

    return _first(shipped.draw(stored["main"], directory), directory, name)


def _first(made: list[Path], directory: Path, name: str) -> list[Path]:
    """The first drawing, under the figure's own name; the others are of further seeds and go."""
    kept = []
    for path in made:
        if path.stem == made[0].stem:
            kept.append(path.replace(directory / f"{name}{path.suffix}"))
        else:
            path.unlink()
    return kept


__all__ = ["ev_activity", "ev_shares", "host_ports", "incast", "jobs", "lossy_throughput", "pair", "sizes", "sizing", "start_up"]
