"""Sweeps: which settings there are, what they change, what they are called, every mistake as one
line; rows, which have them as columns."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace

from scenarios.figures.rows import row, table, write_rows
from scenarios.run.planning import plan
from scenarios.run.runner import Runner
from scenarios.schema.scenario import Scenario, ScenarioError, load_scenario
from scenarios.schema.sweep import short_keys, suffix
from testbed.results.summary import Run
from tests.made import made
from tests.scenarios.fakes import FakeCluster
from tests.scenarios.small import TRANSPORTS, undrawn

BODY = f"""
format = 3
fabric = "tiny"
seeds = [1, 2, 3]
[workload]
kind = "ring-allreduce"
placement = ["packed", "interleaved"]
message_bytes = "64KiB"
steps = 4
{TRANSPORTS}[[fault]]
name = "lossy"
kind = "loss"
on = "p0-t0-0:p0-t1-0"
probability = 0.1
at = 0
"""
SWEEP = (
    '[sweep]\n"workload.message_bytes" = ["16KiB", "1MiB"]\n'
    '"fault.0.probability" = [0.0, 0.001, 0.01]\n'
)


def load(tmp_path: Path, text: str, **more: Any) -> Scenario:
    (tmp_path / "mine.toml").write_text(text)
    return load_scenario(str(tmp_path / "mine.toml"), **more)


def test_settings_are_the_product_and_each_is_a_scenario_of_its_own(tmp_path: Path) -> None:
    scenario = load(tmp_path, BODY + SWEEP)
    assert len(scenario.variants) == 6
    sizes = [
        (v.settings["workload.message_bytes"], v.scenario.workload.message_bytes)
        for v in scenario.variants
    ]
    assert sizes == [("16KiB", 16384)] * 3 + [("1MiB", 1 << 20)] * 3
    assert [v.scenario.faults[0].keys["probability"] for v in scenario.variants] == [
        0.0,
        0.001,
        0.01,
    ] * 2
    keys = [spec.key for spec in plan(scenario)]
    assert len(set(keys)) == len(keys) == 6 * 3 * 3 * 2
    assert "mrc-tiny-packed-s1-message_bytes=1MiB-probability=0.001" in keys
    manifest = scenario.to_dict()
    assert [v["settings"] for v in manifest["variants"]] == [v.settings for v in scenario.variants]
    assert manifest["variants"][5]["scenario"]["workload"]["message_bytes"] == 1 << 20
    json.dumps(manifest, default=str)


def test_without_a_sweep_there_is_one_setting_without_keys(tmp_path: Path) -> None:
    scenario = load(tmp_path, BODY)
    ((settings, inner),) = [(v.settings, v.scenario) for v in scenario.variants]
    assert settings == {} and inner == scenario and plan(scenario)[0].key == "mrc-tiny-packed-s1"
    assert load(tmp_path, BODY + "[sweep]\n").variants[0].settings == {}


def test_fabrics_and_one_transports_options_can_be_swept(tmp_path: Path) -> None:
    sweep = (
        '[sweep]\n"transport.mrc.fabric_options.trimming" = [true, false]\n'
        'fabric = ["tiny", "demo"]\n'
    )
    scenario = load(tmp_path, BODY.replace("p0-t0-0:p0-t1-0", "p0-t0-0:p0-t1-1") + sweep)
    seen = [
        (v.scenario.transports[0].fabric.name, v.scenario.transports[1].fabric.name)
        for v in scenario.variants
    ]
    assert seen == [
        ("tiny", "tiny"),
        ("demo", "demo"),
        ("tiny-no-trimming", "tiny"),
        ("demo-no-trimming", "demo"),
    ]
    assert set(scenario.fabrics) == {
        "tiny",
        "demo",
        "tiny-no-trimming",
        "demo-no-trimming",
        "tiny-1p",
        "demo-1p",
    }


def test_the_command_line_leaves_one_value_of_a_swept_key(tmp_path: Path) -> None:
    asks = '[[expect]]\ncheck = "mrc.wrong == 0"\nsetting = {"workload.message_bytes" = "1MiB"}\n'
    pinned = load(tmp_path, BODY + asks + SWEEP, overrides=["workload.message_bytes=4KiB"])
    assert {v.settings["workload.message_bytes"] for v in pinned.variants} == {"4KiB"} and len(
        pinned.variants
    ) == 3
    assert not any(v.scenario.expects for v in pinned.variants), "asked at another value only"
    assert len(load(tmp_path, BODY + asks + SWEEP, overrides=["sweep={}"]).variants) == 1
    assert load(
        tmp_path, BODY + '[sweep]\nfabric = ["tiny", "demo"]\n', fabric="tiny"
    ).fabrics.keys() == {"tiny", "tiny-1p"}


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        (
            "[sweep]\nworkload.message_bytes = [1]\n",
            'write the whole key in quotes, like "workload.message_bytes"',
        ),
        ('[sweep]\n"workload.message_bytes" = []\n', "must be a list of values"),
        ('[sweep]\n"workload.message_bytes" = [["1MiB"]]\n', "must be text, a number"),
        ('[sweep]\n"workload.message_bytes" = ["1MiB", "1MiB"]\n', "has 1MiB twice"),
        ('[sweep]\n"transport.mrc.options.x" = [2, 2.0]\n', "has 2.0 twice"),
        ('[sweep]\n"transport.mrc.options.x" = ["a b", "a/b"]\n', "'a_b' twice"),
        (
            '[sweep]\n"workload.mesage_bytes" = [4]\n',
            "did you mean 'message_bytes'? (in [sweep], at workload.mesage_bytes = 4)",
        ),
        (
            '[sweep]\n"workload.message_bytes" = ["1MiB", 6]\n',
            "multiple of 4 (in [sweep], at workload.message_bytes = 6)",
        ),
        ('[sweep]\n"fault.9.probability" = [0.1]\n', "there is no '9' in a list of 1"),
        ('[sweep]\n"fault.probability" = [0.1]\n', "say which one, like fault.0.probability"),
        (
            '[sweep]\n"fault.lossy.probability" = [2]\n',
            "(in [sweep], at fault.lossy.probability = 2)",
        ),
        ('[sweep]\n"transport.mrc.name" = ["a", "b"]\n', "cannot be swept"),
        ('[sweep]\n"workload.placement" = ["packed"]\n', "cannot be swept"),
        (
            f'[sweep]\n"workload.steps" = {list(range(1, 1002))}\n',
            "1001 settings, the limit is 1000",
        ),
        ("[[sweep]]\nx = [1]\n", "must be a table of lists"),
        (
            SWEEP + '[[expect]]\ncheck = "mrc.wrong == 0"\nsetting = {"workload.steps" = 1}\n',
            "did you mean",
        ),
        (
            SWEEP
            + '[[expect]]\ncheck = "mrc.wrong == 0"\nsetting = {"fault.0.probability" = 0.5}\n',
            "which has 0.0, 0.001, 0.01",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, sweep: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path, BODY + sweep)
    assert (
        message in str(caught.value)
        and "mine.toml" in str(caught.value)
        and "\n" not in str(caught.value)
    )


def test_names_are_as_short_as_they_can_be() -> None:
    keys = ["transport.mrc.options.qps", "transport.roce.options.qps", "workload.steps", "fabric"]
    assert list(short_keys(keys).values()) == [
        "mrc.options.qps",
        "roce.options.qps",
        "steps",
        "fabric",
    ]
    assert suffix({"fabric": "/a b/x.toml", "x.on": True}) == "-fabric=_a_b_x.toml-on=true"
    assert suffix({}) == ""


def test_runs_are_by_seed_then_setting_and_every_transport_has_its_turn(tmp_path: Path) -> None:
    specs = plan(load(tmp_path, BODY + '[sweep]\n"workload.message_bytes" = ["16KiB", "1MiB"]\n'))
    blocks = list(
        dict.fromkeys((s.seed, s.settings["workload.message_bytes"], s.placement) for s in specs)
    )
    assert blocks == [
        (n, m, p) for n in (1, 2, 3) for m in ("16KiB", "1MiB") for p in ("packed", "interleaved")
    ]
    firsts = [
        next(s.transport.name for s in specs if s.seed == n and s.transport.fabric.name == "tiny")
        for n in (1, 2, 3)
    ]
    assert firsts == ["mrc", "roce", "mrc"]
    fabrics = [s.transport.fabric.name for s in specs]
    changes = sum(a != b for a, b in itertools.pairwise(fabrics))
    assert changes == len(blocks), "one per block, none between blocks"


def test_checks_of_one_setting_see_its_runs_alone(tmp_path: Path) -> None:
    text = BODY.replace("[1, 2, 3]", "[1]").replace('["packed", "interleaved"]', '"packed"')
    asks = '[[expect]]\nname = "size"\ncheck = "mrc.message_bytes == 40960"\n'
    asks += (
        '[[expect]]\nname = "big"\ncheck = "roce.message_bytes == 81920"\n'
        'setting = {"workload.message_bytes" = "80KiB"}\n'
    )
    scenario = load(
        tmp_path,
        text + asks + '[sweep]\n"workload.message_bytes" = ["40KiB", "80KiB"]\n',
        transports=["mrc", "roce"],
    )
    out = tmp_path / "out"
    out.mkdir()
    with undrawn():
        summary = Runner(scenario, out, FakeCluster).run()
    assert [(c["name"], c["ok"]) for c in summary["checks"]] == [
        ("size [packed, seed 1, workload.message_bytes = 40KiB]", True),
        ("size [packed, seed 1, workload.message_bytes = 80KiB]", False),
        ("big [packed, seed 1, workload.message_bytes = 80KiB]", True),
    ]
    assert [(r["transport"], r["settings"]["workload.message_bytes"]) for r in summary["runs"]] == [
        ("mrc", "40KiB"), ("roce", "40KiB"), ("mrc", "80KiB"), ("roce", "80KiB"),
    ]  # fmt: skip
    record = json.loads(
        (out / "raw" / "mrc-tiny-packed-s1-message_bytes=80KiB" / "run.json").read_text()
    )
    assert (
        record["settings"] == {"workload.message_bytes": "80KiB"}
        and record["message_bytes"] == 81920
    )
    rows = pd.read_parquet(out / "runs.parquet")
    names = [
        "scenario",
        "transport",
        "kind",
        "fabric",
        "workload",
        "placement",
        "seed",
        "workload.message_bytes",
    ]
    assert list(rows.columns[:8]) == names and len(rows) == 4
    assert list(rows["message_bytes"]) == [40960, 40960, 81920, 81920]
    assert all(
        pd.api.types.is_numeric_dtype(rows[name])
        for name in ("busbw_bps", "typical_step_ns", "step_time_ns.max", "packets.lost")
    )
    for entry, (_, cells) in zip(summary["runs"], rows.iterrows(), strict=True):
        assert (cells["busbw_bps"], cells["typical_step_ns"]) == (
            entry["busbw_bps"],
            entry["typical_step_ns"],
        )


# --- rows -----------------------------------------------------------------------------------------

ENTRY = made(
    Run,
    transport="mrc",
    kind="mrc",
    fabric="tiny",
    workload="ring-allreduce",
    placement="packed",
    seed=1,
    settings={"fault.0.probability": 0.1},
    ranks=4,
    steps=3,
    step_time_ns={"n": 3, "max": 9},
    flows={"a": {"share": 0.5}},
    distrust=["busy", "late"],
    failovers=[{"cost_ns": 1}],
    measured_ns=3,
)


def test_a_row_has_its_variables_first_and_figures_by_dotted_name() -> None:
    cells = row(ENTRY, "mine")
    assert list(cells)[:8] == [
        "scenario",
        "transport",
        "kind",
        "fabric",
        "workload",
        "placement",
        "seed",
        "fault.0.probability",
    ]
    assert (
        cells["step_time_ns.max"],
        cells["step_time_ns.p50"],
        cells["flows.a.share"],
        cells["distrust"],
    ) == (9, None, 0.5, "busy; late")
    assert "failovers" not in cells and "settings" not in cells


def test_tables_hold_columns_of_mixed_types_and_are_replaced_whole(tmp_path: Path) -> None:
    other = replace(
        ENTRY, seed=2, settings={"fault.0.probability": "low"}, measured_ns=2.5, reason="late"
    )
    frame = write_rows([ENTRY, other], "mine", tmp_path)
    back = pd.read_parquet(tmp_path / "runs.parquet")
    assert list(back["fault.0.probability"]) == ["0.1", "low"] and list(back["measured_ns"]) == [
        3.0,
        2.5,
    ]
    assert list(back["step_time_ns.max"]) == [9, 9] and back["reason"].isna().tolist() == [
        True,
        False,
    ]
    assert list(pd.read_csv(tmp_path / "runs.csv")["seed"]) == [1, 2] and list(
        back.columns
    ) == list(frame.columns)
    write_rows([ENTRY], "mine", tmp_path)
    assert (
        len(pd.read_parquet(tmp_path / "runs.parquet"))
        == len(pd.read_csv(tmp_path / "runs.csv"))
        == 1
    )
    assert {p.name for p in tmp_path.iterdir()} == {"runs.csv", "runs.parquet"}
    assert len(table([])) == 0
