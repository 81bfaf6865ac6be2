"""Going on with a run: what is kept, what is done again, and when it is refused. On a cluster that
pretends."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mrcbed.cli.common import parse_seeds
from scenarios.run.resume import directory_lock
from scenarios.run.runner import Runner, RunOptions, results_directory
from scenarios.schema.scenario import ScenarioError
from testbed.errors import UserError
from tests.scenarios.fakes import FakeCluster
from tests.scenarios.small import small, undrawn

KEYS = [
    f"{name}-interleaved-s{seed}"
    for seed in (1, 2)
    for name in ("mrc-tiny", "roce-tiny", "roce-1p-tiny-1p")
]


@pytest.fixture(autouse=True, scope="module")
def _undrawn() -> Iterator[None]:
    with undrawn():
        yield


def runner(
    directory: Path,
    clusters: list[FakeCluster],
    overrides: list[str] | None = None,
    resume: bool = True,
    **kind: Any,
) -> Runner:
    def factory(fabric: Any) -> FakeCluster:
        clusters.append(FakeCluster(fabric, **kind))
        return clusters[-1]

    scenario = small(directory.parent, overrides=overrides or (), seeds=[1, 2])
    return Runner(scenario, directory, factory, RunOptions(resume=resume))


def agents(clusters: list[FakeCluster]) -> list[tuple[str, int]]:
    """(kind, seed) of every run that was made."""
    return [(c[1], c[3]) for cluster in clusters for c in cluster.calls if c[0] == "agents"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole")
    runner(directory, [], resume=False).run()
    return directory


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


@pytest.mark.dear("six whole runs, three of them again")
def test_finished_runs_stay_and_half_done_ones_are_done_again(copy: Path) -> None:
    before = {key: (copy / "raw" / key / "run.json").stat().st_mtime_ns for key in KEYS}
    for path in (*copy.glob("*.parquet"), copy / "summary.json", copy / "runs.csv"):
        path.unlink()
    (copy / "raw" / KEYS[3] / "run.json").unlink()  # killed before it was written,
    text = (copy / "raw" / KEYS[4] / "run.json").read_text()
    # or while it was, by whatever means
    (copy / "raw" / KEYS[4] / "run.json").write_text(text[: len(text) // 2])
    (copy / "raw" / KEYS[3] / "left.over").write_text("x")
    shutil.rmtree(copy / "raw" / KEYS[5])
    clusters: list[FakeCluster] = []
    summary = runner(copy, clusters).run()
    assert sorted(agents(clusters)) == [("mrc", 2), ("roce", 2), ("roce", 2)]
    after = {key: (copy / "raw" / key / "run.json").stat().st_mtime_ns for key in KEYS}
    assert [after[key] == before[key] for key in KEYS] == [True] * 3 + [False] * 3
    assert not (copy / "raw" / KEYS[3] / "left.over").exists()
    assert [r["run"] for r in summary["runs"]] == KEYS
    assert (
        set(pd.read_parquet(copy / "steps.parquet")["run"])
        == set(pd.read_csv(copy / "runs.csv")["run"])
        == set(KEYS)
    )
    sessions = json.loads((copy / "manifest.json").read_text())["sessions"]
    assert len(sessions) == 2 and all(
        s["started"] and s["ended"] and s["verdict"] for s in sessions
    )
    assert not list(copy.rglob("*.part"))


def test_those_that_go_on_lose_the_cable_that_was_found_before(copy: Path) -> None:
    found = [
        json.loads(line)
        for line in (copy / "raw" / KEYS[1] / "runner.jsonl").read_text().splitlines()
    ]
    cable = next(line["on"] for line in found if line["kind"] == "resolved")
    shutil.rmtree(copy / "raw" / KEYS[0])
    clusters: list[FakeCluster] = []
    runner(copy, clusters).run()
    (cluster,) = clusters
    assert [c[1] for c in cluster.calls if c[0] == "link" and not c[2]] == [cable]


@pytest.mark.dear("seven whole runs, with tables written three times")
def test_an_interrupted_run_is_done_again_and_a_finished_directory_only_written_again(
    tmp_path: Path,
) -> None:
    clusters: list[FakeCluster] = []
    summary = runner(tmp_path, clusters, ["workload.steps=30"], resume=False, interrupt_at=2).run()
    assert summary["verdict"] == "interrupted" and len(agents(clusters)) == 1
    summary = runner(tmp_path, clusters, ["workload.steps=30"]).run()
    assert (
        len(agents(clusters)) == 1 + 6
        and len(summary["runs"]) == 6
        and {r["outcome"] for r in summary["runs"]} == {"done"}
    )
    (tmp_path / "runs.parquet").unlink()
    again = runner(tmp_path, clusters, ["workload.steps=30"]).run()
    assert len(agents(clusters)) == 7 and again == summary and (tmp_path / "runs.parquet").is_file()


@pytest.mark.dear("six whole runs, each with its tables")
def test_rows_are_there_while_runs_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.run.runner.ROWS_S", -1.0)
    seen: list[int] = []
    clusters: list[FakeCluster] = []
    made = runner(tmp_path, clusters, resume=False)
    made.progress = lambda what, share: seen.append(
        len(pd.read_csv(tmp_path / "runs.csv")) if (tmp_path / "runs.csv").is_file() else 0
    )
    made.run()
    assert sorted(set(seen)) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["workload.steps=13"], "workload.steps = 12, now it is 13"),
        (["transport.mrc.controller=hint"], 'transports.0.controller = "none", now it is "hint"'),
        (
            ["transport.roce.options.reconvergence=200us"],
            "transports.1.reconvergence_ps = 40000000, now it is 200000000",
        ),
    ],
)
def test_another_scenario_is_refused(whole: Path, change: list[str], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        runner(whole, [], change)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"), [("switch", "ovs (netdev)"), ("format", 1), ("scenario_file", "other")]
)
def test_another_machine_room_is_refused(copy: Path, key: str, value: Any) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, key: value}))
    with pytest.raises(ScenarioError, match="was begun with"):
        runner(copy, [])


def test_where_nothing_was_begun(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="needs --out"):
        results_directory("x", None, resume=True)
    assert results_directory("x", str(tmp_path / "new"), resume=True).is_dir(), "a new one is begun"
    (tmp_path / "new" / "photo.jpg").write_text("x")
    with pytest.raises(ScenarioError, match="holds no run"):
        results_directory("x", str(tmp_path / "new"), resume=True)
    (tmp_path / "new" / "manifest.json").write_text('{"scenario": ')
    with pytest.raises(UserError, match=r"damaged: .*manifest\.json is not JSON"):
        runner(tmp_path / "new", [])


def _hold(directory: str, ready: Any) -> None:
    with directory_lock(Path(directory)):
        ready.set()
        os.kill(os.getpid(), 19)  # stopped, until it is killed


def test_two_do_not_write_into_one_directory_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=_hold, args=(str(tmp_path), ready))
    other.start()
    try:
        assert ready.wait(20)
        with pytest.raises(ScenarioError, match="another mrcbed run"):
            runner(tmp_path, []).run()
    finally:
        other.kill()
        other.join()
    with directory_lock(tmp_path):
        pass


def test_seeds_by_range() -> None:
    assert parse_seeds("1-5") == [1, 2, 3, 4, 5] and parse_seeds("3, 7-9") == [3, 7, 8, 9]
    for wrong in (
        "5-1",
        "a",
        "1-",
        "-3",
        "",
        "1-99999",
        "1,1",
        "3,1-5",
        "１",
        ",".join(f"{n}-{n + 999}" for n in range(0, 200_000, 1000)),
    ):
        with pytest.raises(UserError, match="--seeds"):
            parse_seeds(wrong)
