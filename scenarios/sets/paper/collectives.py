"""Fig 16 and 17: collectives over message sizes, under MRC and under RoCE with 1 and 16 queue pairs, without and with loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
from testbed.simulated import SIMULATED

SIZE, LOSS = "workload.message_bytes", "fault.0.probability"
LITTLE = Claim(31, "little difference at small sizes")
HALF = Claim(31, "RoCE with 1 QP has about half of what is possible")
BEYOND_8 = Claim(31, "more QPs help RoCE, little beyond 8")
ONE_QP = Claim(31, "at large sizes MRC with 1 QP is ahead of RoCE with 16")
RESILIENT = Claim(31, "0.1 % loss costs MRC little at large sizes")
SMALL_COSTS = Claim(31, "and more at small ones")
THIRD = Claim(31, "1 % loss leaves MRC about a third")
UNUSABLE = Claim(31, "at 1 % loss RoCE is unusable")
AHEAD = Claim(32, "MRC is ahead at all sizes")
A2A_LARGE = Claim(32, "0.1 % loss hardly touches RoCE at large sizes")
A2A_SMALL = Claim(32, "at small sizes 0.1 % loss does RoCE much harm, and MRC helps most")
A2A_QPS = Claim(32, "16 RoCE QPs are slightly worse than 1")
RATES_NOTE = (
    "Loss hits packets as they arrive at NICs, data and SACKs alike. On demo RoCE is go-back-N without PFC, on one plane of the same NIC "
    "rate; on 16 hosts (rack16) and 64 (pod64), simulated, it has PFC, DCQCN and a timer of 67 ms, as deployed. "
    "A message of 1 MiB is 2 BDP of a host, as in the paper's network of 400 Gb/s and 10 us; the "
    "paper's smallest, of 4 MB, is 8, its largest 4,000 times that."
)


SIXTEEN = "16 hosts, RoCE under PFC"
SLOW_RTTS = 100
"""A longer timer of RoCE, in base RTTs: 1 ms."""
NCCL_RTTS = 107_000
"""NCCL's default in base RTTs of 10 us: 4.096 us x 2^18, 1.07 s (IB_TIMEOUT in its 2.19's src/transport/net_ib.cc)."""


def share(e: Evidence, transport: str, size: Any, loss: float | None, part: str = "main") -> float | None:
    """Return the share of the ideal bus bandwidth, median over the seeds. A run out of time counts with its finished steps. ``loss``: None
    in a part without any."""
    return e.median(part, transport, bus_share, {SIZE: size, **({} if loss is None else {LOSS: loss})}, ended=False)


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


def larger(e: Evidence, part: str, evaluate: Callable[[Evidence], list[Row]], who: str) -> list[Row]:
    """The same statements of another part, which has all transports in it."""
    summary = e.parts.get(part)
    rows = evaluate(Evidence({} if summary is None else {"main": summary, "qps": summary}))
    return [replace(row, claim=Claim(row.claim.number, f"{who}: {row.claim.text}")) for row in rows]


# --- ring all-reduce -----------------------------------------------------------------------------------------------


def ring(e: Evidence) -> list[Row]:
    return [*_ring(e), *larger(e, "sixteen", _ring, SIXTEEN)]


def _ring(e: Evidence) -> list[Row]:
    small, large = size_range(e)
    mrc, one_qp, many_qps = (share(e, name, large, 0.0) for name in ("mrc", "roce-1p", "roce-16"))
    eight, sixteen = (share(e, name, size_range(e, "qps")[1], 0.0, "qps") for name in ("roce-8", "roce-16"))
    half, gain = ratio(one_qp, mrc), ratio(sixteen, eight)
    sizes = e.settings("main", SIZE)
    ahead = ", ".join(f"{s}: {percent(share(e, 'mrc', s, 0.0))} against {percent(share(e, 'roce-16', s, 0.0))}" for s in sizes)
    at_small = ratio(share(e, "mrc", small, 0.0), share(e, "roce-1p", small, 0.0))
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
            "MRC ahead at the largest size, without loss",
            f"of ideal, {ahead}",
            is_more(mrc, many_qps),
            value=ratio(mrc, many_qps),
            unit="times",
            why="16 QPs even out over 4 uplinks better than over the paper's",
        ),
        judged(
            LITTLE,
            "at the smallest size MRC has 2/3 to 3/2 of the bus bandwidth of RoCE with 1 QP",
            f"{number(at_small, '.2f')} times",
            all_hold([at_least(at_small, 2 / 3), at_most(at_small, 3 / 2)]),
            value=at_small,
            unit="times",
            why="a step of this size lasts few RTTs: what decides is how many packets wait for each other on the way",
        ),
        *_one_per_mille(e, small, large),
        *_one_percent(e, large),
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
    large_kept, small_kept = (kept_share(e, "mrc", size, 0.001) for size in (large, small))
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
            SMALL_COSTS,
            f"less is kept at {small} than at {large}",
            f"{percent(small_kept)} against {percent(large_kept)}",
            is_more(large_kept, small_kept),
            value=small_kept,
            unit="of lossless",
            why=f"at {small} a step has few packets: most steps lose none",
        ),
    ]


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
            f"1 QP: {percent(roce_one_qp)}"
            + ("" if slow_timer is None else f"; 16 QPs with a timer of {SLOW_RTTS} base RTTs: {percent(slow_timer)} of ideal"),
            all_hold([at_most(roce, 0.2), at_most(roce_one_qp, 0.2), is_more(mrc, roce)]),
            value=roce,
            unit="of lossless",
            why=why_mild(e, "roce-16", large, 0.01),
        ),
    ]


# --- all-to-all ----------------------------------------------------------------------------------------------------


def all_to_all(e: Evidence) -> list[Row]:
    return [*_all_to_all(e), *larger(e, "sixteen", _all_to_all, SIXTEEN), *larger(e, "pod", _of_64, "64 hosts, RoCE under PFC")]


def _of_64(e: Evidence) -> list[Row]:
    return [_ahead(e, ("roce-1p",), None)]


def _ahead(e: Evidence, rivals: tuple[str, ...], loss: float | None) -> Row:
    sizes = e.settings("main", SIZE)
    of = {(name, size): share(e, name, size, loss) for size in sizes for name in ("mrc", *rivals)}
    shown = ", ".join(f"{size}: {' / '.join(percent(of[name, size]) for name in ('mrc', *rivals))}" for size in sizes)
    return judged(
        AHEAD,
        f"MRC ahead of {' and '.join(rivals)} at every size, without loss",
        f"of ideal, MRC / {' / '.join(rivals)}: {shown}" if sizes else "",
        all_hold([is_more(of["mrc", size], of[name, size]) for size in sizes for name in rivals]),
        value=of.get(("mrc", sizes[-1])) if sizes else None,
        unit="of ideal",
        why="where racks are few their uplinks are hardly loaded, and RoCE's flows collide little; MRC's data takes longer one way, its "
        "packets wait longer for each other on links of 100 Gb/s, and its ports are paced at 98 %",
    )


def _all_to_all(e: Evidence) -> list[Row]:
    small, large = size_range(e)
    large_kept, small_kept, mrc = (kept_share(e, *point, 0.001) for point in (("roce-1p", large), ("roce-1p", small), ("mrc", small)))
    one_qp, many_qps = share(e, "roce-1p", large, 0.0), share(e, "roce-16", large, 0.0)
    gain = ratio(many_qps, one_qp)
    return [
        _ahead(e, ("roce-1p", "roce-16"), 0.0),
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
            "16 QPs have no more than 1 has at the largest size",
            f"{number(gain, '.2f')} times",
            at_most(gain, 1.0),
            value=gain,
            unit="times",
            why="7 flows a host do not even out over 4 uplinks as 63 do",
        ),
    ]


_THREE = ("mrc", "roce-1p", "roce-16")
_QUICK_SWEEP = 'sweep={"workload.message_bytes" = ["256KiB", "1MiB"], "fault.0.probability" = [0.0, 0.001, 0.01]}'
_QUICK_RING = 'sweep={"workload.message_bytes" = ["256KiB", "1MiB"], "fault.0.probability" = [0.0, 0.001, 0.01]}'
_LOSSLESS = 'sweep={"workload.message_bytes" = ["4MiB"], "fault.0.probability" = [0.0]}'
_SLOW = f"transport.roce-16.options.rto_ns={SLOW_RTTS * 10_000}"
_LOSSY = 'sweep={"workload.message_bytes" = ["4MiB"], "fault.0.probability" = [0.01]}'
_QUICK_LOSSY = 'sweep={"workload.message_bytes" = ["1MiB"], "fault.0.probability" = [0.01]}'
_QUICK_LOSSLESS = 'sweep={"workload.message_bytes" = ["1MiB"], "fault.0.probability" = [0.0]}'

FIGURES = (
    PaperFigure(
        "16",
        "Ring all-reduce, MRC and RoCE with 1 and 16 queue pairs, at 0, 0.1 and 1 % loss",
        ring,
        plots.sizes,
        (
            Part("main", "ring-loss.toml", quick=("workload.steps=1", _QUICK_RING), seeds=(1, 2), transports=_THREE),
            Part("timer", "ring-loss.toml", (_LOSSY, _SLOW), ("workload.steps=2", _QUICK_LOSSY, _SLOW), (1, 2), transports=("roce-16",)),
            Part("qps", "ring-loss.toml", full=(_LOSSLESS,), quick=("workload.steps=1", _QUICK_LOSSLESS), transports=("roce-8", "roce-16")),
            Part("sixteen", "ring-loss-16.toml", quick=("workload.steps=2", _QUICK_SWEEP), seeds=(1, 2), world=SIMULATED),
        ),
        RATES_NOTE,
    ),
    PaperFigure(
        "17",
        "All-to-all, MRC and RoCE with 1 and 16 queue pairs, at 0, 0.1 and 1 % loss",
        all_to_all,
        plots.sizes,
        (
            Part("main", "all-to-all-loss.toml", quick=("workload.steps=2", _QUICK_SWEEP), seeds=(1, 2), transports=_THREE),
            Part("sixteen", "all-to-all-loss-16.toml", quick=("workload.steps=3", _QUICK_SWEEP), seeds=(1, 2), world=SIMULATED),
            Part("pod", "all-to-all-64.toml", quick=("workload.message_bytes=1MiB",), seeds=(1, 2), world=SIMULATED),
        ),
        RATES_NOTE,
    ),
)
