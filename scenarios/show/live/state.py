"""Computes what a screen shows of a run, from its frames (testbed.view.fold). Sans-IO.

Memory does not grow with a run's length: series merge neighbouring bins. Times are ns of the
network since the run began.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from testbed.view.fold import OUT, Frame
from topologies import Fabric
from topologies.addressing import ev_fields

BINS = 128
CHANGES = 200
STEPS = 512
NOW_BINS = 3  # A host's present rate is over its latest bins.


@dataclass
class Series:
    """Sums per bin and key (a plane). Bins double in width when there are too many."""

    width: int = 0
    bins: dict[int, list[float]] = field(default_factory=dict)
    origin: int = 0

    def add(self, t: int, width: int, values: list[int]) -> None:
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
        if not self.bins:
            return []
        return [
            self.bins[n][key] if n in self.bins else 0.0
            for n in range(min(self.bins), max(self.bins) + 1)
        ]


@dataclass
class Fault:
    name: str
    what: str
    begin: int
    end: int | None = None
    phase: str = ""


@dataclass
class Host:
    recent: deque[tuple[int, int, list[int]]] = field(
        default_factory=lambda: deque(maxlen=NOW_BINS)
    )
    losses: int = 0
    retransmissions: int = 0
    timeouts: int = 0
    rtt_ns: int | None = None
    window: int | None = None
    ports_down: set[int] = field(default_factory=set)
    bad_paths: int = 0


@dataclass
class RunState:
    fabric: Fabric
    first_job: Collection[int] = ()  # of jobs, the ranks of the first, whose steps count
    clock: int = 0  # of the latest frame
    outcome: str = ""
    reason: str = ""
    goodput: Series = field(default_factory=Series)
    hosts: dict[int, Host] = field(default_factory=dict)
    paths: dict[tuple[int, int, int], str] = field(default_factory=dict)  # those out of use
    # of paths, the latest
    changes: deque[Frame] = field(default_factory=lambda: deque(maxlen=CHANGES))
    faults: dict[str, Fault] = field(default_factory=dict)
    phase: int = 0  # of jobs: each alone first, then all together
    # step -> ranks that ended it, time of the slowest
    step_ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    failed_steps: int = 0
    messages: int = 0
    lost_pairs: int = 0  # queue pairs in ERROR

    def take(self, frame: Frame) -> None:
        self.clock = max(self.clock, frame["t"])
        act = _ACTS.get(frame["f"])
        if act is not None:
            act(self, frame)

    def host(self, number: int) -> Host:
        return self.hosts.setdefault(number, Host())

    # --- frames -----------------------------------------------------------------------------------

    def _end(self, frame: Frame) -> None:
        self.outcome, self.reason = frame["outcome"], frame["reason"]

    def _step(self, frame: Frame) -> None:
        step, phase = frame["step"], frame.get("phase", 0)
        if phase > self.phase:
            self.phase, self.step_ends = phase, {}
        if step < 0 or (self.first_job and frame["rank"] not in self.first_job):
            return
        count, slowest = self.step_ends.get(step, (0, 0))
        self.step_ends[step] = (count + 1, max(slowest, frame["t"] - frame["start"]))
        self.failed_steps += not frame["ok"]
        while len(self.step_ends) > STEPS:
            del self.step_ends[min(self.step_ends)]

    def _rate(self, frame: Frame) -> None:
        self.goodput.add(frame["t"], frame["ns"], frame["rx"])
        self.host(frame["host"]).recent.append((frame["t"], frame["ns"], frame["rx"]))

    def _path(self, frame: Frame) -> None:
        own = self.host(frame["src"])
        for ev in frame["evs"]:
            path = (frame["src"], frame["dst"], ev)
            own.bad_paths += (frame["state"] in OUT) - (self.paths.pop(path, "") in OUT)
            if frame["state"] in OUT:
                self.paths[path] = frame["state"]
        self.changes.append(frame)

    def _loss(self, frame: Frame) -> None:
        own = self.host(frame["src"])
        own.losses += frame["lost"] + frame["trimmed"]
        own.retransmissions += frame["again"]

    def _window(self, frame: Frame) -> None:
        own = self.host(frame["src"])
        own.rtt_ns, own.window = frame["srtt_ns"] or own.rtt_ns, frame["window"] or own.window

    def _event(self, frame: Frame) -> None:
        what, own = frame["what"], self.host(frame["host"])
        own.timeouts += what == "rto"
        self.lost_pairs += what == "qp"
        if what == "port":
            (own.ports_down.discard if frame["up"] else own.ports_down.add)(frame["port"])

    def _messages(self, frame: Frame) -> None:
        self.messages += frame["count"]

    def _fault(self, frame: Frame) -> None:
        name, phase, t = frame["name"], frame["phase"], frame["t"]
        fault = self.faults.setdefault(name, Fault(name, f"{frame['fault']} on {frame['on']}", t))
        fault.phase = phase
        if phase == "begin":
            fault.begin, fault.end = t, None
        elif phase in ("heal", "end") and fault.end is None:
            fault.end = t

    # --- figures ----------------------------------------------------------------------------------

    def step_times(self) -> list[tuple[int, int]]:
        """Return (step, ns on the slowest rank) of steps that all ranks finished; of several jobs,
        the first one's."""
        ranks = max((count for count, _ in self.step_ends.values()), default=0)
        return [
            (step, slowest)
            for step, (count, slowest) in sorted(self.step_ends.items())
            if count == ranks
        ]

    def rate_now(self, plane: int) -> float:
        """Return all hosts' payload on a plane, bits/s, over each host's latest bins, if these are
        current."""
        return sum(self._recent(host, lambda rx: rx[plane]) for host in self.hosts.values())

    def host_rate_now(self, number: int) -> float:
        return self._recent(self.hosts[number], sum) if number in self.hosts else 0.0

    def _recent(self, host: Host, of: Callable[[list[int]], int]) -> float:
        recent = [entry for entry in host.recent if entry[0] > self.clock - 2 * NOW_BINS * entry[1]]
        width = sum(entry[1] for entry in recent)
        return sum(of(entry[2]) for entry in recent) * 8e9 / width if width else 0.0

    def mean_rate(self, plane: int) -> float:
        values = self.goodput.of(plane)
        return statistics.fmean(values) * 8e9 / self.goodput.width if values else 0.0

    def bad_by_plane(self) -> dict[int, Counter[str]]:
        counts: dict[int, Counter[str]] = {}
        for (_, _, ev), state in self.paths.items():
            counts.setdefault(ev_fields(ev)[0], Counter())[state] += 1
        return counts


_ACTS: dict[str, Callable[[RunState, Frame], None]] = {
    "end": RunState._end,
    "step": RunState._step,
    "rate": RunState._rate,
    "path": RunState._path,
    "loss": RunState._loss,
    "cwnd": RunState._window,
    "event": RunState._event,
    "messages": RunState._messages,
    "fault": RunState._fault,
}
