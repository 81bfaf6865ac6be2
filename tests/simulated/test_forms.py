"""Compiled or from source, a run leaves the same bytes: compiled numbers have an end, at which they
would wrap without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from tests.scenarios.small import undrawn

OTHER = "0" if os.environ.get("MRCBED_INTERPRETED", "0") not in ("", "0") else "1"
"""MRCBED_INTERPRETED of the form that this process does not have."""
RING = """
format = 3
fabric = "tiny"
[workload]
kind = "ring-allreduce"
placement = "interleaved"
message_bytes = "64KiB"
steps = 2
warmup_steps = 1
[[transport]]
kind = "mrc"
controller = "hint"
[[transport]]
kind = "roce"
[[fault]]
name = "lossy"
kind = "loss"
on = "p0-t0-0:p0-t1-0"
probability = 0.05
at = "1.6us"
for = "24us"
[[fault]]
name = "gone"
kind = "link"
on = "p1-t0-1:p1-t1-1"
at = "4.8us"
for = "8us"
"""
INCAST = """
format = 3
fabric = "tiny"
[workload]
kind = "incast"
senders = 3
message_bytes = "32KiB"
duration = "30us"
[[transport]]
kind = "mrc"
controller = "denylist"
clustermapper = true
"""
"""Trims, marks and probes."""


def leave(directory: Path) -> None:
    """Logs of both scenarios."""
    for name, text in (("ring", RING), ("incast", INCAST)):
        out = directory / name
        out.mkdir(parents=True)
        (out / "story.toml").write_text(text)
        with undrawn():
            assert simulate(load_scenario(str(out / "story.toml")), out)["verdict"] == "ok"


def logs(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*.jsonl")
    }


@pytest.mark.dear("two runs, and again from source in a process of their own")
def test_a_run_is_the_same_compiled_and_from_source(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.simulated.test_forms import leave; "
        "leave(Path(sys.argv[1]))"
    )
    environment = os.environ | {"MRCBED_INTERPRETED": OTHER}
    leave(tmp_path / "here")
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "there")],
        env=environment,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    here = logs(tmp_path / "here")
    assert len(here) > 12 and here == logs(tmp_path / "there")
