"""Runs made apart, side by side: what may stand there, under which names, and everything that is
refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mrcbed.cli import execute
from scenarios.figures.comparison import compare
from scenarios.figures.stored import ResultsError
from scenarios.run.runner import Runner
from scenarios.sets.merging import labels, read_all
from tests.scenarios.fakes import FakeCluster
from tests.scenarios.small import only_drawn, small, undrawn


def made(
    directory: Path,
    transports: list[str],
    seeds: list[int],
    more: tuple[str, ...] = (),
    fabric: str = "tiny",
    **kind: Any,
) -> Path:
    directory.mkdir()
    scenario = small(
        directory.parent, fabric=fabric, transports=transports, overrides=more, seeds=seeds
    )
    with undrawn():
        Runner(scenario, directory, lambda f: FakeCluster(f, **kind)).run()
    return directory


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("results")
    roce = made(base / "roce", ["roce", "roce-1p"], [1, 2])
    longer = Path(shutil.copytree(roce, base / "longer"))
    change(longer / "manifest.json", lambda m: m["scenario"]["workload"].update(steps=13))
    return {
        "mrc": made(base / "mrc", ["mrc"], [1, 2]),
        "roce": roce,
        "more": made(base / "more", ["mrc"], [3]),
        "again": made(base / "again", ["mrc"], [2, 3]),
        "hint": made(base / "hint", ["mrc"], [4], ("transport.mrc.controller=hint",)),
        "longer": longer,
        "elsewhere": made(base / "elsewhere", ["roce"], [1], fabric="demo"),
    }


def transports(out: Path) -> dict[str, list[int]]:
    runs = json.loads((out / "summary.json").read_text())["runs"]
    return {
        name: [r["seed"] for r in runs if r["transport"] == name]
        for name in dict.fromkeys(r["transport"] for r in runs)
    }


def ask(*words: Any) -> int:
    with undrawn():
        return execute(["results", "compare", *map(str, words)])


@pytest.mark.dear("makes the runs that the other tests merge, too")
def test_other_transports_stand_side_by_side(
    results: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {
        path: path.read_bytes() for name in ("mrc", "roce") for path in results[name].glob("*.*")
    }
    with only_drawn("step-times"):
        assert (
            execute(
                [
                    "results",
                    "compare",
                    str(results["mrc"]),
                    str(results["roce"]),
                    "--out",
                    str(tmp_path / "out"),
                ]
            )
            == 0
        )
    assert {path: path.read_bytes() for path in before} == before, "the old ones are as they were"
    shown = capsys.readouterr().out
    assert "made apart" not in shown.splitlines()[0] and "roce-1p" in shown and "2 runs" in shown
    assert transports(tmp_path / "out") == {"mrc": [1, 2], "roce": [1, 2], "roce-1p": [1, 2]}
    rows = pd.read_parquet(tmp_path / "out" / "runs.parquet")
    parts = [pd.read_parquet(results[name] / "runs.parquet") for name in ("mrc", "roce")]
    figures = ["run", "busbw_bps", "typical_step_ns", "packets.lost", "verdict"]
    merged, own = (
        frame[figures].set_index("run").to_dict("index") for frame in (rows, pd.concat(parts))
    )
    assert merged == own, "figures are the runs' own"
    assert pd.read_parquet(tmp_path / "out" / "comparison.parquet").equals(compare(rows))
    steps = pd.read_parquet(tmp_path / "out" / "steps.parquet")
    assert set(steps["run"]) == set(rows["run"]) and len(steps) == 6 * 4 * 12
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [c["label"] for c in manifest["compared"]] == ["mrc", "roce"] and set(
        manifest["fabrics"]
    ) == {"tiny", "tiny-1p"}
    assert set(manifest["fidelity"]) == set(rows["run"]) and "made apart" in manifest["notes"][0]
    assert (tmp_path / "out" / "report.html").is_file() and list(
        (tmp_path / "out" / "plots").glob("step-times-*.png")
    )
    with only_drawn():
        assert (
            execute(["results", "plot", str(tmp_path / "out")])
            == 0
            == execute(["results", "report", str(tmp_path / "out")])
        )


def test_more_seeds_of_the_same_are_pooled_and_twice_the_same_seed_is_not(
    results: dict[str, Path], tmp_path: Path
) -> None:
    assert ask(results["mrc"], results["more"], "--out", tmp_path / "more") == 0
    assert transports(tmp_path / "more") == {"mrc": [1, 2, 3]}
    compared = pd.read_csv(tmp_path / "more" / "comparison.csv")
    (bus,) = compared[compared["figure"] == "busbw_bps"].to_dict("records")
    assert bus["n"] == 3 and bus["low"] <= bus["median"] <= bus["high"]
    assert ask(results["mrc"], results["again"], "--out", tmp_path / "again") == 0
    assert transports(tmp_path / "again") == {"mrc@mrc": [1, 2], "mrc@again": [2, 3]}
    goodput = pd.read_parquet(tmp_path / "again" / "goodput.parquet")
    assert {str(run).split("-")[0] for run in goodput["run"]} == {"mrc@mrc", "mrc@again"}


def test_one_name_for_two_things_gets_labels_though_seeds_differ(
    results: dict[str, Path], tmp_path: Path
) -> None:
    assert ask(results["mrc"], results["hint"], "--out", tmp_path / "out") == 0
    assert transports(tmp_path / "out") == {"mrc@mrc": [1, 2], "mrc@hint": [4]}
    told = json.loads((tmp_path / "out" / "manifest.json").read_text())["scenario"]["transports"]
    assert [(t["name"], t["controller"]) for t in told] == [
        ("mrc@mrc", "none"),
        ("mrc@hint", "hint"),
    ]


def test_labels() -> None:
    assert labels([Path("/a/x"), Path("/b/x"), Path("/a/y z")]) == ["a-x", "b-x", "y_z"]


def test_a_run_that_is_not_to_be_trusted_is_there_and_marked(
    results: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("scenarios.run.one_run.BOOKS_TRIES", 1)
    doubtful = made(tmp_path / "doubtful", ["roce"], [1, 2], ("expect=[]",), vanished=2)
    capsys.readouterr()
    assert ask(results["mrc"], doubtful, "--out", tmp_path / "out") == 0
    assert "2 of 2 runs are not trustworthy" in " ".join(capsys.readouterr().out.split())
    compared = pd.read_csv(tmp_path / "out" / "comparison.csv")
    assert {
        (name, int(n)) for name, n in zip(compared["transport"], compared["doubtful"], strict=True)
    } == {("roce", 2), ("mrc", 0)}
    assert set(pd.read_csv(tmp_path / "out" / "runs.csv")["verdict"]) == {"ok", "not trustworthy"}
    assert {
        r["verdict"] for r in json.loads((tmp_path / "out" / "summary.json").read_text())["runs"]
    } == {"ok", "not trustworthy"}


# --- refusals -------------------------------------------------------------------------------------


def change(path: Path, edit: Callable[[Any], Any]) -> None:
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


RUN = "roce-tiny-interleaved-s1"
BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no summary": (
        lambda d: (d / "summary.json").unlink(),
        "summary.json is missing: if the run was killed",
    ),
    "half a summary": (lambda d: cut(d / "summary.json"), "summary.json is not JSON"),
    "no manifest": (lambda d: (d / "manifest.json").unlink(), "no manifest.json"),
    "a manifest without parts": (
        lambda d: change(d / "manifest.json", lambda m: m.pop("machine")),
        "has no 'machine'",
    ),
    "another format": (
        lambda d: change(d / "manifest.json", lambda m: m.update(format=99)),
        "has format 99",
    ),
    "no format": (
        lambda d: change(d / "manifest.json", lambda m: m.pop("format")),
        "as of earlier versions",
    ),
    "an old scenario": (
        lambda d: change(d / "manifest.json", lambda m: m["scenario"].pop("fabric")),
        "as of an earlier",
    ),
    "no fidelity at all": (
        lambda d: change(d / "manifest.json", lambda m: m.pop("fidelity")),
        "the run did not end",
    ),
    "a run without fidelity": (
        lambda d: change(d / "manifest.json", lambda m: m["fidelity"].pop(RUN)),
        f"verdict of run {RUN}",
    ),
    "two verdicts": (
        lambda d: change(d / "summary.json", lambda s: s["runs"][0].update(verdict="interrupted")),
        "take both from one copy",
    ),
    "a run without figures": (
        lambda d: change(d / "summary.json", lambda s: s["runs"][0].pop("seed")),
        "damaged: runs[0].seed in",
    ),
    "no runs": (lambda d: change(d / "summary.json", lambda s: s["runs"].clear()), "has no runs"),
    "no table": (lambda d: (d / "steps.parquet").unlink(), "steps.parquet is missing"),
    "half a table": (lambda d: cut(d / "events.parquet"), "events.parquet cannot be read"),
    "a table of another run": (
        lambda d: pd.read_parquet(d / "steps.parquet").iloc[:0].to_parquet(d / "steps.parquet"),
        "no rows of run",
    ),
    "no run.json": (lambda d: (d / "raw" / RUN / "run.json").unlink(), "run.json is missing"),
    "a strange run.json": (
        lambda d: change(d / "raw" / RUN / "run.json", lambda r: r.update(key="x")),
        "is of another run",
    ),
    "an unknown fabric": (
        lambda d: change(d / "manifest.json", lambda m: m["fabrics"].pop("tiny")),
        "does not know the fabric 'tiny'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_results_are_one_line_and_nothing_is_written(
    results: dict[str, Path], tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    harm, says = BROKEN[case]
    bad = tmp_path / "bad"
    shutil.copytree(results["roce"], bad, ignore=shutil.ignore_patterns("plots"))
    harm(bad)
    for given in ((results["mrc"], bad), (bad, results["mrc"])):
        assert ask(*given, "--out", tmp_path / "out") == 2
        told = capsys.readouterr()
        assert (
            told.out == ""
            and len(told.err.splitlines()) == 1
            and told.err.startswith("mrcbed: ")
            and str(bad) in told.err
        )
        assert says in told.err, told.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["mrc"], "needs two results directories"),
        ([], "needs two results directories"),
        (["mrc", "roce", "mrc"], "is given twice"),
        (["mrc", "mrc/../mrc"], "are the same directory"),
        (["mrc", "nowhere"], "is no directory"),
        (["mrc", "."], "holds no results"),
        (["mrc", "longer"], "differ in workload.steps, 12 and 13"),
        (["mrc", "elsewhere"], "differ in the fabric, tiny and demo: fabrics are not mixed"),
    ],
)
def test_what_does_not_belong_together(
    results: dict[str, Path], names: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = results["mrc"].parent
    assert ask(*(base / name for name in names), "--out", base / "out") == 2
    told = capsys.readouterr()
    assert (
        says in told.err
        and told.out == ""
        and len(told.err.splitlines()) == 1
        and not (base / "out").exists()
    )


def test_a_fabrics_name_means_one_thing(results: dict[str, Path], tmp_path: Path) -> None:
    other = Path(shutil.copytree(results["roce"], tmp_path / "other"))
    change(other / "manifest.json", lambda m: m["fabrics"]["tiny"].update(nic_rate=20_000_000))
    with pytest.raises(ResultsError, match="differ in the fabric 'tiny': nic_rate"):
        read_all([results["mrc"], other])


def test_results_without_raw_files_are_enough(results: dict[str, Path], tmp_path: Path) -> None:
    copy = Path(
        shutil.copytree(
            results["roce"], tmp_path / "copy", ignore=shutil.ignore_patterns("raw", "plots")
        )
    )
    assert ask(results["mrc"], copy, "--out", tmp_path / "out") == 0
