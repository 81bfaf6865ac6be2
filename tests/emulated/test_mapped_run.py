"""A run with Clustermapper: a lossy NIC link is named and denied through the controller, and
allowed again once it is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.run.runner import run_scenario
from scenarios.schema.scenario import load_scenario
from tests.emulated.ring import logged
from tests.fabrics import near
from tests.scenarios.small import undrawn
from topologies import load_fabric
from topologies.units import US, written

pytestmark = [pytest.mark.sandbox, pytest.mark.quiet]

LINK = "h0:p0-t0-0"
SCENARIO = f"""
format = 3
fabric = "near.toml"
timeout = "60s"
[workload]
kind = "permutation"
duration = "1.3ms"
message_bytes = "64KiB"
[[transport]]
kind = "mrc"
clustermapper = {{ hold = 10 }}
[[fault]]
kind = "loss"
on = "{LINK}"
probability = 0.5
direction = "up"
at = "100us"
for = "400us"
[[expect]]
check = "mrc.mapper.wrong == 0"
[[expect]]
check = "mrc.mapper.faults[0].denied_ns <= 60 * mrc.base_rtt_ns"
"""


def test_a_lossy_nic_link_is_denied_while_it_is_lossy(tmp_path: Path) -> None:
    fabric = near(load_fabric("tiny"))
    tmp_path.chmod(0o777)
    shape = "planes = 2\nt0_per_plane = 2\nt1_per_plane = 2\nhosts_per_t0 = 2"
    (tmp_path / "near.toml").write_text(
        f'format = 3\n{shape}\ndelay = "{written(fabric.delay_ps)}"\n'
    )
    file = tmp_path / "lossy.toml"
    file.write_text(SCENARIO)
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o777)
    with undrawn():
        scenario = load_scenario(str(file))
        summary = run_scenario(scenario, out)
    assert all(check["ok"] for check in summary["checks"]), summary["checks"]
    (run,) = summary["runs"]
    assert run["outcome"] == "done" and run["wrong"] == 0 and run["packets"]["unexplained"] == 0
    (fault,) = run["mapper"]["faults"]
    assert fault["named"] and run["mapper"]["denials"] == 1
    assert fault["named_ns"] < fault["denied_ns"] < 4e5 < fault["clear_ns"] < fault["allowed_ns"]
    raw = next((out / "raw").iterdir())
    journal = [json.loads(line) for line in (raw / "runner.jsonl").read_text().splitlines()]
    told = {
        (line["kind"], line["on"]): line for line in journal if line["kind"] in ("deny", "allow")
    }
    assert set(told) == {("deny", LINK), ("allow", LINK)} and not any(
        "refused" in line for line in told.values()
    )
    assert "base RTTs" in told["allow", LINK]["reason"], (
        "it came back by its hold-down, not with the run's end"
    )
    denied, allowed = told["deny", LINK]["t"], told["allow", LINK]["t"]
    effect = [line for line in logged(raw, "deny") if line["host"] == 0]
    assert [
        line["entries"] for line in effect if denied - 100 * US < line["t"] < allowed - 100 * US
    ] == [[LINK]]

    def carried(since: float, until: float) -> list[int]:
        bins: list[dict[str, Any]] = [
            line
            for line in logged(raw, "goodput")
            if line["host"] == 0 and since < line["t"] < until
        ]
        return [sum(line["tx"][p] for line in bins) for p in range(fabric.planes)]

    settled = 20 * fabric.base_rtt_ps
    lossy, whole = (
        carried(denied + settled, allowed - settled),
        carried(allowed + settled, float("inf")),
    )
    assert lossy[0] == 0 < lossy[1], "nothing leaves by a plane that is denied"
    assert whole[0] > 0 and whole[1] > 0, "and it is used again"
