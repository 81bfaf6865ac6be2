"""A figure that shows a part of a results directory says which: a picture outlives its file
name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from scenarios.run.simulate import simulate
from scenarios.show.plots import draw_all
from tests.scenarios.small import small, undrawn


@pytest.mark.dear("four runs, and all their figures")
def test_placement_and_seed_of_a_files_name_stand_in_its_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = small(
        tmp_path,
        seeds=[1, 2],
        transports=["mrc"],
        overrides=['workload.placement=["packed", "interleaved"]'],
    )
    out = tmp_path / "out"
    out.mkdir()
    with undrawn():
        simulate(scenario, out)
    titles: dict[str, str] = {}

    def note(canvas: Any, file: Path, **_: Any) -> None:
        drawn = canvas.figure
        heads = [
            drawn.get_suptitle(),
            *(ax.get_title(loc) for ax in drawn.axes for loc in ("left", "center", "right")),
        ]
        titles[file.stem] = " | ".join(" ".join(head.split()) for head in heads if head)

    monkeypatch.setattr("scenarios.show.plots.style.wrap_titles", lambda fig: False)
    # neither laid out nor drawn
    monkeypatch.setattr(Figure, "draw_without_rendering", lambda fig: None)
    monkeypatch.setattr(FigureCanvasAgg, "print_png", lambda canvas, file: None)
    monkeypatch.setattr(FigureCanvasSVG, "print_svg", note)
    draw_all(out)
    assert (
        sum(name.startswith("path-heat") for name in titles)
        == 4
        == sum(name.startswith("paths") for name in titles)
    ), sorted(titles)
    for name, title in titles.items():
        ((placement, seed),) = re.findall(r"-(packed|interleaved)(?:-s(\d))?$", name)
        assert f"{placement} ranks" in title and (not seed or f"seed {seed}" in title), (
            name,
            title,
        )
