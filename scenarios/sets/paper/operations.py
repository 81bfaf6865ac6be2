"""What the paper says without a figure: ECMP beside SRv6 (section 2.1), Clustermapper, lossy NIC links and the check of ports before a job
(2.4, 3, 4), one thin plane (4), and a NIC's only transceiver (5.1). Simulated, since a network that breaks for tens of milliseconds
takes many minutes elsewhere.
"""

from __future__ import annotations

from scenarios.run.resume import FINISHED
from scenarios.sets.paper.claims import Evidence, Found, Run, all_hold, at_least, at_most, found, is_more, or_never, ratio, value_of, values
from scenarios.sets.paper.failures import ride


def ecmp(e: Evidence) -> dict[str, Found]:
    srv6, hashed = (e.median("load", name, "groups.permutation.of_line") for name in ("mrc", "mrc-ecmp"))
    healthy = ratio(hashed, srv6)
    slowest, dynamic, static = (e.median("main", name, "step_time_ns.max") for name in ("mrc", "mrc-ecmp", "mrc-ecmp-static"))
    price = ratio(static, slowest)
    static_us = ratio(static, 1e3)
    return {
        "over-ecmp": found(at_least(healthy, 0.9), healthy, hashed=hashed, srv6=srv6),
        "no-name": found(is_more(price, 1), price, static=static_us, srv6=ratio(slowest, 1e3)),
        "disturbs": found(is_more(dynamic, static), dynamic, dynamic=ratio(dynamic, 1e3), static=static_us),
    }


def thin_plane(e: Evidence) -> dict[str, Found]:
    share = e.median("main", "mrc", "outside_busbw_share")
    left = e.median("main", "mrc", lambda run: run["degraded_busbw_bps"] / run["ideal_busbw_bps"])
    return {"rides": ride(e, "main"), "thin": found(all_hold([at_least(share, 0.9), at_most(share, 1.1)]), share, left=left)}


def named_ms(run: Run) -> float | None:
    """Return how long after the first fault began its link was named, in ms; infinite if it never was."""
    ns = value_of(run, "mapper.faults.0.named_ns")
    return or_never(None if ns is None else ns / 1e6, bool(run.get("mapper", {}).get("faults")))


def operations(e: Evidence) -> dict[str, Found]:
    after, wrong = (e.median("nic", "mrc-mapped", figure) for figure in (named_ms, "mapper.wrong"))
    slowly, wrongly = (e.median("millisecond", "mrc-mapped-1ms", figure) for figure in (named_ms, "mapper.wrong"))
    lost, strict, mapped = (e.median("nic", name, "packets.lost") for name in ("mrc", "mrc-strict", "mrc-mapped"))
    kept, strict_kept, mapped_kept = (e.median("nic", name, "kept_late") for name in ("mrc", "mrc-strict", "mrc-mapped"))
    excess = ratio(strict, mapped)
    errors = {
        span: values((r for r in e.runs("transceiver", "mrc", {"fault.0.for": span}, ended=False) if r["outcome"] in FINISHED), "qp_errors")
        for span in ("1ms", "40ms")
    }
    failed = {span: sum(n > 0 for n in counts) for span, counts in errors.items()}
    counts = ", ".join(f"{span}: in error in {failed[span]} of {len(counts)} runs" for span, counts in errors.items() if counts)
    denied, others = (e.median("start", "mrc-mapped", figure) for figure in ("mapper.denied_at_start", "mapper.wrong"))
    unchecked, checked = (e.median("start", name, "untrimmed_loss") for name in ("mrc", "mrc-mapped"))
    return {
        "checked": found(all_hold([at_least(denied, 2), at_most(denied, 2), at_most(others, 0)]), denied, others=others),
        "kept-out": found(all_hold([at_most(checked, 0), at_least(unchecked, 1)]), checked, unchecked=unchecked),
        "names": found(all_hold([at_most(after, 1), at_most(wrong, 0)]), after, wrong=wrong),
        "each-ms": found(all_hold([at_most(slowly, 40), at_most(wrongly, 0)]), slowly, wrong=wrongly),
        "cannot-tell": found(at_least(excess, 2), excess, strict=strict, strict_kept=strict_kept, ours=lost, ours_kept=kept, mapped=mapped),
        "denies": found(at_least(mapped_kept, 0.97 * 3 / 4), mapped_kept, alone=kept),
        "qps-fail": found(failed["40ms"] == len(errors["40ms"]) if errors["40ms"] else None, float(failed["40ms"]), counts=counts),
    }
