"""Jobs of a scenario: schedule, groups, overlap; what is refused; runs in virtual time and their
figures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scenarios.figures import results
from scenarios.figures.cost import periods
from scenarios.figures.measure import Run
from scenarios.jobs.describe import Job, nodes_of, plan_of, schedule
from scenarios.jobs.plan import PlanError, rehearse
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import ScenarioError, load_scenario
from scenarios.show.live.source import Results
from tests.scenarios.small import only_drawn
from topologies.units import US

JOB = Job("a", 8, 120_000, 1 << 20, layers=4)


def test_one_forward_one_backward() -> None:
    """PipeDream-Flush: no stage holds more microbatches than there are stages after it, and one."""
    for stages in (1, 2, 4):
        for microbatches in (1, 2, 4, 8):
            for stage in range(stages):
                order = schedule(stage, stages, microbatches)
                assert sorted(order) == sorted(
                    (d, m) for d in ("forward", "backward") for m in range(microbatches)
                )
                held, most = 0, 0
                for direction, _ in order:
                    held += 1 if direction == "forward" else -1
                    most = max(most, held)
                assert held == 0 and most <= stages - stage


def test_groups_are_megatrons_and_every_rank_computes_its_share() -> None:
    job = Job(
        "a",
        8,
        160 * US,
        1 << 20,
        tensor=2,
        pipeline=2,
        expert=2,
        layers=4,
        microbatches=4,
        activation_bytes=4096,
        expert_bytes=4096,
    )
    nodes = nodes_of(job, 5, first=10)  # tensor 1, data 0, stage 1
    # tensor; expert and data
    assert {node.group for node in nodes if node.group} == {(14, 15), (15, 17)}
    assert sum(node.ns for node in nodes) == pytest.approx(160_000, abs=50)
    assert {node.peer for node in nodes if node.peer >= 0} == {11}
    assert rehearse(plan_of([job], 8), lambda node: 100.0).ns > 160_000


def test_overlap_hides_what_computing_covers() -> None:
    """Four layers of 20 us backward; a gradient takes 15: without overlap the last four follow each
    other, with it one is left."""
    for overlap, ns in ((True, 120_000 + 15_000), (False, 120_000 + 4 * 15_000)):
        plan = plan_of([Job("a", 8, 120 * US, 1 << 20, overlap=overlap)], 8)
        assert rehearse(plan, lambda node: 15_000.0).ns == pytest.approx(ns, abs=50)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ranks": 7, "tensor": 2, "activation_bytes": 4}, "no multiple of tensor 2"),
        ({"ranks": 6, "expert": 4, "expert_bytes": 4}, "expert 4 does not divide 6"),
        (
            {"pipeline": 8, "ranks": 8, "activation_bytes": 4},
            "4 layers are no multiple of 8 stages",
        ),
        ({"tensor": 2}, "need 'activation'"),
        ({"expert": 2}, "needs 'experts'"),
        ({"ranks": 16}, "the jobs have 16 ranks, the fabric 8 hosts"),
    ],
)
def test_a_job_that_does_not_work_out_is_refused(changes: dict[str, int], words: str) -> None:
    job = Job(**{"name": "a", "ranks": 8, "compute_ps": US, "gradient_bytes": 64, **changes})  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=words):
        plan_of([job], 8)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("workload.job.0.ranks=16", "workload.job : the jobs have 16 ranks"),
        ("workload.job.0.compute=fast", r"workload.job\[0\].compute"),
        ("workload.job.0.speed=2", "speed"),
        ("workload.message_bytes=4096", "message_bytes"),
        ("fault.0.on=used-by-qp", "is not for jobs"),
        ("fault.0.step=99", "step"),
        ("workload.alone_steps=2", "is for several jobs"),
    ],
)
def test_a_scenario_that_does_not_work_out_is_refused(override: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as refused:
        load_scenario("job-dp", overrides=[override])
    assert "\n" not in str(refused.value)


@pytest.mark.dear("two jobs alone and together, with a report")
def test_two_jobs_alone_and_together(tmp_path: Path) -> None:
    small = (
        "workload.steps=3",
        "workload.alone_steps=3",
        "workload.job.0.gradient=256KiB",
        "workload.job.1.gradient=256KiB",
    )
    with only_drawn():
        summary = simulate(load_scenario("two-jobs", transports=["mrc"], overrides=small), tmp_path)
    (run,) = summary["runs"]
    a, b = run["jobs"]["a"], run["jobs"]["b"]
    assert (
        run["verdict"] == "ok"
        and run["wrong"] == 0
        and run["steps"] == 3
        and run["failed_steps"] == 0
    )
    assert a["compute_ns"] == pytest.approx(80_000) and b["compute_ns"] == pytest.approx(60_000)
    for job in (a, b):
        assert job["ranks"] == 4 and job["steps"] and job["alone_step_ns"] > job["compute_ns"]
        assert (
            job["slowdown"] == pytest.approx(job["typical_step_ns"] / job["alone_step_ns"])
            and 0.8 < job["slowdown"] < 1.5
        )
        assert 0 < job["gpu_lost_share"] < 1 and job["late_ns"] < 1
    assert run["typical_step_ns"] == pytest.approx(a["typical_step_ns"], rel=0.05)
    whole = Run(next((tmp_path / "raw").iterdir()))
    assert (
        sorted(whole.passes["phase"].unique()) == [0, 1, 2]
        and len(whole.passes) == 4 * 3 + 4 * 3 + 8 * 4
    )
    page = (tmp_path / "report.html").read_text()
    assert "of GPU time lost" in page and re.search(r"<td[^>]*>a\n4 ranks</td>", page)
    assert json.loads((tmp_path / "summary.json").read_text())["verdict"] == "ok"


@pytest.mark.dear("two jobs alone and together, with the figure of their steps")
def test_steps_of_a_quick_job_beside_a_slow_one_are_its_own(tmp_path: Path) -> None:
    changes = (
        "workload.steps=8",
        "workload.alone_steps=3",
        "workload.job.0.compute=20us",
        "workload.job.0.gradient=128KiB",
    )
    with only_drawn("step-times"):
        (run,) = simulate(
            load_scenario("two-jobs", transports=["mrc"], overrides=changes), tmp_path
        )["runs"]
    a, b = run["jobs"]["a"], run["jobs"]["b"]
    assert (
        a["steps"] == 8 > b["steps"] > 0
        and a["step_time_ns"]["max"] < b["compute_ns"] < b["typical_step_ns"]
    )
    assert run["step_time_ns"] == a["step_time_ns"]
    stored = results.load(tmp_path)
    assert {
        job: (len(times), pytest.approx(times.max(), abs=1))
        for job, times in stored.step_times.groupby("job")["time_ns"]
    } == {name: (job["steps"], job["step_time_ns"]["max"]) for name, job in run["jobs"].items()}
    top = Results(tmp_path).look()
    assert top is not None and max(ns for _, ns in top[0].step_times()) == pytest.approx(
        a["step_time_ns"]["max"], abs=2
    )
    whole = Run(next((tmp_path / "raw").iterdir()))
    ends, _ = periods(whole)
    assert (
        ends[-1]
        == whole.steps.loc[whole.steps["rank"] < 4, "end_ns"].max()
        < whole.steps["end_ns"].max()
    )
    legend = (tmp_path / "plots" / "step-times-interleaved.svg").read_text()
    assert "mrc, job a, n = 8" in legend and f"mrc, job b, n = {b['steps']}" in legend


@pytest.mark.dear("runs of two jobs, with figures and report")
def test_a_sweep_of_jobs_has_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More settings than are drawn one by one."""
    monkeypatch.setattr("scenarios.show.plots.VARIANTS_SHOWN", 1)
    small = (
        "workload.steps=2",
        "workload.alone_steps=0",
        "workload.job.0.gradient=64KiB",
        "workload.job.1.gradient=64KiB",
        "expect=[]",
    )
    values = [f"{us}us" for us in (5, 80)]
    scenario = load_scenario(
        "two-jobs",
        transports=["mrc"],
        overrides=[*small, f'sweep={{"workload.job.0.compute"={json.dumps(values)}}}'],
    )
    assert simulate(scenario, tmp_path)["verdict"] == "ok"
    drawn = sorted(path.name for path in (tmp_path / "plots").glob("*.png"))
    assert drawn == ["sweep-steps-a-interleaved.png", "sweep-steps-b-interleaved.png"]
    assert "Effect of the swept variable" in (tmp_path / "report.html").read_text()


def test_a_job_whose_time_is_over_says_so(tmp_path: Path) -> None:
    scenario = load_scenario("two-jobs", transports=["mrc"], overrides=["timeout=1s"])
    (run,) = simulate(scenario, tmp_path, figures=False)["runs"]
    assert (
        run["outcome"] == "timeout"
        and "raise 'timeout'" in run["reason"]
        and run["verdict"] == "failed"
    )
