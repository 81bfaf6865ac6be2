"""Below every figure stands what its runs are worth, in words that nobody has to look up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.show.plots.style import COLOURS, STRIP, figure, save, worth
from testbed.results.summary import Run
from tests.made import made


def run(name: str, verdict: str = "trustworthy", **more: Any) -> Run:
    return made(Run, run=name, fidelity={"verdict": verdict}, **more)


@pytest.mark.parametrize(
    ("runs", "words", "worst"),
    [
        ([], "computed: no run is in this figure", "trustworthy"),
        ([run("a")], "fidelity: trustworthy (1 run)", "trustworthy"),
        ([run("a"), run("a"), run("b")], "fidelity: trustworthy (2 runs)", "trustworthy"),
        (
            [run("a", "doubtful"), run("b")],
            "fidelity: 1 doubtful, 1 trustworthy (2 runs)",
            "doubtful",
        ),
        (
            [run("a"), run("b", "doubtful"), run("c", "invalid")],
            "fidelity: 1 invalid, 1 doubtful, 1 trustworthy (3 runs)",
            "invalid",
        ),
        ([run("a", "invalid")], "fidelity: invalid (1 run)", "invalid"),
        ([run("a", world="simulated")], "fidelity: trustworthy (1 run, simulated)", "trustworthy"),
        (
            [run("a", world="simulated"), run("b")],
            "fidelity: trustworthy (2 runs, 1 of them simulated)",
            "trustworthy",
        ),
    ],
)
def test_a_line_says_it(runs: list[Run], words: str, worst: str) -> None:
    assert worth(runs) == (words, COLOURS[worst])


def test_the_line_stands_below_and_changes_nothing_above(tmp_path: Path) -> None:
    from matplotlib import image

    def drawn(name: str, runs: list[Run] | None) -> Any:
        with figure(1, 1.2) as (fig, ax):
            ax.plot([0, 1], [0, 1])
            return save(fig, tmp_path / name, "f", runs)

    plain, told = drawn("plain", None), drawn("told", [run("a", "invalid")])
    assert (
        "<!-- fidelity: invalid (1 run) -->" in told[1].read_text()
        and "fidelity" not in plain[1].read_text()
    )
    before, after = (image.imread(files[0]) for files in (plain, told))
    assert after.shape[0] > before.shape[0] and after.shape[1] == before.shape[1]
    assert (after[: before.shape[0] - 1] == before[:-1]).all(), "the same figure"
    below = after[before.shape[0] :, :, :3]
    assert (below < 0.9).any(), "and below it the line"


def test_a_legend_stays_above_the_line_and_a_long_title_inside(tmp_path: Path) -> None:
    with figure(1, 2.2) as (fig, ax):
        ax.plot([0, 1], [0, 1])
        ax.set_xlabel("time [s]")
        title = (
            "mrc-no-trim on rack16-no-trimming: the 32 paths from h0 to h8, a cable pulled and a "
            "NIC port down"
        )
        ax.set_title(title)
        legend = fig.legend(handles=ax.lines, labels=["a line"], loc="outside lower left")
        save(fig, tmp_path, "f", [run("a")])
        fig.canvas.draw()
        box = legend.get_window_extent()
        assert box.y0 >= STRIP * fig.dpi and ax.get_tightbbox().y0 > box.y1, (
            "the line below the legend, the axes above it"
        )
        head = ax.get_title(loc="left")
        assert (
            head.count("\n")
            and " ".join(head.split()) == title
            and ax._left_title.get_window_extent().x1 <= fig.bbox.x1
        )


def test_the_last_digits_of_a_layout_change_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(name: str, shift: float) -> bytes:
        with figure(1, 1.5) as (fig, ax):
            ax.plot([0, 1], [0, 1])
            done = fig.set_layout_engine
            moved = [edge + shift for edge in (0.1, 0.2, 0.8, 0.7)]
            monkeypatch.setattr(
                fig, "set_layout_engine", lambda engine: (done(engine), ax.set_position(moved))
            )
            return save(fig, tmp_path / name, "f", [run("a")])[1].read_bytes()

    assert drawn("first", 0) == drawn("second", 3e-15)


@pytest.mark.parametrize("letters", range(12, 20))
def test_whatever_its_length_a_title_ends_inside_the_picture(tmp_path: Path, letters: int) -> None:
    """In the file letters are wider than in the layout: a title that just fitted there was cut."""
    from matplotlib import image

    with figure(1, 1.5) as (fig, ax):
        ax.set_title(
            "job-thin-plane, simulated: " + "interleaved ranks, "[:letters] + "seed 1", fontsize=7.5
        )
        ax.set_ylabel("goodput\n[% of ideal]")
        picture = image.imread(save(fig, tmp_path, "f", [run("a")])[0])
    assert (picture[: picture.shape[0] // 5, -3:, :3] > 0.95).all()
