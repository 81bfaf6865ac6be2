"""Below every figure stands what its runs are worth, in words that nobody has to look up; old results have it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.show.plots.style import figure, save
from scenarios.show.plots.worth import COLOURS, worth


def run(name: str, verdict: str = "trustworthy", **more: Any) -> dict[str, Any]:
    return {"run": name, "world": "emulated", "fidelity": {"verdict": verdict}, **more}


@pytest.mark.parametrize(
    ("runs", "words", "worst"),
    [
        ([], "computed: no run is in this figure", "trustworthy"),
        ([run("a")], "fidelity: trustworthy (1 run)", "trustworthy"),
        ([run("a"), run("a"), run("b")], "fidelity: trustworthy (2 runs)", "trustworthy"),
        ([run("a", "doubtful"), run("b")], "fidelity: 1 doubtful, 1 trustworthy (2 runs)", "doubtful"),
        ([run("a"), run("b", "doubtful"), run("c", "invalid")], "fidelity: 1 invalid, 1 doubtful, 1 trustworthy (3 runs)", "invalid"),
        ([run("a", "invalid")], "fidelity: invalid (1 run)", "invalid"),
        ([run("a", world="simulated")], "fidelity: trustworthy (1 run, simulated)", "trustworthy"),
        ([run("a", world="simulated"), run("b")], "fidelity: trustworthy (2 runs, 1 of them simulated)", "trustworthy"),
        ([{"run": "old", "distrust": ["the machine was busy"]}], "fidelity: doubtful (1 run)", "doubtful"),
        ([{"run": "old", "distrust": []}], "fidelity: trustworthy (1 run)", "trustworthy"),
    ],
)
def test_a_line_says_it(runs: list[dict[str, Any]], words: str, worst: str) -> None:
    assert worth(runs) == (words, COLOURS[worst])


def test_the_line_stands_below_and_changes_nothing_above(tmp_path: Path) -> None:
    from matplotlib import image

    def drawn(name: str, runs: list[dict[str, Any]] | None) -> Any:
        with figure(1, 1.2) as (fig, ax):
            ax.plot([0, 1], [0, 1])
            return save(fig, tmp_path / name, "f", runs)

    plain, told = drawn("plain", None), drawn("told", [run("a", "invalid")])
    assert "<!-- fidelity: invalid (1 run) -->" in told[1].read_text() and "fidelity" not in plain[1].read_text()
    before, after = (image.imread(files[0]) for files in (plain, told))
    assert after.shape[0] > before.shape[0] and after.shape[1] == before.shape[1]
    assert (after[: before.shape[0] - 1] == before[:-1]).all(), "the same figure"
    below = after[before.shape[0] :, :, :3]
    assert (below < 0.9).any(), "and below it the line"
