"""What was measured once is drawn the same for ever: other processes, hash seeds, time zones and
places give the same bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.run.runner import Runner
from scenarios.schema.scenario import load_scenario
from scenarios.show.plots import draw_all
from tests.scenarios.fakes import FakeCluster
from tests.scenarios.plays import part
from tests.scenarios.small import TEXT, undrawn
from tests.scenarios.synthetic import make

DRAW = """
import sys; from pathlib import Path; from scenarios.show import plots
plots.VARIANTS_SHOWN = 1; [plots.draw_all(Path(d)) for d in sys.argv[1:]]
"""
SWEEP = '[sweep]\n"workload.message_bytes" = ["20KiB", "40KiB"]\n'
SHORT = ["workload.flow.A.for=800us", "workload.flow.B.start=100us", "workload.flow.B.for=600us"]
ALL = ("steps", "sweep", "flows")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a collective with a fault, of one at two settings, and of flows."""
    base = tmp_path_factory.mktemp("stored")
    for name in ALL:
        (base / name).mkdir()
    # five healthy steps before the fault, or there is no cost to draw
    text = TEXT.replace('at = "10us"', "step = 6")
    for name, more in (("steps", ""), ("sweep", SWEEP)):
        (base / "small.toml").write_text(text + more)
        with undrawn():
            Runner(
                load_scenario(str(base / "small.toml"), transports=["mrc"]),
                base / name,
                FakeCluster,
            ).run()
    make(base / "flows", load_scenario("ev-balance", overrides=SHORT), {"mrc": part(1.0, 0.5, 1)})
    for name in ALL:
        shutil.rmtree(base / name / "raw")
    return base


def drawn(base: Path) -> dict[str, bytes]:
    return {str(path.relative_to(base)): path.read_bytes() for path in base.glob("*/plots/*")}


@pytest.mark.dear("every kind of figure, drawn in two processes")
def test_another_process_in_another_place_draws_the_same_bytes(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(stored, tmp_path / "elsewhere"))
    # of the sweep what is over its settings
    monkeypatch.setattr("scenarios.show.plots.VARIANTS_SHOWN", 1)
    for name in ALL:
        draw_all(stored / name)
    first = drawn(stored)
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    words = [sys.executable, "-c", DRAW, *(str(copy / name) for name in ALL)]
    subprocess.run(
        words, check=True, env=environment, timeout=120, cwd=Path(__file__).resolve().parents[3]
    )
    again = drawn(copy)
    assert sorted(again) == sorted(first) and {Path(name).suffix for name in first} == {
        ".png",
        ".svg",
    }
    assert [name for name in first if first[name] != again[name]] == []
    assert [
        name for name in first if name.endswith(".svg") and b"<!-- fidelity: " not in first[name]
    ] == []
    kinds = {Path(name).name.split("-")[0] for name in first}
    assert {"step", "goodput", "paths", "failure", "flows", "ev", "sweep"} <= kinds and len(
        first
    ) >= 20, sorted(first)
