"""The whole way from scenario to files, on a cluster that pretends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from agents.process.control import AgentError
from scenarios.figures.stats import percentile
from scenarios.figures.stored import Stored
from scenarios.figures.summary import exit_status
from scenarios.run.breaking import Breaking
from scenarios.run.planning import plan
from scenarios.run.runner import Runner
from scenarios.schema.scenario import load_scenario
from scenarios.show.plots import draw_all
from tests.scenarios.fakes import FakeAgent, FakeCluster
from tests.scenarios.small import small, undrawn
from topologies.units import NS, US

QUICK = ["workload.steps=12", "workload.warmup_steps=1"]


def run(
    directory: Path, overrides: list[str], more: str = "", **kind: Any
) -> tuple[dict[str, Any], list[FakeCluster]]:
    """MRC alone, or with RoCE and a twin if ``kind`` has ``all=True``."""
    clusters: list[FakeCluster] = []
    transports = () if kind.pop("all", False) else ("mrc",)

    def factory(fabric: Any) -> FakeCluster:
        clusters.append(FakeCluster(fabric, **kind))
        return clusters[-1]

    where = directory.parent / f"{directory.name}-in"
    where.mkdir(exist_ok=True)
    with undrawn():
        return Runner(
            small(where, more, overrides=overrides, transports=transports), directory, factory
        ).run(), clusters


def test_everything_is_written_and_adds_up_and_plots_come_from_the_tables_alone(
    tmp_path: Path,
) -> None:
    summary, clusters = run(
        tmp_path, [*QUICK, "transport.roce.options.reconvergence=5us"], all=True
    )
    names = {path.name for path in tmp_path.iterdir()}
    assert {
        "manifest.json",
        "summary.json",
        "steps.parquet",
        "events.parquet",
        "counters.parquet",
        "raw",
    } <= names
    assert summary == Stored(tmp_path).summary
    assert [r["transport"] for r in summary["runs"]] == ["mrc", "roce", "roce-1p"]
    mrc, roce, _ = summary["runs"]
    assert mrc["packets"]["sent"] == mrc["packets"]["delivered"] + mrc["packets"]["lost"]
    assert mrc["packets"]["causes"] == {"flushed": 4}
    assert mrc["step_time_ns"]["n"] == 12 and mrc["step_time_ns"]["p50"] is None
    assert mrc["failovers"][0]["lost"] > 0
    assert mrc["failovers"][0]["last_on_dead_path_ns"] > mrc["failovers"][0]["at_ns"] - 10_000_000
    assert roce["step_time_ns"]["max"] > mrc["step_time_ns"]["max"]
    record = json.loads((tmp_path / "raw" / mrc["run"] / "run.json").read_text())
    assert [row["name"] for row in record["watch"]["processes"]] == ["runner"] and record["watch"][
        "failure"
    ] == ""
    assert mrc["fidelity"]["cpu"]["runner_percent"] > 0 and mrc["fidelity"]["invalid"] == [], (
        "what was watched is judged"
    )
    steps = pd.read_parquet(tmp_path / "steps.parquet")
    assert len(steps) == 3 * 4 * 13 and sorted(steps["step"].unique()) == list(range(-1, 12))
    assert [len(c.calls) > 0 and c.calls[-1] for c in clusters] == [("stop",), ("stop",)]
    pulled = [[c[1] for c in cluster.calls if c[0] == "link" and not c[2]] for cluster in clusters]
    assert len(pulled[0]) == 2 and len(set(pulled[0])) == 1 == len(pulled[1]), (
        "every transport of a fabric loses the same cable"
    )
    assert (
        "drawn by seed"
        not in (tmp_path / "raw" / "mrc-tiny-interleaved-s1" / "runner.jsonl").read_text()
    )
    shutil.rmtree(tmp_path / "raw")
    made = {path.name for path in draw_all(tmp_path)}
    assert {
        "step-times-interleaved.png",
        "goodput-interleaved-s1.svg",
        "paths-mrc-tiny-interleaved-s1.png",
    } <= made


def test_a_runner_that_is_kept_from_its_faults_says_by_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped for 0.3 s right after a fault begins, it ends it late."""
    change = Breaking.change

    def stopped(self: Breaking, action: Any) -> None:
        change(self, action)
        self.world.clock.sleep(self.world.clock.patience(0.3) if action.phase == "begin" else 0)

    monkeypatch.setattr(Breaking, "change", stopped)
    found = run(tmp_path, [*QUICK, "workload.steps=24"])[0]["runs"][0]
    late = json.loads((tmp_path / "raw" / found["run"] / "run.json").read_text())["acts_late_ps"]
    assert 10 * US < late < 200 * US
    assert any(
        "a fault began or ended, or a network re-routed" in reason
        for reason in found["fidelity"]["doubtful"]
    )


STRAGGLER = (
    '[[fault]]\nname = "slow"\nkind = "straggler"\non = "h1"\nshare = 0.5\nat = "5us"\n'
    'for = "5us"\n'
)


@pytest.mark.parametrize(("more", "alone"), [("", False), (STRAGGLER, True)])
def test_agents_may_share_processes_unless_a_fault_acts_on_one(
    tmp_path: Path, more: str, alone: bool
) -> None:
    assert [cluster.alone for cluster in run(tmp_path, QUICK, more)[1]] == [[alone]]


def test_wrong_sum_fails(tmp_path: Path) -> None:
    summary, _ = run(tmp_path, QUICK, wrong_at=3)
    assert summary["runs"][0]["wrong"] == 1 and exit_status(summary) == 1


def test_lost_rank_fails_and_the_next_run_gets_a_new_cluster(tmp_path: Path) -> None:
    summary, clusters = run(tmp_path, QUICK, all=True, break_at=3)
    assert "retries exhausted" in summary["runs"][0]["reason"] and exit_status(summary) == 1
    assert len(clusters) == 3


def test_packets_that_vanish_are_not_trustworthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scenarios.run.one_run.BOOKS_TRIES", 1)
    summary, _ = run(tmp_path, [*QUICK, "expect=[]"], vanished=2)
    assert summary["runs"][0]["packets"]["unexplained"] == 2
    assert exit_status(summary) == 3
    assert "2 packets unaccounted for" in json.dumps(
        json.loads((tmp_path / "manifest.json").read_text())["fidelity"]
    )


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    # the runner looks up a few times a second
    summary, clusters = run(tmp_path, [*QUICK, "workload.steps=60"], interrupt_at=5)
    assert exit_status(summary) == 130
    assert clusters[0].calls[-1] == ("stop",)
    assert summary["runs"][0]["steps"] >= 4 and (tmp_path / "steps.parquet").is_file()


def test_a_dead_process_raises_after_writing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="h3 died"):
        run(tmp_path, [*QUICK, "workload.steps=40"], die=True)
    assert "h3 died" in json.loads((tmp_path / "summary.json").read_text())["stopped_by"]


def test_an_agent_that_dies_after_the_last_step_is_told_of_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its packets cannot be counted: the command ends and says who it was, and does not go on as if
    only figures were missing."""

    def gone(agent: FakeAgent) -> dict[str, Any]:
        agent.cluster.die = True
        raise AgentError("the agent at h3.sock is gone")

    monkeypatch.setattr(FakeAgent, "op_counters", gone)
    with pytest.raises(RuntimeError, match="h3 died"):
        run(tmp_path, QUICK)
    assert "h3 died" in json.loads((tmp_path / "summary.json").read_text())["stopped_by"]


def test_fault_that_never_came_fails_a_check(tmp_path: Path) -> None:
    summary, _ = run(tmp_path, [*QUICK, "fault.0.at=6ms"])
    assert any("every fault happened" in c["name"] and not c["ok"] for c in summary["checks"])


def test_plan_lets_the_transport_that_can_say_go_first(tmp_path: Path) -> None:
    assert [s.transport.name for s in plan(small(tmp_path))] == ["roce", "mrc", "roce-1p"]


@pytest.mark.parametrize(
    ("n", "q", "known"),
    [
        (19, 0.5, False),
        (20, 0.5, True),
        (999, 0.99, False),
        (1000, 0.99, True),
        (10_000, 0.999, True),
    ],
)
def test_percentiles_need_samples(n: int, q: float, known: bool) -> None:
    value = percentile(pd.Series(range(1, n + 1)), q)
    assert value == (round(n * q) if known else None)


# --- flows ----------------------------------------------------------------------------------------

FAST = (
    "format = 3\nplanes = 2\nt0_per_plane = 2\nt1_per_plane = 2\nhosts_per_t0 = 3\n"
    "nic_rate = '4000Gbit'\ndelay = '20ns'\n"
)


def run_flows(
    directory: Path, overrides: list[str], transports: Sequence[str] = ("mrc",), **kind: Any
) -> tuple[dict[str, Any], list[FakeCluster]]:
    """2:1 incast with a victim on a fabric whose base RTT is under a millisecond."""
    clusters: list[FakeCluster] = []
    fabric = directory / "fast.toml"
    fabric.write_text(FAST)

    def factory(fabric: Any) -> FakeCluster:
        clusters.append(FakeCluster(fabric, **kind))
        return clusters[-1]

    given = [
        "workload.senders=2",
        "workload.victim_alone=10us",
        "workload.duration=20us",
        *overrides,
    ]
    scenario = load_scenario(
        "incast-victim", fabric=str(fabric), transports=transports, overrides=given
    )
    (directory / "out").mkdir()
    with undrawn():
        return Runner(scenario, directory / "out", factory).run(), clusters


def test_flows_run_from_t0_with_their_queues_sampled(tmp_path: Path) -> None:
    summary, clusters = run_flows(tmp_path, [], ["mrc", "mrc-no-trim"])
    assert [c.fabric.name for c in clusters] == ["fast", "fast-no-trimming"]
    assert (
        set(summary["fabrics"]) == {"fast", "fast-no-trimming"}
        and summary["fabrics"]["fast-no-trimming"]["trim_bytes"] is None
    )
    run = summary["runs"][0]
    assert run["outcome"] == "done" and run["wrong"] == 0
    assert run["groups"]["incast"]["of_line"] == pytest.approx(1.0, rel=0.01)
    assert run["groups"]["victim"]["kept"] == pytest.approx(1.0, rel=0.1)
    record = json.loads((tmp_path / "out" / "raw" / run["run"] / "run.json").read_text())
    assert [f["name"] for f in record["flows"]] == ["h0-h3", "h1-h3", "victim"] and len(
        record["flow_notes"]
    ) == 3
    assert (
        run["t0_ns"] == pytest.approx(record["t0"] / NS)
        and record["t0"] == record["window"][0] < record["window"][1]
    )
    queues = pd.read_parquet(tmp_path / "out" / "queues.parquet")
    mine = queues[(queues["run"] == run["run"]) & (queues["port"] == "p0-t0-1-d0")]
    gaps = mine["t_ns"].diff().dropna()
    assert len(mine) > 10 and gaps.min() >= 500
    assert set(mine["bytes"]) == {
        100 * [p.name for p in clusters[0].fabric.ports].index("p0-t0-1-d0")
    }
    assert len(pd.read_parquet(tmp_path / "out" / "messages.parquet")) == 6
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["fabrics"]["fast"]["buffer_bytes"] == summary["fabrics"]["fast"]["buffer_bytes"]


def test_a_flows_wrong_byte_fails(tmp_path: Path) -> None:
    summary, _ = run_flows(tmp_path, [], wrong_at=1)
    assert summary["runs"][0]["flows"]["h1-h3"]["wrong"] == 1 and exit_status(summary) == 1


def test_flows_that_do_not_end_time_out(tmp_path: Path) -> None:
    summary, clusters = run_flows(
        tmp_path, ["timeout=0.2", "workload.duration=3ms"], ["mrc", "mrc-no-trim"]
    )
    assert (
        summary["runs"][0]["outcome"] == "timeout"
        and "ranks [0, 1, 2, 3, 4] not done" in summary["runs"][0]["reason"]
    )
    assert len(clusters) == 2


def test_a_fault_under_flows_counts_from_t0(tmp_path: Path) -> None:
    fault = 'fault=[{kind = "link", on = "p0-t0-0:p0-t1-0", at = "10us", for = "10us"}]'
    summary, clusters = run_flows(tmp_path, [fault])
    run = summary["runs"][0]
    (failover,) = run["failovers"]
    assert failover["at_ns"] - run["t0_ns"] >= 10_000 and failover["cost_ns"] is None
    assert [c[2] for c in clusters[0].calls if c[0] == "link"] == [False, True]
