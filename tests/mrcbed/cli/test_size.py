"""``mrcbed fabric size``: the paper's numbers come out, JSON says the same as the tables, and bad
input gets one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mrcbed.cli.conftest import Said


def sized(mrcbed: Said, *words: str) -> dict[int, dict[str, float]]:
    """The designs, by planes."""
    return {
        row["planes"]: row
        for row in json.loads(mrcbed("fabric", "size", "--json", *words))["designs"]
    }


def test_the_papers_numbers(mrcbed: Said) -> None:
    """Section 2 of the MRC paper: 131,072 NICs on two tiers; at 64K, 2/3 of the optics and 3/5 of
    the switches of three tiers."""
    designs = sized(mrcbed)
    eight, one = designs[8], designs[1]
    assert (eight["tiers"], one["tiers"], eight["most_nics"], one["most_nics"]) == (
        2,
        3,
        131_072,
        65_536,
    )
    assert eight["optics"] / one["optics"] == 2 / 3 and eight["switches"] / one["switches"] == 3 / 5
    assert eight["watts"] < one["watts"]
    assert (
        round(100 * eight["lost_with_uplink"], 1) == 0.4
        and round(100 * one["lost_with_uplink"]) == 3
    )
    assert list(sized(mrcbed, "--planes", "4", "--nics", "1000")) == [4, 1], (
        "one plane stands beside what is asked for"
    )


def test_tables_and_a_plot(mrcbed: Said) -> None:
    said = mrcbed("fabric", "size", "--part", "optic_price=100", "--plot", "size.svg")
    assert "262,144" in said and "26,214,400" in said and "31)" in said and "size.svg" in said
    assert "<svg" in Path("size.svg").read_text()
    assert "Alibaba HPN" in mrcbed("fabric", "size", "--part", "help")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nic-rate fast", "--nic-rate fast: is not a rate"),
        ("--oversubscription 2:1", "write a number"),
        ("--oversubscription 0.5", "1 or more"),
        ("--planes 3", "must divide both"),
        ("--part watts=3", "--part help lists them"),
        ("--part switch_watts=x", "must be a number"),
        ("--nics 10000000 --switch-rate 3200Gbit --planes 1", "do not fit"),
    ],
)
def test_bad_input_gets_one_line(words: str, said: str, mrcbed: Said) -> None:
    assert said in mrcbed.refused("fabric", "size", *words.split())
