"""Fig 16 and 17: collectives over message sizes, under MRC and under RoCE with 1 and 16 queue pairs, without and with loss."""

from __future__ import annotations

from typing import Any

from scenarios.sets.paper import plots
from scenarios.sets.paper.claims import (
    Claim,
    Evidence,
    Row,
    Run,
    all_hold,
    at_least,
    at_most,
    bus_share,
    judged,
    number,
    percent,
    value_of,
    values,
)
from scenarios.sets.paper.figure import PaperFigure, Part

SIZE, LOSS = "workload.message_bytes", "fault.0.probability"
SECTION = "section 5.2.7"
HALF = Claim("RoCE with one QP... generally achieves only half the possible throughput", f"{SECTION}, Fig 16", True)
BEYOND_8 = Claim("very little gain beyond 8 QPs", f"{SECTION}, Fig 16", True)
ONE_QP = Claim("one MRC QP spraying across 256 paths achieves better performance than 16 QPs", f"{SECTION}, Fig 16", True)
RESILIENT = Claim(
    "MRC is more resilient - with large message sizes it can retransmit fast enough that 0.1% loss has little impact",
    f"{SECTION}, Fig 16",
    True,
)
MORE_RESILIENT = Claim("MRC is more resilient", f"{SECTION}, Fig 16, against RoCE with 16 QPs at 0.1 % loss", True)
SMALL_COSTS = Claim("At smaller message sizes... recovering packet losses has more impact", f"{SECTION}, Fig 16", True)
THIRD = Claim("even MRC only gets around a third of the intended throughput", f"{SECTION}, Fig 16, 1 % loss", True)
UNUSABLE = Claim("RoCE is pretty much unusable", f"{SECTION}, Fig 16, 1 % loss", True)
A2A_LARGE = Claim("At large message sizes and 0.1% loss, RoCE barely sees any degradation", f"{SECTION}, Fig 17", True)
A2A_SMALL = Claim(
    "At small message sizes... RoCE does very poorly. MRC's SACK-based retransmission helps greatly here", f"{SECTION}, Fig 17", True
)
A2A_QPS = Claim("more QPs help RoCE in ring all-reduce, and not in all-to-all", f"{SECTION}, Fig 17")
FAR_AHEAD = Claim("at 1 % loss MRC is far ahead", f"{SECTION}, Fig 16-17")
RATES_NOTE = (
    "Loss hits each packet once, on its way up from T0 to T1, data and SACKs alike. RoCE is go-back-N without PFC, on one plane of the "
    "same NIC rate, as the paper compares. A message of 1 MiB is 2 BDP of a host, as in the paper's network of 400 Gb/s and 10 us; the "
    "paper's smallest, of 4 MB, is 8, its largest 4,000 times that."
)


SLOW_RTTS = 100
"""A longer timer of RoCE, in base RTTs: 1 ms."""
NCCL_RTTS = 107_000
"""NCCL's default in base RTTs of 10 us: 4.096 us x 2^18, 1.07 s (IB_TIMEOUT in its 2.19's src/transport/net_ib.cc)."""


def share(e: Evidence, transport: str, size: Any, loss: float, part: str = "main") -> float | None:
    """Return the share of the ideal bus bandwidth, median over the seeds. A run out of time counts with its finished steps."""
    return e.median(part, transport, bus_share, {SIZE: size, LOSS: loss}, ended=False)


def ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b


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
    step = e.median("main", transport, lambda run: _over_rtt(run, "typical_step_ns"), where, ended=False)
    return (
        f"go-back-N repeats what is in flight, a few packets here ({seen}), up to a hundred and more there; and a lost tail waits for the "
        f"timer, which fired {timeouts:.0f} times in these runs: 10 base RTTs here, {NCCL_RTTS:,} by NCCL's default there, when a step "
        f"of this size has {number(step, ',.0f')} (docs/roce.md)"
    )


def _over_rtt(run: Run, key: str) -> float | None:
    value = value_of(run, key)
    return None if value is None else value / float(run["base_rtt_ns"])


# --- ring all-reduce -----------------------------------------------------------------------------------------------


def ring(e: Evidence) -> list[Row]:
    small, large = size_range(e)
    mrc, one_qp, many_qps = (share(e, name, large, 0.0) for name in ("mrc", "roce-1p", "roce-16"))
    eight, sixteen = (share(e, name, size_range(e, "qps")[1], 0.0, "qps") for name in ("roce-8", "roce-16"))
    half, gain = ratio(one_qp, mrc), ratio(sixteen, eight)
    sizes = e.settings("main", SIZE)
    better = all_hold([is_more(share(e, "mrc", s, 0.0), share(e, "roce-16", s, 0.0)) for s in sizes])
    ahead = ", ".join(f"{s}: {percent(share(e, 'mrc', s, 0.0))} against {percent(share(e, 'roce-16', s, 0.0))}" for s in sizes)
    return [
        judged(
            HALF,
            "35 to 65 % of MRC's bus bandwidth at the largest size",
            f"{percent(half)} of MRC's ({percent(one_qp)} of ideal)",
            all_hold([at_least(half, 0.35), at_most(half, 0.65)]),
            ideal="how far flows collide is a draw of ECMP's hash",
            value=half,
            unit="of MRC",
            why="4 uplinks and 4 flows per T0: collisions are fewer and larger than among 64 GPUs, and a ring waits for the worst",
        ),
        judged(
            BEYOND_8,
            "16 QPs give at most 1.15 times what 8 do",
            f"{number(gain, '.2f')} times",
            at_most(gain, 1.15),
            value=gain,
            unit="times",
            why="8 QPs on 4 uplinks are still uneven",
        ),
        judged(
            ONE_QP,
            "MRC ahead at every size, without loss",
            f"of ideal, {ahead}",
            better,
            value=ratio(mrc, many_qps),
            unit="times at the largest",
            why="small messages last a few RTTs: latency decides, not paths, and one plane's serialisation is shorter",
        ),
        *_one_per_mille(e, small, large),
        *_one_percent(e, large),
        far_ahead(e, large, "roce-16"),
    ]


def _chunk_rtts(e: Evidence, size: Any) -> float | None:
    """Return how long a chunk of a ring step takes on the wire, in base RTTs, under MRC."""

    def chunk(run: Run) -> float | None:
        ideal = _over_rtt(run, "ideal_step_ns")
        return None if ideal is None else ideal / (2 * (run["ranks"] - 1))

    return e.median("main", "mrc", chunk, {SIZE: size})


def is_more(a: float | None, b: float | None) -> bool | None:
    return None if a is None or b is None else a > b


def _one_per_mille(e: Evidence, small: Any, large: Any) -> list[Row]:
    mrc_share, roce_share = share(e, "mrc", large, 0.0), share(e, "roce-16", large, 0.0)
    large_kept, small_kept, roce_kept = (kept_share(e, *point, 0.001) for point in (("mrc", large), ("mrc", small), ("roce-16", large)))
    return [
        judged(
            RESILIENT,
            "0.1 % loss leaves MRC 90 % at the largest size",
            f"keeps {percent(large_kept)} at {large}",
            at_least(large_kept, 0.9),
            value=large_kept,
            unit="of lossless",
            why=f"{large} are {number(_chunk_rtts(e, large), '.1f')} RTTs of sending per ring step here, too few to hide a repetition",
        ),
        judged(
            MORE_RESILIENT,
            "MRC keeps more than RoCE does of its own",
            f"MRC keeps {percent(large_kept)} of its {percent(mrc_share)} of ideal, RoCE {percent(roce_kept)} of its {percent(roce_share)}",
            is_more(large_kept, roce_kept),
            value=ratio(large_kept, roce_kept),
            unit="times",
            why=f"what RoCE repeats fits into what it leaves unused without loss; {why_mild(e, 'roce-16', large, 0.001)}",
        ),
        judged(
            SMALL_COSTS,
            f"less is kept at {small} than at {large}",
            f"{percent(small_kept)} against {percent(large_kept)}",
            is_more(large_kept, small_kept),
            value=small_kept,
            unit="of lossless",
            why=f"at {small} a step has few packets: most steps lose none",
        ),
    ]


def far_ahead(e: Evidence, large: Any, other: str) -> Row:
    """Compare the bus bandwidth of MRC and RoCE at 1 % loss."""
    mrc_share, roce_share = share(e, "mrc", large, 0.01), share(e, other, large, 0.01)
    return judged(
        FAR_AHEAD,
        "MRC has at least twice RoCE's bus bandwidth at the largest size",
        f"MRC {percent(mrc_share)} of ideal, RoCE {percent(roce_share)}{out_of_time(e, other, large, 0.01)}",
        None if mrc_share is None or roce_share is None else mrc_share >= 2 * roce_share,
        value=mrc_share,
        unit="of ideal",
        why=why_mild(e, other, large, 0.01),
    )


def _one_percent(e: Evidence, large: Any) -> list[Row]:
    mrc, roce, roce_one_qp = (kept_share(e, name, large, 0.01) for name in ("mrc", "roce-16", "roce-1p"))
    roce_share = share(e, "roce-16", large, 0.01)
    slow_timer = e.median("timer", "roce-16", bus_share, ended=False)
    return [
        judged(
            THIRD,
            "a fifth to a half of MRC's own without loss",
            f"{percent(mrc)}{out_of_time(e, 'mrc', large, 0.01)}",
            all_hold([at_least(mrc, 0.2), at_most(mrc, 0.5)]),
            value=mrc,
            unit="of lossless",
            why="how much MRC keeps follows from EVs given up, windows cut and probes per loss, and all three have smaller numbers here",
        ),
        judged(
            UNUSABLE,
            "RoCE keeps less than a fifth, and less than MRC, with 1 QP and with 16",
            f"16 QPs: {percent(roce)} of its own without loss, {percent(roce_share)} of ideal{out_of_time(e, 'roce-16', large, 0.01)}; "
            f"1 QP: {percent(roce_one_qp)}; 16 QPs with a timer of {SLOW_RTTS} base RTTs: {percent(slow_timer)} of ideal",
            all_hold([at_most(roce, 0.2), at_most(roce_one_qp, 0.2), is_more(mrc, roce)]),
            value=roce,
            unit="of lossless",
            why=why_mild(e, "roce-16", large, 0.01),
        ),
    ]


# --- all-to-all ----------------------------------------------------------------------------------------------------


def all_to_all(e: Evidence) -> list[Row]:
    small, large = size_range(e)
    large_kept, small_kept, mrc = (kept_share(e, *point, 0.001) for point in (("roce-1p", large), ("roce-1p", small), ("mrc", small)))
    one_qp, many_qps = share(e, "roce-1p", large, 0.0), share(e, "roce-16", large, 0.0)
    gain = ratio(many_qps, one_qp)
    return [
        judged(
            A2A_LARGE,
            "RoCE with 1 QP keeps 90 % at the largest size",
            f"{percent(large_kept)}{out_of_time(e, 'roce-1p', large, 0.001)}",
            at_least(large_kept, 0.9),
            value=large_kept,
            unit="of lossless",
            why="its flows are an eighth of a message each, too short to hide a timeout",
        ),
        judged(
            A2A_SMALL,
            f"at {small} RoCE keeps less than MRC",
            f"RoCE {percent(small_kept)}, MRC {percent(mrc)}",
            is_more(mrc, small_kept),
            value=small_kept,
            unit="of lossless",
            why="few packets a step: most steps lose none under either",
        ),
        judged(
            A2A_QPS,
            "16 QPs give at most 1.1 times what 1 does",
            f"{number(gain, '.2f')} times",
            at_most(gain, 1.1),
            value=gain,
            unit="times",
            why="7 flows a host do not even out over 4 uplinks as 63 do",
        ),
        far_ahead(e, large, "roce-1p"),
    ]


_QUICK_SWEEP = 'sweep={"workload.message_bytes" = ["256KiB", "1MiB"], "fault.0.probability" = [0.0, 0.001, 0.01]}'
_QUICK_RING = 'sweep={"workload.message_bytes" = ["256KiB", "1MiB"], "fault.0.probability" = [0.0, 0.001, 0.01]}'
_LOSSLESS = 'sweep={"workload.message_bytes" = ["8MiB"], "fault.0.probability" = [0.0]}'
_SLOW = f"transport.roce-16.options.rto_ns={SLOW_RTTS * 10_000}"
_LOSSY = 'sweep={"workload.message_bytes" = ["16MiB"], "fault.0.probability" = [0.01]}'
_QUICK_LOSSY = 'sweep={"workload.message_bytes" = ["1MiB"], "fault.0.probability" = [0.01]}'
_QUICK_LOSSLESS = 'sweep={"workload.message_bytes" = ["1MiB"], "fault.0.probability" = [0.0]}'
_THREE = ("mrc", "roce-1p", "roce-16")

FIGURES = (
    PaperFigure(
        "16",
        "Ring all-reduce, MRC and RoCE with 1 and 16 queue pairs, at 0, 0.1 and 1 % loss",
        ring,
        plots.sizes,
        (
            Part("main", "ring-loss.toml", quick=("workload.steps=2", _QUICK_RING), seeds=(1, 2), transports=_THREE),
            Part("timer", "ring-loss.toml", (_LOSSY, _SLOW), ("workload.steps=2", _QUICK_LOSSY, _SLOW), (1, 2), transports=("roce-16",)),
            Part("qps", "ring-loss.toml", full=(_LOSSLESS,), quick=("workload.steps=2", _QUICK_LOSSLESS), transports=("roce-8", "roce-16")),
        ),
        RATES_NOTE,
    ),
    PaperFigure(
        "17",
        "All-to-all, MRC and RoCE with 1 and 16 queue pairs, at 0, 0.1 and 1 % loss",
        all_to_all,
        plots.sizes,
        (Part("main", "all-to-all-loss.toml", quick=("workload.steps=3", _QUICK_SWEEP), seeds=(1, 2), transports=_THREE),),
        RATES_NOTE,
    ),
)
