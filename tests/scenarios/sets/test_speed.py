"""The simulated world's cost beside uet-htsim's: traffic, table, and what becomes of the programs.
No test asks how long anything takes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scenarios.sets import speed
from scenarios.sets.reference import Reference
from scenarios.sets.speed import ROWS, USUAL, Bench, Cost, Row, program_in, timed, write_scenario
from testbed.errors import UserError
from tests.mrcbed.cli.conftest import Said, mrcbed
from tests.waiting import wait_until

__all__ = ["mrcbed"]  # the fixture
HTSIM = """#!/bin/sh
printf .
grep -- '->' a.cm | sed 's/.*/Flow x finished at 1.5 total/'
printf '\\nNew: 10 Rtx: 1\\n'
"""
"""Answers as the program does."""


def bench(rows: list[Row], htsim: str = "40ccb05") -> Bench:
    return Bench("2026-01-02", "abc", "a CPU", 2, "compiled", 3, htsim, rows)


ONE = Row(
    "incast",
    16,
    [Cost(6.0, 300_000_000, s) for s in (5.0, 1.0, 3.0)],
    [Cost(s, 20_000_000) for s in (9.0, 0.5, 1.5)],
)


def test_a_row_is_of_medians() -> None:
    heads, [cells, gone] = bench([ONE, Row("ring", 16, missing="it failed")]).table()
    assert dict(zip(heads, cells, strict=True)) == {
        "traffic": "incast",
        "htsim s": "1.50",
        "mrcbed s": "6.00",
        "simulation s": "3.00",
        "htsim MB": "20",
        "mrcbed MB": "300",
        "mrcbed / htsim s": "4.0",
        "simulation / htsim s": "2.0",
        "mrcbed / htsim MB": "15.0",
    }
    assert gone == ["ring", *"–" * (len(heads) - 1)]


def test_without_htsim_the_columns_are_ours() -> None:
    made = bench([ONE], htsim="")
    assert made.table() == (
        ["traffic", "mrcbed s", "simulation s", "mrcbed MB"],
        [["incast", "6.00", "3.00", "300"]],
    )
    assert "htsim" not in made.stamp()


def test_a_page_shows_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("<!-- table: bench -->\nold\n<!-- end -->\n")
    here = Reference(pages=tmp_path)
    here.folder = tmp_path / "results"
    assert list(here.rewritten()) == [], "nothing is measured yet"
    speed.write(bench([ONE]), here.folder / speed.NAME)
    [(_, text)] = here.rewritten()
    assert (
        "| incast | 1.50 | 6.00 | 3.00 |" in text
        and "commit abc, 2026-01-02, a CPU" in text
        and "old" not in text
    )


@pytest.mark.parametrize("name", [*USUAL, "permutation-4096"])
def test_both_programs_send_the_same_packets(name: str, tmp_path: Path) -> None:
    fabric, plan = write_scenario(name, tmp_path)
    assert (
        fabric.host_count == ROWS[name]
        and fabric.planes == 1
        and fabric.hosts_per_t0 == fabric.t1_per_plane
    )
    sizes = [size for stage in plan for _, _, size in stage]
    assert all(size % fabric.mtu == 0 for size in sizes)
    assert sum(sizes) // fabric.mtu == pytest.approx(speed.PACKETS, rel=0.01)


def test_what_is_no_build_is_refused(mrcbed: Said, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("empty", "nowhere"):
        said = mrcbed.refused("tools", "bench", "simulator", "--htsim", place)
        assert f"--htsim {place}: no program htsim_uec is there: build uet-htsim" in said
    said = mrcbed.refused("tools", "bench", "simulator", "--rows", "incast,permutation-17")
    assert (
        "--rows permutation-17: there are permutation-16, " in said
        and "did you mean 'permutation-1" in said
    )


def fake(folder: Path, text: str = HTSIM) -> Path:
    path = folder / "sim" / "build" / "datacenter" / "htsim_uec"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_clone_a_build_and_the_file_are_all_found(tmp_path: Path) -> None:
    path = fake(tmp_path)
    assert {
        program_in(place)
        for place in (tmp_path, tmp_path / "sim", tmp_path / "sim" / "build", path)
    } == {str(path)}
    path.chmod(0o644)
    with pytest.raises(UserError, match="no program htsim_uec"):
        program_in(tmp_path)


@pytest.mark.dear("a whole mrcbed run")
def test_a_row_from_the_command_to_the_picture(
    mrcbed: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "PACKETS", 1600)
    fake(tmp_path)
    words = ("tools", "bench", "simulator", "--htsim", ".", "--rounds", "1", "--out", "made")
    assert "uet-htsim of an unknown commit, in turns" in " ".join(
        mrcbed(*words, "--rows", "permutation-16").split()
    )
    assert {path.name for path in Path("made").iterdir()} == {"bench.json", "bench.png"}
    [row] = json.loads(Path("made/bench.json").read_text())["rows"]
    [ours], [htsim] = row["ours"], row["htsim"]
    assert 0 < ours["simulation_cpu_s"] < ours["cpu_s"] and htsim["simulation_cpu_s"] == 0
    assert htsim["memory_bytes"] < 40e6 < ours["memory_bytes"], (
        "of the program, not of who starts it"
    )
    (tmp_path / "sim" / "build" / "datacenter" / "htsim_uec").write_text(
        "#!/bin/sh\necho bad word >&2; exit 3\n"
    )
    monkeypatch.setattr(speed, "ours", lambda folder: Cost(1.0, 1, 0.5))
    assert "ring: htsim_uec failed: bad word" in mrcbed(*words, "--rows", "ring", status=1)


def test_a_program_that_takes_too_long_ends_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[str]] = []

    class Recorded(subprocess.Popen[str]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

        def wait(self, timeout: float | None = None) -> int:
            if timeout is not None:  # asked for the program's end: it runs by now
                wait_until((tmp_path / "runs").exists)
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    with pytest.raises(UserError, match="sh took more than 0 s"):
        timed(["sh", "-c", "touch runs; sleep 600"], tmp_path, limit_s=0)

    def gone() -> bool:
        try:
            os.killpg(started[0].pid, 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(gone, "the program goes on")
