"""``mrcbed run --world simulated``: a run without root, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import scenarios.show.plots
from mrcbed import cli
from tests.simulated.test_runs import INCAST


@pytest.fixture
def file(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "made.toml"
    path.write_text(INCAST)
    before = signal.getsignal(signal.SIGTERM)
    yield str(path)
    signal.signal(signal.SIGTERM, before)


@pytest.mark.dear("a run with all of its figures and its report")
def test_a_run_without_root_leaves_what_an_emulated_one_leaves(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    out = tmp_path / "out"
    assert cli.execute(["run", file, "--world", "simulated", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "ok" and [run["world"] for run in told["runs"]] == ["simulated"]
    assert told == json.loads((out / "summary.json").read_text())
    for name in (
        "manifest.json",
        "report.html",
        "runs.csv",
        "runs.parquet",
        "counters.parquet",
        "flows.parquet",
        "queues.parquet",
    ):
        assert (out / name).stat().st_size > 0, name
    assert list((out / "plots").glob("*.png"))
    monkeypatch.setattr(scenarios.show.plots, "draw_all", lambda directory: [])
    # nothing left to do
    assert cli.execute(["run", file, "--world", "simulated", "--out", str(out), "--resume"]) == 0
    assert (
        "finished before" in (said := capsys.readouterr()).err
        and "simulated, in virtual time" in said.out
    )
    # emulated: another thing, and needs root
    assert cli.execute(["run", file, "--out", str(out), "--resume"]) == 2


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--pcap", "p0-t0-0:p0-t1-9"], "has no link 'p0-t0-0:p0-t1-9'"),
        (["--switch", "ovs"], "switches of its own"),
        (["-t", "tcp"], "transport 'tcp' is the kernel's"),
    ],
)
def test_what_belongs_to_the_emulated_world_is_refused(
    file: str, more: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.execute(["run", file, "--world", "simulated", "--out", str(tmp_path / "out"), *more])
        == 2
    )
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()
