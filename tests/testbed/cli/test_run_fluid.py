"""``mrcbed run --world fluid``: no root, the report of a run, and one line for options that mean nothing without packets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed import cli


def test_a_shipped_scenario_runs_and_says_which_world_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert cli.execute(["run", "smoke", "--world", "fluid", "--jobs", "1", "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Verdict: ok (fluid, in virtual time and without packets: no machine was measured)" in said
    assert "not applicable: the fluid world moves no data" in said
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["world"] == "fluid" and any("Without packets" in note for note in manifest["notes"])
    assert "fluid" in (out / "report.html").read_text()


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "smoke", "--world", "fluid", "--seeds", "1-2", "--jobs", "1", "--out", str(tmp_path / "out"), "--json"]
    assert cli.execute(words) == 0
    first = capsys.readouterr().out
    (gone,) = (tmp_path / "out" / "raw").glob("*-s2")
    for file in gone.iterdir():
        file.unlink()
    gone.rmdir()
    assert cli.execute([*words, "--resume"]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pcap", "p0-t0-0:p0-t1-0"], "--pcap: the fluid world has no packets"),
        (["--on", "tls://localhost:1"], "--on: the fluid world"),
        (["--switch", "ovs"], "the fluid world has switches of its own"),
        (["--dilation", "25000"], "figures of the fluid world do not depend on it"),
        (["-t", "roce"], "the fluid world has MRC alone"),
    ],
)
def test_what_has_no_meaning_gets_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["run", "smoke", "--world", "fluid", *words]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
