"""``mrcbed fabric fluid``: tables, JSON, a plot; bad input gets one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mrcbed.cli.conftest import Said


def computed(mrcbed: Said, words: str) -> dict[str, list[dict[str, float]]]:
    rows: dict[str, list[dict[str, float]]] = json.loads(
        mrcbed("fabric", "fluid", "--json", *words.split())
    )
    return rows


def test_more_planes_lose_less_to_the_same_share_of_dead_links(mrcbed: Said) -> None:
    steps = computed(mrcbed, "--nics 8192")["steps"]
    eight, weighted, one = (row["median_ns"] / row["healthy_ns"] for row in steps)
    assert 1 < weighted < eight < one
    assert len({round(row["healthy_ns"], -4) for row in steps}) == 1


def test_the_same_seed_gives_the_same_figures_and_another_gives_others(mrcbed: Said) -> None:
    words = "--nics 8192 --planes 8 --draws 1 --dead-links 0.01 --seed"
    first, again, other = (computed(mrcbed, f"{words} {seed}") for seed in (1, 1, 2))
    assert first == again != other


def test_tables_and_a_plot(mrcbed: Said) -> None:
    said = mrcbed("fabric", "fluid", "--nics", "1024", "--plot", "fluid.svg")
    assert "8 planes, weighted" in said and "0.39 %" in said and "fluid.svg" in said
    assert "<svg" in Path("fluid.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nics 1000", "use a multiple of 256"),
        ("--nics 1024 --ranks 7", "rings of 7 ranks"),
        ("--message much", "--message much: is not a size"),
        ("--planes 3", "must divide both"),
    ],
)
def test_bad_input_gets_one_line(words: str, said: str, mrcbed: Said) -> None:
    assert said in mrcbed.refused("fabric", "fluid", *words.split())
