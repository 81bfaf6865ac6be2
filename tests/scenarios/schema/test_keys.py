"""The table of keys is the parser's: nothing is missing, everything is explained, examples are
accepted where they are shown."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from scenarios.schema.json_schema import json_schema, of_type
from scenarios.schema.key_search import (
    LISTS,
    example_in_file,
    example_of_set,
    find,
    named,
    nearest_keys,
)
from scenarios.schema.keys import FILES, SCENARIO, Key, keys, tables
from scenarios.schema.scenario import HERE, load_scenario, named_scenarios
from scenarios.schema.scenario import KINDS as KINDS_OF_TRANSPORTS
from scenarios.schema.sweep import override
from scenarios.schema.values import ScenarioError
from scenarios.schema.workload_tables import TABLES
from testbed.faults.kinds import KINDS
from topologies import FabricError
from topologies.fabrics import HERE as FABRICS
from topologies.fabrics import load_fabric

EVERY = keys()
VALID = {file: fastjsonschema.compile(json_schema(file)) for file in FILES}
ONE = """
format = 3
name = "one"
fabric = "demo"
[workload]
kind = "ring-allreduce"
message_bytes = "1MiB"
steps = 3
[[transport]]
kind = "mrc"
[[fault]]
kind = "flap"
on = "p0-t0-0:p0-t1-0"
period = "400us"
duty = 0.5
at = "80us"
"""


def by_dotted(name: str) -> tuple[Key, ...]:
    return tuple(key for key in EVERY if key.dotted == name and key.file == SCENARIO)


@pytest.mark.parametrize("key", EVERY, ids=lambda key: f"{named(key)}-{'-'.join(key.kinds)[:40]}")
def test_a_key_is_explained(key: Key) -> None:
    assert key.must and key.meaning and not key.meaning.endswith(".")
    assert key.must != type(key.type).__name__
    if key.example and key.dotted not in ("transport", "workload", *LISTS):
        value = tomllib.loads(f"x = {key.example}")["x"]
        fastjsonschema.compile(of_type(key.type))(value)
        assert tomllib.loads(example_in_file(key))
    assert key.example or key.dotted in ("workload", *LISTS)


def test_every_field_of_every_workload_and_every_key_of_every_fault_is_a_key() -> None:
    for kind, struct in TABLES.items():
        for name in struct.__struct_encode_fields__:
            assert any(
                kind in key.kinds or not key.kinds for key in by_dotted(f"workload.{name}")
            ), (kind, name)
    for kind in KINDS:
        for own in KINDS[kind].keys:
            (key,) = (
                key for key in by_dotted(f"fault.{own.name}") if kind in key.kinds or not key.kinds
            )
            assert key.required == own.required


def test_every_transport_has_its_options() -> None:
    assert [table.kinds[0] for table in tables() if table.path == "transport.options"] == list(
        KINDS_OF_TRANSPORTS
    )


@pytest.mark.parametrize(
    "key",
    [key for key in EVERY if example_of_set(key)],
    ids=lambda key: f"{named(key)}-{'-'.join(key.kinds)[:40]}",
)
def test_a_set_that_is_shown_finds_its_table(key: Key) -> None:
    data: dict[str, Any] = tomllib.loads(ONE)
    data |= {"background": [{}], "expect": [{}]}
    data["transport"].extend({"kind": kind} for kind in ("roce", "tcp", "mptcp"))
    data["workload"] |= {"flow": [{}], "job": [{}]}
    override(data, example_of_set(key).removeprefix("--set ").strip("'"))


@pytest.mark.parametrize(
    ("words", "dotted", "kinds"),
    [
        ("workload.steps", "workload.steps", None),
        ("fault[0].at", "fault.at", ()),
        ("fault.0.at", "fault.at", ()),
        ("fault.cable pulled.at", "fault.at", ()),
        ("fault.flap.duty", "fault.duty", ("flap",)),
        ("transport.roce.options.congestion", "transport.options.congestion", ("roce",)),
        ("workload.flow.B.start", "workload.flow.start", ()),
        ("mpr", "transport.options.mpr", ("mrc",)),
        ("fabric", "fabric", ()),
    ],
)
def test_keys_are_found_as_they_are_written(
    words: str, dotted: str, kinds: tuple[str, ...] | None
) -> None:
    named_keys, _ = find(words)
    assert {key.dotted for key in named_keys} == {dotted}
    if kinds is not None:
        assert [key.kinds for key in named_keys] == [kinds]


def test_what_is_no_key_is_not_found_and_the_nearest_is_named() -> None:
    assert find("workload.stepz") == ((), ())
    assert nearest_keys("workload.stepz")[0] == "workload.steps"
    assert nearest_keys("transport.mrc.options.mprr")[0] == "transport.options.mpr"
    assert nearest_keys("fabric.plnes")[0] == "fabric.planes"
    assert find("transport.mrc.options.g") == ((), ())  # RoCE's


# --- JSON Schema ----------------------------------------------------------------------------------


def toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


def test_the_schema_accepts_every_file_that_ships() -> None:
    for name in named_scenarios():
        VALID["scenario"](toml(HERE / f"{name}.toml"))
    for path in FABRICS.glob("*.toml"):
        VALID["fabric"](toml(path))


@pytest.mark.parametrize(
    "change",
    [
        "fabrc=1",
        "seeds=[]",
        "seeds=[-1]",
        "timeout=0",
        "nic_rate=fast",
        "expect_outcome=maybe",
        "workload.stepz=1",
        "workload.steps=0",
        "workload.steps=1.5",
        "workload.dtype=int64",
        "workload.message_bytes=1MiX",
        "workload.kind=rng",
        "workload.senders=3",
        "transport.0.kind=mrcc",
        "transport.0.name=a b",
        "transport.mrc.options.mpr=100",
        "transport.mrc.options.g=0.5",
        "transport.mrc.options.qps=0",
        "transport.mrc.fabric_options.trim_bdp=0.01",
        "transport.mrc.fabric_options.planes=2",
        "transport.mrc.clustermapper.policy=some",
        "transport.mrc.clustermapper=3",
        "fault.0.kind=flip",
        "fault.0.duty=1.0",
        "fault.0.probability=0.1",
        "fault.0.perod=3",
        "fault.0.for=soon",
        "fault.0.ranks=[1]",
        "background=[{}]",
        "expect=[{}]",
        "expect=[{check = 'mrc.wrong == 0', worl = 'x'}]",
        "sweep={x = []}",
    ],
)
def test_parser_and_schema_refuse_the_same(change: str, tmp_path: Path) -> None:
    data = tomllib.loads(ONE)
    VALID["scenario"](data)
    override(data, change)
    with pytest.raises(fastjsonschema.JsonSchemaException):
        VALID["scenario"](data)
    file = tmp_path / "one.toml"
    file.write_text(ONE)
    with pytest.raises(ScenarioError):
        load_scenario(str(file), overrides=[change])


@pytest.mark.parametrize(
    "line",
    [
        "planes = 0",
        "plane = 1",
        "nic_rate = 'fast'",
        "delay = 'soon'",
        "routing = 'some'",
        "mtu = 1001",
    ],
)
def test_parser_and_schema_refuse_the_same_fabrics(line: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    key = line.partition(" ")[0]
    kept = [
        old
        for old in (FABRICS / "demo.toml").read_text().splitlines()
        if not old.startswith(f"{key} ")
    ]
    file.write_text("\n".join([*kept, line]))
    with pytest.raises(fastjsonschema.JsonSchemaException):
        VALID["fabric"](toml(file))
    with pytest.raises(FabricError):
        load_fabric(str(file))
