"""Books beside those of packets that no run may break, and figures of what is usual.

A mistake that both worlds share passes every comparison between them: when all queue pairs began on
plane 0, both loaded it twice. These books know the rules, not the engine:

* **Rotation.** First planes are dealt: over a host's queue pairs their numbers differ by one at
  most. From there on planes take turns strictly, so the packets that a host first sends on each
  plane are known from each queue pair's first plane and number of packets, but for turns of planes
  that could not take one. Not where planes are weighted or a queue pair has fewer EVs than there
  are planes.
* **Queues.** A port marks and trims only where enough has waited, and on a last hop without ECN
  nothing is marked but RoCE. What a switch holds of its pool waits at its ports.

Pure. testbed/results/summary.py has the keys.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from scenarios.figures.books import PortRow
from scenarios.figures.measure import Run
from testbed.results import log
from testbed.results.summary import Expectations, Hop, Rotation
from testbed.world import SIMULATED

HOPS = {
    "host": r"h\d+-p\d+",
    "t0_up": r"p\d+-t0-\d+-u\d+",
    "t1_across": r"p\d+-t1-\d+-s\d+",
    "t1_down": r"p\d+-t1-\d+-d\d+",
    "last_hop": r"p\d+-t0-\d+-d\d+",
}
"""Hop -> pattern of the names of its ports."""
FULL = 0.98
"""From this load on, M/D/1 says nothing: senders are held back [ours]."""
FEWEST_ON_EV = 8
"""Packets per EV that the spread over a plane's EVs needs [ours]."""
A_LAP = 1.5
"""Packets per EV after which each EV of a plane has had one: a lap, and what neighbours that change
places may move [ours]."""


def hop_of(port: str) -> str | None:
    return next((hop for hop, form in HOPS.items() if re.fullmatch(form, port)), None)


# --- rotation -------------------------------------------------------------------------------------


def _apart(counts: Sequence[int]) -> int:
    return max(counts, default=0) - min(counts, default=0)


def rotation(run: Run) -> Rotation | None:
    hosts = run.of(log.Rotation)
    if not hosts:
        return None
    totals = [sum(plane) for plane in zip(*(line.sent for line in hosts), strict=True)]
    passed = sum(line.passed for line in hosts)
    mean = sum(totals) / len(totals)
    return Rotation(
        sent_packets=totals,
        apart=_apart(totals) / mean if mean else None,
        apart_allowed=(sum(_apart(line.due) for line in hosts) + passed) / mean if mean else None,
        host_apart=max(_apart(line.sent) for line in hosts),
        host_allowed=max(_apart(line.due) for line in hosts),
        turns_passed=passed,
        repeats=max(
            (
                line.repeats / (sum(line.sent) - 1)
                for line in hosts
                if _queue_pairs(line) == 1 < sum(line.sent)
            ),
            default=None,
        ),
    )


def _queue_pairs(line: log.Rotation) -> int:
    return sum(line.first) + line.unsure


def _rotation_breaks(run: Run) -> Iterable[str]:
    hosts = run.of(log.Rotation)
    uneven = [line for line in hosts if _apart(line.first) > 1 + line.unsure]
    if uneven:
        worst = max(uneven, key=lambda line: _apart(line.first))
        first, n = worst.first, len(worst.first)
        most, least = max(range(n), key=first.__getitem__), min(range(n), key=first.__getitem__)
        counts = (
            f"h{worst.host} began {first[most]} queue pairs on plane {most}, {first[least]} on "
            f"plane {least}"
        )
        yield (
            f"first planes are not dealt: {counts}, which may differ by one ({len(uneven)} of "
            f"{len(hosts)} hosts)"
        )

    def off(line: log.Rotation) -> int:
        return max(abs(a - b) for a, b in zip(line.sent, line.due, strict=True))

    astray = [line for line in hosts if off(line) > line.passed]
    if astray:
        worst = max(astray, key=off)
        plane = max(range(len(worst.sent)), key=lambda p: abs(worst.sent[p] - worst.due[p]))
        counts = (
            f"h{worst.host} first sent {worst.sent[plane]} packets on plane {plane}, where "
            f"strict turns put {worst.due[plane]}"
        )
        yield (
            f"planes did not take turns: {counts}, and {worst.passed} turns were passed over "
            f"({len(astray)} of {len(hosts)} hosts)"
        )


# --- queues ---------------------------------------------------------------------------------------


def _queue_breaks(run: Run, rows: Sequence[PortRow]) -> Iterable[str]:
    """Find breaks in switches' ``rows``. Peaks are of the fabric's life: what never waited cannot
    have marked. A trimmed packet does not wait, so a queue may lack one to the threshold; on the
    kernel it may also shrink by one between two looks."""
    fabric, frame = run.fabric, run.fabric.frame_bytes
    slack = 0 if run.record.world == SIMULATED else frame
    low = fabric.ecn_bytes[0]
    for row in rows:
        peak, hop = row["backlog_peak_bytes"], hop_of(row.port)
        if row["marked"] and peak + slack <= low:
            yield (
                f"port {row.port} marked {row['marked']} packets above {low:,} bytes, where at "
                f"most {peak:,} have ever waited"
            )
        # with a pool the rest may be what others have
        trim = 0 if fabric.pool_mb_per_tbps else fabric.trim_bytes(hop == "last_hop")
        high = row["backlog_high_peak_bytes"]  # where retransmissions may be trimmed, too
        if row["trimmed"] and max(peak, high) + frame + slack <= trim:
            yield (
                f"port {row.port} trimmed {row['trimmed']} packets above {trim:,} bytes, where "
                f"at most {peak:,} have ever waited"
            )
        if (
            row["marked"]
            and hop == "last_hop"
            and not fabric.last_hop_ecn
            and run.record.kind != "roce"
        ):
            yield f"port {row.port} marked {row['marked']} packets on a last hop, where ECN is off"


def _pool_breaks(rows: Sequence[PortRow]) -> Iterable[str]:
    waits: dict[str, int] = defaultdict(int)
    for row in rows:
        waits[row.node] += row["backlog_bytes"]
    for node, held in {row.node: row["pool_bytes"] for row in rows}.items():
        if not 0 <= held <= waits[node]:
            yield f"switch {node} holds {held:,} bytes of its pool, where {waits[node]:,} wait"


def pool_peak_share(run: Run) -> float | None:
    sizes = run.fabric.pool_bytes
    return max(
        (
            row["pool_peak_bytes"] / sizes["-t1-" in row.node]
            for row in run.ports
            if "pool_peak_bytes" in row
        ),
        default=None,
    )


def broken(run: Run) -> list[str]:
    rows = [row for row in run.ports if not row.of_host and "marked" in row]
    queues = [*_queue_breaks(run, rows), *_pool_breaks(rows)]
    if len(queues) > 1:
        queues = [f"{queues[0]} ({len(queues)} such lines)"]
    return [*_rotation_breaks(run), *queues]


# --- what is usual --------------------------------------------------------------------------------


def _that_carried_data(run: Run) -> Iterable[tuple[str, PortRow]]:
    for row in run.ports:
        hop = hop_of(row.port)
        if hop is not None and row["met_packets"]:
            yield hop, row


def hops(run: Run) -> dict[str, Hop]:
    """Return packets marked and trimmed, and the mean backlog, bytes, that data met, by hop; {}
    without counters."""
    by_hop: dict[str, list[PortRow]] = defaultdict(list)
    for hop, row in _that_carried_data(run):
        by_hop[hop].append(row)
    sums = {
        hop: {
            key: sum(row[key] for row in rows)
            for key in ("marked", "trimmed", "met_bytes", "met_packets")
        }
        for hop, rows in by_hop.items()
    }
    return {
        hop: Hop(
            marked=s["marked"],
            trimmed=s["trimmed"],
            backlog_mean_bytes=round(s["met_bytes"] / s["met_packets"]),
        )
        for hop, s in sums.items()
    }


def expectations(run: Run) -> Expectations:
    pairs = [line for line in run.of(log.Rotation) if _queue_pairs(line) > 1]
    steps = [line.repeats / (sum(line.sent) - 1) for line in pairs if sum(line.sent) > 1]
    counts: dict[tuple[int, int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for line in run.of(log.Evs):
        for ev, n in line.tx.items():
            counts[line.host, line.peer, ev >> 16][ev] += n
    used = [sum(n > 0 for n in by_ev.values()) for by_ev in counts.values()]
    return Expectations(
        ev_spread=_ev_spread(counts.values()),
        evs_least=min(used, default=None),
        evs_most=max(used, default=None),
        evs_in_turn=_evs_in_turn(run.of(log.Evs), counts),
        lockstep=max(steps, default=None),
        queue_wait=_queue_wait(run),
    )


def _ev_spread(counts: Iterable[Mapping[int, int]]) -> float | None:
    spreads = [
        _apart(list(by_ev.values())) * len(by_ev) / total
        for by_ev in counts
        if len(by_ev) > 1 and (total := sum(by_ev.values())) >= FEWEST_ON_EV * len(by_ev)
    ]
    return max(spreads, default=None)


def _evs_in_turn(
    bins: Iterable[log.Evs], counts: Mapping[tuple[int, int, int], Mapping[int, int]]
) -> float | None:
    """Return the least share of a plane's EVs (those in ``counts``) with packets in a bin that is
    long enough for all of them."""
    shares = []
    for line in bins:
        by_plane: dict[int, list[int]] = defaultdict(list)
        for ev, n in line.tx.items():
            if n:
                by_plane[ev >> 16].append(n)
        for plane, sent in by_plane.items():
            of_plane = len(counts[line.host, line.peer, plane])
            if sum(sent) >= A_LAP * of_plane:
                shares.append(len(sent) / of_plane)
    return min(shares, default=None)


def _queue_wait(run: Run) -> dict[str, float]:
    """Divide the backlog met by M/D/1's, by hop; only in the simulated world, where what is on the
    wire does not wait."""
    begin, end = run.window
    if run.record.world != SIMULATED or end <= begin:
        return {}
    links = run.fabric.links_by_name
    met: dict[str, float] = defaultdict(float)
    model: dict[str, float] = defaultdict(float)
    for hop, row in _that_carried_data(run):
        load = min(FULL, row["admitted_bytes"] * 8e9 / (links[row.link].rate * (end - begin)))
        met[hop] += row["met_bytes"]
        model[hop] += row["met_packets"] * run.fabric.frame_bytes * load * load / (2 * (1 - load))
    return {hop: met[hop] / model[hop] for hop in met if model[hop]}
