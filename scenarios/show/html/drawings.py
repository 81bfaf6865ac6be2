"""Finds the figures of a report and embeds their files.

A figure's name says which runs it shows: one run, those of a placement and seed, or of a placement.
"""

from __future__ import annotations

import base64
from pathlib import Path

from scenarios.figures.stored import Stored
from scenarios.show.document import Picture
from testbed.results.reading import ResultsError
from testbed.results.summary import Run

LARGE = 300_000  # The page holds the PNG in place of an SVG of more bytes [ours].
KINDS = (
    (
        "sweep",
        "Effect of the swept variable",
        (
            "Medians over seeds. Bars: the range of the runs; from six seeds on the 95 % "
            "interval of the median."
        ),
    ),
    (
        "failure-cost",
        "What the failure cost",
        "Extra time beyond each transport's own healthy pace. Grey: noise; a time within it is "
        "neither a loss nor a gain. Black tick: the extra time expected if throughput fell in "
        "proportion to capacity.",
    ),
    (
        "loss",
        "Loss of the model",
        (
            "Runs of one seed have one curve over the steps, to the last bit, and each its own "
            "over time."
        ),
    ),
    (
        "step-times",
        "Step times",
        (
            "Share of steps done within a time, all seeds pooled. Below it, if there are enough "
            "steps, the tail on a log scale."
        ),
    ),
    (
        "seeds",
        "How far seeds lie apart",
        "Typical step of each seed, off its transport's median: how well one run tells the next.",
    ),
    (
        "transfer-times",
        "Transfer times",
        "A transfer is one slice of a message: from when its sender posts it until its receiver "
        "has all of it. Share done within a time, all seeds pooled, and below it the tail on a "
        "log scale.",
    ),
    (
        "goodput",
        "Goodput over time",
        (
            "Payload that all hosts received, beside the ideal for the links that are up. "
            "Shaded: faults."
        ),
    ),
    ("flows", "Goodput of each flow", "Counted by the receivers."),
    ("permutation", "Goodput of each flow", "One bar per transport and flow."),
    (
        "ports",
        "A host whose NIC ports change",
        "What it sends and receives on each plane, beside the ideal for the ports that are up.",
    ),
    (
        "plane-loads",
        "Load of the planes",
        (
            "Payload sent on each plane: by all hosts together, and by the least and the most "
            "loaded host."
        ),
    ),
    (
        "plane-shares",
        "Load of the planes while a port is down",
        "First transmissions on each plane: deviation from a fair share.",
    ),
    ("path-heat", "Heat map of uplinks", "Bytes that T0s send to T1s over each cable."),
    (
        "paths",
        "States of paths",
        (
            "All paths to one peer, as their sender saw them. Paths of a plane whose NIC port is "
            "down keep their state, but carry nothing."
        ),
    ),
    (
        "ev-activity",
        "Packets per EV around a lossy path",
        "When the sender leaves it, which paths replace it, and when it returns.",
    ),
    ("ev-shares", "How a flow leaves the EVs of another", "Packets per EV, in fair shares."),
    (
        "flap-penalty",
        "Time that flapping paths stay out of use",
        "Each time that they are given up.",
    ),
    (
        "queue-hops",
        "Queues by hop",
        (
            "The mean queue that packets met at each port, and the largest peak that a run is "
            "known to have caused."
        ),
    ),
    ("queues", "Queues on the last hop", "Samples, with the thresholds of the switch."),
    (
        "losses",
        "Lost packets by cause",
        "Marked and trimmed packets are delivered, so a panel of their own shows them.",
    ),
    ("windows", "Congestion windows", "One line per sending queue pair."),
)
"""(Prefix of the name, heading, caption) in the report's order."""


def prefix_of(name: str) -> str | None:
    prefixes = [prefix for prefix, _, _ in KINDS if name.startswith(f"{prefix}-")]
    return max(prefixes, key=len, default=None)


def runs_in(name: str, prefix: str, stored: Stored) -> list[Run]:
    rest = name.removeprefix(f"{prefix}-")
    if prefix == "sweep":
        return [r for r in stored.runs if rest.endswith(f"-{r.placement}")]
    tagged = (
        (run, run.placement, variant.tag) for variant in stored.variants for run in variant.runs
    )
    return [
        run
        for run, place, tag in tagged
        if rest in (run.run, f"{place}{tag}", f"{place}-s{run.seed}{tag}")
    ]


def figures(stored: Stored) -> list[Picture]:
    """Raises :class:`ResultsError` if runs are done but no figure was drawn, or one is damaged."""
    plots = stored.directory / "plots"
    paths = sorted(plots.glob("*.png"))
    if not plots.is_dir() and any(r.outcome == "done" for r in stored.runs):
        raise ResultsError(f"{plots} is missing: mrcbed results plot {stored.directory} draws them")
    order = [prefix for prefix, _, _ in KINDS]
    prefixed = [(prefix, path) for path in paths if (prefix := prefix_of(path.stem))]
    prefixed.sort(key=lambda pair: (order.index(pair[0]), pair[1].stem))
    heads = {prefix: (heading, caption) for prefix, heading, caption in KINDS}
    result = []
    for prefix, path in prefixed:
        doubtful = [
            r.run for r in runs_in(path.stem, prefix, stored) if r.verdict == "not trustworthy"
        ]
        more = f" and {len(doubtful) - 4} more" if len(doubtful) > 4 else ""
        warning = f"Not trustworthy: {', '.join(doubtful[:4])}{more}" if doubtful else ""
        result.append(
            Picture(*heads[prefix], path.stem, source_of(path, stored.directory), warning)
        )
    return result


def source_of(png: Path, directory: Path) -> str:
    """Return a data: URI of an SVG, or of a PNG if that is large. Raises :class:`ResultsError` for
    a cut file."""
    svg = png.with_suffix(".svg")
    path = svg if svg.is_file() and svg.stat().st_size <= LARGE else png
    data = path.read_bytes()
    complete = (
        data.rstrip().endswith(b"</svg>")
        if path is svg
        else data.startswith(b"\x89PNG") and data[-8:-4] == b"IEND"
    )
    if not complete:
        raise ResultsError(f"{path} is cut short: mrcbed results plot {directory} draws it again")
    kind = "svg+xml" if path is svg else "png"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
