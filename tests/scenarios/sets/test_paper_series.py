"""Running the paper's figures: what is kept, what is told, what the page says. Scenarios are played
by a function that writes summaries."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mrcbed.cli import paper
from scenarios.run.planning import plan
from scenarios.schema.scenario import Scenario, ScenarioError
from scenarios.sets import provenance
from scenarios.sets.paper import page, series
from scenarios.sets.paper.claims import AGREES, COMPUTED, NO_DATA
from scenarios.sets.paper.figures import chosen
from testbed.errors import UserError
from testbed.results.summary import Summary
from tests.made import made
from tests.scenarios.sets.test_paper import run as entry
from tests.scenarios.sets.test_validation import called_of
from topologies.structs import plain

QUICK = series.Form(quick=True)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computing a fingerprint takes seconds."""
    monkeypatch.setattr(provenance, "fingerprint", lambda world: f"{world}-now")


def summary_of(scenario: Scenario, **more: Any) -> Summary:
    """As the runner would write it, every run well."""
    # a plane of eight is gone
    more = {"kept_during": 7 / 8, **more} if scenario.name == "pair-t0" else more
    runs = [
        entry(spec.transport.name, spec.settings, placement=spec.placement, seed=spec.seed, **more)
        | {"fabric": spec.transport.fabric.name, "run": spec.key}
        for spec in plan(scenario)
    ]
    return made(Summary, format=4, scenario=scenario.name, runs=runs)


def write(directory: Path, summary: Summary) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "summary.json").write_text(json.dumps(plain(summary)))
    (directory / "manifest.json").write_text(
        json.dumps({"scenario": {"transports": []}, "fabrics": {}})
    )


class Played:
    """A RunOne: notes what it was asked, and does what ``how`` says for a scenario of that name."""

    def __init__(self, **how: Callable[[Scenario, Path], int]) -> None:
        self.how, self.asked = how, list[tuple[str, str, bool]]()

    def __call__(self, part: Any, scenario: Scenario, directory: Path, resume: bool) -> int:
        self.asked.append((scenario.name, directory.name, resume))
        if scenario.name.replace("-", "_") in self.how:
            return self.how[scenario.name.replace("-", "_")](scenario, directory)
        write(directory, summary_of(scenario))
        return 0


def played(
    ids: list[str], out: Path, run: Played, form: series.Form = QUICK
) -> tuple[int, list[str]]:
    told: list[str] = []
    return series.run_series(chosen(ids), out, form, run, series.conclude, told.append), told


def test_each_figure_is_run_judged_and_kept(tmp_path: Path) -> None:
    series.open_directory(tmp_path, QUICK, False) if not any(tmp_path.iterdir()) else None
    run = Played()
    status, told = played(["10", "12", "13", "sizing"], tmp_path, run)
    # 13: 12's
    assert status == 0 and [name for name, _, _ in run.asked] == [
        "pair-t0",
        "t0-dead",
        "ev-loss-20",
        "pair-ev-loss",
    ]
    made = {figure["id"]: figure for figure in series.concluded(tmp_path)}
    assert list(made) == ["sizing", "10", "12", "13"] and {
        figure["verdict"] for figure in made.values()
    } == {COMPUTED, AGREES}
    assert made["10"]["parts"][1]["seeds"] == 1
    assert made["13"]["parts"][0]["directory"] == "12/main"
    again = Played()
    assert played(["10", "12", "13", "sizing"], tmp_path, again)[0] == 0 and again.asked == []
    assert len(told) == 4


def test_a_figure_that_fails_is_told_and_left_behind(tmp_path: Path) -> None:
    def bug(scenario: Scenario, directory: Path) -> int:
        raise RuntimeError("no more cables\nand a traceback")

    def half(scenario: Scenario, directory: Path) -> int:
        summary = summary_of(scenario)
        write(directory, replace(summary, runs=summary.runs[:-1], verdict="failed", stopped_by="x"))
        return 70

    run = Played(pair_t0=bug, t0_dead=bug, t1_dead=half)
    status, told = played(["10", "11", "12"], tmp_path, run)
    asked = ["pair-t0", "t0-dead", "pair-t1", "t1-dead", "ev-loss-20", "pair-ev-loss"]
    assert status == 1 and [name for name, _, _ in run.asked] == asked
    assert "figure 10: main: RuntimeError: no more cables" in told and any(
        "11: main: its runs did not all end" in line for line in told
    )
    made = {figure["id"]: figure for figure in series.concluded(tmp_path)}
    assert [made[id]["verdict"] for id in ("10", "12")] == [NO_DATA, AGREES]
    assert made["10"]["trouble"] == ["pair: not run", "main: not run"]
    again = Played()
    assert played(["10", "11", "12"], tmp_path, again)[0] == 0
    # goes on in what is there
    assert again.asked == [
        ("pair-t0", "pair", False),
        ("t0-dead", "main", False),
        ("t1-dead", "main", True),
    ]


def test_ctrl_c_ends_the_series_with_what_there_is(tmp_path: Path) -> None:
    run = Played(pair_t0=lambda scenario, directory: 130)
    status, _ = played(["9a", "10", "11"], tmp_path, run)
    assert status == 130 and [name for name, _, _ in run.asked] == [
        "nic-ports-one-by-one",
        "pair-ports",
        "job-port",
        "pair-t0",
    ]
    assert [figure["id"] for figure in series.concluded(tmp_path)] == ["9a", "10"]


def test_a_figure_that_cannot_be_concluded_does_not_end_the_series(tmp_path: Path) -> None:
    def conclude(figure: Any, out: Path) -> None:
        if figure.id == "10":
            raise UserError("no space left")

    told: list[str] = []
    assert (
        series.run_series(chosen(["10", "11"]), tmp_path, QUICK, Played(), conclude, told.append)
        == 1
    )
    assert "figure 10: UserError: no space left" in told and told[-1].startswith("figure 11")


def test_a_summary_that_is_cut_off_is_told(tmp_path: Path) -> None:
    played(["10"], tmp_path, Played())
    for part in ("pair", "main"):
        (tmp_path / "10" / part / "summary.json").write_text('{"runs": [')
    made = series.conclude(chosen(["10"])[0], tmp_path)
    assert made["verdict"] == NO_DATA and "summary.json is not JSON" in made["trouble"][0]


def test_a_directory_holds_one_set(tmp_path: Path) -> None:
    out = tmp_path / "new" / "set"
    series.open_directory(out, series.Form(True, (1, 2)), False)
    assert series.read_form(out) == series.Form(True, (1, 2))
    series.open_directory(out, series.Form(True, (1, 2)), True)
    with pytest.raises(ScenarioError, match="holds figures already: add --resume"):
        series.open_directory(out, series.Form(True, (1, 2)), False)
    with pytest.raises(
        ScenarioError, match="holds the --quick set with seeds 1, 2, not the full set: give a new"
    ):
        series.open_directory(out, series.Form(), True)
    (tmp_path / "x").write_text("")
    for place in (tmp_path, tmp_path / "x"):
        with pytest.raises(ScenarioError, match="is not empty, and holds no figures"):
            series.open_directory(place, QUICK, True)
    (out / series.SET).write_text('{"format": 99}')
    with pytest.raises(ScenarioError, match="is of format 99"):
        series.read_form(out)
    (out / series.SET).write_text("{")
    with pytest.raises(ScenarioError, match="cannot be read"):
        series.read_form(out)


# --- the page -------------------------------------------------------------------------------------


def test_the_page_says_it_all_and_needs_no_network(tmp_path: Path) -> None:
    out = tmp_path / "set"
    series.open_directory(out, QUICK, False)

    def doubted(scenario: Scenario, directory: Path) -> int:
        write(
            directory,
            summary_of(
                scenario,
                verdict="not trustworthy",
                distrust=["the machine was <busy>"],
                whole_busbw_share=0.1,
            ),
        )
        return 3

    played(["sizing", "8", "10", "11"], out, Played(t0_dead=doubted, t1_dead=lambda s, d: 1))
    path = page.write_page(out)
    text, first = path.read_text(), path.read_bytes()
    assert (
        "131,072 NICs at 512 ports per switch" in text
        and "some 580K packets are lost in all" in text
    )
    assert "cannot be emulated here" in text and "Quick form" in text
    assert (
        "1 NOT TRUSTWORTHY" in text
        and "the machine was &lt;busy&gt;" in text
        and "main: not run" in text
    )
    assert "windows that regrow slowly" in text  # why it differs
    assert (
        "http://" not in text.replace("http://www.w3.org", "")
        and "<script" not in text
        and 'src="data:image/png;base64,' in text
    )
    page.write_page(out)
    assert path.read_bytes() == first
    data = json.loads((out / page.DATA).read_text())
    assert data["quick"] and sum(data["counts"].values()) == len(data["claims"]) == 37
    assert page.summary_line(data["figures"]).startswith("37 claims, after 4 figures: ")


# --- the command ----------------------------------------------------------------------------------


called = partial(called_of, paper.command)


def test_the_list_has_every_figure_and_its_time() -> None:
    status, text = called("--list")
    assert (
        status == 0
        and all(figure.id in text for figure in chosen([]))
        and "computed" in text
        and "all of these" in text
    )
    assert "min" in text and "ring-loss.toml" in text
    assert "incast.toml" not in called("--list", "9")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["99"], "there is no figure '99' here"),
        (["16", "--resume"], "--resume needs --out DIR"),
        (["16", "--seeds", "3-1"], "must go upwards"),
        (["--report", "/nowhere"], "/nowhere holds no figures"),
        (["sizing", "--out", "/proc/x/y"], "cannot make the results directory"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(UserError, match=said):
        called(*words)


def test_running_needs_root_and_computing_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(UserError, match="needs root"):
        called("16", "--out", str(tmp_path / "a"))
    assert not (tmp_path / "a").exists()
    monkeypatch.setattr(
        "scenarios.run.simulate.simulate",
        lambda s, d, **how: write(d, summary_of(s)) or summary_of(s),
    )
    status, text = called("19", "--quick", "--out", str(tmp_path / "c"))
    assert status == 0 and "37 claims, after 1 figure" in text  # only simulated
    stamp = json.loads((tmp_path / "c" / "19" / series.FIGURE).read_text())["stamp"]
    assert stamp["commit"] == provenance.here()[0] and set(stamp["parts"]) == {"pair"}
    assert (stamp["parts"]["pair"]["fingerprint"], stamp["parts"]["pair"]["seeds"]) == (
        "simulated-now",
        [1],
    )
    status, text = called("sizing", "--out", str(tmp_path / "b"))
    assert (
        status == 0
        and "37 claims, after 1 figure: 0 agree, 0 differ, 3 computed, 34 without data" in text
        and "524,288" in text
    )
    assert (tmp_path / "b" / "paper.html").is_file()
    with pytest.raises(UserError, match="holds figures already"):
        called("sizing", "--out", str(tmp_path / "b"))


@pytest.mark.parametrize(
    ("verdict", "status"), [("interrupted", 130), ("failed", 0), ("not trustworthy", 0)]
)
def test_ctrl_c_in_a_run_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str, status: int
) -> None:
    """The runner writes what it has and returns; what differs or cannot be trusted is a result like
    any other."""
    asked = []

    def run_scenario(scenario: Scenario, directory: Path, **how: Any) -> Summary:
        asked.append(scenario.name)
        summary = replace(summary_of(scenario), verdict=verdict)
        write(directory, summary)
        return summary

    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("testbed.machine.sandbox.run", lambda work: work())
    monkeypatch.setattr("scenarios.run.runner.run_scenario", run_scenario)
    monkeypatch.setattr(
        "scenarios.run.simulate.simulate",
        lambda s, d, **how: write(d, summary_of(s)) or summary_of(s),
    )
    assert called("10", "11", "--quick", "--out", str(tmp_path / "set"))[0] == status
    # those of two hosts are simulated
    assert asked == (["t0-dead"] if status else ["t0-dead", "t1-dead"])


def test_a_report_is_made_again_from_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "set"
    series.open_directory(out, QUICK, False)
    played(["10"], out, Played())
    summary = summary_of(chosen(["10"])[0].parts[0].load(True), outside_busbw_share=0.5)
    write(out / "10" / "main", summary)  # as if a later version computed other figures
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    status, text = called("--report", str(out))
    assert status == 0 and "50 % of what theory" in text and "differs" in text, text
    assert json.loads(called("--report", str(out), "--json")[1])["figures"][0]["id"] == "sizing"
    # as another version might have it
    other = {"transport": "mrc", "verdict": "ok", "outcome": "done", "placement": "packed"}
    write(out / "11" / "main", summary)
    (out / "11" / "main" / "summary.json").write_text(
        json.dumps({**plain(summary), "runs": [other]})
    )
    status, text = called("--report", str(out))
    assert (
        status == 1
        and "50 % of what theory" in text
        and "damaged: runs[0]" in (out / "paper.html").read_text()
    )
