"""A block says to another machine exactly what to run, and root refuses whatever it should not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.run.planning import blocks_of, plan
from scenarios.run.simulate import check_simulable
from scenarios.schema.scenario import ScenarioError, load_scenario, named_scenarios
from scenarios.sweeps import blocks
from testbed.errors import UserError
from tests.scenarios.small import small

HERE = "1.0"


def world_of(name: str) -> str:
    try:
        check_simulable(load_scenario(name))
    except ScenarioError:
        return "emulated"
    return "simulated"


@pytest.mark.parametrize("name", named_scenarios())
def test_every_shipped_scenario_arrives_as_it_was(name: str) -> None:
    for specs in blocks_of(plan(load_scenario(name)))[:4]:
        dilation = None if world_of(name) == "simulated" else specs[0].scenario.dilation
        block, arrived = blocks.read(blocks.written(specs, world_of(name), HERE, dilation), HERE)
        assert block.dilation == dilation
        assert [spec.key for spec in arrived] == [spec.key for spec in specs]
        for there, here in zip(arrived, specs, strict=True):
            assert there.transport == here.transport and there.settings == here.settings and there.used == here.used
            for part in ("workload", "faults", "backgrounds", "timeout_s", "dilation", "expect_outcome", "fabric"):
                assert getattr(there.scenario, part) == getattr(here.scenario, part), part


def test_a_block_is_all_that_shares_the_targets_of_faults(tmp_path: Path) -> None:
    names = [[spec.key for spec in block] for block in blocks_of(plan(small(tmp_path, seeds=[1, 2])))]
    assert names == [
        ["roce-tiny-interleaved-s1", "mrc-tiny-interleaved-s1"], ["roce-1p-tiny-1p-interleaved-s1"],
        ["roce-1p-tiny-1p-interleaved-s2"], ["roce-tiny-interleaved-s2", "mrc-tiny-interleaved-s2"],
    ]  # fmt: skip


def test_what_an_earlier_run_resolved_arrives(tmp_path: Path) -> None:
    specs = blocks_of(plan(small(tmp_path)))[0]
    specs[0].used[0] = "p0-t0-0:p0-t1-0"
    _, arrived = blocks.read(blocks.written(specs[1:], "simulated", HERE), HERE)
    assert [spec.key for spec in arrived] == ["mrc-tiny-interleaved-s1"] and arrived[0].used == {0: "p0-t0-0:p0-t1-0"}


def change(path: str, value: Any) -> Any:
    """A function that changes one value of a block."""

    def apply(data: dict[str, Any]) -> None:
        *parents, last = [int(word) if word.isdigit() else word for word in path.split(".")]
        place: Any = data
        for word in parents:
            place = place[word]
        place[last] = value

    return apply


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (change("mrcbed", "0.9"), "written by mrcbed 0.9, here is 1.0: install the same version on both machines"),
        (change("command", "rm"), "command is not a key"),
        (change("world", "real"), "world = 'real' must be"),
        (change("dilation", None), "dilation = None must be a number for emulated runs"),
        (change("dilation", 0.5), "dilation = 0.5 must be"),
        (change("dilation", 1e8), "nic_rate = 100 Gbit/s runs at 1,000 bit/s"),
        (change("seed", -1), "seed = -1 must be 0 or more"),
        (change("seed", "x"), "seed"),
        (change("placement", "../.."), "placement"),
        (change("transports", ["tcp"]), "transports"),
        (change("transports", []), "transports"),
        (change("scenario.transports.0.name", "../../etc/cron.d/x"), "transports"),
        (change("scenario.fabric.planes", 0), "planes"),
        (change("scenario.fabric.planes", "../x"), "planes"),
        (change("scenario.faults.0.kind", "rm"), "kind"),
        (change("scenario.transports.0.options", {"congestion": "os:system"}), "congestion"),
        (change("scenario.transports.0.kind", "telnet"), "telnet"),
        (change("scenario.transports.0", 3), "must be a list of tables"),
        (change("scenario.swept", [{"settings": {}, "scenario": {}}]), "scenario"),
    ],
)
def test_a_damaged_block_is_refused_in_one_line(damage: Any, reason: str, tmp_path: Path) -> None:
    text = blocks.written(blocks_of(plan(load_scenario("smoke")))[0], "emulated", HERE, 10_000)
    blocks.read(text, HERE, "emulated")
    data = json.loads(text)
    damage(data)
    with pytest.raises(UserError) as raised:
        blocks.read(json.dumps(data), HERE)
    assert str(raised.value).startswith("block: ") and reason in str(raised.value) and "\n" not in str(raised.value)


def test_a_name_that_is_no_file_is_refused(tmp_path: Path) -> None:
    data = json.loads(blocks.written(blocks_of(plan(load_scenario("smoke")))[0], "emulated", HERE, 10_000))
    data["scenario"]["transports"][0]["name"] = data["transports"][0] = "../../etc/cron.d/x"
    with pytest.raises(UserError, match=r"gives a run the name '../../etc/cron.d/x-tiny-.*', which is no name of a file"):
        blocks.read(json.dumps(data), HERE)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{", "[" * 100_000, "x" * (blocks.MAX_BYTES + 1)], ids=["none", "null", "list", "cut", "deep", "long"]
)
def test_what_is_no_block_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="^block: "):
        blocks.read(text, HERE)
