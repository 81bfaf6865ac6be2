"""``mrcbed train`` in virtual time: one hash on all ranks, with and without failures; losses fall;
what it leaves; what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from mrcbed import cli
from scenarios.figures.measure import Run
from scenarios.figures.summary import run_summary
from scenarios.jobs import replay
from testbed.errors import UserError

STEPS = 18
SMALL = "ranks=2, compute='1us', gradient=4"
GPT = f"{{name='gpt', {SMALL}, trains=true}}"


def run(*words: str) -> int:
    try:
        return cli.execute(["train", "--world", "simulated", "--fabric", "tiny", *words])
    except SystemExit as left:
        return int(left.code or 0)


def runs_of(out: Path) -> dict[str, dict[str, Any]]:
    return {run["transport"]: run for run in json.loads((out / "summary.json").read_text())["runs"]}


def trained_in(entry: dict[str, Any]) -> tuple[list[float], list[str]]:
    return entry["jobs"]["gpt"]["losses"], entry["jobs"]["gpt"]["digests"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("train") / "out"
    assert run("--steps", str(STEPS), "--out", str(out)) == 0
    return out


@pytest.mark.dear("makes the training under two transports that the other tests read, too")
def test_every_rank_and_every_run_ends_with_the_same_parameters(trained: Path) -> None:
    runs = runs_of(trained)
    assert list(runs) == ["mrc", "roce-1p"]
    losses, digests = trained_in(runs["mrc"])
    assert (
        trained_in(runs["roce-1p"]) == (losses, digests)
        and len(losses) == STEPS + 1
        and len(digests) == 1
    )
    # The text is the docs: a batch of a page's table may be a hard one.
    assert median(losses[-6:]) < losses[0] - 0.5, "it learns"
    for entry in runs.values():
        assert (entry["verdict"], entry["wrong"], entry["steps"], entry["faults_missed"]) == (
            "ok",
            0,
            STEPS,
            [],
        )
        times = {f["fault"]: f["healed_ns"] - f["at_ns"] for f in entry["failovers"]}
        assert list(times) == ["cable cut", "NIC port flaps", "T1 reboots", "T1 silently dead"]
        assert list(times.values()) == [pytest.approx(480_000, rel=0.2)] * 4


def test_failures_cost_roce_more(trained: Path) -> None:
    mrc, roce = (entry["jobs"]["gpt"] for entry in runs_of(trained).values())
    assert mrc["compute_ns"] == 40_000 and mrc["estimate_ns"] > 40_000 and mrc["late_ns"] < 1
    assert (
        mrc["step_time_ns"]["max"] < roce["step_time_ns"]["max"]
        and mrc["gpu_lost_ns"] < roce["gpu_lost_ns"]
    )


def test_it_leaves_a_report_and_drawings(trained: Path) -> None:
    page = (trained / "report.html").read_text()
    assert "Loss of the model" in page and "the same parameters under MRC and RoCE" in page
    assert (trained / "plots" / "loss-packed-s1.png").stat().st_size > 5000


@pytest.mark.dear("two whole trainings")
def test_without_failures_the_same_and_with_another_seed_not(trained: Path, tmp_path: Path) -> None:
    losses, digests = trained_in(runs_of(trained)["mrc"])
    for name, words in {
        "healthy": ("--set", "fault=[]", "--steps", str(STEPS)),
        "seed": ("--seed", "2", "--steps", "8"),
    }.items():
        assert run("--quick", "--no-figures", "--out", str(tmp_path / name), *words) == 0
        others = trained_in(runs_of(tmp_path / name)["mrc"])
        assert (others[0] == losses, others[1] == digests) == (name == "healthy",) * 2


def test_a_rank_with_other_parameters_is_found(trained: Path, tmp_path: Path) -> None:
    """In the log of one agent, the digest is another."""
    (source,) = (trained / "raw").glob("mrc-*")
    for path in source.iterdir():
        text = path.read_text()
        if path.name == "h2.jsonl":
            (digest,) = trained_in(runs_of(trained)["mrc"])[1]
            assert digest in text
            text = text.replace(digest, "0" * 64)
        (tmp_path / path.name).write_text(text)
    entry = run_summary(Run(tmp_path))
    assert entry["wrong"] == 1 and entry["verdict"] == "failed" and len(trained_in(entry)[1]) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-t", "tcp"], "the simulated world runs no programs and has no kernel"),
        (["-t", "quic"], "kinds are mrc, roce, tcp"),
        (["--fabric", "nofabric"], "nofabric"),
        (["--steps", "3"], "3 is not in the range"),
        (["--set", "workload.job.gpt.gradient=4096"], "needs gradient = 841216 and layers = 1"),
        (["--set", "workload.job.gpt.tensor=2"], "no more than ranks and compute"),
        (
            ["--set", f"workload.job=[{GPT}, {{name='b', {SMALL}}}]"],
            "one that trains is the only one; there are gpt, b",
        ),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, "--out", str(tmp_path / "out")) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_all_runs_read_one_text_and_without_documents_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(replay, "documents", lambda: tmp_path)
    with pytest.raises(UserError, match="use a complete clone or wheel"):
        replay.training_text(tmp_path)
    page = tmp_path / "docs" / "a.md"
    page.write_text("before " * 2000)
    text = replay.training_text(tmp_path).read_bytes()
    page.write_text("edited between two runs " * 2000)
    assert replay.training_text(tmp_path).read_bytes() == text == b"before " * 2000


def test_a_directory_with_something_in_it_is_not_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("mine")
    assert run("--out", str(tmp_path)) == 2 and "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
