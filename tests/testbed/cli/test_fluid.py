"""``mrcbed fluid``: tables, JSON, a plot; runs of packets beside the model; bad input gets one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed import cli
from tests.scenarios.small import undrawn
from tests.testbed.cli.conftest import Said
from tests.testbed.fluid.rings import ring


def computed(mrcbed: Said, words: str) -> dict[str, list[dict[str, float]]]:
    rows: dict[str, list[dict[str, float]]] = json.loads(mrcbed("fluid", "--json", *words.split()))
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
    said = mrcbed("fluid", "--nics", "1024", "--plot", "fluid.svg")
    assert "8 planes, weighted" in said and "0.39 %" in said and "fluid.svg" in said
    assert "<svg" in Path("fluid.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nics 1000", "use a multiple of 256"),
        ("--nics 1024 --ranks 7", "rings of 7 ranks"),
        ("--message much", "--message much: is not a size"),
        ("--planes 3", "must divide both"),
        ("--against nowhere", "nowhere holds no results"),
    ],
)
def test_bad_input_gets_one_line(words: str, said: str, mrcbed: Said) -> None:
    assert said in mrcbed.refused("fluid", *words.split())


def run(mrcbed: Said, scenario: str, world: str = "simulated") -> None:
    Path("ring.toml").write_text(scenario)
    with undrawn():
        mrcbed("run", "ring.toml", "--world", world, "--jobs", "1", "--out", "out")


@pytest.mark.dear("every packet of large chunks: bandwidth must count, not latency")
@pytest.mark.parametrize(("fabric", "kib", "steps", "dead"), [("tiny", 1280, 3, []), ("tiny", 1280, 1, [0]), ("rack16", 2048, 1, [0])])
def test_packets_agree_within_5_percent(fabric: str, kib: int, steps: int, dead: list[int], mrcbed: Said) -> None:
    run(mrcbed, ring(fabric, kib << 10, steps, [f"p0-t0-0:p0-t1-{t1}" for t1 in dead]))
    (row,) = json.loads(mrcbed("fluid", "--against", "out", "--json"))
    assert row["dead_links"] == len(dead) and abs(row["difference"]) <= 0.05


@pytest.mark.parametrize(
    ("kind", "world", "why"), [("roce", "simulated", "roce: the model knows MRC alone"), ("mrc", "fluid", "the model's own")]
)
def test_what_is_no_measurement_of_mrc_is_left_out(
    kind: str, world: str, why: str, mrcbed: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    run(mrcbed, ring("tiny", 64 << 10).replace('"mrc"', f'"{kind}"'), world)
    assert cli.execute(["fluid", "--against", "out"]) == 2
    told = capsys.readouterr()
    assert why in told.out and "no run to compare" in told.err
