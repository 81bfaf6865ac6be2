"""What the tests of sweeps ask of processes and directories."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from scenarios.sweeps.sweep import JOURNAL
from tests.waiting import wait_until as wait_until  # tests/simulated takes it from here

MRCBED = (sys.executable, "-m", "mrcbed")
UNDRAWN = "import sys; from mrcbed import cli; from tests.scenarios.small import undrawn\nwith undrawn(): sys.exit(cli.execute())"
"""The command, without its figures: seconds each."""
DATED = ("manifest.json", "report.html", JOURNAL)
"""Files of a sweep with dates, command lines and names of machines in them."""


def workers_of(head: int) -> list[int]:
    """The processes that carry out blocks: children of the head that multiprocessing spawned. Threads and other children come and go."""

    def read(*words: object) -> bytes:
        try:
            return Path("/proc", *map(str, words)).read_bytes()
        except OSError:
            return b""

    tasks = [task.name for task in Path(f"/proc/{head}/task").iterdir()]
    children = {int(word) for task in tasks for word in read(head, "task", task, "children").split()}
    return sorted(child for child in children if b"spawn_main" in read(child, "cmdline"))


def landed(directory: Path) -> list[str]:
    try:
        lines = (directory / JOURNAL).read_text().splitlines()
    except OSError:
        return []
    entries = [json.loads(line) for line in lines if line.endswith("}")]
    return [run for entry in entries if entry["what"] == "landed" for run in entry["runs"] if run not in entry["dropped"]]


def files(directory: Path) -> dict[str, bytes]:
    """Every file of a sweep that must be that of a plain run."""
    found = (path for path in directory.rglob("*") if path.is_file() and path.name not in DATED)
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
