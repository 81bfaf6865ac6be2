"""One drawing per figure of the paper, from stored results. Each function: (part -> Stored, directory, file name) -> files written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scenarios.figures.stored import Stored
from scenarios.sets.paper.plots.over_time import flows, host_ports, jobs, start_up
from scenarios.sets.paper.plots.points import incast, pair, profiles, shares, sizes, sizing

Draw = Callable[[Mapping[str, Any], Path, str], list[Path]]
"""(part -> its scenarios.figures.stored.Stored, directory, file name) -> files."""


def two_hosts(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    """Draw the goodput of the flows between two hosts, of the part of that name."""
    return flows({"pair": stored["pair"]}, directory, name) if "pair" in stored else []


def and_two_hosts(draw: Draw) -> Draw:
    """Draw what ``draw`` does of the other parts, and beside it the goodput of two hosts."""

    def both(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
        others = {part: results for part, results in stored.items() if part != "pair"}
        return [*(draw(others, directory, name) if others else []), *two_hosts(stored, directory, f"{name}-pair")]

    return both


def loads(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    """Draw every flow's goodput, of the part of that name."""
    return shares({"main": stored["load"]}, directory, name) if "load" in stored else []


def nothing(stored: Mapping[str, Stored], directory: Path, name: str) -> list[Path]:
    """Draw nothing: a yes or a no needs no axes."""
    return []


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


DRAW: dict[str, Draw] = {
    "ev_activity": ev_activity,
    "ev_shares": ev_shares,
    "flows, two_hosts": and_two_hosts(flows),
    "host_ports": host_ports,
    "host_ports, two_hosts": and_two_hosts(host_ports),
    "incast": incast,
    "jobs": jobs,
    "jobs, two_hosts": and_two_hosts(jobs),
    "loads": loads,
    "nothing": nothing,
    "pair": pair,
    "profiles": profiles,
    "shares": shares,
    "sizes": sizes,
    "sizing": sizing,
    "start_up": start_up,
    "two_hosts": two_hosts,
}
"""The drawings by name in figures.toml."""
