"""Host processes before they open anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from testbed.machine.parent import Adopted, adopting
from topologies import load_fabric


def command(config: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "agents.process.host",
        "--config",
        str(config),
        "--parent",
        str(os.getpid()),
    ]


def test_options_are_read_before_threads_open_the_hosts(tmp_path: Path) -> None:
    """msgspec crashes where two threads use a type for the first time, so one thread has to use
    them all before."""
    config = tmp_path / "host.json"
    hosts = [{"host": h, "netns": str(tmp_path / "nowhere")} for h in range(8)]
    about = {
        "fabric": load_fabric("demo").to_dict(),
        "transport": "mrc",
        "options": {"active_ev": 1},
    }
    config.write_text(
        json.dumps({**about, "processes": [{"name": "h0", "user": 0, "hosts": hosts}]})
    )
    ended = subprocess.run(command(config), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and "active_ev" in ended.stderr and "nowhere" not in ended.stderr


def test_host_processes_that_nobody_heard_of_end(tmp_path: Path) -> None:
    """The process that forks them dies before it has told their ids: here its pipe has no
    reader."""
    hosts = [{"host": 0, "netns": str(tmp_path / "nowhere")}]
    config, processes = (
        tmp_path / "agents.json",
        [{"name": name, "user": 0, "hosts": hosts} for name in ("h0", "h1", "h2")],
    )
    config.write_text(
        json.dumps(
            {"fabric": load_fabric("tiny").to_dict(), "transport": "mrc", "processes": processes}
        )
    )
    before, (reader, writer) = _children(), os.pipe()
    os.close(reader)
    with adopting():
        maker = subprocess.run(
            command(config), stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
        )
    os.close(writer)
    made = _children() - before
    assert maker.returncode != 0 and len(made) == 3
    assert [Adopted(pid).wait(60) for pid in made] == [0, 0, 0]
    assert not list(tmp_path.glob("*.err")), "none has begun"


def _children() -> set[int]:
    """Of this process, dead ones included."""
    return {
        int(pid)
        for tasks in Path("/proc/self/task").glob("*/children")
        for pid in tasks.read_text().split()
    }
