"""How long a path stays out after each time that it was given up, and what a lossy path is put through.

Called by scenarios.figures.failures and, on stored events, by the plots. Pure. docs/results.md says what each key means.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from scenarios.figures.flows import all_on
from scenarios.figures.measure import Run
from scenarios.figures.outages import LATE_RTTS, NO_LOSS, Outage, hit, path_lines
from topologies import Fabric
from topologies.addressing import ev_fields

REPLACED_RTTS = 20
"""An EV that was idle before and carries packets within so many base RTTs has replaced the one given up [ours]."""


def given_up(moves: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """From changes of EV states (``t host peer ev from to``, ``qpn`` if told), by time: one row per time that an EV became ASSUMED_BAD.

    ``number`` counts an EV's times from 1; ``back_ns`` is when it was readmitted, None if it was not.
    """
    rows: list[dict[str, Any]] = []
    out: dict[tuple[int, ...], dict[str, Any]] = {}
    counts: dict[tuple[int, ...], int] = {}
    for move in moves:
        key = (int(move["host"]), int(move["peer"]), int(move["ev"]), int(move.get("qpn") or 0))
        if move["to"] == "ASSUMED_BAD" and move.get("from") != "DENIED" and key not in out:
            counts[key] = counts.get(key, 0) + 1
            named = dict(zip(("host", "peer", "ev", "qpn"), key, strict=True))
            out[key] = {**named, "number": counts[key], "out_ns": int(move["t"]), "back_ns": None}
            rows.append(out[key])
        elif move["to"] == "GOOD" and key in out:
            out.pop(key)["back_ns"] = int(move["t"])
    return rows


def flap_rows(fabric: Fabric, rows: Iterable[Mapping[str, Any]], found: Sequence[Outage]) -> list[dict[str, Any]]:
    """Those of :func:`given_up` that an outage explains, with its ``fault`` and ``mended_ns``, when it was over (None: it was not)."""
    late = LATE_RTTS * fabric.base_rtt_ns
    made = []
    for row in rows:
        then = [o for o in found if o.begin <= row["out_ns"] <= o.end + late]
        cause = next((o for o in then if row["ev"] in hit(fabric, o, row["host"], row["peer"])), None)
        if cause is not None:
            made.append({**row, "fault": cause.fault, "mended_ns": cause.end if cause.end < 1 << 62 else None})
    return made


def flaps(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``flaps``: per number of the time, over all EVs that were given up so often: medians of how long they stayed out, ns."""
    made = []
    for number in sorted({row["number"] for row in rows}):
        mine = [row for row in rows if row["number"] == number]
        out = [row["back_ns"] - row["out_ns"] for row in mine if row["back_ns"] is not None]
        known = [row for row in mine if row["back_ns"] is not None and row["mended_ns"] is not None]
        after = [row["back_ns"] - row["mended_ns"] for row in known if row["back_ns"] >= row["mended_ns"]]  # a lossy path may return before
        made.append(
            {
                "number": number,
                "n": len(mine),
                "back": len(out),
                "out_ns": statistics.median(out) if out else None,
                "after_mending_ns": statistics.median(after) if after else None,
            }
        )
    return made


def flap_growth(table: Sequence[Mapping[str, Any]]) -> float | None:
    """The least ratio of a time's median ``out_ns`` to that of the time before; None with fewer than two.

    A time from which less than half of the EVs came back before the run ended is left out: those that did are the quick ones.
    """
    told = [row["out_ns"] for row in table if row["out_ns"] is not None and 2 * row["back"] >= row["n"]]
    return min((b / a for a, b in pairwise(told)), default=None)


# --- one lossy path ------------------------------------------------------------------------------------------------


def replacements(run: Run, host: int, peer: int, t: int) -> list[int]:
    """EVs from a host to a peer that carried nothing in the run's bins before ``t`` and something within 20 base RTTs after."""
    mine = run.evs[(run.evs["host"] == host) & (run.evs["peer"] == peer)]
    used = set(mine.loc[mine["t_ns"] + mine["bin_ns"] <= t, "ev"])
    soon = mine[(mine["t_ns"] + mine["bin_ns"] > t) & (mine["t_ns"] <= t + REPLACED_RTTS * run.fabric.base_rtt_ns)]
    return sorted({int(ev) for ev in soon["ev"]} - {int(ev) for ev in used}) if used else []


def lossy_paths(run: Run, found: Sequence[Outage], pairs: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """``lossy_paths``: per path-loss fault and path that data take, what its sender did about it."""
    rows = []
    rtt = run.fabric.base_rtt_ns
    moves, losses = path_lines(run, "ev"), [line for line in path_lines(run, "loss") if line.get("rule") not in NO_LOSS]
    for outage in (o for o in found if o.kind == "path-loss"):
        for host, peer in pairs:
            for ev in sorted(hit(run.fabric, outage, host, peer)):
                key = (host, peer, ev)
                mine = [
                    line["t"]
                    for line in losses
                    if (line["host"], line["peer"], line["ev"]) == key and outage.begin <= line["t"] <= outage.end + LATE_RTTS * rtt
                ]
                first = next(
                    (m for m in moves if (m["host"], m["peer"], m["ev"], m["to"]) == (*key, "ASSUMED_BAD") and m["t"] >= outage.begin), None
                )
                told = min(mine, default=None)
                new = replacements(run, host, peer, told) if told is not None else []
                rows.append(
                    {
                        "fault": outage.fault, "host": f"h{host}", "peer": f"h{peer}", "ev": ev, "plane": ev_fields(ev)[0],
                        "losses": len(mine),
                        "losses_before_inactive": sum(first is None or t <= first["t"] for t in mine),
                        "first_loss_ns": told,
                        "inactive_ns": None if first is None else first["t"],
                        "used_after_loss_ns": None if first is None or told is None else max(0, (first.get("last_data_ns") or told) - told),
                        "replaced_by": new,
                        "other_plane": sum(ev_fields(other)[0] != ev_fields(ev)[0] for other in new),
                    }
                )  # fmt: skip
    return rows


def figures(run: Run, found: Sequence[Outage], pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """What goes into summary.json."""
    table = flaps(flap_rows(run.fabric, given_up(path_lines(run, "ev")), found))
    made: dict[str, Any] = {"flaps": table, "flap_growth": flap_growth(table)}
    if run.named_flows and all_on(run):
        made["lossy_paths"] = lossy_paths(run, found, pairs)
    return made
