"""``mrcbed train`` in virtual time: one hash on all ranks, with and without failures; losses fall; what it leaves; what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mrcbed import cli
from scenarios.train.compare import plan_of
from scenarios.train.job import COMPUTE_US, MRC, MRC_HEALTHY, Breaker, Failure, Outcome, failures, ideal_ns
from scenarios.train.metrics import FEWEST, summary_of
from testbed.simulated.cluster import SimulatedCluster
from topologies import load_fabric
from topologies.units import US


def run(*words: str) -> int:
    try:
        return cli.execute(["train", "--world", "simulated", *words])
    except SystemExit as left:
        return int(left.code or 0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("train") / "out"
    assert run("--fabric", "tiny", "--steps", str(FEWEST), "--out", str(out)) == 0
    return out


@pytest.mark.dear("makes the training under three legs that the other tests read, too")
def test_every_rank_and_every_run_ends_with_the_same_parameters(trained: Path) -> None:
    summary = json.loads((trained / "summary.json").read_text())
    assert list(summary["runs"]) == ["mrc-healthy", "mrc", "roce-1p"] and summary["verdict"] == "ok"
    assert len({value for run in summary["runs"].values() for value in run["hashes"]}) == 1
    for name, figures in summary["runs"].items():
        assert figures["losses"] == summary["runs"]["mrc"]["losses"] and len(figures["losses"]) == FEWEST
        assert figures["losses"][-1] < figures["losses"][0] - 0.5, "it learns; how much of one batch, the text decides, which is the docs"
        ranks = json.loads((trained / "raw" / name / "ranks.json").read_text())
        assert len(ranks) == 4 and {rank["hash"] for rank in ranks} == set(figures["hashes"])
    assert [failure["name"] for failure in summary["runs"]["mrc"]["failures"]] == [
        failure.name for failure in failures(load_fabric("tiny"), FEWEST)
    ]
    assert summary["runs"]["mrc-healthy"]["failures"] == []


def test_failures_were_there_and_cost_roce_more(trained: Path) -> None:
    runs = json.loads((trained / "summary.json").read_text())["runs"]
    healthy, mrc, roce = (runs[name] for name in ("mrc-healthy", "mrc", "roce-1p"))
    assert healthy["total_us"] < mrc["total_us"] < roce["total_us"]
    assert healthy["slowest_step_us"] < mrc["slowest_step_us"] < roce["slowest_step_us"]
    assert healthy["median_step_us"] > COMPUTE_US + healthy["ideal_all_reduce_us"]
    for failure in mrc["failures"]:
        assert failure["end"] - failure["begin"] == pytest.approx(480, rel=0.2) and failure["links"] and failure["costs"] > 0


def test_it_leaves_a_report_and_drawings(trained: Path) -> None:
    page = (trained / "report.html").read_text()
    assert page.count("<img") == 3 and "the same parameters on every rank" in page and "http" not in page.replace("http-equiv", "")
    for name in ("loss", "step-times", "gpu-time-lost"):
        assert (trained / f"{name}.png").stat().st_size > 5000


@pytest.mark.dear("two whole trainings")
def test_the_same_seed_gives_the_same_losses_and_another_does_not(trained: Path, tmp_path: Path) -> None:
    losses = json.loads((trained / "summary.json").read_text())["runs"]["mrc"]["losses"]
    for seed in (1, 2):
        out = tmp_path / str(seed)
        assert run("--fabric", "tiny", "--steps", "8", "--seed", str(seed), "-t", "mrc", "--out", str(out)) == 0
        assert (json.loads((out / "summary.json").read_text())["runs"]["mrc"]["losses"] == losses[:8]) is (seed == 1)


def outcome(leg: object, digests: list[str], step_s: float, failed: dict[int, str] | None = None, steps: int = FEWEST) -> Outcome:
    """Steps of 8 ranks."""
    ranks = [
        {"hash": digest, "losses": [1.0] * steps, "steps": [[k * step_s, k * step_s + 40e-6, (k + 1) * step_s] for k in range(steps)]}
        for digest in digests
    ]
    return Outcome(leg, load_fabric("demo"), ranks, [], failed or {})  # type: ignore[arg-type]


def test_a_rank_with_other_parameters_is_found() -> None:
    summary = summary_of([outcome(MRC_HEALTHY, ["a"] * 8, 1e-4), outcome(MRC, ["a"] * 7 + ["b"], 1e-4)], 1, "simulated", 1.0)
    assert summary["verdict"] == "failed" and [check["ok"] for check in summary["checks"]] == [False, True]


def test_failures_that_cost_too_much_are_found() -> None:
    for step, ok in ((1.04e-4, True), (1.06e-4, False)):
        summary = summary_of([outcome(MRC_HEALTHY, ["a"] * 8, 1e-4), outcome(MRC, ["a"] * 8, step)], 1, "simulated", 1.0)
        assert summary["checks"][-1]["ok"] is ok and summary["verdict"] == ("ok" if ok else "failed")


def test_of_few_steps_the_cost_is_shown_but_not_judged() -> None:
    few = FEWEST - 1
    summary = summary_of([outcome(MRC_HEALTHY, ["a"] * 8, 1e-4, steps=few), outcome(MRC, ["a"] * 8, 2e-4, steps=few)], 1, "simulated", 1.0)
    assert (
        summary["checks"][-1]["ok"] is None
        and "2,400 us, allowed 0 + 120 us; it is judged from 25 steps on" in summary["checks"][-1]["seen"]
    )
    assert summary["verdict"] == "ok"


def test_costs_are_not_judged_where_the_machine_made_its_agents_late() -> None:
    slow = replace(outcome(MRC, ["a"] * 8, 2e-4), doubtful=["3 of 8 agents acted late"])
    summary = summary_of([outcome(MRC_HEALTHY, ["a"] * 8, 1e-4), slow], 1, "emulated", 12_500)
    assert [check["ok"] for check in summary["checks"]] == [None, True, None] and summary["verdict"] == "ok"
    assert summary["checks"][0]["check"].startswith("mrc: its times") and summary["checks"][0]["seen"] == "3 of 8 agents acted late"


def test_a_failure_that_lasts_to_the_end_is_counted(tmp_path: Path) -> None:
    world = SimulatedCluster(load_fabric("demo"))
    world.start()
    world.start_agents("mrc", {}, tmp_path, 1)
    breaker = Breaker(world, MRC, [Failure("cable cut", "link", "p0-t0-0:p0-t1-0", 2)], 1)
    breaker.step(1)
    assert breaker.active == []
    breaker.step(2)
    world.network.run(world.network.time + US)
    breaker.end()
    [(name, begin, end, links)] = breaker.broken
    assert (name, links) == ("cable cut", ("p0-t0-0:p0-t1-0",)) and end - begin == pytest.approx(1e-6)


def test_a_run_whose_ranks_failed_is_named() -> None:
    broken = Outcome(MRC, load_fabric("demo"), [], [], {3: "its program was ended by SIGKILL"})
    summary = summary_of([outcome(MRC_HEALTHY, ["a"] * 8, 1e-4), broken], 1, "simulated", 1.0)
    assert summary["verdict"] == "failed" and summary["checks"][0]["seen"] == "rank 3: its program was ended by SIGKILL"


def test_theory_of_the_gradient() -> None:
    fabric = load_fabric("demo")
    whole = ideal_ns(fabric)
    assert whole == pytest.approx(2 * 7 / 8 * 841_216 * 8 / (fabric.host_rate * fabric.payload_share) * 1e9, rel=0.01)
    assert ideal_ns(fabric, ("p0-t0-0:p0-t1-0",)) > whole
    assert ideal_ns(fabric, tuple(f"h0:p{plane}-t0-0" for plane in range(4))) == float("inf")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-t", "tcp"], "the simulated world has no kernel"),
        (["--fabric", "demo-1p"], "needs two of each"),
        (["-t", "quic"], "there are mrc, roce, tcp"),
        (["--fabric", "nofabric"], "nofabric"),
        (["--steps", "3"], "3 is not in the range"),
    ],
)
def test_bad_input_is_one_line(words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words, "--out", str(tmp_path / "out")) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_a_directory_with_something_in_it_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    assert run("--out", str(tmp_path)) == 2 and "it is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("dilation", "quick", "steps"),
    [
        (5_000, False, 100), (12_500, False, 40), (25_000, False, 40), (50_000, False, 20),
        (12_500, True, 40), (25_000, True, 40), (250_000, True, 8),
    ],
)  # fmt: skip
def test_steps_fit_the_time_and_are_the_same_number_at_similar_dilations(dilation: float, quick: bool, steps: int) -> None:
    said: list[str] = []
    plan = plan_of(load_fabric("demo"), 12_500, "emulated", None, quick, (), dilation, lambda line, share: said.append(line))
    assert plan.steps == steps and [leg.name for leg in plan.legs] == ["mrc-healthy", "mrc", *([] if quick else ["roce-1p", "tcp"])]
    assert plan.dilation == dilation and f"of {steps} steps" in said[-1]
