"""What an agent gives up before it reads the first frame, as the kernel tells it. Needs root,
nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
STORY = """
import os
from agents.nic.packet_io import drop_root
drop_root(65534, 65533)
print(open("/proc/self/status").read())
for attempt in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.nice(-1), lambda: os.chroot("/")):
    try:
        attempt()
        print("Allowed:\tsomething")
    except OSError:
        pass
"""  # noqa: E501


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to give up")
def test_no_user_group_or_capability_is_left_and_none_can_come_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STORY], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    assert (
        said["Uid"].split() == ["65534"] * 4
        and said["Gid"].split() == ["65533"] * 4
        and said["Groups"].split() == []
    )
    assert {int(said[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {
        0
    }
    assert said["NoNewPrivs"] == "1"
    assert "Allowed" not in said
