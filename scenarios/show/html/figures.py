"""The figures of a report: which there are, what each shows, whose runs are in it, and the file as text that a page can hold.

A figure's runs are told by its name, as scenarios.show.plots gives it: a run's own, a placement's and seed's, or a placement's.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.figures.stored import ResultsError, Stored

LARGE = 300_000
"""Bytes of an SVG above which the PNG is put in instead [ours]."""
KINDS = (
    (
        "sweep", "What the swept variable does",
        "Medians over seeds; bars: 95 % interval of the median where there are three seeds or more.",
    ),
    (
        "failure-cost", "What the failure cost",
        "Time lost beyond each transport's own healthy pace; the black tick is what the lost capacity explains.",
    ),
    (
        "step-times", "Step times",
        "Share of steps done within a time, all seeds pooled; below it, where there are enough steps, the tail on a log scale.",
    ),
    ("goodput", "Goodput over time", "Payload received by all hosts, faults shaded, beside what theory leaves."),
    ("flows", "Goodput of each flow", "As the receivers counted."),
    ("permutation", "Goodput of each flow", "A bar per transport and flow."),
    ("ports", "A host whose NIC ports change", "What it sends and receives, plane by plane, beside what its live ports carry."),
    ("plane-loads", "Load of the planes", "Payload sent per plane: all hosts together, and from the least to the most loaded of them."),
    ("plane-shares", "Load of the planes while a port is down", "First transmissions per plane, off an equal share."),
    ("path-heat", "Heat map of uplinks", "Bytes over each T0-T1 cable, away from the T0s."),
    ("paths", "States of paths", "As one sender saw those to one peer."),
    ("ev-activity", "Packets per EV around a lossy path", "When it is left, what takes its place, when it returns."),
    ("ev-shares", "How flows part on EVs", "Packets per EV in fair shares."),
    ("flap-penalty", "How long paths stay out", "Each time that they are given up."),
    (
        "queue-hops", "Queues by hop",
        "The mean backlog that packets met at each port, and the largest peak that a run is known to have raised.",
    ),
    ("queues", "Queues on the last hop", "Sampled, with the thresholds of the switch."),
    ("losses", "Losses and their causes", "Marked and trimmed packets are delivered: they are apart."),
    ("windows", "Congestion windows", "Of each sending queue pair."),
)  # fmt: skip
"""(prefix of the name, heading, caption), in the report's order."""


@dataclass(frozen=True)
class Figure:
    heading: str
    caption: str
    name: str
    source: str  # data: URI
    doubtful: tuple[str, ...]  # runs in it that are not to be trusted


def prefix_of(name: str) -> str | None:
    """The kind of a figure, by the longest prefix that fits."""
    found = [prefix for prefix, _, _ in KINDS if name.startswith(f"{prefix}-")]
    return max(found, key=len, default=None)


def runs_in(name: str, prefix: str, stored: Stored) -> list[dict[str, Any]]:
    """The runs that a figure shows."""
    rest = name.removeprefix(f"{prefix}-")
    own = [r for r in stored.runs if r["run"] == rest]
    if own:
        return own
    placement = next((p for p, _ in stored.groups() if re.match(rf"(busbw-|goodput-)?{re.escape(p)}(-|$)", rest)), None)
    if placement is None:
        return list(stored.runs)
    after = rest[rest.index(placement) + len(placement) :]
    seed = re.match(r"-s(\d+)", after)
    tail = after[seed.end() :] if seed else after
    mine = [r for r in stored.runs if r["placement"] == placement and (seed is None or r["seed"] == int(seed[1]))]
    if prefix == "sweep":
        return mine
    variant = next((v for v in stored.variants if v.tag == tail), stored)
    return [r for r in mine if r in variant.runs]


def figures(stored: Stored) -> list[Figure]:
    """All of a results directory. Raises :class:`ResultsError` if there are none though something ran, or one is broken."""
    where = stored.directory / "plots"
    paths = sorted(where.glob("*.png"))
    if not paths and any(r["outcome"] == "done" for r in stored.runs):
        raise ResultsError(f"{where} holds no figures: mrcbed plot {stored.directory} draws them")
    order = [prefix for prefix, _, _ in KINDS]
    named = [(prefix, path) for path in paths if (prefix := prefix_of(path.stem))]
    named.sort(key=lambda one: (order.index(one[0]), one[1].stem))
    heads = {prefix: (heading, caption) for prefix, heading, caption in KINDS}
    out = []
    for prefix, path in named:
        doubtful = tuple(r["run"] for r in runs_in(path.stem, prefix, stored) if r["verdict"] == "not trustworthy")
        out.append(Figure(*heads[prefix], path.stem, source_of(path, stored.directory), doubtful))
    return out


def source_of(png: Path, directory: Path) -> str:
    """As a data: URI, an SVG unless it is large. Raises :class:`ResultsError` for a file that is cut short."""
    svg = png.with_suffix(".svg")
    path = svg if svg.is_file() and svg.stat().st_size <= LARGE else png
    data = path.read_bytes()
    whole = data.rstrip().endswith(b"</svg>") if path is svg else data.startswith(b"\x89PNG") and data[-8:-4] == b"IEND"
    if not whole:
        raise ResultsError(f"{path} is cut short: mrcbed plot {directory} draws it again")
    kind = "svg+xml" if path is svg else "png"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
