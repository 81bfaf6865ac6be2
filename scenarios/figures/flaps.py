"""Computes how long a path stays out of use each time that it is given up, and what senders do about a lossy path.

Called by scenarios.figures.failures and, on stored events, by the plots. Pure. docs/results.md says what each key means.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scenarios.figures.flows import all_on
from scenarios.figures.measure import Run
from scenarios.figures.outages import LATE_RTTS, NO_LOSS, Outage, hit_evs, path_lines
from topologies import Fabric
from topologies.addressing import ev_fields
from topologies.units import NS

REPLACED_RTTS = 20
"""An idle EV that begins to carry packets within so many base RTTs has replaced the EV that was given up [ours]."""


def given_up(moves: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Make one row for each time that an EV became ASSUMED_BAD, from its state changes in order of time (``t host peer ev from to``,
    perhaps ``qpn``). ``number`` counts these times per EV from 1; ``back_ns`` is when the EV was readmitted, None if it was not."""
    rows: list[dict[str, Any]] = []
    open_rows: dict[tuple[int, ...], dict[str, Any]] = {}
    counts: dict[tuple[int, ...], int] = {}
    for move in moves:
        key = (int(move["host"]), int(move["peer"]), int(move["ev"]), int(move.get("qpn") or 0))
        if move["to"] == "ASSUMED_BAD" and move.get("from") != "DENIED" and key not in open_rows:
            counts[key] = counts.get(key, 0) + 1
            fields = dict(zip(("host", "peer", "ev", "qpn"), key, strict=True))
            open_rows[key] = {**fields, "number": counts[key], "out_ns": move["t"], "back_ns": None}
            rows.append(open_rows[key])
        elif move["to"] == "GOOD" and key in open_rows:
            open_rows.pop(key)["back_ns"] = move["t"]
    return rows


def flap_rows(fabric: Fabric, rows: Iterable[Mapping[str, Any]], outages: Sequence[Outage]) -> list[dict[str, Any]]:
    """Return the rows of :func:`given_up` that an outage explains, with its ``fault`` and its end ``mended_ns`` (None: it did not end)."""
    margin = LATE_RTTS * fabric.base_rtt_ps / NS
    explained = []
    for row in rows:
        candidates = [o for o in outages if o.begin <= row["out_ns"] <= o.end + margin]
        cause = next((o for o in candidates if row["ev"] in hit_evs(fabric, o, row["host"], row["peer"])), None)
        if cause is not None:
            explained.append({**row, "fault": cause.fault, "mended_ns": cause.end if cause.end < 1 << 62 else None})
    return explained


def flaps(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return ``flaps``: for each n, the median time, ns, that EVs stayed out of use when they were given up for the n-th time."""
    table = []
    for number in sorted({row["number"] for row in rows}):
        group = [row for row in rows if row["number"] == number]
        durations = [row["back_ns"] - row["out_ns"] for row in group if row["back_ns"] is not None]
        known = [row for row in group if row["back_ns"] is not None and row["mended_ns"] is not None]
        after = [row["back_ns"] - row["mended_ns"] for row in known if row["back_ns"] >= row["mended_ns"]]  # a lossy path may return before
        table.append(
            {
                "number": number,
                "n": len(group),
                "back": len(durations),
                "out_ns": statistics.median(durations) if durations else None,
                "after_mending_ns": statistics.median(after) if after else None,
            }
        )
    return table


def flap_growth(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Compute how much longer EVs stay out each time, from the rows of :func:`given_up`; None if none came back twice.

    Each EV is compared with itself: how long it was out of use, over how long the time before. Returns the least of the medians over EVs by
    ``number``. Medians of all EVs would compare different ones, since those that are soon back are given up more often. A ``number`` at
    which less than half of the EVs came back before the run ended is left out, because these are the quick ones.
    """
    lasted = {(path_of(row), row["number"]): row["back_ns"] - row["out_ns"] for row in rows if row["back_ns"] is not None}
    medians = []
    for number in sorted({row["number"] for row in rows}):
        group = [path_of(row) for row in rows if row["number"] == number]
        back = [path for path in group if (path, number) in lasted]
        ratios = [lasted[path, number] / lasted[path, number - 1] for path in back if (path, number - 1) in lasted]
        if ratios and 2 * len(back) >= len(group):
            medians.append(statistics.median(ratios))
    return min(medians, default=None)


def path_of(row: Mapping[str, Any]) -> tuple[int, ...]:
    """Return which path of which queue pair a row of :func:`given_up` is about."""
    return row["host"], row["peer"], row["ev"], row["qpn"]


# --- one lossy path ------------------------------------------------------------------------------------------------


def replacements(run: Run, host: int, peer: int, t: float) -> list[int]:
    """Find the EVs from a host to a peer that carried no packets in the bins before ``t``, and some within 20 base RTTs after it."""
    packets = run.evs[(run.evs["host"] == host) & (run.evs["peer"] == peer)]
    used = set(packets.loc[packets["t_ns"] + packets["bin_ns"] <= t, "ev"])
    soon = packets[(packets["t_ns"] + packets["bin_ns"] > t) & (packets["t_ns"] <= t + REPLACED_RTTS * run.base_rtt_ns)]
    return sorted({int(ev) for ev in soon["ev"]} - {int(ev) for ev in used}) if used else []


def lossy_paths(run: Run, outages: Sequence[Outage], pairs: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return ``lossy_paths``: one row per path-loss fault and path between a sending pair, with the sender's reaction."""
    rows = []
    rtt = run.base_rtt_ns
    moves, losses = path_lines(run, "ev"), [line for line in path_lines(run, "loss") if line.get("rule") not in NO_LOSS]
    for outage in (o for o in outages if o.kind == "path-loss"):
        for host, peer in pairs:
            for ev in sorted(hit_evs(run.fabric, outage, host, peer)):
                key = (host, peer, ev)
                loss_times = [
                    line["t"]
                    for line in losses
                    if (line["host"], line["peer"], line["ev"]) == key and outage.begin <= line["t"] <= outage.end + LATE_RTTS * rtt
                ]
                verdict = next(
                    (m for m in moves if (m["host"], m["peer"], m["ev"], m["to"]) == (*key, "ASSUMED_BAD") and m["t"] >= outage.begin), None
                )
                first_loss = min(loss_times, default=None)
                successors = replacements(run, host, peer, first_loss) if first_loss is not None else []
                rows.append(
                    {
                        "fault": outage.fault, "host": f"h{host}", "peer": f"h{peer}", "ev": ev, "plane": ev_fields(ev)[0],
                        "losses": len(loss_times),
                        "losses_before_inactive": sum(verdict is None or t <= verdict["t"] for t in loss_times),
                        "first_loss_ns": first_loss,
                        "inactive_ns": None if verdict is None else verdict["t"],
                        "used_after_loss_ns": None
                        if verdict is None or first_loss is None
                        else max(0, (verdict.get("last_data_ns") or first_loss) - first_loss),
                        "replaced_by": successors,
                        "other_plane": sum(ev_fields(other)[0] != ev_fields(ev)[0] for other in successors),
                    }
                )  # fmt: skip
    return rows


def figures(run: Run, outages: Sequence[Outage], pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return the keys that these figures add to summary.json."""
    rows = flap_rows(run.fabric, given_up(path_lines(run, "ev")), outages)
    summary: dict[str, Any] = {"flaps": flaps(rows), "flap_growth": flap_growth(rows)}
    if run.named_flows and all_on(run):
        summary["lossy_paths"] = lossy_paths(run, outages, pairs)
    return summary
