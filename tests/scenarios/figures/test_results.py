"""results.load: frames in network time, read when asked for, and errors that name the file. And the
notebooks over it, run as programs."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib import pyplot

from docs.tools.check import ROOT
from scenarios.figures import results
from scenarios.figures.results import Results
from scenarios.figures.stored import ResultsError
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from tests.scenarios.small import undrawn
from tests.simulated.test_runs import INCAST, RING


def simulated(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "made.toml").write_text(text)
    directory = folder / "out"
    directory.mkdir()
    with undrawn():
        simulate(load_scenario(str(folder / "made.toml")), directory)
    return directory


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("results") / "ring", RING)


@pytest.fixture(scope="module")
def incast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("results") / "incast", INCAST)


def test_steps_are_in_network_time_from_the_first_measured_one(ring: Path) -> None:
    run = results.load(ring)
    assert (run.steps.groupby("run")["start_ns"].min() == 0).all()
    assert set(run.steps["step"]) == {0, 1, 2, 3}  # the warm-up step is left out
    for name in ("mrc", "roce"):
        times = run.step_times[run.step_times["transport"] == name]["time_ns"]
        assert (
            times.max() == pytest.approx(run.run(name)["step_time_ns"]["max"])
            and len(times) == run.run(name)["steps"]
        )
        assert run.runs.set_index("transport")["step_time_ns.max"][name] == pytest.approx(
            times.max()
        )


def test_paths_change_after_the_fault_that_hits_them(ring: Path) -> None:
    run = results.load(ring)
    fault = run.faults[(run.faults["transport"] == "mrc") & (run.faults["fault"] == "cable")].iloc[
        0
    ]
    assert fault["healed_ns"] - fault["at_ns"] == pytest.approx(50_000)  # the scenario's 50 us
    assert fault["after_ns"] == pytest.approx(fault["at_ns"]), (
        "both count from the first measured step"
    )
    given_up = run.paths[(run.paths["to"] == "ASSUMED_BAD") & (run.paths["plane"] == 0)]
    assert len(given_up) and given_up["t_ns"].min() > fault["at_ns"]
    assert set(run.paths["transport"]) == {"mrc"} and set(run.paths["seed"]) == {1}


def test_flows_and_queues(incast: Path) -> None:
    run = results.load(incast)
    assert run.counters["trimmed"].sum() == run.run("mrc")["packets"]["trimmed"] > 0
    assert run.queues["bytes"].max() > 0 and run.queues["t_ns"].min() >= -10_000
    assert run.messages["bytes"].unique().tolist() == [65536]
    assert set(run.flows["flow"]) == set(run.run("mrc")["flows"]) == set(run.windows["flow"])
    assert run.evs["tx_packets"].sum() > 0 and run.goodput["rx_bytes"].sum() > 0
    assert run.faults.empty and run.step_times.empty and run.paths.columns[0] == "run"


TABLES = (
    "runs",
    "steps",
    "transfers",
    "events",
    "goodput",
    "flows",
    "messages",
    "queues",
    "evs",
    "windows",
    "counters",
)


def test_a_missing_table_is_named_when_it_is_asked_for_and_not_before(
    ring: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(ring, tmp_path / "copy"))
    for name in TABLES:
        file = {"windows": "cwnd"}.get(name, name) + ".parquet"
        (copy / file).rename(tmp_path / file)
        run = results.load(copy)
        if name != "steps":  # every table needs the begin of its run, which the steps have
            assert len(getattr(run, "goodput" if name != "goodput" else "counters"))
        with pytest.raises(ResultsError, match=f"{file} is missing: mrcbed results plot --tables"):
            getattr(run, name)
        (tmp_path / file).rename(copy / file)


def test_what_is_no_results_directory_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"holds no results \(no summary.json\)"):
        results.load(tmp_path)


def test_an_unknown_transport_is_answered_with_those_that_are_there(ring: Path) -> None:
    with pytest.raises(
        ResultsError, match=r"no run of tcp: it has mrc \(seed 1\), roce \(seed 1\)"
    ):
        results.load(ring).run("tcp")
    with pytest.raises(ResultsError, match="no run of mrc with seed 2"):
        results.load(ring).run("mrc", 2)


# --- notebooks ------------------------------------------------------------------------------------


@pytest.fixture
def notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, Path], str]:
    """Runs one as the program it is; what it printed. It must leave its figure."""
    pyplot.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)

    def run(name: str, directory: Path) -> str:
        program = ROOT / "docs" / "examples" / f"{name}.py"
        assert program.read_text().count("\n# %% ") >= 3
        monkeypatch.setenv("RESULTS", str(directory))
        runpy.run_path(str(program), run_name="__main__")
        pyplot.close("all")
        said = capsys.readouterr()
        assert not said.err and (tmp_path / f"{name}.png").stat().st_size > 5_000
        return said.out

    return run


def summary_of(directory: Path) -> Results:
    assert json.loads((directory / "summary.json").read_text())["verdict"] == "ok"
    return results.load(directory)


def test_the_notebook_of_step_times(ring: Path, notebook: Callable[[str, Path], str]) -> None:
    lines = [line.split() for line in notebook("step_times", ring).splitlines()]
    for name in ("mrc", "roce"):
        slowest = f"{summary_of(ring).run(name)['step_time_ns']['max'] / 1e3:.1f}"
        assert next(line for line in lines if line[0] == name)[3] == slowest


def test_the_notebook_of_paths_after_a_cut(
    ring: Path, notebook: Callable[[str, Path], str]
) -> None:
    text = notebook("paths_after_a_cut", ring)
    assert text.startswith("cable: p0-t0-0:p0-t1-0 at ")
    assert (
        text.count("ASSUMED_BAD")
        == summary_of(ring).paths[["from", "to"]].eq("ASSUMED_BAD").to_numpy().sum()
        > 0
    )


def test_the_notebook_of_an_incast(incast: Path, notebook: Callable[[str, Path], str]) -> None:
    text = notebook("incast_queue", incast)
    packets = summary_of(incast).run("mrc")["packets"]
    assert (
        f"mrc {packets['marked']:>12} {packets['trimmed']:>8}".split()
        == text.splitlines()[2].split()[:3]
    )
