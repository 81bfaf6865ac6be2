"""What is known of a run from the lines that it has written so far. Sans-IO: lines in, figures out.

Lines of one host come in order, those of different hosts in any order. Memory does not grow with the length of a run: time series merge
neighbouring bins when there are too many.
"""

from __future__ import annotations

import statistics
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from topologies import Fabric

BINS = 128
"""Most bins of a series."""
CHANGES = 200
"""Most state changes, and faults that ended, that are kept."""
STEPS = 512
"""Most steps whose times are kept."""
NOW_BINS = 3
"""Of agents, over which the present rate is taken."""


@dataclass
class Series:
    """Sums per bin and key (a plane); bins are as wide as those that come, or twice, four times as wide when there were too many."""

    width: int = 0
    bins: dict[int, list[float]] = field(default_factory=dict)
    origin: int = 0

    def add(self, t: int, width: int, values: list[int]) -> None:
        """``values`` of the bin of ``width`` ns that begins at ``t``."""
        if not self.width:
            self.width, self.origin = width, t
        at = self.bins.setdefault((t - self.origin) // self.width, [0.0] * len(values))
        for i, value in enumerate(values):
            at[i] += value
        while max(self.bins) - min(self.bins) >= BINS:
            self._merge()

    def _merge(self) -> None:
        merged: dict[int, list[float]] = {}
        for number, values in self.bins.items():
            at = merged.setdefault(number // 2, [0.0] * len(values))
            for i, value in enumerate(values):
                at[i] += value
        self.width, self.bins = 2 * self.width, merged

    def of(self, key: int) -> list[float]:
        """The sums of a key, from the first bin to the last."""
        if not self.bins:
            return []
        return [self.bins[n][key] if n in self.bins else 0.0 for n in range(min(self.bins), max(self.bins) + 1)]


@dataclass
class Fault:
    name: str
    what: str
    begin: int
    end: int | None = None
    phase: str = ""


@dataclass
class Host:
    """Of one host: what it has received by plane lately, and its counts."""

    recent: deque[tuple[int, int, list[int]]] = field(default_factory=lambda: deque(maxlen=NOW_BINS))
    losses: int = 0
    retransmissions: int = 0
    timeouts: int = 0
    rtt_ns: int | None = None
    window: int | None = None
    ports_down: set[int] = field(default_factory=set)
    bad_paths: int = 0


@dataclass
class RunState:
    """``fabric``: as it runs, on this machine's clock."""

    fabric: Fabric
    warmup: int = 0
    clock: int = 0  # the latest ns that a line has
    begin: int | None = None  # of the first measured step, or flow
    begun_at: int | None = None  # of the run, by its runner
    outcome: str = ""
    reason: str = ""
    goodput: Series = field(default_factory=Series)
    hosts: dict[int, Host] = field(default_factory=dict)
    paths: dict[tuple[int, int, int], str] = field(default_factory=dict)  # that are not GOOD
    changes: list[tuple[int, int, int, int, str, str, str]] = field(default_factory=list)  # t, path, from, to, cause; the latest, by time
    faults: dict[str, Fault] = field(default_factory=dict)
    step_ends: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # step -> ranks that ended it, first begin, last end
    failed_steps: int = 0
    messages: int = 0
    lost_pairs: int = 0  # queue pairs in ERROR

    def take(self, host: int, line: dict[str, Any]) -> None:
        """Fold one line."""
        t = line.get("t")
        if not isinstance(t, int):
            return
        self.clock = max(self.clock, t)
        act = _ACTS.get(line.get("kind", ""))
        if act is not None:
            act(self, host, t, line)

    def host(self, number: int) -> Host:
        return self.hosts.setdefault(number, Host())

    # --- lines -------------------------------------------------------------------------------------------------

    def _start(self, host: int, t: int, line: dict[str, Any]) -> None:
        self.begun_at = t

    def _end(self, host: int, t: int, line: dict[str, Any]) -> None:
        self.outcome, self.reason = str(line.get("outcome", "")), str(line.get("reason", ""))

    def _step(self, host: int, t: int, line: dict[str, Any]) -> None:
        step = int(line["step"]) - self.warmup
        if step < 0:
            return
        self.begin = min(self.begin or line["start_ns"], line["start_ns"])
        count, first, last = self.step_ends.get(step, (0, line["start_ns"], line["end_ns"]))
        self.step_ends[step] = (count + 1, min(first, line["start_ns"]), max(last, line["end_ns"]))
        self.failed_steps += not line.get("ok", True)
        while len(self.step_ends) > STEPS:
            del self.step_ends[min(self.step_ends)]

    def _goodput(self, host: int, t: int, line: dict[str, Any]) -> None:
        self.goodput.add(t, line["bin_ns"], line["rx"])
        self.host(host).recent.append((t, line["bin_ns"], line["rx"]))

    def _ev(self, host: int, t: int, line: dict[str, Any]) -> None:
        path, new = (host, int(line["peer"]), int(line["ev"])), str(line["to"])
        before = self.paths.pop(path, "GOOD")
        if new != "GOOD":
            self.paths[path] = new
        self.host(host).bad_paths += (new not in ("GOOD", "SKIP")) - (before not in ("GOOD", "SKIP"))
        insort(self.changes, (t, *path, before, new, str(line.get("cause") or "")))
        del self.changes[:-CHANGES]

    def _loss(self, host: int, t: int, line: dict[str, Any]) -> None:
        self.host(host).losses += 1

    def _rtx(self, host: int, t: int, line: dict[str, Any]) -> None:
        self.host(host).retransmissions += 1

    def _rto(self, host: int, t: int, line: dict[str, Any]) -> None:
        self.host(host).timeouts += 1

    def _window(self, host: int, t: int, line: dict[str, Any]) -> None:
        own = self.host(host)
        own.rtt_ns = line.get("srtt_ns") or own.rtt_ns
        own.window = line.get("cwnd", line.get("window")) or own.window

    def _port(self, host: int, t: int, line: dict[str, Any]) -> None:
        (self.host(host).ports_down.discard if line.get("up") else self.host(host).ports_down.add)(int(line["port"]))

    def _qp(self, host: int, t: int, line: dict[str, Any]) -> None:
        self.lost_pairs += line.get("state") == "ERROR"

    def _message(self, host: int, t: int, line: dict[str, Any]) -> None:
        self.messages += 1
        self.begin = min(self.begin or line["start_ns"], line["start_ns"])

    def _fault(self, host: int, t: int, line: dict[str, Any]) -> None:
        name, phase = str(line["name"]), str(line["phase"])
        fault = self.faults.setdefault(name, Fault(name, f"{line.get('fault', '')} on {line.get('on', '')}", t))
        fault.phase = phase
        if phase == "begin":
            fault.begin, fault.end = t, None
        elif phase in ("heal", "end") and fault.end is None:
            fault.end = t

    # --- figures -----------------------------------------------------------------------------------------------

    def step_times(self) -> list[tuple[int, int]]:
        """(step, ns from the first rank's begin to the last one's end) of the steps that all ranks have finished, in order."""
        ranks = max((count for count, _, _ in self.step_ends.values()), default=0)
        return [(step, last - first) for step, (count, first, last) in sorted(self.step_ends.items()) if count == ranks]

    def rate_now(self, plane: int) -> float:
        """Payload bits/s of the network that all hosts receive on a plane, over each host's latest bins, if these are the present's."""
        total = 0.0
        for host in self.hosts.values():
            recent = [entry for entry in host.recent if entry[0] > self.clock - 2 * NOW_BINS * entry[1]]
            width = sum(entry[1] for entry in recent)
            total += sum(entry[2][plane] for entry in recent) * 8e9 / width if width else 0.0
        return total * self.fabric.dilation

    def host_rate_now(self, number: int) -> float:
        """The same of one host, over all planes."""
        host = self.hosts.get(number)
        recent = [entry for entry in host.recent if entry[0] > self.clock - 2 * NOW_BINS * entry[1]] if host else []
        width = sum(entry[1] for entry in recent)
        return sum(map(sum, (entry[2] for entry in recent))) * 8e9 / width * self.fabric.dilation if width else 0.0

    def mean_rate(self, plane: int) -> float:
        """Over all bins that have come."""
        values = self.goodput.of(plane)
        return statistics.fmean(values) * 8e9 / self.goodput.width * self.fabric.dilation if values else 0.0

    def bad_by_plane(self) -> dict[int, Counter[str]]:
        """Plane -> paths by state, of those that are not GOOD."""
        counts: dict[int, Counter[str]] = {}
        for (_, _, ev), state in self.paths.items():
            counts.setdefault(ev >> 16, Counter())[state] += 1
        return counts

    def since_begin(self, t: int) -> float:
        """ns of the network since the first measured step or flow began; before that, since the run's begin."""
        origin = self.begin if self.begin is not None else self.begun_at if self.begun_at is not None else t
        return (t - origin) / self.fabric.dilation


_ACTS: dict[str, Callable[[RunState, int, int, dict[str, Any]], None]] = {
    "start": RunState._start, "end": RunState._end, "step": RunState._step, "goodput": RunState._goodput, "ev": RunState._ev,
    "loss": RunState._loss, "rtx": RunState._rtx, "rto": RunState._rto, "srtt": RunState._window, "cwnd": RunState._window,
    "port": RunState._port, "qp": RunState._qp, "message": RunState._message, "fault": RunState._fault,
}  # fmt: skip
