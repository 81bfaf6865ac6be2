"""``mrcbed size``: the paper's numbers come out, JSON says the same as the tables, and bad input gets one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed import cli


def sized(capsys: pytest.CaptureFixture[str], *words: str) -> dict[int, dict[str, float]]:
    """The designs, by planes."""
    assert cli.execute(["size", "--json", *words]) == 0
    return {row["planes"]: row for row in json.loads(capsys.readouterr().out)["designs"]}


def test_the_papers_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Section 2 of the MRC paper: 131,072 NICs on two tiers; at 64K, 2/3 of the optics and 3/5 of the switches of three tiers."""
    designs = sized(capsys)
    eight, one = designs[8], designs[1]
    assert (eight["tiers"], one["tiers"], eight["most_nics"], one["most_nics"]) == (2, 3, 131_072, 65_536)
    assert eight["optics"] / one["optics"] == 2 / 3 and eight["switches"] / one["switches"] == 3 / 5
    assert eight["watts"] < one["watts"]
    assert round(100 * eight["lost_with_uplink"], 1) == 0.4 and round(100 * one["lost_with_uplink"]) == 3


def test_one_plane_stands_beside_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(sized(capsys, "--planes", "4", "--nics", "1000")) == [4, 1]


def test_tables_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "size.svg"
    assert cli.execute(["size", "--part", "optic_price=100", "--plot", str(plot)]) == 0
    said = capsys.readouterr().out
    assert "262,144" in said and "26,214,400" in said and "31)" in said and str(plot) in said
    assert "<svg" in plot.read_text()
    assert cli.execute(["size", "--part", "help"]) == 0
    assert "Alibaba HPN" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nic-rate", "fast"], "--nic-rate fast: is not a rate"),
        (["--oversubscription", "2:1"], "write a number"),
        (["--oversubscription", "0.5"], "1 or more"),
        (["--planes", "3"], "must divide both"),
        (["--part", "watts=3"], "--part help lists them"),
        (["--part", "switch_watts=x"], "must be a number"),
        (["--nics", "10000000", "--switch-rate", "3200Gbit", "--planes", "1"], "do not fit"),
    ],
)
def test_bad_input_gets_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["size", *words]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
