"""``mrcbed fluid``: tables, JSON, a plot; runs of packets beside the model; bad input gets one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed import cli
from tests.testbed.fluid.rings import ring


def computed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[dict[str, float]]]:
    assert cli.execute(["fluid", "--json", *words]) == 0
    rows: dict[str, list[dict[str, float]]] = json.loads(capsys.readouterr().out)
    return rows


def test_more_planes_lose_less_to_the_same_share_of_dead_links(capsys: pytest.CaptureFixture[str]) -> None:
    steps = computed(capsys, "--nics", "8192")["steps"]
    eight, weighted, one = (row["median_ns"] / row["healthy_ns"] for row in steps)
    assert 1 < weighted < eight < one
    assert len({round(row["healthy_ns"], -4) for row in steps}) == 1


def test_the_same_seed_gives_the_same_figures_and_another_gives_others(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--nics", "8192", "--planes", "8", "--draws", "1", "--dead-links", "0.01")
    first, again, other = (computed(capsys, *words, "--seed", seed) for seed in ("1", "1", "2"))
    assert first == again != other


def test_tables_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "fluid.svg"
    assert cli.execute(["fluid", "--nics", "1024", "--plot", str(plot)]) == 0
    said = capsys.readouterr().out
    assert "8 planes, weighted" in said and "0.39 %" in said and str(plot) in said
    assert "<svg" in plot.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nics", "1000"], "use a multiple of 256"),
        (["--nics", "1024", "--ranks", "7"], "rings of 7 ranks"),
        (["--message", "much"], "--message much: is not a size"),
        (["--planes", "3"], "must divide both"),
        (["--against", "nowhere"], "nowhere holds no results"),
    ],
)
def test_bad_input_gets_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["fluid", *words]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("fabric", "kib", "steps", "dead"),
    [("tiny", 1280, 3, False), ("tiny", 1280, 3, True), ("rack16", 8192, 1, False), ("rack16", 8192, 1, True)],
)
def test_packets_agree_within_5_percent(
    fabric: str, kib: int, steps: int, dead: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, out = tmp_path / "ring.toml", tmp_path / "out"
    scenario.write_text(ring(fabric, kib << 10, steps, ["p0-t0-0:p0-t1-0"] if dead else []))
    assert cli.execute(["run", str(scenario), "--world", "simulated", "--out", str(out)]) == 0
    capsys.readouterr()
    assert cli.execute(["fluid", "--against", str(out), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["dead_links"] == dead and abs(row["difference"]) <= 0.05


def test_what_the_model_does_not_know_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, out = tmp_path / "ring.toml", tmp_path / "out"
    scenario.write_text(ring("tiny", 64 << 10).replace('"mrc"', '"roce"'))
    assert cli.execute(["run", str(scenario), "--world", "simulated", "--out", str(out)]) == 0
    assert cli.execute(["fluid", "--against", str(out)]) == 2
    told = capsys.readouterr()
    assert "roce: the model knows MRC alone" in told.out and "no run to compare" in told.err


def test_the_models_own_runs_are_no_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, out = tmp_path / "ring.toml", tmp_path / "out"
    scenario.write_text(ring("tiny", 64 << 10))
    assert cli.execute(["run", str(scenario), "--world", "fluid", "--jobs", "1", "--out", str(out)]) == 0
    capsys.readouterr()
    assert cli.execute(["fluid", "--against", str(out)]) == 2
    assert "the model's own" in capsys.readouterr().out
