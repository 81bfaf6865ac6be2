"""Fig 22 on the paper's cluster D, simulated: RoCE has PFC there, and DCQCN the time to act."""

from __future__ import annotations

from typing import Any

from scenarios.sets.paper.claims import Evidence, percent, ratio

SENDERS = "workload.senders"
XOFF_BYTES = 1_000_000  # of a port on cluster D with pfc_xoff_bdp = 2: 2 BDP of 400 Gb/s and 10 us


def profiles(e: Evidence, part: str) -> dict[str, Any]:
    counts = e.settings(part, SENDERS)
    many = counts[-1] if counts else None
    few = [count for count in counts if count < 10]

    def used(name: str, count: int | None) -> float | None:
        return e.median(part, name, "groups.incast.of_line", {SENDERS: count})

    held = [
        ratio(
            e.median(part, "default", "groups.incast.queue_mean_bytes", {SENDERS: count}),
            XOFF_BYTES,
        )
        for count in few
    ]
    queues = ", ".join(
        f"{count} flows: {percent(share)} of XOFF" for count, share in zip(few, held, strict=True)
    )
    few_pauses = [e.median(part, "default", "pfc.pauses", {SENDERS: count}) for count in few]
    pauses, line = e.median(part, "default", "pfc.pauses", {SENDERS: many}), used("default", many)
    nvidia, often = (
        min((share for count in counts if (share := used(name, count)) is not None), default=None)
        for name in ("nvidia", "often")
    )
    return {
        "fullest": max((share for share in held if share is not None), default=None),
        "few_pauses": max((count for count in few_pauses if count is not None), default=None),
        "queues": queues,
        "pauses": pauses,
        "many": many,
        "line": line,
        "nvidia": nvidia,
        "often": often,
    }
