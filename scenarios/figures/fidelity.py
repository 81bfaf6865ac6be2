"""Judges the fidelity of a run: whether its figures are trustworthy, doubtful or invalid, and why.
docs/why/time.md states the thresholds.

**Invalid**: something cannot be right, such as wrong sums or bytes, packets that vanished, ports
off their rate, a clock that stepped. **Doubtful**: the figures may be those of a busy or late
machine and not of the transport.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from scenarios.figures.books import CableGap
from testbed.results import summary
from testbed.results.log import Loop
from testbed.results.record import Watch, WatchedPort
from testbed.terminal import duration
from topologies.units import NS

TRUSTWORTHY, DOUBTFUL, INVALID = "trustworthy", "doubtful", "invalid"
SAMPLE_S = 0.2  # [ours]
LATE_RTTS = 0.004
"""Expected lateness of an agent over the run, in base RTTs, that changes figures. At 0.006 the
median step of `smoke` was 7 % longer; at 0.003, beside a program that kept a core busy, that of
`link-failure` was the same [measured; the bound ours]."""
LATE_WINDOW_RTTS = 0.015
"""Expected lateness of an agent in its worst window, in base RTTs, that changes figures: one pause
of a third of a base RTT. At 0.016 the slowest step of `smoke` was a third longer, at 0.014 none was
[measured; the bound ours]."""
ACT_RTTS = 0.35  # as much as an agent may stand still once [ours]
RATE_KEPT = 0.98
OFF_FRAMES = 1  # between counted and kernel's queue, beside frames on the cable [ours]
STEP_NS = 1_000_000  # A larger jump between two samples means that the clock was set [ours].
SLOWER = "run it slower (--dilation, twice of what it was, say)"
# A larger slew of a monotonic clock makes measured times wrong by as much [ours].
DRIFT_PPM = 1000.0
# Clocks less sure than a base RTT divided by this make delays between machines doubtful [ours].
UNSURE_SHARE = 20
BAD_CHECKSUM = "rx_bad_icrc"


@dataclass(frozen=True)
class Judgement:
    """Reasons why a run is ``invalid`` or ``doubtful``. ``too_slow``: more dilation may help."""

    invalid: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    too_slow: bool = False

    @property
    def verdict(self) -> Literal["trustworthy", "doubtful", "invalid"]:
        return "invalid" if self.invalid else "doubtful" if self.doubtful else "trustworthy"

    @property
    def reasons(self) -> list[str]:
        return [*self.invalid, *self.doubtful]


def cpu_percent(
    samples: Sequence[tuple[int, float]], begin_ns: float, end_ns: float
) -> float | None:
    inside = [share for ps, share in samples if begin_ns <= ps / NS <= end_ns]
    return round(100 * sum(inside) / len(inside), 1) if inside else None


@dataclass(frozen=True)
class Evidence:
    window: tuple[float, float]
    loops: Sequence[Loop]
    causes: Mapping[str, int]
    unexplained: int | None  # None if the counters could not be read
    base_rtt_ns: float
    rejected: Mapping[str, int]
    cables: Sequence[CableGap]
    corrupted: int = 0  # Agents must refuse these frames, unless they are among the ``gone``.
    gone: int = 0
    stragglers: Collection[int] = ()
    wrong: int = 0
    watch: Watch | None = None  # None in the simulated world
    touched: Collection[str] = ()  # The rate of these cables is not checked.
    on_the_way: int = 0
    late_pause_ns: float = 0
    acts_late_ns: float = 0


def judge(run: Evidence) -> Judgement:
    loops = [loop for loop in run.loops if loop.host not in run.stragglers]
    watch, touched = run.watch or Watch(), set(run.touched)
    starved = [*_starved(watch, touched)]
    invalid = [
        *([f"{run.wrong} results are wrong"] if run.wrong else []),
        *_packets(run),
        *starved,
        *_ports(watch, touched),
        *_clock(watch),
    ]
    slow = [
        *judge_lateness(loops, watch, run.base_rtt_ns),
        *_acted_late(run, watch),
        *_dropped(run.causes),
        *_paused_late(run),
    ]
    doubtful = [
        *_suspended(watch, run.window),
        *slow,
        *_apart(watch, run.base_rtt_ns),
        *_unwatched(watch),
        *(["the packet counters could not be read at the end"] if run.unexplained is None else []),
        *(
            [f"{run.on_the_way} packets were still on their way when the counters were read"]
            if run.on_the_way
            else []
        ),
    ]
    return Judgement(tuple(invalid), tuple(doubtful), bool(starved or slow))


# --- invalid --------------------------------------------------------------------------------------


def _packets(run: Evidence) -> Iterable[str]:
    refused = run.rejected.get(BAD_CHECKSUM, 0)
    if run.corrupted - refused > run.gone:
        yield (
            f"{run.corrupted - refused} of {run.corrupted} frames that a fault corrupted were "
            "accepted as good"
        )
    if run.unexplained:
        yield (
            f"{abs(run.unexplained)} packets "
            f"{'unaccounted for' if run.unexplained > 0 else 'arrived that nobody sent'}"
        )
    for name, n in run.rejected.items():
        if name != BAD_CHECKSUM or refused > run.corrupted:
            yield f"agents refused {n} frames that arrived ({name})"
    for gap in run.cables:
        yield (
            f"the packet counts of {gap.where} do not balance: {gap.packets} packets, "
            f"{gap.bytes} bytes"
        )


def _ports(watch: Watch, touched: set[str]) -> Iterable[str]:
    for row in watch.ports.ports:
        if row.link in touched:
            continue
        if row.excess_bytes > row.allowed_bytes:
            excess = (
                f"{row.excess_bytes:,} bytes more than {_rate(row)} allows, tolerance "
                f"{row.allowed_bytes:,}"
            )
            yield f"port {row.port} exceeded its rate: {excess}"
        if row.off_bytes > OFF_FRAMES * watch.ports.frame_bytes:
            yield (
                f"port {row.port}: the counted queue and the kernel's differ by "
                f"{row.off_bytes:,} bytes"
            )


def _starved(watch: Watch, touched: set[str]) -> Iterable[str]:
    late = watch.shaper_late
    complaint = (
        f"; the kernel complained {late} times of too many events at ports (HTB)" if late else ""
    )
    for row in watch.ports.ports:
        if row.link not in touched and row.busy_share is not None and row.busy_share < RATE_KEPT:
            yield (
                f"port {row.port} always had packets to send, but carried only "
                f"{row.busy_share:.1%} of its {_rate(row)}{complaint}"
            )


def _rate(row: WatchedPort) -> str:
    return f"{row.rate_bps / 1e9:g} Gb/s"


def _clock(watch: Watch) -> Iterable[str]:
    clock = watch.clock
    if clock.wall_slept_ns > STEP_NS:
        yield (
            f"the machine slept for {clock.wall_slept_ns / 1e9:.1f} s: keep it awake and run again"
        )
    if clock.wall_step_ns > STEP_NS:
        yield f"the clock was set by {clock.wall_step_ns / 1e6:.1f} ms during the run"
    if clock.strangers:
        yield f"{', '.join(clock.strangers)} ran in another time namespace"


# --- doubtful -------------------------------------------------------------------------------------


def _suspended(watch: Watch, window: tuple[float, float]) -> Iterable[str]:
    stopped = [
        wall_ns
        for begin, end, wall_ns in watch.gaps
        if window[0] < end / NS and begin / NS < window[1]
    ]
    if stopped:
        yield (
            f"the runner was suspended for {sum(stopped) / 1e9:.1f} s (Ctrl-Z, SIGSTOP, or a "
            "paused virtual machine): run again"
        )


def judge_lateness(loops: Sequence[Loop], watch: Watch, base_rtt_ns: float) -> Iterable[str]:
    """Judge by how late agents got to frames and timers, whatever kept them: a busy machine by
    itself is no reason."""
    waits = {f"h{loop.host}": (loop.mean_ns, loop.window_ns) for loop in loops}
    late = {
        name
        for name, (mean, worst) in waits.items()
        if mean > LATE_RTTS * base_rtt_ns or worst > LATE_WINDOW_RTTS * base_rtt_ns
    }
    if late:
        worst = max(late, key=lambda name: waits[name])
        longest = max(loop.max_ns for loop in loops if f"h{loop.host}" == worst)
        mean, window = waits[worst]
        figures = (
            f"{mean / base_rtt_ns:.1%} of a base RTT on average, {window / base_rtt_ns:.1%} at "
            f"worst, once by {duration(longest)}"
        )
        yield (
            f"{_agents(late, waits, worst)} acted late: {figures} (tolerance {LATE_RTTS:.1%}, "
            f"{LATE_WINDOW_RTTS:.1%}){_cause(watch)}"
        )


def _agents(late: Collection[str], agents: Collection[str], worst: str) -> str:
    return (
        f"the agent of {worst}"
        if len(late) == 1
        else f"{len(late)} of {len(agents)} agents (worst: {worst})"
    )


def _cause(watch: Watch) -> str:
    quota, shares = watch.quota, watch.cpu_shares
    if quota is not None and quota.times:
        limit = (
            f"a CPU quota of {quota.cores:.2g} cores stopped the run {quota.times:,} times, "
            f"{quota.wall_ns / 1e9:.1f} s in all"
        )
        return f": {limit}: raise it (docker --cpus, a pod's CPU limit, CPUQuota=), or {SLOWER}"
    if shares is None:
        return f": {SLOWER}, or free the machine"
    parts = (
        (shares.own, "this run's processes", f"{SLOWER}, or use fewer hosts"),
        (shares.others, "other processes", "free the machine of other work"),
        (shares.interrupts, "interrupts", ""),
        (shares.steal, "stolen by the hypervisor", "give this virtual machine cores of its own"),
    )
    words = ", ".join(f"{share:.0%} {name}" for share, name, _ in parts)
    _, remedy = max(
        ((share, remedy) for share, _, remedy in parts if remedy), key=lambda part: part[0]
    )
    return f": the machine was {shares.busy:.0%} busy ({words}): {remedy}"


def _apart(watch: Watch, base_rtt_ns: float) -> Iterable[str]:
    unsure = watch.clocks.unsure_ps / NS
    if unsure > base_rtt_ns / UNSURE_SHARE:
        share = f"more than a base RTT / {UNSURE_SHARE} ({duration(base_rtt_ns / UNSURE_SHARE)})"
        yield (
            f"the machines' clocks agree to {duration(unsure)} only, {share}: use a quieter or "
            "nearer network for their control"
        )
    if merged := watch.trunk.merged:
        yield (
            f"{merged} frames reached a machine merged with others: turn GRO off between the "
            "machines (ethtool -K DEVICE gro off)"
        )


def _unwatched(watch: Watch) -> Iterable[str]:
    if abs(watch.clock.drift_ppm) > DRIFT_PPM:
        yield f"the clock was slewed by {watch.clock.drift_ppm:,.0f} ppm: let it settle"
    if watch.failure:
        yield f"the fidelity watch ended early ({watch.failure})"


def _paused_late(run: Evidence) -> Iterable[str]:
    """Late pauses count only if they did harm: headroom has room for more than what usually
    arrives."""
    drops = run.causes.get("drop_tail", 0)
    if run.late_pause_ns > 0 and drops:
        late = duration(run.late_pause_ns)
        yield (
            f"a port was paused {late} too late (PFC), and {drops} packets found no room: {SLOWER}"
        )


def _acted_late(run: Evidence, watch: Watch) -> Iterable[str]:
    # In virtual time no machine is late: the runner waited for the news of a step's begin.
    if run.watch is not None and run.acts_late_ns > ACT_RTTS * run.base_rtt_ns:
        late = run.acts_late_ns / run.base_rtt_ns
        figures = (
            f"{duration(run.acts_late_ns)} late, {late:.2f} base RTTs (tolerance {ACT_RTTS:g})"
        )
        yield f"a fault began or ended, or a network re-routed, up to {figures}{_cause(watch)}"


def _dropped(causes: Mapping[str, int]) -> Iterable[str]:
    if bridge_drops := causes.get("drop_bridge", 0):
        yield (
            f"Open vSwitch dropped {bridge_drops} packets that came faster than it could "
            f"forward: {SLOWER}, or use eBPF"
        )
    if trunk_drops := causes.get("drop_trunk", 0):
        yield (
            f"{trunk_drops} packets were lost between the machines: give the network between "
            "them more room, or raise --dilation"
        )
    if socket_drops := sum(n for cause, n in causes.items() if "ring" in cause):
        yield f"receive sockets dropped {socket_drops} packets because agents were too slow"


# --- figures --------------------------------------------------------------------------------------


def figures(
    judgement: Judgement, loops: Sequence[Loop], causes: Mapping[str, int], watch: Watch | None
) -> summary.Fidelity:
    made = summary.Fidelity(
        verdict=judgement.verdict,
        invalid=list(judgement.invalid),
        doubtful=list(judgement.doubtful),
        too_slow=judgement.too_slow,
    )
    if watch is None:
        return made
    rows, clock, quota, window = watch.ports.ports, watch.clock, watch.quota, watch.wall_window_ns
    busy = [row.busy_share for row in rows if row.busy_share is not None]
    agents = [row for row in watch.processes if row.name[:1] == "h" and row.name[1:].isdigit()]

    def percent(times: Iterable[int]) -> float | None:
        return round(100 * sum(times) / window, 1) if window else None

    def of(name: str) -> float | UnsetType | None:
        return next(
            (percent([row.wall_cpu_ns]) for row in watch.processes if row.name == name), UNSET
        )

    made.cpu = summary.Cpu(
        agents_percent=percent(row.wall_cpu_ns for row in agents),
        agent_max_percent=max((percent([row.wall_cpu_ns]) or 0.0 for row in agents), default=None),
        controller_percent=of("controller"),
        runner_percent=of("runner"),
        pauser_percent=of("pauser"),
        cores=watch.cores,
        machine_shares=None
        if watch.cpu_shares is None
        else msgspec.structs.asdict(watch.cpu_shares),
    )
    made.waiting = summary.Waiting(
        pressure=watch.pressure,
        agent_max_percent=max(
            (percent([row.wall_delay_ns]) or 0.0 for row in agents), default=None
        ),
        wall_mean_max_ns=max(
            (round(row.wall_delay_ns / row.turns) for row in agents if row.turns), default=None
        ),
    )
    made.lag_mean_ns, made.lag_window_ns = (
        max(times, default=None)
        for times in ([x.mean_ns for x in loops], [x.window_ns for x in loops])
    )
    made.lag_p99_ns, made.lag_max_ns = (
        max(times, default=None) for times in ([x.p99_ns for x in loops], [x.max_ns for x in loops])
    )
    made.quota = (
        None
        if quota is None
        else summary.Quota(cores=quota.cores, times=quota.times, wall_ns=quota.wall_ns)
    )
    made.socket_drops = sum(n for cause, n in causes.items() if "ring" in cause)
    made.ports = summary.PortsWatched(
        watched=len(rows), busy=len(busy), busy_least_share=min(busy, default=None),
        excess_bytes=max((row.excess_bytes for row in rows), default=None),
    )  # fmt: skip
    made.queues = summary.QueuesWatched(
        compared=sum(row.compared for row in rows), equal=sum(row.equal for row in rows),
        off_bytes=max((row.off_bytes for row in rows), default=None),
    )  # fmt: skip
    made.clock = summary.ClockWatched(
        wall_step_ns=clock.wall_step_ns,
        wall_slept_ns=clock.wall_slept_ns,
        drift_ppm=clock.drift_ppm,
    )
    made.wall_suspended_ns = sum(wall_ns for *_, wall_ns in watch.gaps)
    made.shaper_late = watch.shaper_late
    return made
