"""Fig 15: send/recv of all ranks over message sizes."""

from __future__ import annotations

from scenarios.sets.paper import plots
from scenarios.sets.paper.claims import Claim, Evidence, Row, at_least, bus_share, cannot, judged, number, percent
from scenarios.sets.paper.collectives import SIZE, is_more, size_range
from scenarios.sets.paper.figure import PaperFigure, Part

NCCL = Claim(30, "up to 92 of a NIC's 100 GB/s at large sizes")
SMALL_SENDS = Claim(30, "large messages are what reaches it")
PAYLOAD = 4096 / 4238
"""Payload of a full packet over its frame (topologies.clos)."""
PAPER_NIC_GB = 100.0
"""GB/s of the paper's 800 Gb/s NIC."""


def send_recv(e: Evidence) -> list[Row]:
    small, large = size_range(e)
    large_share, small_share = (e.median("main", "mrc", bus_share, {SIZE: size}) for size in (large, small))
    raw_share = None if large_share is None else large_share * PAYLOAD
    return [
        judged(
            NCCL,
            "within 7 points of 92 % of the NIC's raw rate, or above",
            f"{percent(raw_share)} of it at {large}",
            at_least(raw_share, 0.85),
            value=raw_share,
            ideal=f"{percent(PAYLOAD, 1)}: headers of a 4 KiB packet",
            unit="of raw rate",
            why="every step begins anew, with an RTT of silence",
        ),
        judged(
            SMALL_SENDS,
            f"more at {large} than at {small}",
            f"{percent(small_share)} of ideal at {small}, {percent(large_share)} at {large}",
            is_more(large_share, small_share),
            value=small_share,
            unit="of ideal",
            why="large steps were disturbed: see the runs' fidelity",
        ),
        cannot(
            Claim(30, "92 GB/s on 42K GPUs"),
            "8 hosts at megabits: neither the scale nor gigabytes per second",
            f"as a share of the NIC: {number(None if raw_share is None else raw_share * PAPER_NIC_GB, '.0f')} of {PAPER_NIC_GB:.0f} GB/s",
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
