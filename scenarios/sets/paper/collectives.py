"""Fig 15 to 17: collectives over message sizes, under MRC and under RoCE with 1 and 16 queue pairs, without and with loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scenarios.sets.paper.claims import (
    Evidence,
    Found,
    Run,
    all_hold,
    at_least,
    at_most,
    bus_share,
    found,
    is_more,
    number,
    percent,
    ratio,
    value_of,
    values,
)

SIZE, LOSS = "workload.message_bytes", "fault.0.probability"
SLOW_RTTS = 100
"""A longer timer of RoCE, in base RTTs: 1 ms, as figures.toml sets it."""
NCCL_RTTS = 107_000
"""NCCL's default in base RTTs of 10 us: 4.096 us x 2^18, 1.07 s (IB_TIMEOUT in its 2.19's src/transport/net_ib.cc)."""
PAYLOAD = 4096 / 4238
"""Payload of a full packet over its frame (topologies.clos)."""
PAPER_NIC_GB = 100.0
"""GB/s of the paper's 800 Gb/s NIC."""


def share(e: Evidence, transport: str, size: Any, loss: float | None, part: str = "main") -> float | None:
    """Return the share of the ideal bus bandwidth, median over the seeds. A run out of time counts with its finished steps. ``loss``: None
    in a part without any."""
    return e.median(part, transport, bus_share, {SIZE: size, **({} if loss is None else {LOSS: loss})}, ended=False)


def kept_share(e: Evidence, transport: str, size: Any, loss: float) -> float | None:
    """Return the share under loss over that without loss."""
    return ratio(share(e, transport, size, loss), share(e, transport, size, 0.0))


def size_range(e: Evidence, part: str = "main") -> tuple[Any, Any]:
    """Return the smallest and the largest size, as written in the sweep."""
    sizes = e.settings(part, SIZE)
    return (sizes[0], sizes[-1]) if sizes else (None, None)


def out_of_time(e: Evidence, transport: str, size: Any, loss: float) -> str:
    """Write how many runs did not end in time."""
    runs = e.runs("main", transport, {SIZE: size, LOSS: loss}, ended=False)
    count = sum(run["outcome"] != "done" for run in runs)
    return f" ({count} of {len(runs)} runs out of time)" if count else ""


def why_mild(e: Evidence, transport: str, size: Any, loss: float) -> str:
    """Explain why go-back-N suffers less here than in the paper, with figures of these runs."""
    where = {SIZE: size, LOSS: loss}
    lost, resent, timeouts = (
        sum(values(e.runs("main", transport, where, ended=False), key)) for key in ("packets.lost", "packets.retransmitted", "timeouts.rto")
    )
    seen = f"{number(resent / lost, '.1f')} retransmissions per lost packet" if lost else "no loss"
    if any("pfc" in run for run in e.runs("main", transport, where, ended=False)):
        return f"go-back-N repeats what is in flight ({seen}); its timer is 67 ms, as deployed, and fired {timeouts:.0f} times"
    step = e.median("main", transport, lambda run: _over_rtt(run, "typical_step_ns"), where, ended=False)
    return (
        f"go-back-N repeats what is in flight, a few packets here ({seen}), up to a hundred and more there; and a lost tail waits for the "
        f"timer, which fired {timeouts:.0f} times in these runs: 10 base RTTs here, {NCCL_RTTS:,} by NCCL's default there, when a step "
        f"of this size has {number(step, ',.0f')} (docs/roce.md)"
    )


def _over_rtt(run: Run, key: str) -> float | None:
    value = value_of(run, key)
    return None if value is None else value / float(run["base_rtt_ns"])


def larger(e: Evidence, part: str, judge: Callable[[Evidence], Mapping[str, Found]]) -> dict[str, Found]:
    """Judge the same statements, under the part's name, of another part, which has all transports in it."""
    summary = e.parts.get(part)
    results = judge(Evidence({} if summary is None else {"main": summary, "qps": summary}))
    return {f"{part}-{id}": result for id, result in results.items()}


# --- send/recv -----------------------------------------------------------------------------------------------------


def send_recv(e: Evidence) -> dict[str, Found]:
    small, large = size_range(e)
    large_share, small_share = (e.median("main", "mrc", bus_share, {SIZE: size}) for size in (large, small))
    raw_share = None if large_share is None else large_share * PAYLOAD
    return {
        "large": found(at_least(raw_share, 0.85), raw_share, large=large, payload=PAYLOAD),
        "small": found(is_more(large_share, small_share), small_share, most=large_share, small=small, large=large),
        "scale": found(None, gigabytes=None if raw_share is None else raw_share * PAPER_NIC_GB),
    }


# --- ring all-reduce -----------------------------------------------------------------------------------------------


def ring(e: Evidence) -> dict[str, Found]:
    return {**_ring(e), **larger(e, "sixteen", _ring)}


def _ring(e: Evidence) -> dict[str, Found]:
    small, large = size_range(e)
    mrc, one_qp, many_qps = (share(e, name, large, 0.0) for name in ("mrc", "roce-1p", "roce-16"))
    eight, sixteen = (share(e, name, size_range(e, "qps")[1], 0.0, "qps") for name in ("roce-8", "roce-16"))
    half, gain = ratio(one_qp, mrc), ratio(sixteen, eight)
    sizes = e.settings("main", SIZE)
    ahead = ", ".join(f"{s}: {percent(share(e, 'mrc', s, 0.0))} against {percent(share(e, 'roce-16', s, 0.0))}" for s in sizes)
    at_small = ratio(share(e, "mrc", small, 0.0), share(e, "roce-1p", small, 0.0))
    large_kept, small_kept = (kept_share(e, "mrc", size, 0.001) for size in (large, small))
    return {
        "half": found(all_hold([at_least(half, 0.35), at_most(half, 0.65)]), half, share=one_qp),
        "beyond-8": found(at_most(gain, 1.15), gain),
        "ahead": found(is_more(mrc, many_qps), ratio(mrc, many_qps), shares=ahead),
        "little": found(all_hold([at_least(at_small, 2 / 3), at_most(at_small, 3 / 2)]), at_small),
        "resilient": found(at_least(large_kept, 0.9), large_kept, large=large, chunk=_chunk_rtts(e, large)),
        "small-costs": found(is_more(large_kept, small_kept), small_kept, most=large_kept, small=small, large=large),
        **_one_percent(e, large),
    }


def _chunk_rtts(e: Evidence, size: Any) -> float | None:
    """Return how long a chunk of a ring step takes on the wire, in base RTTs, under MRC."""

    def chunk(run: Run) -> float | None:
        ideal = _over_rtt(run, "ideal_step_ns")
        return None if ideal is None else ideal / (2 * (run["ranks"] - 1))

    return e.median("main", "mrc", chunk, {SIZE: size})


def _one_percent(e: Evidence, large: Any) -> dict[str, Found]:
    mrc, roce, one_qp = (kept_share(e, name, large, 0.01) for name in ("mrc", "roce-16", "roce-1p"))
    slow_timer = e.median("timer", "roce-16", bus_share, ended=False)
    timer = "" if slow_timer is None else f"; 16 QPs with a timer of {SLOW_RTTS} base RTTs: {percent(slow_timer)} of ideal"
    return {
        "third": found(all_hold([at_least(mrc, 0.2), at_most(mrc, 0.5)]), mrc, late=out_of_time(e, "mrc", large, 0.01)),
        "unusable": found(
            all_hold([at_most(roce, 0.2), at_most(one_qp, 0.2), is_more(mrc, roce)]),
            roce,
            share=share(e, "roce-16", large, 0.01),
            late=out_of_time(e, "roce-16", large, 0.01),
            one_qp=one_qp,
            timer=timer,
            mild=why_mild(e, "roce-16", large, 0.01),
        ),
    }


# --- all-to-all ----------------------------------------------------------------------------------------------------


def all_to_all(e: Evidence) -> dict[str, Found]:
    return {**_all_to_all(e), **larger(e, "sixteen", _all_to_all), **larger(e, "pod", lambda e: {"ahead": _ahead(e, ("roce-1p",), None)})}


def _ahead(e: Evidence, rivals: tuple[str, ...], loss: float | None) -> Found:
    sizes = e.settings("main", SIZE)
    if not sizes:
        return Found(None)
    of = {(name, size): share(e, name, size, loss) for size in sizes for name in ("mrc", *rivals)}
    shown = ", ".join(f"{size}: {' / '.join(percent(of[name, size]) for name in ('mrc', *rivals))}" for size in sizes)
    return found(
        all_hold([is_more(of["mrc", size], of[name, size]) for size in sizes for name in rivals]), of["mrc", sizes[-1]], shares=shown
    )


def _all_to_all(e: Evidence) -> dict[str, Found]:
    small, large = size_range(e)
    large_kept, small_kept, mrc = (kept_share(e, *point, 0.001) for point in (("roce-1p", large), ("roce-1p", small), ("mrc", small)))
    gain = ratio(share(e, "roce-16", large, 0.0), share(e, "roce-1p", large, 0.0))
    return {
        "ahead": _ahead(e, ("roce-1p", "roce-16"), 0.0),
        "large": found(at_least(large_kept, 0.9), large_kept, late=out_of_time(e, "roce-1p", large, 0.001)),
        "small": found(is_more(mrc, small_kept), small_kept, mrc=mrc, small=small),
        "more-qps": found(at_most(gain, 1.0), gain),
    }
