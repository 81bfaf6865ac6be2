"""Judges the fidelity of a run: whether its figures are trustworthy, doubtful or invalid, and why. Pure; docs/time.md states the
thresholds.

**Invalid**: something cannot be right, such as wrong sums or bytes, packets that vanished, ports off their rate, a clock that stepped.
**Doubtful**: the figures may be those of the machine and not of the transport, because the machine was busy or late. **Trustworthy**:
everything else. scenarios/run/watch.py takes the samples.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.terminal import duration

TRUSTWORTHY, DOUBTFUL, INVALID = "trustworthy", "doubtful", "invalid"
SAMPLE_S = 0.2
"""Interval at which scenarios.run.watch samples the CPU and the clocks [ours]."""
LATE_RTTS = 0.004
"""The expected lateness of an agent over the run (agents.lateness), in base RTTs, that changes figures: at 0.006 the median step of `smoke`
was 7 % longer; at 0.003, beside a program that kept a core busy, that of `link-failure` was the same [measured; the bound ours]."""
LATE_WINDOW_RTTS = 0.015
"""The expected lateness of an agent in its worst window, in base RTTs, that changes figures: as much as by one pause of a third of a base
RTT. At 0.016 the slowest step of `smoke` was a third longer, at 0.014 none was [measured; the bound ours]."""
ACT_RTTS = 0.35
"""A fault may begin or end too late by so many base RTTs: as much as an agent may stand still once [ours]."""
RATE_KEPT = 0.98
"""The least share of its rate that a port with a constant backlog must carry."""
OFF_FRAMES = 1
"""The counted queue and the kernel's queue may differ by so many frames, in addition to those on the cable [ours]."""
STEP_NS = 1_000_000
"""A clock that jumps by more than this between two samples was set [ours]."""
SLOWER = "run it slower (--dilation, twice of what it was, say)"
"""The remedy if a machine is too slow for a fabric."""
DRIFT_PPM = 1000.0
"""A monotonic clock that is slewed by more than this makes measured times wrong by as much [ours]."""
UNSURE_SHARE = 20
"""Clocks of several machines that are less sure than a base RTT divided by this make delays between them doubtful [ours]."""
BAD_CHECKSUM = "rx_bad_icrc"
"""The agents' counter of frames that were refused because of their checksum."""


@dataclass(frozen=True)
class Judgement:
    """The reasons why a run is ``invalid`` or ``doubtful``, as text. ``too_slow``: one of them is that the machine was; a run at more
    dilation may be better."""

    invalid: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    too_slow: bool = False

    @property
    def verdict(self) -> str:
        return INVALID if self.invalid else DOUBTFUL if self.doubtful else TRUSTWORTHY

    @property
    def reasons(self) -> list[str]:
        return [*self.invalid, *self.doubtful]


def verdict_of(entry: Mapping[str, Any]) -> str:
    """Return the fidelity verdict of an entry of summary.json; for older entries without one it follows from reasons, packets and sums."""
    verdict = entry.get("fidelity", {}).get("verdict")
    if verdict in (TRUSTWORTHY, DOUBTFUL, INVALID):
        return str(verdict)
    if entry.get("wrong") or entry.get("packets", {}).get("unexplained"):
        return INVALID
    return DOUBTFUL if entry.get("distrust") else TRUSTWORTHY


def cpu_percent(samples: Sequence[Sequence[float]], begin_ns: float, end_ns: float) -> float | None:
    """Compute the mean busy share of the usable cores in the window, percent; None without a sample."""
    inside = [share for t, share in samples if begin_ns <= t <= end_ns]
    return round(100 * sum(inside) / len(inside), 1) if inside else None


@dataclass(frozen=True)
class Evidence:
    """The facts about a run on which its fidelity verdict rests. Times in ns."""

    window: tuple[float, float]
    loops: Sequence[Mapping[str, Any]]
    """Report of each agent's loop: how late it was."""
    causes: Mapping[str, int]
    unexplained: int | None
    """Packets that the books do not account for; None if the counters could not be read."""
    base_rtt_ns: float
    rejected: Mapping[str, int]
    cables: Sequence[Mapping[str, Any]]
    corrupted: int = 0
    """Frames that faults corrupted: agents must refuse them, unless they are among the ``gone``."""
    gone: int = 0
    """Frames that were lost or trimmed."""
    stragglers: Collection[int] = ()
    """Hosts whose agents a fault stopped."""
    wrong: int = 0
    watch: Mapping[str, Any] | None = None
    """The report of the fidelity watch; None for older runs and in the simulated world."""
    touched: Collection[str] = ()
    """Cables that faults took down or slowed: their rate is not checked."""
    on_the_way: int = 0
    """Packets still in queues or delay lines when the books were closed."""
    late_pause_ns: float = 0
    """The most by which a pause (PFC) took effect later than it should."""
    acts_late_ns: float = 0
    """The most by which the runner began or ended a fault, or a network re-routed, later than it should."""


def judge(run: Evidence) -> Judgement:
    """Judge the fidelity of a run and give the reasons."""
    loops = [loop for loop in run.loops if loop.get("host") not in run.stragglers]
    watch = run.watch
    starved = [*_starved(watch, set(run.touched))] if watch else []
    invalid = [
        *([f"{run.wrong} results are wrong"] if run.wrong else []),
        *_packets(run),
        *starved,
        *(_ports(watch.get("ports", {}), set(run.touched)) if watch else ()),
        *(_clock(watch) if watch else ()),
    ]
    slow = [*judge_lateness(loops, watch or {}, run.base_rtt_ns), *_acted_late(run), *_dropped(run.causes), *_paused_late(run)]
    doubtful = [
        *(_suspended(watch, run.window) if watch else ()),
        *slow,
        *(_apart(watch, run.base_rtt_ns) if watch else ()),
        *(_unwatched(watch) if watch else ()),
        *(["the packet counters could not be read at the end"] if run.unexplained is None else []),
        *([f"{run.on_the_way} packets were still on their way when the counters were read"] if run.on_the_way else []),
    ]
    return Judgement(tuple(invalid), tuple(doubtful), bool(starved or slow))


# --- invalid ---------------------------------------------------------------------------------------------------------


def _packets(run: Evidence) -> Iterable[str]:
    refused = run.rejected.get(BAD_CHECKSUM, 0)
    if run.corrupted - refused > run.gone:
        yield f"{run.corrupted - refused} of {run.corrupted} frames that a fault corrupted were accepted as good"
    if run.unexplained:
        yield f"{abs(run.unexplained)} packets {'unaccounted for' if run.unexplained > 0 else 'arrived that nobody sent'}"
    for name, n in run.rejected.items():
        if name != BAD_CHECKSUM or refused > run.corrupted:
            yield f"agents refused {n} frames that arrived ({name})"
    for gap in run.cables:
        yield f"the packet counts of {gap['where']} do not balance: {gap['packets']} packets, {gap['bytes']} bytes"


def _ports(report: Mapping[str, Any], touched: set[str]) -> Iterable[str]:
    frame = int(report.get("frame_bytes", 0))
    for row in report.get("ports", ()):
        if row["link"] in touched:
            continue
        rate = f"{row['rate_bps'] / 1e9:g} Gb/s"
        if row["excess_bytes"] > row["allowed_bytes"]:
            excess = f"{row['excess_bytes']:,} bytes more than {rate} allows, tolerance {row['allowed_bytes']:,}"
            yield f"port {row['port']} exceeded its rate: {excess}"
        if row["off_bytes"] > OFF_FRAMES * frame:
            yield f"port {row['port']}: the counted queue and the kernel's differ by {row['off_bytes']:,} bytes"


def _starved(watch: Mapping[str, Any], touched: set[str]) -> Iterable[str]:
    """Find the ports that timers served late."""
    late = watch.get("shaper_late")
    complaint = f"; the kernel complained {late} times of too many events at ports (HTB)" if late else ""
    for row in watch.get("ports", {}).get("ports", ()):
        if row["link"] not in touched and row["busy_share"] is not None and row["busy_share"] < RATE_KEPT:
            rate = f"{row['rate_bps'] / 1e9:g} Gb/s"
            yield f"port {row['port']} always had packets to send, but carried only {row['busy_share']:.1%} of its {rate}{complaint}"


def _clock(watch: Mapping[str, Any]) -> Iterable[str]:
    clock = watch["clock"]
    if clock.get("wall_slept_ns", 0) > STEP_NS:
        yield f"the machine slept for {clock['wall_slept_ns'] / 1e9:.1f} s: keep it awake and run again"
    if clock["wall_step_ns"] > STEP_NS:
        yield f"the clock was set by {clock['wall_step_ns'] / 1e6:.1f} ms during the run"
    if clock["strangers"]:
        yield f"{', '.join(clock['strangers'])} ran in another time namespace"


# --- doubtful --------------------------------------------------------------------------------------------------------


def _suspended(watch: Mapping[str, Any], window: tuple[float, float]) -> Iterable[str]:
    stopped = [wall_ns for begin, end, wall_ns in watch.get("gaps", ()) if window[0] < end and begin < window[1]]
    if stopped:
        yield f"the runner was suspended for {sum(stopped) / 1e9:.1f} s (Ctrl-Z, SIGSTOP, or a paused virtual machine): run again"


def judge_lateness(loops: Sequence[Mapping[str, Any]], watch: Mapping[str, Any], base_rtt_ns: float) -> Iterable[str]:
    """Judge agents that got to frames and timers late, whatever kept them: a busy machine by itself is no reason."""
    waits = {f"h{loop['host']}": (loop.get("lag_mean_ns", 0), loop.get("lag_window_ns", 0)) for loop in loops}
    late = {name for name, (mean, worst) in waits.items() if mean > LATE_RTTS * base_rtt_ns or worst > LATE_WINDOW_RTTS * base_rtt_ns}
    if late:
        worst = max(late, key=lambda name: waits[name])
        longest = max(loop["lag_max_ns"] for loop in loops if f"h{loop['host']}" == worst)
        mean, window = waits[worst]
        figures = f"{mean / base_rtt_ns:.1%} of a base RTT on average, {window / base_rtt_ns:.1%} at worst, once by {duration(longest)}"
        yield f"{_agents(late, waits, worst)} acted late: {figures} (tolerance {LATE_RTTS:.1%}, {LATE_WINDOW_RTTS:.1%}){_cause(watch)}"


def _agents(late: Collection[str], agents: Collection[str], worst: str) -> str:
    return f"the agent of {worst}" if len(late) == 1 else f"{len(late)} of {len(agents)} agents (worst: {worst})"


def _cause(watch: Mapping[str, Any]) -> str:
    """Say what kept the agents from running, as far as known, and the remedy."""
    quota, shares = watch.get("quota", {}), watch.get("cpu_shares")
    if quota.get("times"):
        limit = f"a CPU quota of {quota['cores']:.2g} cores stopped the run {quota['times']:,} times, {quota['wall_ns'] / 1e9:.1f} s in all"
        return f": {limit}: raise it (docker --cpus, a pod's CPU limit, CPUQuota=), or {SLOWER}"
    if shares is None:
        return f": {SLOWER}, or free the machine"
    remedies = {
        "own": f"{SLOWER}, or use fewer hosts",
        "others": "free the machine of other work",
        "steal": "give this virtual machine cores of its own",
    }
    names = {"own": "this run's processes", "others": "other processes", "interrupts": "interrupts", "steal": "stolen by the hypervisor"}
    parts = ", ".join(f"{shares[part]:.0%} {name}" for part, name in names.items())
    return f": the machine was {shares['busy']:.0%} busy ({parts}): {remedies[max(remedies, key=lambda part: shares[part])]}"


def _apart(watch: Mapping[str, Any], base_rtt_ns: float) -> Iterable[str]:
    """List reasons to distrust several machines: clocks that are not sure enough, and frames that their network changed."""
    unsure = watch.get("clocks", {}).get("unsure_ns", 0)
    if unsure > base_rtt_ns / UNSURE_SHARE:
        share = f"more than a base RTT / {UNSURE_SHARE} ({duration(base_rtt_ns / UNSURE_SHARE)})"
        yield f"the machines' clocks agree to {duration(unsure)} only, {share}: use a quieter or nearer network for their control"
    if merged := watch.get("trunk", {}).get("merged", 0):
        yield f"{merged} frames reached a machine merged with others: turn GRO off between the machines (ethtool -K DEVICE gro off)"


def _unwatched(watch: Mapping[str, Any]) -> Iterable[str]:
    drift = watch["clock"]["drift_ppm"]
    if abs(drift) > DRIFT_PPM:
        yield f"the clock was slewed by {drift:,.0f} ppm: let it settle"
    if watch["failure"]:
        yield f"the fidelity watch ended early ({watch['failure']})"


def _paused_late(run: Evidence) -> Iterable[str]:
    """Judge pauses that took effect late, only if it did harm: headroom has room for more than what usually arrives."""
    drops = run.causes.get("drop_tail", 0)
    if run.late_pause_ns > 0 and drops:
        late = duration(run.late_pause_ns)
        yield f"a port was paused {late} too late (PFC), and {drops} packets found no room: {SLOWER}"


def _acted_late(run: Evidence) -> Iterable[str]:
    if run.acts_late_ns > ACT_RTTS * run.base_rtt_ns:
        late = run.acts_late_ns / run.base_rtt_ns
        figures = f"{duration(run.acts_late_ns)} late, {late:.2f} base RTTs (tolerance {ACT_RTTS:g})"
        yield f"a fault began or ended, or a network re-routed, up to {figures}{_cause(run.watch or {})}"


def _dropped(causes: Mapping[str, int]) -> Iterable[str]:
    if bridge_drops := causes.get("drop_bridge", 0):
        yield f"Open vSwitch dropped {bridge_drops} packets that came faster than it could forward: {SLOWER}, or use eBPF"
    if trunk_drops := causes.get("drop_trunk", 0):
        yield f"{trunk_drops} packets were lost between the machines: give the network between them more room, or raise --dilation"
    if socket_drops := sum(n for cause, n in causes.items() if "ring" in cause):
        yield f"receive sockets dropped {socket_drops} packets because agents were too slow"


# --- figures ---------------------------------------------------------------------------------------------------------


def figures(
    judgement: Judgement, loops: Sequence[Mapping[str, Any]], causes: Mapping[str, int], watch: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return ``fidelity`` of an entry of summary.json: the verdict, the reasons and the measurements; docs/results.md explains the keys."""
    summary: dict[str, Any] = {"verdict": judgement.verdict, "invalid": list(judgement.invalid), "doubtful": list(judgement.doubtful)}
    summary["too_slow"] = judgement.too_slow
    if watch is None:
        return summary
    rows = watch.get("ports", {}).get("ports", [])
    busy = [row["busy_share"] for row in rows if row["busy_share"] is not None]
    by_name = {row["name"]: row for row in watch.get("processes", ())}
    window, quota, clock = watch.get("wall_window_ns"), watch.get("quota"), watch["clock"]
    agents = [row for name, row in by_name.items() if name[:1] == "h" and name[1:].isdigit()]

    def percent(processes: Iterable[Mapping[str, Any]], key: str = "wall_cpu_ns") -> float | None:
        """Return the share of the window, in percent of one core."""
        return round(100 * sum(row[key] for row in processes) / window, 1) if window else None

    return summary | {
        "cpu": {
            "agents_percent": percent(agents), "agent_max_percent": max((percent([a]) or 0.0 for a in agents), default=None),
            **{f"{name}_percent": percent([by_name[name]]) for name in ("controller", "runner", "pauser") if name in by_name},
            "cores": watch["cores"], "machine_shares": watch.get("cpu_shares"),
        },
        "waiting": {
            "pressure": watch.get("pressure"),
            "agent_max_percent": max((percent([a], "wall_delay_ns") or 0.0 for a in agents), default=None),
            "wall_mean_max_ns": max((round(a["wall_delay_ns"] / a["turns"]) for a in agents if a["turns"]), default=None),
        },
        **{
            key: max((loop.get(key, 0) for loop in loops), default=None)
            for key in ("lag_mean_ns", "lag_window_ns", "lag_p99_ns", "lag_max_ns")
        },
        "quota": quota and {"cores": quota["cores"], "times": quota["times"], "wall_ns": quota["wall_ns"]},
        "socket_drops": sum(n for cause, n in causes.items() if "ring" in cause),
        "ports": {
            "watched": len(rows), "busy": len(busy), "busy_least_share": min(busy, default=None),
            "excess_bytes": max((row["excess_bytes"] for row in rows), default=None),
        },
        "queues": {
            "compared": sum(row["compared"] for row in rows), "equal": sum(row["equal"] for row in rows),
            "off_bytes": max((row["off_bytes"] for row in rows), default=None),
        },
        "clock": {
            "wall_step_ns": clock.get("wall_step_ns", 0), "wall_slept_ns": clock.get("wall_slept_ns", 0),
            "drift_ppm": clock.get("drift_ppm", 0)
        },
        "wall_suspended_ns": sum(wall_ns for *_, wall_ns in watch.get("gaps", ())),
        "shaper_late": watch.get("shaper_late"),
    }  # fmt: skip
