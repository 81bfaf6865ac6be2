"""The host process before it opens anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from topologies import load_fabric


def test_options_are_read_before_threads_open_the_hosts(tmp_path: Path) -> None:
    """msgspec crashes where two threads use a type for the first time, so one thread has to use them all before."""
    config = tmp_path / "host.json"
    hosts = [{"host": h, "netns": str(tmp_path / "nowhere")} for h in range(8)]
    fabric = load_fabric("demo").to_dict()
    config.write_text(json.dumps({"fabric": fabric, "transport": "mrc", "options": {"active_ev": 1}, "user": 0, "hosts": hosts}))
    command = [sys.executable, "-m", "agents.process.host", "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and "active_ev" in ended.stderr and "nowhere" not in ended.stderr
