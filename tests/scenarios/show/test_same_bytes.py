"""What was measured once is drawn the same for ever: other processes, hash seeds, time zones and places give the same bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.run.runner import Runner
from scenarios.schema.scenario import load_scenario
from tests.scenarios.fakes import FakeCluster
from tests.scenarios.plays import part
from tests.scenarios.small import TEXT, undrawn
from tests.scenarios.synthetic import make

DRAW = "import sys; from pathlib import Path; from scenarios.show.plots import draw_all; [draw_all(Path(d)) for d in sys.argv[1:]]"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a collective with a fault at two settings, and of flows."""
    base = tmp_path_factory.mktemp("stored")
    with undrawn():
        (base / "steps").mkdir()
        file = base / "small.toml"  # five healthy steps before the fault, or there is no cost to draw
        file.write_text(TEXT.replace('at = "10us"', "step = 6") + '[sweep]\n"workload.message_bytes" = ["20KiB", "40KiB"]\n')
        swept = load_scenario(str(file), transports=["mrc", "roce"])
        Runner(swept, base / "steps", FakeCluster).run()
    (base / "flows").mkdir()
    make(base / "flows", load_scenario("ev-balance"), {"mrc": part(5.0, 0.5, 1)})
    for directory in ("steps", "flows"):
        shutil.rmtree(base / directory / "raw")
    return base


def drawn(base: Path, hash_seed: str, zone: str) -> dict[str, bytes]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "TZ": zone}
    words = [sys.executable, "-c", DRAW, str(base / "steps"), str(base / "flows")]
    subprocess.run(words, check=True, env=environment, timeout=120, cwd=Path(__file__).resolve().parents[3])
    return {str(path.relative_to(base)): path.read_bytes() for path in base.glob("*/plots/*")}


def test_another_process_in_another_place_draws_the_same_bytes(stored: Path, tmp_path: Path) -> None:
    first = drawn(stored, "1", "UTC")
    copy = Path(shutil.copytree(stored, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("plots")))
    again = drawn(copy, "7", "Asia/Tokyo")
    assert sorted(again) == sorted(first) and {Path(name).suffix for name in first} == {".png", ".svg"}
    assert [name for name in first if first[name] != again[name]] == []
    assert [name for name in first if name.endswith(".svg") and b"<!-- fidelity: " not in first[name]] == []
    kinds = {Path(name).name.split("-")[0] for name in first}
    assert {"step", "goodput", "paths", "failure", "flows", "ev", "sweep"} <= kinds and len(first) > 20, sorted(first)
