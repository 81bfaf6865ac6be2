"""Colours and markers: in no shipped scenario do two transports look alike, and each keeps its look
where others are left out."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from scenarios.schema.scenario import load_scenario, named_scenarios
from scenarios.show.plots.style import (
    KNOWN,
    LOOKS,
    headline,
    kind_look,
    look_of,
    looks,
    panels,
    thin_ticks,
    wrap_titles,
)
from testbed.results.manifest import Manifest
from tests.made import made


@pytest.mark.parametrize("name", named_scenarios())
def test_transports_of_a_scenario_differ_in_colour(name: str) -> None:
    found = looks([(t.name, t.kind) for t in load_scenario(name).transports])
    assert len({colour for colour, _ in found.values()}) == len(found), found
    assert all(found[known] == look for known, look in KNOWN.items() if known in found)


def test_many_of_a_kind_differ_in_colour_or_marker() -> None:
    assert (
        len({kind_look("x", kind, n) for kind in ("mrc", "roce") for n in range(LOOKS)})
        == 2 * LOOKS
    )


def test_a_name_keeps_its_look_in_a_run_of_some_transports() -> None:
    def of(
        names: str,
        text: str = '[[transport]]\nkind = "mrc"\nname = "a"\n'
        '[[transport]]\nkind = "mrc"\nname = "b"\n',
    ) -> Any:
        scenario = {"transports": [{"name": name, "kind": "mrc"} for name in names]}
        return SimpleNamespace(
            manifest=made(Manifest, scenario=scenario, scenario_file=text),
            summary=SimpleNamespace(runs=[]),
        )

    assert look_of(of("b"), "b") == look_of(of("ab"), "b") != look_of(of("ab"), "a")
    assert look_of(of("b", "damaged ="), "b") == look_of(of("ab"), "a"), (
        "without the file its order is that of the runs"
    )


def test_a_label_that_is_wider_than_its_place_is_broken_between_words() -> None:
    words = "off the median of the transport over all seeds that were run, %"
    fig, (ax,) = panels(1, 1.6, x=words)
    ax.set_yticks([0, 1], ["a name that takes half of the picture for itself"] * 2)
    fig.draw_without_rendering()
    assert wrap_titles(fig)
    fig.draw_without_rendering()
    label = ax.xaxis.label
    assert (
        label.get_text().split() == words.split()
        and label.get_window_extent().x1 <= fig.bbox.x1
        and not wrap_titles(fig)
    )


def test_labels_of_a_narrow_axis_do_not_meet() -> None:
    fig, (upper, lower) = panels(2, 2.6, x="time [µs]")
    for ax in (upper, lower):
        ax.plot([-22_000, 22_000], [0, 1])
        ax.set_yticks([0, 1], ["a name that takes more than half of the whole picture"] * 2)
    fig.draw_without_rendering()
    assert thin_ticks(fig), "they met"
    while thin_ticks(fig):
        fig.draw_without_rendering()
    shown = [
        tick.label1.get_window_extent()
        for tick in lower.xaxis.get_major_ticks()
        if abs(tick.get_loc()) <= 22_000
    ]
    assert len(shown) > 1 and all(a.x1 < b.x0 for a, b in pairwise(shown))


def test_a_title_says_what_is_seen_and_names_two_transports_at_most() -> None:
    seen = {"mrc": 1.0, "roce": 3.0, "tcp": None}
    assert headline("Worst", seen, str, "Steps") == "Worst: mrc 1.0, roce 3.0\nSteps"
    more = {**seen, "mptcp": 7.0, "irn": 0.0}
    assert headline("Worst", more, str, "Steps") == "Worst: 0.0 (irn) to 7.0 (mptcp)\nSteps"
    assert headline("Worst", {"mrc": None}, str, "Steps") == "Steps"
