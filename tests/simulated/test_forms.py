"""Compiled or from source, a run leaves the same bytes: compiled numbers have an end, at which they would wrap without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCENARIO = """
format = 3
fabric = "demo"
[workload]
kind = "{kind}"
placement = "interleaved"
message_bytes = "{size}"
steps = 2
warmup_steps = 1
[[transport]]
kind = "mrc"
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


@pytest.mark.parametrize(("kind", "size"), [("ring-allreduce", "128KiB"), ("all-to-all", "128KiB")])
def test_a_run_is_the_same_compiled_and_from_source(kind: str, size: str, tmp_path: Path) -> None:
    file = tmp_path / "both.toml"
    file.write_text(SCENARIO.format(kind=kind, size=size))
    logs: list[dict[str, bytes]] = []
    for form in ("0", "1"):
        out = tmp_path / form
        command = [sys.executable, "-m", "testbed.cli", "run", str(file), "--world", "simulated", "--seeds", "1", "--jobs", "1"]
        subprocess.run([*command, "--out", str(out)], env=os.environ | {"MRCBED_INTERPRETED": form}, check=True, capture_output=True)
        logs.append({path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.jsonl")})
    assert len(logs[0]) > 16 and logs[0] == logs[1]
