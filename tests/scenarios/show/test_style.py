"""The fixed colours and markers: in no shipped scenario do two transports look alike."""

from __future__ import annotations

import pytest

from scenarios.schema.scenario import load_scenario, named_scenarios
from scenarios.show.plots.style import colour_and_marker


@pytest.mark.parametrize("name", named_scenarios())
def test_transports_of_a_scenario_differ_in_colour_or_marker(name: str) -> None:
    looks = {t.name: colour_and_marker(t.name) for t in load_scenario(name).transports}
    assert len(set(looks.values())) == len(looks), looks
