"""A resolved scenario as text is the same scenario; and what comes from standard input names no
file and no module."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scenarios.schema.resolved import text_of
from scenarios.schema.scenario import (
    Scenario,
    ScenarioError,
    load_scenario,
    named_scenarios,
    scenario_of,
)
from topologies.toml_files import STANDARD_INPUT, parse_toml, take_format

SMALL = """format = 3
fabric = {planes = 2, t0_per_plane = 2, t1_per_plane = 2, hosts_per_t0 = 2, delay = "1us", dilation = 20000}
workload = {kind = "ring-allreduce", message_bytes = "32KiB", placement = "packed", steps = 5}
transport = [{kind = "mrc"}]
"""  # noqa: E501


def read(text: str, **changes: Any) -> Scenario:
    data = parse_toml(text)
    take_format(data)
    return scenario_of(STANDARD_INPUT, text, {"name": "piped", **data}, **changes)


@pytest.mark.parametrize("name", named_scenarios())
def test_every_shipped_scenario_arrives_as_it_was(name: str) -> None:
    for variant in load_scenario(name).variants:
        here = replace(variant.scenario, dilation=20_000.0, timeout_s=33.25)
        there = read(text_of(here, variant.settings))
        assert [v.settings for v in there.variants] == [variant.settings]
        own = {"file": "", "text": "", "expects": (), "swept": ()}
        assert replace(there.variants[0].scenario, **own) == replace(here, **own)


def test_a_fabric_may_be_a_table() -> None:
    scenario = read(SMALL)
    assert (scenario.fabric.name, scenario.fabric.planes, scenario.dilation) == ("own", 2, 20_000)
    assert read(SMALL + "dilation = 30000\n").dilation == 30_000
    wrong = {
        "planes": ("planes = 2", "planes = 0"),
        "dilation": ("= 20000", "= 0.5"),
        "rate": ("planes = 2", "planes = 2, rate = 1"),
    }
    for key, change in wrong.items():
        with pytest.raises(ScenarioError, match=rf"/dev/stdin: fabric : .*{key}"):
            read(SMALL.replace(*change))


def test_a_setting_names_runs_and_changes_nothing() -> None:
    (variant,) = read(f'{SMALL}setting = {{build = "a", "workload.steps" = 7}}\n').variants
    assert variant.settings == {"build": "a", "workload.steps": 7}
    assert replace(variant.scenario, text="") == replace(read(SMALL), text="")
    (first, second) = read(
        f'{SMALL}setting = {{build = "a"}}\nsweep = {{"workload.steps" = [3, 4]}}\n'
    ).variants
    assert [first.settings, second.settings] == [
        {"build": "a", "workload.steps": 3},
        {"build": "a", "workload.steps": 4},
    ]
    assert (first.scenario.workload.steps, second.scenario.workload.steps) == (3, 4)
    with pytest.raises(ScenarioError, match="setting"):
        read(f"{SMALL}setting = {{build = [1]}}\n")


@pytest.mark.parametrize("name", ["mine.toml", "/etc/shadow", "../x.toml", "-"])
def test_what_comes_from_standard_input_names_no_file(name: str) -> None:
    with pytest.raises(
        ScenarioError,
        match="a scenario from standard input names no file: write the fabric as a table",
    ):
        read(SMALL.replace('[{kind = "mrc"}]', f'[{{kind = "mrc", fabric = "{name}"}}]'))
    assert (
        read(SMALL.replace('[{kind = "mrc"}]', '[{kind = "mrc", fabric = "tiny"}]'))
        .transports[0]
        .fabric.name
        == "tiny"
    )


def test_nor_a_module() -> None:
    with pytest.raises(
        ScenarioError,
        match=r"congestion = 'antigravity:Class': a scenario from standard input names no module",
    ):
        read(SMALL.replace('"mrc"', '"mrc", options = {congestion = "antigravity:Class"}'))
