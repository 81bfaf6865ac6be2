"""Colours and markers: in no shipped scenario do two transports look alike, and each keeps its look where others are left out."""

from __future__ import annotations

from typing import Any, cast

import pytest

from scenarios.figures.stored import Stored
from scenarios.schema.scenario import load_scenario, named_scenarios
from scenarios.show.plots.style import KNOWN, LOOKS, kind_look, look_of, looks


@pytest.mark.parametrize("name", named_scenarios())
def test_transports_of_a_scenario_differ_in_colour(name: str) -> None:
    found = looks([(t.name, t.kind) for t in load_scenario(name).transports])
    assert len({colour for colour, _ in found.values()}) == len(found), found
    assert all(found[known] == look for known, look in KNOWN.items() if known in found)


def test_many_of_a_kind_differ_in_colour_or_marker() -> None:
    assert len({kind_look("x", kind, n) for kind in ("mrc", "roce") for n in range(LOOKS)}) == 2 * LOOKS


def test_a_name_keeps_its_look_in_a_run_of_some_transports() -> None:
    text = "".join(f'[[transport]]\nkind = "{kind}"\nname = "{name}"\n' for name, kind in (("a", "mrc"), ("b", "mrc"), ("c", "roce")))

    def of(names: str, text: str = text) -> Any:
        scenario = {"transports": [{"name": n, "kind": "roce" if n == "c" else "mrc"} for n in names]}
        return cast(Stored, type("Results", (), {"manifest": {"scenario": scenario, "scenario_file": text}, "summary": {"runs": []}}))

    assert look_of(of("b"), "b") == look_of(of("abc"), "b") != look_of(of("abc"), "a")
    assert look_of(of("c"), "c") == look_of(of("abc"), "c")
    assert look_of(of("b", "damaged ="), "b") == look_of(of("abc"), "a"), "without the file its order is that of the runs"
