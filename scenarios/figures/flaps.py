"""Computes how long a path stays out of use each time, and what senders do about a lossy path."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from scenarios.figures.measure import Run
from scenarios.figures.outages import LATE_RTTS, NO_LOSS, Failures, Outage, hit_evs
from testbed.results import summary
from testbed.results.log import PathChange
from topologies import Fabric
from topologies.addressing import ev_fields
from topologies.units import NS

REPLACED_RTTS = 20
"""An idle EV that carries packets within so many base RTTs replaced the one given up [ours]."""


class Move(NamedTuple):
    """State change in stored events; logs have :class:`testbed.results.log.PathChange`."""

    t_ns: float
    pair: tuple[int, int]
    qpn: int | None
    ev: int
    from_: str | None
    to: str


@dataclass
class GivenUp:
    """One time that an EV became ASSUMED_BAD, numbered per EV from 1. ``back_ns``: when it was
    readmitted. ``mended_ns``: end of the outage behind it."""

    pair: tuple[int, int]
    ev: int
    qpn: int
    number: int
    out_ns: float
    back_ns: float | None = None
    mended_ns: float | None = None

    @property
    def path(self) -> tuple[int, ...]:
        return *self.pair, self.ev, self.qpn


def given_up(moves: Iterable[Move | PathChange]) -> list[GivenUp]:
    rows: list[GivenUp] = []
    out: dict[tuple[int, ...], GivenUp] = {}
    counts: dict[tuple[int, ...], int] = {}
    for move in moves:
        row = GivenUp(move.pair, move.ev, move.qpn or 0, 0, move.t_ns)
        if move.to == "ASSUMED_BAD" and move.from_ != "DENIED" and row.path not in out:
            row.number = counts[row.path] = counts.get(row.path, 0) + 1
            out[row.path] = row
            rows.append(row)
        elif move.to == "GOOD" and row.path in out:
            out.pop(row.path).back_ns = move.t_ns
    return rows


def flap_rows(fabric: Fabric, rows: Iterable[GivenUp], outages: Sequence[Outage]) -> list[GivenUp]:
    margin = LATE_RTTS * fabric.base_rtt_ps / NS
    explained = []
    for row in rows:
        candidates = [o for o in outages if o.begin <= row.out_ns <= o.end + margin]
        cause = next((o for o in candidates if row.ev in hit_evs(fabric, o, *row.pair)), None)
        if cause is not None:
            explained.append(replace(row, mended_ns=cause.end if cause.end < 1 << 62 else None))
    return explained


def flaps(rows: Sequence[GivenUp]) -> list[summary.Flaps]:
    table = []
    for number in sorted({row.number for row in rows}):
        group = [row for row in rows if row.number == number]
        durations = [row.back_ns - row.out_ns for row in group if row.back_ns is not None]
        known = [
            (row.back_ns, row.mended_ns)
            for row in group
            if row.back_ns is not None and row.mended_ns is not None
        ]
        # a lossy path may return before
        after = [back - mended for back, mended in known if back >= mended]
        table.append(
            summary.Flaps(
                number=number,
                n=len(group),
                back=len(durations),
                out_ns=statistics.median(durations) if durations else None,
                after_mending_ns=statistics.median(after) if after else None,
            )
        )
    return table


def flap_growth(rows: Sequence[GivenUp]) -> float | None:
    """Compute how much longer EVs stay out each time, from :func:`given_up`; None if none came back
    twice.

    Each EV is compared with itself: its time out of use over the time before. Returns the least
    median over EVs by ``number``. Medians of all EVs would compare different ones, since those soon
    back are given up more often. A ``number`` at which less than half came back before the run
    ended is dropped, because these are the quick ones.
    """
    lasted = {
        (row.path, row.number): row.back_ns - row.out_ns for row in rows if row.back_ns is not None
    }
    medians = []
    for number in sorted({row.number for row in rows}):
        group = [row.path for row in rows if row.number == number]
        back = [path for path in group if (path, number) in lasted]
        ratios = [
            lasted[path, number] / lasted[path, number - 1]
            for path in back
            if (path, number - 1) in lasted
        ]
        if ratios and 2 * len(back) >= len(group):
            medians.append(statistics.median(ratios))
    return min(medians, default=None)


# --- one lossy path -------------------------------------------------------------------------------


def replacements(run: Run, host: int, peer: int, t: float) -> list[int]:
    packets = run.evs[(run.evs["host"] == host) & (run.evs["peer"] == peer)]
    used = set(packets.loc[packets["t_ns"] + packets["bin_ns"] <= t, "ev"])
    soon = packets[
        (packets["t_ns"] + packets["bin_ns"] > t)
        & (packets["t_ns"] <= t + REPLACED_RTTS * run.base_rtt_ns)
    ]
    return sorted({int(ev) for ev in soon["ev"]} - {int(ev) for ev in used}) if used else []


def lossy_paths(failures: Failures) -> list[summary.LossyPath]:
    run, rows = failures.run, []
    for outage in (o for o in failures.outages if o.kind == "path-loss"):
        until = outage.end + LATE_RTTS * run.base_rtt_ns
        for pair in failures.pairs:
            host, peer = pair
            for ev in sorted(failures.hits(outage, pair)):
                losses = [
                    x for x in failures.losses_of[pair] if x.ev == ev and x.rule not in NO_LOSS
                ]
                times = [x.t_ns for x in losses if outage.begin <= x.t_ns <= until]
                moves = (
                    m for m in failures.moves if (m.pair, m.ev, m.to) == (pair, ev, "ASSUMED_BAD")
                )
                verdict = next((m for m in moves if m.t_ns >= outage.begin), None)
                first = min(times, default=None)
                successors = replacements(run, host, peer, first) if first is not None else []
                used = (
                    None
                    if verdict is None or first is None
                    else max(0, (verdict.last_data_ns or first) - first)
                )
                rows.append(
                    summary.LossyPath(
                        fault=outage.fault,
                        host=f"h{host}",
                        peer=f"h{peer}",
                        ev=ev,
                        plane=ev_fields(ev)[0],
                        losses=len(times),
                        losses_before_inactive=sum(
                            verdict is None or t <= verdict.t_ns for t in times
                        ),
                        first_loss_ns=first,
                        inactive_ns=None if verdict is None else verdict.t_ns,
                        used_after_loss_ns=used,
                        replaced_by=successors,
                        other_plane=sum(
                            ev_fields(other)[0] != ev_fields(ev)[0] for other in successors
                        ),
                    )
                )
    return rows
