"""A run is trusted only if the machine, the agents, the ports, the clocks and the books give no
reason not to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scenarios.figures import fidelity
from scenarios.figures.books import CableGap
from scenarios.figures.fidelity import DOUBTFUL, INVALID, TRUSTWORTHY, Judgement
from testbed.results.log import Loop
from testbed.results.record import Watch
from topologies.structs import plain
from topologies.units import NS

BASE = 10_000_000
S = 1_000_000_000
FRAME = 4302


def port(**changes: Any) -> dict[str, Any]:
    made = {
        "port": "p0-t0-0-u0",
        "link": "p0-t0-0:p0-t1-0",
        "rate_bps": 10**11,
        "bytes": 10_000_000,
        "excess_bytes": 6_000,
        "allowed_bytes": 24_708,
        "busy_ps": 5 * S * NS,
        "busy_bytes": 6_249_000,
        "busy_share": 0.9998,
        "compared": 300,
        "equal": 200,
        "off_bytes": 0,
    }
    return {**made, **changes}


def watch(
    ports: list[dict[str, Any]] | None = None, clock: dict[str, Any] | None = None, **changes: Any
) -> Watch:
    processes = [
        {"name": "h3", "wall_cpu_ns": 2 * S, "wall_delay_ns": S // 10, "turns": 1000},
        {"name": "h12", "wall_cpu_ns": S, "wall_delay_ns": S // 5, "turns": 1000},
        {"name": "controller", "wall_cpu_ns": S // 10, "wall_delay_ns": 9 * S, "turns": 10},
        {"name": "runner", "wall_cpu_ns": S // 2, "wall_delay_ns": 0, "turns": 9},
    ]
    seen = {"looks": 600, "frame_bytes": FRAME, "ports": [port()] if ports is None else ports}
    clocks = {"wall_step_ns": 20_000, "drift_ppm": -12.5, "strangers": [], **(clock or {})}
    made = {
        "clock": clocks,
        "cores": 2,
        "failure": "",
        "wall_window_ns": 10 * S,
        "pressure": 0.4,
        "processes": processes,
        "ports": seen,
    }
    return msgspec.convert({**made, **changes}, Watch)


def loop(host: int, mean: float = 0.004, window: float = 0.015, once: float = 0.34) -> Loop:
    """How late an agent was, in base RTTs; by default as late as is just allowed."""
    late = {
        name: int(rtts * BASE) * NS
        for name, rtts in (("mean", mean), ("window", window), ("max", once))
    }
    return Loop(t=0, host=host, **{f"lag_{name}_ps": ps for name, ps in late.items()})


def judge(**changes: Any) -> Judgement:
    given: dict[str, Any] = {
        "window": (0, 10 * S),
        "loops": [loop(0)],
        "causes": {"drop_link_down": 7},
        "unexplained": 0,
        "base_rtt_ns": BASE,
        "rejected": {},
        "cables": [],
        "watch": watch(),
    }
    return fidelity.judge(fidelity.Evidence(**{**given, **changes}))


BUSY = {"busy": 1.0, "own": 0.0, "others": 1.0, "interrupts": 0.0, "steal": 0.0}
QUOTA = {"cores": 0.08, "times": 82, "wall_ns": 36 * S // 10}


def test_a_quiet_run_is_trusted() -> None:
    assert (judge().verdict, judge().reasons) == (TRUSTWORTHY, [])
    assert judge(watch=None).verdict == TRUSTWORTHY, (
        "a run made before ports and clocks were watched"
    )


@pytest.mark.parametrize(
    ("changes", "verdict", "word"),
    [
        (
            {"loops": [loop(3, mean=0.005)]},
            DOUBTFUL,
            "the agent of h3 acted late: 0.5% of a base RTT on average, 1.5% at worst",
        ),
        (
            {"loops": [loop(3, window=0.016, once=0.4)]},
            DOUBTFUL,
            "1.6% at worst, once by 4.00 ms (tolerance 0.4%, 1.5%): run it slower",
        ),
        ({"loops": [loop(3, mean=0.1)], "watch": None}, DOUBTFUL, "free the machine"),
        (
            {"loops": [loop(3, mean=0.1)], "watch": watch(quota=QUOTA)},
            DOUBTFUL,
            (
                "a CPU quota of 0.08 cores stopped the run 82 times, 3.6 s in all: raise it "
                "(docker --cpus"
            ),
        ),
        (
            {"acts_late_ns": 4 * BASE // 10},
            DOUBTFUL,
            "a fault began or ended, or a network re-routed, up to 4.00 ms late, 0.40 base RTTs",
        ),
        (
            {"watch": watch(gaps=[(S * NS, 4 * S * NS, 3 * S)])},
            DOUBTFUL,
            "the runner was suspended for 3.0 s (Ctrl-Z, SIGSTOP",
        ),
        ({"watch": watch(clock={"drift_ppm": 1001.0})}, DOUBTFUL, "slewed by 1,001 ppm"),
        (
            {"watch": watch(failure="OSError: no")},
            DOUBTFUL,
            "the fidelity watch ended early (OSError: no)",
        ),
        ({"unexplained": None}, DOUBTFUL, "could not be read"),
        ({"on_the_way": 3}, DOUBTFUL, "3 packets were still on their way"),
        ({"causes": {"rx_ring_drops": 4}}, DOUBTFUL, "dropped 4 packets"),
        (
            {"causes": {"drop_tail": 3}, "late_pause_ns": 2_100_000},
            DOUBTFUL,
            "paused 2.10 ms too late (PFC), and 3 packets",
        ),
        ({"causes": {"drop_bridge": 4}}, DOUBTFUL, "Open vSwitch dropped 4"),
        ({"wrong": 1}, INVALID, "1 results are wrong"),
        ({"unexplained": 2}, INVALID, "2 packets unaccounted for"),
        ({"unexplained": -1}, INVALID, "1 packets arrived that nobody sent"),
        ({"rejected": {"rx_bad_icrc": 3}}, INVALID, "refused 3 frames that arrived (rx_bad_icrc)"),
        (
            {"rejected": {"rx_bad_icrc": 3}, "corrupted": 2},
            INVALID,
            "refused 3 frames that arrived (rx_bad_icrc)",
        ),
        (
            {"rejected": {"rx_bad_icrc": 3}, "corrupted": 9, "gone": 5},
            INVALID,
            "6 of 9 frames that a fault corrupted",
        ),
        ({"rejected": {"rx_bad_rkey": 1}, "corrupted": 1, "gone": 1}, INVALID, "(rx_bad_rkey)"),
        ({"cables": [CableGap("a -> b", 1, 100)]}, INVALID, "packet counts of a -> b"),
        (
            {"watch": watch([port(excess_bytes=24_709)])},
            INVALID,
            "p0-t0-0-u0 exceeded its rate: 24,709 bytes more than 100 Gb/s allows",
        ),
        (
            {"watch": watch([port(busy_share=0.9799)])},
            INVALID,
            "always had packets to send, but carried only 98.0% of its 100 Gb/s",
        ),
        (
            {"watch": watch([port(off_bytes=FRAME + 1)])},
            INVALID,
            "the counted queue and the kernel's differ by 4,303",
        ),
        (
            {"watch": watch(clock={"wall_step_ns": 1_000_001})},
            INVALID,
            "the clock was set by 1.0 ms",
        ),
        (
            {"watch": watch([port(busy_share=0.9)], shaper_late=3)},
            INVALID,
            "its 100 Gb/s; the kernel complained 3 times of too many events",
        ),
        ({"watch": watch(clock={"wall_slept_ns": 5 * S})}, INVALID, "the machine slept for 5.0 s"),
        (
            {"watch": watch(clock={"strangers": ["h3"]})},
            INVALID,
            "h3 ran in another time namespace",
        ),
    ],
)
def test_each_doubt_is_told(changes: dict[str, Any], verdict: str, word: str) -> None:
    made = judge(**changes)
    (only,) = made.reasons
    assert word in only
    assert made.verdict == verdict


@pytest.mark.parametrize(
    "changes",
    [
        {"watch": watch(pressure=1.0, cpu_shares=BUSY)},  # with other work, but no agent was late
        {"watch": watch(quota=QUOTA)},  # so slow a run that its agents were in time all the same
        # of a run made before expected lateness was known
        {"loops": [Loop(t=0, host=0, lag_p99_ps=BASE * NS, lag_max_ps=5 * BASE * NS)]},
        # before and after the measured part
        {"watch": watch(gaps=[(-4 * S * NS, -S * NS, 3 * S), (11 * S * NS, 14 * S * NS, 3 * S)])},
        {"watch": watch(clock={"drift_ppm": -1000.0})},
        {"watch": watch([port(excess_bytes=24_708, busy_share=0.98, off_bytes=FRAME)])},
        {"watch": watch([port(busy_share=None)])},
        {"watch": watch(shaper_late=3)},
        {"watch": watch(clock={"wall_step_ns": 1_000_000})},
        {"causes": {"drop_tail": 3}},  # a full buffer, or a headroom of the wrong size
        {"acts_late_ns": 35 * BASE // 100},
        {"acts_late_ns": 4 * BASE, "watch": None},  # simulated: no machine was late
        {"late_pause_ns": 2_100_000},  # headroom had room for it
    ],
)
def test_what_is_just_allowed_is_no_reason(changes: dict[str, Any]) -> None:
    assert judge(**changes).reasons == []


def test_the_worse_of_two_verdicts_stands_and_both_reasons_are_told() -> None:
    made = judge(unexplained=1, loops=[loop(3, mean=1)])
    assert (
        made.verdict == INVALID
        and len(made.invalid) == len(made.doubtful) == 1
        and len(made.reasons) == 2
    )


def test_what_faults_corrupted_broke_or_stopped_is_no_reason() -> None:
    assert judge(rejected={"rx_bad_icrc": 3}, corrupted=3).reasons == []
    assert judge(rejected={"rx_bad_icrc": 3}, corrupted=5, gone=2).reasons == []
    late = [loop(3, mean=1)]
    assert judge(loops=late, stragglers=[3]).reasons == []
    assert judge(loops=late, stragglers=[2]).reasons != []
    off = watch([port(busy_share=0.5, off_bytes=99_999)])
    assert judge(watch=off, touched=["p0-t0-0:p0-t1-0"]).reasons == []
    assert len(judge(watch=off, touched=["p0-t0-0:p0-t1-1"]).reasons) == 2


def test_all_agents_have_one_line_and_it_says_who_kept_the_machine_busy() -> None:
    loops = [*(loop(i, mean=i + 1, once=9) for i in range(3)), loop(9)]
    for part, remedy in {
        "own": "--dilation",
        "others": "free the machine",
        "steal": "cores of its own",
    }.items():
        shares = {
            "busy": 0.97,
            "own": 0.1,
            "others": 0.1,
            "interrupts": 0.9,
            "steal": 0.1,
            part: 0.6,
        }
        (late,) = judge(watch=watch(cpu_shares=shares), loops=loops).doubtful
        assert (
            late.startswith("3 of 4 agents (worst: h2) acted late: 300.0% of a base RTT on average")
            and remedy in late
        )
        assert (
            "the machine was 97% busy (" in late
            and f"{shares['own']:.0%} this run's processes" in late
        )


def test_what_was_measured_is_told() -> None:
    lags = {"lag_p99_ns": 7, "lag_max_ns": 9, "lag_mean_ns": 1, "lag_window_ns": 3}
    late = Loop(
        t=0, host=0, lag_p99_ps=7 * NS, lag_max_ps=9 * NS, lag_mean_ps=NS, lag_window_ps=3 * NS
    )
    made = plain(fidelity.figures(judge(), [late], {"rx_ring_drops": 2}, watch(quota=QUOTA)))
    assert made["cpu"] == {
        "agents_percent": 30.0,
        "agent_max_percent": 20.0,
        "controller_percent": 1.0,
        "runner_percent": 5.0,
        "cores": 2,
        "machine_shares": None,
    }
    assert made["waiting"] == {
        "pressure": 0.4,
        "agent_max_percent": 2.0,
        "wall_mean_max_ns": 200_000,
    }
    assert made["ports"] == {
        "watched": 1,
        "busy": 1,
        "busy_least_share": 0.9998,
        "excess_bytes": 6000,
    }
    assert made["queues"] == {"compared": 300, "equal": 200, "off_bytes": 0}
    assert (made["socket_drops"], made["verdict"], made["quota"]) == (
        2,
        TRUSTWORTHY,
        {"cores": 0.08, "times": 82, "wall_ns": 36 * S // 10},
    )
    assert {key: made[key] for key in lags} == lags
    assert plain(fidelity.figures(judge(unexplained=None), [], {}, None)) == {
        "verdict": DOUBTFUL,
        "invalid": [],
        "doubtful": ["the packet counters could not be read at the end"],
        "too_slow": False,
    }
    cut_short = Watch(cores=2)
    told = plain(fidelity.figures(judge(watch=cut_short), [], {}, cut_short))
    assert told["cpu"] == dict.fromkeys(
        ("agents_percent", "agent_max_percent", "machine_shares")
    ) | {"cores": 2}
