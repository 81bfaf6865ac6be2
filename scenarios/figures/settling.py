"""Says whether DCQCN's rates were level when a run was measured."""

from __future__ import annotations

import pandas as pd

from scenarios.figures.flows import all_on
from scenarios.figures.measure import Run
from testbed.results.summary import Dcqcn

WINDOW_NS = 1e6
LEVEL = 0.1
MOST_NS = 10e6
"""Rates are level if each, from one host to another, stays within 10 % of its mean in two windows
of 1 ms; a waiter gives up after 10 ms [ours]. A window holds some eighteen of DCQCN's increases (a
timer of 55 us)."""
PART_NS = 1e5


def figures(run: Run) -> Dcqcn | None:
    if run.record.kind != "roce" or not ((rates := run.cwnd)["rate_bps"].fillna(0) > 0).any():
        return None
    level = levels(rates, run.fabric.nic_rate)
    first_ns = float(rates["t_ns"].min())
    settled = level.index[level & (level.index - first_ns <= MOST_NS)]
    begin = (all_on(run) or run.window)[0]
    before = level[level.index <= begin]
    return Dcqcn(
        settled_ns=float(settled[0] - first_ns) if len(settled) else None,
        waited_ns=max(0.0, begin - first_ns),
        level=bool(before.iloc[-1]) if len(before) else False,
    )


def levels(rates: pd.DataFrame, line: int) -> pd.Series[bool]:
    """Return by time, ns, whether rates were level in the two windows before. A ``rate_bps`` of 0
    stands for ``line``."""
    parts = round(WINDOW_NS / PART_NS)
    known = rates.assign(
        rate=rates["rate_bps"].astype(float).replace(0.0, float(line)),
        part=(rates["t_ns"] // PART_NS).astype(int),
    )
    by_qp = known.pivot_table(index="part", columns=["host", "peer", "qpn"], values="rate")
    by_part = (
        by_qp.reindex(range(by_qp.index[0], by_qp.index[-1] + 1))
        .T.groupby(level=["host", "peer"])
        .sum(min_count=1)
        .T
    )
    late = by_part.rolling(parts, min_periods=1).mean()
    early = late.shift(parts)
    # of the mean over both windows
    off = ((late - early).abs() / (late + early)).max(axis=1).iloc[2 * parts - 1 :]
    return pd.Series(off.to_numpy() <= LEVEL, index=(off.index.to_numpy() + 1) * PART_NS)


def note(found: Dcqcn | None) -> list[str]:
    if found is None or found.level:
        return []
    return [
        "unsettled: DCQCN's rates were not level when measuring began, "
        f"{found.waited_ns / 1e6:.1f} ms after the first packet"
    ]
