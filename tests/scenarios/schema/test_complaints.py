"""All mistakes of a file are told at once, each by its place in the file; a right file has none."""

from __future__ import annotations

import re
from pathlib import Path

import fastjsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.schema.complaints import check_fabric, check_scenario
from scenarios.schema.json_schema import json_schema
from scenarios.schema.key_search import example_of_set
from scenarios.schema.keys import keys
from scenarios.schema.scenario import load_scenario, named_scenarios, read_scenario_file
from scenarios.schema.sweep import override
from scenarios.schema.values import ScenarioError
from tests.properties.profiles import QUICK
from topologies import FabricError
from topologies.toml_files import FORMAT

BAD = """
format = 3
fabrc = "x"
fabric = "demo"
seeds = [1, -2, 3, -4]
[workload]
kind = "ring-allreduce"
message_bytes = "1MiX"
stepz = 3
steps = 10
[[transport]]
kind = "mrc"
options = { mpr = 7, qps = 0 }
[[transport]]
kind = "roce"
name = "bad name"
[[fault]]
kind = "link"
on = "p0-t0-0:p0-t1-9"
at = "160us"
[[fault]]
kind = "linc"
on = "x"
[[fault]]
kind = "flap"
on = "p0-t0-0:p0-t1-3"
at = "1us"
perod = "100us"
[[expect]]
check = "mrc.wrong = 0"
[[expect]]
chek = "mrc.wrong == 0"
"""


def test_every_mistake_has_a_line_with_its_key(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(BAD)
    scenario, lines = check_scenario(str(file))
    assert scenario is None
    said = {line.removeprefix(f"{file}: ").split()[0]: line for line in lines}
    assert set(said) == {
        "fabrc",
        "seeds[1]",
        "seeds[3]",
        "transport[1].name",
        "expect[0].check",
        "expect[1].chek",
        "expect[1].check",
        "workload.message_bytes",
        "workload.stepz",
        "transport[0].options.qps",
        "transport[0].options.mpr",
        "fault[0].on",
        "fault[1].kind",
        "fault[2].perod",
        "fault[2].period",
    } and len(said) == len(lines)
    assert (
        "did you mean 'steps'?" in said["workload.stepz"]
        and "did you mean 'period'?" in said["fault[2].perod"]
    )
    assert "seeds[3] = -4" in said["seeds[3]"]


@pytest.mark.parametrize("name", named_scenarios())
def test_what_ships_has_no_mistake_and_is_what_a_run_loads(name: str) -> None:
    assert check_scenario(name) == (load_scenario(name), [])


def test_a_mistake_that_no_key_has_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(
        BAD.partition("[[transport]]")[0]
        .replace("fabrc", "description")
        .replace("stepz = 3", "")
        .replace("1MiX", "1MiB")
    )
    assert [line.partition(": ")[2] for line in check_scenario(str(file))[1]] == [
        "seeds[1] = -2 must be a whole number in 0..9223372036854775807",
        "seeds[3] = -4 must be a whole number in 0..9223372036854775807",
        "transport is missing",
    ]


def test_a_fabric_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        "format = 3\nplanes = 99\nt0_per_plane = 2\nt1_per_plane = 4\nhosts_per_t0 = 4\nmtuu = 3\n"
    )
    fabric, lines = check_fabric(str(file))
    assert fabric is None and len(lines) == 2
    assert any("planes = 99" in line for line in lines) and any(
        "mtuu is not a key: did you mean 'mtu'?" in line for line in lines
    )
    assert check_fabric("demo")[1] == []


def test_changes_of_the_command_line_are_named_where_they_are() -> None:
    changes = [
        "transport.1.options.qps=0",
        "transport.1.name=a b",
        "transport.0.options.mpr=1",
        "workload.stepz=3",
    ]
    named = [
        line.split()[1]
        for line in check_scenario("smoke", overrides=["transport.0.name=a b", "workload.stepz=3"])[
            1
        ]
    ]
    assert named == ["transport[0].name", "workload.stepz"]
    named = [line.split()[1] for line in check_scenario("link-failure", overrides=changes)[1]]
    assert sorted(named) == [
        "transport[0].options.mpr",
        "transport[1].name",
        "transport[1].options.qps",
        "workload.stepz",
    ]


SCHEMA = fastjsonschema.compile(json_schema("scenario"))
VALUES = st.sampled_from(
    [
        "0",
        "-1",
        "1.5",
        "true",
        "[]",
        "{}",
        "[{}]",
        "'x'",
        "'1us'",
        "'1MiB'",
        "'h0'",
        "[1, 1]",
        "'demo'",
        "'used-by-qp'",
    ]
)
NAMES = sorted(
    {
        re.sub(r"^--set '?|'$", "", example_of_set(key)).partition("=")[0]
        for key in keys()
        if example_of_set(key)
    }
)


CHANGES = (
    st.sampled_from(
        ["smoke", "link-failure", "cross-traffic", "two-jobs", "failure-rate", "incast-victim"]
    ),
    st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=5),
)


def told(name: str, changes: list[tuple[str, str]]) -> None:
    """What a check says of a scenario with these changes is what reading it does."""
    overrides = [f"{key}={value}" for key, value in changes]
    scenario, lines = check_scenario(name, overrides=overrides)
    try:
        loaded = load_scenario(name, overrides=overrides)
    except (ScenarioError, FabricError) as error:
        assert scenario is None and lines and (str(error) in lines or len(lines) > 1)
        assert len(set(lines)) == len(lines) and all("\n" not in line for line in lines)
    else:
        assert scenario == loaded and lines == []
        tables = {"format": FORMAT, **read_scenario_file(name)[2]}
        for item in overrides:
            override(tables, item)
        SCHEMA(tables)  # what is read is what an editor accepts


@QUICK
@given(*CHANGES)
def test_whatever_is_wrong_it_is_told_and_only_then(
    name: str, changes: list[tuple[str, str]]
) -> None:
    """A few; `make soak` tries thousands (tests/soak/test_hostile_values.py)."""
    told(name, changes)
