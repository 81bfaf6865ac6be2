"""Fig 15: send/recv of all ranks over message sizes."""

from __future__ import annotations

from scenarios.sets.paper import plots
from scenarios.sets.paper.claims import Claim, Evidence, Row, at_least, bus_share, cannot, judged, number, percent
from scenarios.sets.paper.collectives import SIZE, beats, ends
from scenarios.sets.paper.figure import PaperFigure, Part

NCCL = Claim("NCCL over MRC achieves up to 92 GBytes/s for large message sizes at 42K GPUs", "section 5.2.6, Fig 15", True)
SMALL_SENDS = Claim("up to 92 GBytes/s for large message sizes", "section 5.2.6, Fig 15", True)
PAYLOAD = 4096 / 4238
"""Payload of a full packet over its frame (topologies.clos)."""
PAPER_NIC_GB = 100.0
"""GB/s of the paper's 800 Gb/s NIC."""


def send_recv(e: Evidence) -> list[Row]:
    small, large = ends(e)
    seen, little = (e.median("main", "mrc", bus_share, {SIZE: at}) for at in (large, small))
    raw = None if seen is None else seen * PAYLOAD
    return [
        judged(
            NCCL,
            "within 7 points of 92 % of the NIC's raw rate, or above",
            f"{percent(raw)} of it at {large}",
            at_least(raw, 0.85),
            value=raw,
            ideal=f"{percent(PAYLOAD, 1)}: headers of a 4 KiB packet",
            unit="of raw rate",
            why="every step begins anew, with an RTT of silence",
        ),
        judged(
            SMALL_SENDS,
            f"more at {large} than at {small}",
            f"{percent(little)} of ideal at {small}, {percent(seen)} at {large}",
            beats(seen, little),
            value=little,
            unit="of ideal",
            why="large steps were disturbed: see the runs' fidelity",
        ),
        cannot(
            Claim("92 GBytes/s at 42K GPUs", "section 5.2.6, Fig 15"),
            "8 hosts at megabits: neither the scale nor gigabytes per second",
            f"as a share of the NIC: {number(None if raw is None else raw * PAPER_NIC_GB, '.0f')} of {PAPER_NIC_GB:.0f} GB/s",
        ),
    ]


FIGURES = (
    PaperFigure(
        "15",
        "Send/recv of all ranks over message sizes",
        send_recv,
        plots.sizes,
        (Part("main", "send-recv.toml", quick=("workload.steps=3", 'sweep={"workload.message_bytes" = ["64KiB", "1MiB", "4MiB"]}')),),
    ),
)
