"""Writes a run as a Chrome trace, which Perfetto's viewer (ui.perfetto.dev) and chrome://tracing
open.

A process per host and one for the fabric. A host's threads: its steps, and every EV of the pairs
whose paths changed, with intervals of state. Faults are intervals and instants of the fabric.
Counters: goodput by plane, window and RTT of queue pairs, watched queues.

The form is that of the "Trace Event Format" (Google, 2016), JSON object form. What it asks, and
:func:`trace` keeps:

- ``ts`` and ``dur`` are microseconds from 0 on; decimals are ns. Here they are network time since
  the first measured step or flow began.
- Complete events ("X") of a thread never overlap: viewers nest or drop what does.
- Every process and thread has a name ("M").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from scenarios.figures.measure import Run
from scenarios.figures.writing import replacing
from testbed.results import log
from topologies.addressing import ev_fields
from topologies.paths import path_evs

Event = dict[str, Any]
FABRIC = 1_000_000  # hosts are processes 1, 2, ... [ours]
STEPS, FIRST_EV = 1, 10  # threads of a host
FIRST_FAULT = 1
COLOURS = {"GOOD": "good", "SKIP": "bad", "ASSUMED_BAD": "terrible", "DENIED": "black"}
"""Names are of the format; viewers with colours of their own ignore them."""
# shown as moments; losses stand on the thread of their EV
INSTANTS = (log.Rto, log.QuickAdapt, log.Reroute, log.Spurious)


class Clock:
    """Turns times into whole ns since the run's begin, and times outside it into its ends."""

    def __init__(self, run: Run) -> None:
        self.begin, self.end = run.window

    def __call__(self, t: float) -> int:
        return round(min(max(t, self.begin), self.end) - self.begin)

    def holds(self, t: float) -> bool:
        return self.begin <= t <= self.end


def write_trace(run: Run, path: Path) -> int:
    count = 0
    with replacing(path) as part, open(part, "w", encoding="utf-8") as file:
        file.write(
            '{"displayTimeUnit":"ns","otherData":' + json.dumps(_about(run)) + ',"traceEvents":['
        )
        for count, event in enumerate(trace(run), 1):
            file.write(",\n" if count > 1 else "\n")
            file.write(json.dumps(event, separators=(",", ":")))
        file.write("\n]}\n")
    return count


def _about(run: Run) -> dict[str, Any]:
    record = run.record
    about = {
        "key": record.key,
        "transport": record.transport,
        "world": record.world,
        "workload": record.workload,
        "seed": record.seed,
    }
    return {
        **about,
        "outcome": record.outcome,
        "time": "us of the network since the first measured step or flow began",
    }


def trace(run: Run) -> Iterator[Event]:
    """Yield names first within each process."""
    clock = Clock(run)
    for host in range(run.fabric.host_count):
        yield from _named(host + 1, f"h{host}", host + 1)
    yield from _named(FABRIC, f"fabric {run.fabric.name}", 0)
    yield from _steps(run, clock)
    yield from _paths(run, clock)
    yield from _faults(run, clock)
    yield from _moments(run, clock)
    yield from _goodput(run, clock)
    yield from _windows(run, clock)
    yield from _queues(run, clock)


# --- forms ----------------------------------------------------------------------------------------


def _us(ns: int) -> float:
    """The nearest double has three decimals exactly when it is written."""
    return ns / 1000


def _named(pid: int, name: str, index: int) -> Iterator[Event]:
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": index}}


def _thread(pid: int, tid: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}
    yield {
        "ph": "M",
        "pid": pid,
        "tid": tid,
        "name": "thread_sort_index",
        "args": {"sort_index": tid},
    }


def _interval(pid: int, tid: int, name: str, begin: int, end: int, **more: Any) -> Event:
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "name": name,
        "ts": _us(begin),
        "dur": _us(end - begin),
        **more,
    }


def _instant(pid: int, tid: int, name: str, at: int, scope: str, **more: Any) -> Event:
    return {"ph": "i", "pid": pid, "tid": tid, "name": name, "ts": _us(at), "s": scope, **more}


def _counter(pid: int, name: str, at: int, values: dict[str, float]) -> Event:
    return {"ph": "C", "pid": pid, "name": name, "ts": _us(at), "args": values}


# --- intervals ------------------------------------------------------------------------------------


def _steps(run: Run, clock: Clock) -> Iterator[Event]:
    """A step of a rank begins no sooner than its last one ended."""
    hosts = run.record.ranks
    steps = run.steps[~run.steps["warmup"].astype(bool)] if len(run.steps) else run.steps
    for rank in sorted(set(steps["rank"].tolist()) if len(steps) else ()):
        own = steps[steps["rank"] == rank].sort_values("start_ns")
        pid = hosts[rank] + 1
        yield from _thread(pid, STEPS, "steps")
        free = 0
        for row in own[["step", "start_ns", "end_ns", "ok"]].to_dict("records"):
            begin, end = max(free, clock(row["start_ns"])), clock(row["end_ns"])
            if end > begin:
                yield _interval(
                    pid,
                    STEPS,
                    f"step {row['step']}",
                    begin,
                    end,
                    cat="step",
                    args={"rank": rank, "ok": row["ok"]},
                )
                free = end


def _paths(run: Run, clock: Clock) -> Iterator[Event]:
    """Yield every EV of pairs of which one changed. A path is GOOD until its log says otherwise."""
    pairs: dict[tuple[int, int], dict[int, list[log.PathChange]]] = {}
    losses: dict[tuple[int, int, int], list[float]] = {}
    for change in run.of(log.PathChange):
        pairs.setdefault(change.pair, {}).setdefault(change.ev, []).append(change)
    for loss in run.of(log.Loss):
        if clock.holds(loss.t_ns):
            losses.setdefault((*loss.pair, loss.ev), []).append(loss.t_ns)
    threads: dict[int, int] = {}
    for (host, peer), changes in sorted(pairs.items()):
        for ev in dict.fromkeys([*path_evs(run.fabric, host, peer), *changes]):
            tid = threads[host] = threads.get(host, FIRST_EV - 1) + 1
            plane, uplink = ev_fields(ev)
            yield from _thread(host + 1, tid, f"to h{peer}, EV {plane}:{uplink}")
            for begin, end, state, cause in _states(changes.get(ev, ()), clock):
                args = {"cause": cause} if cause else {}
                yield _interval(
                    host + 1,
                    tid,
                    state,
                    begin,
                    end,
                    cat="ev",
                    cname=COLOURS.get(state, "generic_work"),
                    args=args,
                )
            for t in losses.get((host, peer, ev), ()):
                yield _instant(host + 1, tid, "loss found", clock(t), "t", cat="loss")


def _states(changes: Iterable[log.PathChange], clock: Clock) -> Iterator[tuple[int, int, str, str]]:
    """Yield (begin, end, state, cause) without gaps or overlaps, in network time."""
    since, state, cause = 0, "GOOD", ""
    for line in changes:
        at = clock(line.t_ns)
        if line.to == state:
            continue
        if at > since:
            yield since, at, state, cause
        since, state, cause = at, line.to, line.cause or ""
    end = clock(clock.end)
    if end > since:
        yield since, end, state, cause


def _faults(run: Run, clock: Clock) -> Iterator[Event]:
    open_since: dict[str, int] = {}
    threads: dict[str, int] = {}
    where: dict[str, str] = {}
    for line in run.of(log.Fault):
        name, phase, at = line.name, line.phase, clock(line.t_ns)
        if name not in threads:
            threads[name] = FIRST_FAULT + len(threads)
            yield from _thread(FABRIC, threads[name], f"fault: {name}")
        tid = threads[name]
        where[name] = line.on
        args = {"on": where[name], "kind": line.fault, "links": len(line.links)}
        if phase in ("begin", "heal") and clock.holds(line.t_ns):
            yield _instant(FABRIC, tid, f"{name}: {phase}", at, "g", cat="fault", args=args)
        elif clock.holds(line.t_ns):
            yield _instant(FABRIC, tid, f"{name}: {phase}", at, "t", cat="fault", args=args)
        if phase == "begin":
            open_since[name] = at
        elif phase == "heal" and name in open_since:
            begin = open_since.pop(name)
            if at > begin:
                yield _interval(FABRIC, tid, name, begin, at, cat="fault", args=args)
    end = clock(clock.end)
    for name, begin in open_since.items():
        if end > begin:
            yield _interval(
                FABRIC, threads[name], name, begin, end, cat="fault", args={"on": where[name]}
            )


def _moments(run: Run, clock: Clock) -> Iterator[Event]:
    for line in run.of_any(*INSTANTS):
        if line.host >= 0 and clock.holds(line.t_ns):
            told = msgspec.to_builtins(line)
            args = {
                key: told[key]
                for key in ("peer", "qpn", "ev", "before", "window", "cause")
                if key in told
            }
            yield _instant(
                line.host + 1, STEPS, line.kind, clock(line.t_ns), "p", cat=line.kind, args=args
            )


# --- counters -------------------------------------------------------------------------------------


def _goodput(run: Run, clock: Clock) -> Iterator[Event]:
    """Yield Gb/s by plane; 0 after the last bin."""
    after: dict[int, tuple[float, int]] = {}
    for line in run.of(log.Goodput):
        if not clock.holds(line.t_ns):
            continue
        rate = 8 / line.bin_ns  # bit/ns is Gb/s
        values = {
            f"plane {plane}": round(received * rate, 3) for plane, received in enumerate(line.rx)
        }
        yield _counter(line.host + 1, "goodput received [Gb/s]", clock(line.t_ns), values)
        after[line.host] = (line.t_ns + line.bin_ns, len(line.rx))
    for host, (t, planes) in after.items():
        yield _counter(
            host + 1,
            "goodput received [Gb/s]",
            clock(t),
            {f"plane {plane}": 0.0 for plane in range(planes)},
        )


def _windows(run: Run, clock: Clock) -> Iterator[Event]:
    """Flows have values per bin, others as MRC logs them every 5 base RTTs."""
    of_bins, of_rtts = run.of(log.Cwnd), run.of(log.Srtt)
    for line in of_bins or of_rtts:
        if not clock.holds(line.t_ns):
            continue
        pid, at, pair = line.host + 1, clock(line.t_ns), f"to h{line.peer}, QP {line.qpn}"
        if line.bytes is not None:
            yield _counter(pid, f"window {pair} [bytes]", at, {"bytes": line.bytes})
        if line.srtt_ns:
            yield _counter(pid, f"RTT {pair} [us]", at, {"us": round(line.srtt_ns / 1000, 3)})


def _queues(run: Run, clock: Clock) -> Iterator[Event]:
    for row in run.queues.to_dict("records"):
        if clock.holds(row["t_ns"]):
            yield _counter(
                FABRIC,
                f"queue of {row['port']} [bytes]",
                clock(row["t_ns"]),
                {"bytes": row["bytes"]},
            )
