"""The answer that terminal and page begin with: each number in it is that of summary.json, or the
median of the trustworthy runs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from scenarios.figures.summary import run_summary
from scenarios.schema.scenario import load_scenario
from scenarios.show.answer import answer, gbits, telling, verdict
from scenarios.show.html import parts
from scenarios.show.run_tables import show
from testbed import terminal
from testbed.results.summary import Check, Cost, Failover, Job, Killed, Run, Summary
from testbed.terminal import duration
from tests.made import made
from tests.scenarios.broken import fault, steps, write
from tests.scenarios.figures.test_cost import CUT, chain, payload
from tests.scenarios.plays import collide
from tests.scenarios.synthetic import make


def said(*runs: Run, **more: Any) -> list[str]:
    summary = made(Summary, runs=runs, **more)
    return ["".join(text for text, _ in parts(words.text)) for words in answer(summary)]


def cut(tmp_path: Path) -> Run:
    """Seven steps; in the sixth a cable is dead for 2 s, and a fifth arrives."""
    journal = fault("f", "link", CUT, [CUT], ("begin", 5.0), ("heal", 7.0))
    lines = [
        *steps(chain(1, 1, 1, 1, 1, 3, 1)),
        *payload([(0, 5, 1000), (5, 7, 200), (7, 9, 1000)]),
    ]
    run = run_summary(write(tmp_path, journal, lines, end=9, wrong={}))
    run.verdict = "ok"  # no machine was watched
    return run


def test_a_failure_under_a_collective(tmp_path: Path) -> None:
    run = cut(tmp_path)
    cost, (failover,) = run.failure_cost, run.failovers
    assert cost is not None and failover.after_ns is not None and failover.healed_ns is not None
    what, own = said(run)
    assert what == (
        f"What broke: f for {duration(failover.healed_ns - failover.at_ns)} (link {CUT}, "
        f"{duration(failover.after_ns)} after the start)."
    )
    rates = (
        f"{gbits(cost.before_bps)} Gb/s per host before, {gbits(cost.during_bps)} meanwhile, "
        f"{gbits(cost.after_bps)} after"
    )
    usual, worst = cost.healthy_step_ns, run.step_time_ns.max
    assert isinstance(usual, float)
    assert own == (
        f"{run.transport}: {rates}; a step usually took {duration(usual)}, the worst "
        f"{duration(worst)}."
    )


def test_lost_data_that_arrived_and_that_did_not(tmp_path: Path) -> None:
    run = cut(tmp_path)
    (fault_row,) = run.failovers
    fault_row.lost, fault_row.delivered_ns, run.kind = 3, fault_row.at_ns + 60_700, "mrc"
    assert "; lost data had all arrived 60.7 µs after the fault." in said(run)[1]
    fault_row.delivered_ns = None
    assert "; not all lost data had arrived at the end." in said(run)[1]


def test_over_seeds_medians_of_the_trustworthy(tmp_path: Path) -> None:
    def one(seed: int, bps: float, **more: Any) -> Run:
        cost = made(Cost, steps=9, finished=True, before_bps=bps, during_bps=bps / 2, extra_ns=1.0)
        return made(
            Run,
            transport="mrc",
            seed=seed,
            failure_cost=cost,
            failovers=[made(Failover, fault="f")],
            **more,
        )

    what, own = said(
        one(1, 10e9), one(2, 30e9), one(3, 20e9), one(4, 900e9, verdict="not trustworthy")
    )
    assert what.endswith(" Numbers are medians over 3 runs.")
    assert own.startswith("mrc: 20.0 Gb/s per host before, 10.0 meanwhile") and own.endswith(
        " 1 of 4 runs is not trustworthy."
    )


def test_flows(tmp_path: Path) -> None:
    scenario = load_scenario("permutation", transports=["mrc", "roce-1p"], seeds=[1])
    summary = make(
        tmp_path, scenario, {"mrc": collide((0.96,), 1), "roce-1p": collide((0.98, 0.5), 2)}
    )
    what, *own = ["".join(text for text, _ in parts(words.text)) for words in answer(summary)]
    rates = {run.transport: run.groups["permutation"].goodput_bps for run in summary.runs}
    assert what == "Nothing was broken." and own == [
        f"{name}: {gbits(bps)} Gb/s in 16 flows." for name, bps in rates.items()
    ]


def test_jobs_and_what_went_wrong() -> None:
    job = made(Job, ranks=2, typical_step_ns=2e6, gpu_lost_share=0.34, step_time_ns={"max": 3e6})
    run = made(
        Run,
        transport="roce",
        jobs={"a": job},
        wrong=2,
        failed_steps=1,
        killed=[made(Killed, on="h3", rank=3)],
    )
    assert said(run) == [
        "What broke: h3 was killed.",
        (
            "roce: a: a step usually took 2.00 ms, the worst 3.00 ms, 34% of GPU time lost. 1 "
            "steps failed. 2 sums or bytes are wrong."
        ),
    ]


def test_of_many_settings_one_has_room() -> None:
    runs = [made(Run, settings={"workload.steps": n}) for n in range(5)]
    here = "Here: x ranks, steps = {}, of {} placements and settings {}. The tables have all."
    assert said(*runs)[:2] == ["Nothing was broken.", here.format(0, 5, "the first")]
    assert len(said(*runs)) == 3
    assert said(*runs[:2])[1::2] == ["x ranks, steps = 0:", "x ranks, steps = 1:"]
    for run, busbw in zip(runs, (9e9, 5e9, 7e9, 5e9, 6e9), strict=True):
        run.busbw_bps = busbw
    assert said(*runs)[1] == here.format(1, 5, "the slowest")
    others = [
        made(Run, transport="roce", settings={"workload.steps": n}, busbw_bps=1e9 * (n + 1))
        for n in range(5)
    ]
    differ = "the one where transports differ most"
    assert said(*runs, *others)[1] == here.format(0, 5, differ)
    assert telling([*runs, *others])[1] == [
        made(Run, busbw_bps=9e9),
        made(Run, transport="roce", busbw_bps=1e9),
    ]


def test_of_many_transports_three_have_room() -> None:
    runs = [made(Run, transport=f"t{n}", typical_step_ns=at) for n, at in enumerate((4, 9, 2, 3))]
    assert telling(runs) == ("", runs)
    runs.append(made(Run, transport="stuck"))
    assert said(*runs)[1:] == [
        "Here: of 5 transports the first, the fastest and the slowest. The tables have all.",
        "t0: a step usually took 4.00 ns.",
        "t2: a step usually took 2.00 ns.",
        "stuck: no run got far enough to measure anything.",
    ]


def test_the_short_form_has_one_table_and_all_that_speaks_against_the_run(tmp_path: Path) -> None:
    run = cut(tmp_path)
    run.verdict, run.distrust, run.notes = "not trustworthy", ["the machine was busy"], ["a note"]
    checks = [
        made(Check, name=name, ok=ok, expected="== 0")
        for name, ok in (("good", True), ("bad", False))
    ]
    summary = made(Summary, verdict="failed", runs=[run], checks=checks, fabrics={run.fabric: {}})

    def printed(everything: bool) -> str:
        out = io.StringIO()
        show(terminal.console(80, file=out), summary, tmp_path, everything)
        return out.getvalue()

    short, full = printed(False), printed(True)
    assert (
        short.count("─────")
        and len(short.splitlines()) <= 30
        and len(short.splitlines()) < len(full.splitlines()) / 2
    )
    for text in (short, full):
        assert (
            text.startswith("What broke: f ")
            and "FAILED bad: expected == 0" in text
            and "the machine was busy" in text
        )
        assert "Verdict: failed: 1 of 2 checks failed" in text
    assert (
        "good: expected" in full
        and "good: expected" not in short
        and "a note" in full
        and "a note" in short
    )
    assert verdict(summary)[1] == ("failed", "bad")
