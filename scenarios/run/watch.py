"""Samples the machine, its clocks and the emulated ports during a run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from agents.clock import Clock, WallClock
from agents.process.control import AgentError
from scenarios.figures.fidelity import SAMPLE_S, judge_lateness
from testbed.machine.cleanup import namespace
from testbed.machine.kernel_log import SHAPER_LATE, KernelLog
from testbed.machine.load import (
    Clocks,
    Cpu,
    Work,
    read_clocks,
    read_cpu,
    read_pressure,
    read_thread,
    read_work,
)
from testbed.machine.quota import Throttled, quota_cores, read_throttled, usable_cores
from testbed.results.log import Loop
from testbed.results.record import Watch as Report
from testbed.world import EMULATED, Ports, RunWatch, World
from topologies.units import NS

GAP_S = 1.0
"""A later sample, beyond the wait for a core: something stopped the process [ours]."""
LOOKS_PER_RTT, LOOK_S = 6, 0.01
"""Samples of ports per base RTT, and shortest interval [ours]: a sample costs some 0.1 ms."""


class _Mark(NamedTuple):
    wall_ns: int
    pressure_us: int | None
    work: dict[str, Work | None]
    cpu: Cpu
    pids: Collection[int]


class Watch(threading.Thread):
    """``clock``: a wall clock. ``processes`` returns the run's by name; ``ports`` samples its ports
    every ``interval``.

    ``delay_max_ns``: the latest wake-up by the machine's clock, a sign of a starved machine.
    """

    def __init__(
        self,
        clock: Clock,
        processes: Callable[[], Mapping[str, int]] = dict,
        ports: Ports | None = None,
        interval: int = 0,
        clocks: Callable[[], Clocks] = read_clocks,
    ) -> None:
        assert isinstance(clock, WallClock)
        super().__init__(daemon=True, name="fidelity")
        self.samples: list[tuple[int, float]] = []
        self.delay_max_ns = 0
        self._clock, self._processes, self._ports, self._read_clocks = (
            clock,
            processes,
            ports,
            clocks,
        )
        self._look_s = (
            max(LOOK_S, min(clock.wall_s(interval), SAMPLE_S)) if ports is not None else SAMPLE_S
        )
        self._over = threading.Event()
        self._first = self._last = clocks()
        self._kernel = KernelLog()
        self._shaper_late: int | None = None
        self._step = self._slept = 0
        self._gaps: list[tuple[int, int, int]] = []  # begin, end, ns of the machine's clock
        self._marks: list[_Mark] = []
        # by control group: at the first look in the measured part, and now
        self._throttled: dict[Path, tuple[Throttled, Throttled]] = {}
        self._cores = usable_cores()
        self._strangers: list[str] = []
        self.failure = ""

    def run(self) -> None:
        try:
            self._sample()
        except Exception as error:  # the results report it: the run was no longer watched
            self.failure = f"{type(error).__name__}: {error}"

    def _sample(self) -> None:
        busy, total, *_ = read_cpu()
        cpu_at = time.monotonic_ns() + int(SAMPLE_S * 1e9)
        waited = _waited_ns()
        while True:
            before = time.monotonic_ns()
            if self._over.wait(self._look_s):
                return
            now = time.monotonic_ns()
            late = now - before - int(self._look_s * 1e9)
            self.delay_max_ns = max(self.delay_max_ns, late)
            if late > GAP_S * 1e9 and (gap := late - (_waited_ns() - waited)) > GAP_S * 1e9:
                self._gaps.append((self._clock.at(now - gap), self._clock.at(now), gap))
            if self._ports is not None:
                self._ports.look()
            if now < cpu_at:
                continue
            cpu_at = now + int(SAMPLE_S * 1e9)
            self._look_at_clocks()
            self._look_at_quotas()
            waited = _waited_ns()
            new_busy, new_total, *_ = read_cpu()
            if new_total > total:
                self.samples.append((self._clock.at(now), (new_busy - busy) / (new_total - total)))
            busy, total = new_busy, new_total

    def _look_at_clocks(self) -> None:
        """The monotonic clock stands still while the machine sleeps; other steps are of the clock
        of the day."""
        former, now = self._last, self._read_clocks()
        width = former.width + now.width
        slept = (now.boot - now.monotonic) - (former.boot - former.monotonic)
        self._slept += slept if slept > width else 0
        self._step = max(
            self._step, abs((now.real - now.boot) - (former.real - former.boot)) - width
        )
        self._last = now

    def _look_at_quotas(self) -> None:
        """Look again: processes may be moved to other groups, and a quota may be set, while they
        run."""
        if not self._marks:
            return
        pids = [os.getpid(), *self._marks[0].pids]
        self._cores = min(self._cores, *map(quota_cores, pids))
        for group, now in read_throttled(pids).items():
            first, _ = self._throttled.get(group, (now, now))
            self._throttled[group] = first, now

    def mark(self) -> None:
        processes = self._processes()
        own = namespace("self", "time")  # which clocks it has (time_namespaces(7))
        self._strangers += [
            name
            for name, pid in processes.items()
            if namespace(pid, "time") not in (0, own) and name not in self._strangers
        ]
        work = {name: read_work(pid) for name, pid in processes.items()}
        self._marks.append(
            _Mark(time.monotonic_ns(), read_pressure(), work, read_cpu(), processes.values())
        )
        self._look_at_quotas()

    def stop(self) -> None:
        self._over.set()
        if self.ident is not None:
            self.join(2)
        self._shaper_late = self._kernel.count(SHAPER_LATE)
        self._kernel.close()

    def result(self) -> dict[str, object]:
        """Return the entry of run.json, after :meth:`stop`."""
        self._look_at_clocks()
        first, last = self._first, self._last
        elapsed = last.raw - first.raw
        drift = ((last.monotonic - first.monotonic) / elapsed - 1) * 1e6 if elapsed > 0 else 0.0
        summary: dict[str, object] = {
            "clock": {
                "wall_step_ns": max(0, self._step),
                "wall_slept_ns": self._slept,
                "drift_ppm": round(drift, 1),
                "strangers": self._strangers,
            },
            "gaps": self._gaps,
            "cores": len(os.sched_getaffinity(0)),
            "quota": {
                "cores": round(self._cores, 3),
                "times": max(
                    (now.times - first.times for first, now in self._throttled.values()), default=0
                ),
                "wall_ns": max(
                    (now.ns - first.ns for first, now in self._throttled.values()), default=0
                ),
            },
            "failure": self.failure,
            "shaper_late": self._shaper_late,
        }
        if self._ports is not None:
            summary["ports"] = self._ports.result()
        if len(self._marks) >= 2:
            summary |= _between(self._marks[0], self._marks[-1])
        return summary


class Doubts:
    """Watches agents for commands whose figures have no verdict. ``stalled``: hosts that faults
    stop."""

    def __init__(self, world: World, stalled: Collection[int] = ()) -> None:
        self._world, self._stalled = world, stalled
        self._watch: RunWatch | None = None
        if world.name == EMULATED:
            self._watch = world.run_watch(world.clock.patience(SAMPLE_S)) or Watch(
                world.clock, world.processes
            )
        self._lags: dict[int, dict[str, int]] = {}

    def __enter__(self) -> Self:
        if self._watch is not None:
            self._watch.start()
            self._watch.mark()
        return self

    def __exit__(self, *error: object) -> None:
        if self._watch is not None:
            self._watch.stop()

    def look(self, forget: bool = False) -> None:
        """Keep how late agents were, or with ``forget`` drop it: a start-up's cost is no
        figure's."""
        for host, agent in enumerate(self._world.agents if self._watch is not None else ()):
            with suppress(AgentError):  # it was killed: whoever needs it says so
                lag, known = agent.call("lag", forget=forget), self._lags.get(host, {})
                self._lags[host] = (
                    {}
                    if forget
                    else {key: max(time, known.get(key, 0)) for key, time in lag.items()}
                )

    def reasons(self) -> list[str]:
        if self._watch is None:
            return []
        self._watch.mark()
        loops = [
            Loop(t=0, host=host, **lag)
            for host, lag in self._lags.items()
            if host not in self._stalled and lag
        ]
        return list(
            judge_lateness(
                loops,
                msgspec.convert(self._watch.result(), Report),
                self._world.fabric.base_rtt_ps / NS,
            )
        )


def _between(begin: _Mark, end: _Mark) -> dict[str, object]:
    window = end.wall_ns - begin.wall_ns
    waited = None
    if begin.pressure_us is not None and end.pressure_us is not None:
        waited = round((end.pressure_us - begin.pressure_us) * 1000 / window, 4)
    rows, own_ns = [], 0
    for name, former in begin.work.items():
        now = end.work.get(name)
        # else another process has this name now
        if former is not None and now is not None and now.cpu_ns >= former.cpu_ns:
            used = now.cpu_ns - former.cpu_ns
            own_ns += used
            rows.append(
                {
                    "name": name,
                    "wall_cpu_ns": used,
                    "wall_delay_ns": now.delay_ns - former.delay_ns,
                    "turns": now.turns - former.turns,
                }
            )
    summary: dict[str, object] = {"wall_window_ns": window, "pressure": waited, "processes": rows}
    ticks = Cpu(*(b - a for a, b in zip(begin.cpu, end.cpu, strict=True)))
    if ticks.total > 0:
        shares = {name: ticks[i] / ticks.total for i, name in enumerate(Cpu._fields)}
        own = own_ns / window / (os.cpu_count() or 1)
        others = max(0.0, shares["busy"] - own - shares["interrupts"] - shares["steal"])
        parts = {
            "busy": shares["busy"],
            "own": own,
            "others": others,
            "interrupts": shares["interrupts"],
            "steal": shares["steal"],
        }
        summary["cpu_shares"] = {name: round(share, 4) for name, share in parts.items()}
    return summary


def _waited_ns() -> int:
    """Return this thread's wait for a core; 0 if the kernel does not report it."""
    work = read_thread("/proc/thread-self")
    return 0 if work is None else work.delay_ns
