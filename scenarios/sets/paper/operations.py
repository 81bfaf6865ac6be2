"""Sections 2.1, 3, 4 and 5.1, without figures: a thin plane, a link that Clustermapper names, a
NIC's only transceiver."""

from __future__ import annotations

from typing import Any

from scenarios.run.resume import FINISHED
from scenarios.sets.paper.claims import Evidence, or_never, ratio, value_of, values
from testbed.results.summary import Run
from testbed.results.values import number_at

SPANS = ("5s", "12s")  # of all ports down in only-transceiver.toml; the first is judged


def left_of_ideal(run: Run) -> float | None:
    return ratio(run.degraded_busbw_bps, run.ideal_busbw_bps)


def beside_share(run: Run) -> float | None:
    """Return bus bandwidth over what theory leaves beside background traffic."""
    return ratio(run.busbw_bps, number_at(run, "beside_background_busbw_bps"))


def rotation_packets(run: Run) -> float | None:
    return float(sum(run.rotation.sent_packets)) if run.rotation else None


def named_ms(run: Run) -> float | None:
    """Return infinity if the first fault's link was never named."""
    ns = value_of(run, "mapper.faults.0.named_ns")
    return or_never(None if ns is None else ns / 1e6, bool(run.mapper and run.mapper.faults))


def errors(e: Evidence, part: str) -> dict[str, Any]:
    found = {
        span: values(
            (
                r
                for r in e.runs(part, "mrc", {"fault.0.for": span}, ended=False)
                if r.outcome in FINISHED
            ),
            "qp_errors",
        )
        for span in SPANS
    }
    failed = {span: sum(n > 0 for n in counts) for span, counts in found.items()}
    shown = ", ".join(
        f"{span}: in error in {failed[span]} of {len(counts)} runs"
        for span, counts in found.items()
        if counts
    )
    return {"value": float(failed[SPANS[0]]), "long": len(found[SPANS[0]]) or None, "counts": shown}
