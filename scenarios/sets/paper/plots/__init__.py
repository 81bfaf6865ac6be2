"""Draws each figure of the paper from stored results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scenarios.figures.stored import Stored
from scenarios.sets.paper.plots.over_time import flows, jobs, start_up
from scenarios.sets.paper.plots.points import incast, pair, profiles, shares, sizes, sizing
from scenarios.show.plots import figures

Draw = Callable[[Mapping[str, Any], Path, str], list[Path]]
"""(part -> its scenarios.figures.stored.Stored, directory, file name) -> files."""


def only(part: str, draw: Draw) -> Draw:
    return lambda stored, directory, name: (
        draw({"main": stored[part]}, directory, name) if part in stored else []
    )


def and_two_hosts(draw: Draw) -> Draw:
    """Draw the goodput of flows between two hosts beside the other parts."""

    def both(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
        others = {part: results for part, results in stored.items() if part != "pair"}
        return [
            *(draw(others, directory, name) if others else []),
            *only("pair", flows)(stored, directory, f"{name}-pair"),
        ]

    return both


def shipped(kind: str) -> Draw:
    def first(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
        drawings = figures()[kind](stored["main"], directory) if "main" in stored else []
        for other in drawings[2:]:  # of other runs; each is a PNG and an SVG
            other.unlink()
        return [path.replace(directory / f"{name}{path.suffix}") for path in drawings[:2]]

    return first


DRAW: dict[str, Draw] = {
    "ev_activity": shipped("ev-activity"),
    "ev_shares": shipped("ev-shares"),
    "flows, two_hosts": and_two_hosts(flows),
    "host_ports": shipped("ports"),
    "host_ports, two_hosts": and_two_hosts(shipped("ports")),
    "incast": incast,
    "jobs": jobs,
    "jobs, two_hosts": and_two_hosts(jobs),
    "loads": only("load", shares),
    "nothing": lambda stored, directory, name: [],  # a yes or a no needs no axes
    "pair": pair,
    "profiles": profiles,
    "shares": shares,
    "sizes": sizes,
    "sizing": sizing,
    "start_up": only("main", start_up),
    "two_hosts": only("pair", flows),
}
