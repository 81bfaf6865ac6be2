"""``mrcbed run --world fluid``: no root, the report of a run, and one line for options that mean nothing without packets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.scenarios.small import undrawn
from tests.testbed.cli.conftest import Said

RUN = ("run", "smoke", "--world", "fluid")


def test_a_shipped_scenario_runs_and_says_which_world_it_was(mrcbed: Said) -> None:
    said = " ".join(mrcbed(*RUN, "--jobs", "1", "--out", "out").split())
    assert "Verdict: ok (fluid, in virtual time and without packets: no machine was measured)" in said
    assert "not applicable: the fluid world moves no data" in said
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["world"] == "fluid" and any("Without packets" in note for note in manifest["notes"])
    assert "fluid" in Path("out/report.html").read_text()


def test_a_run_goes_on_where_it_was_interrupted(mrcbed: Said) -> None:
    words = (*RUN, "--seeds", "1-2", "--jobs", "1", "--out", "out", "--json")
    with undrawn():
        first = mrcbed(*words)
        (gone,) = Path("out/raw").glob("*-s2")
        shutil.rmtree(gone)
        assert mrcbed(*words, "--resume") == first


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--pcap p0-t0-0:p0-t1-0", "--pcap: the fluid world has no packets"),
        ("--on tls://localhost:1", "--on: the fluid world"),
        ("--switch ovs", "the fluid world has switches of its own"),
        ("--dilation 25000", "figures of the fluid world do not depend on it"),
        ("-t roce", "the fluid world has MRC alone"),
    ],
)
def test_what_has_no_meaning_gets_one_line(words: str, said: str, mrcbed: Said) -> None:
    assert said in mrcbed.refused(*RUN, *words.split())
