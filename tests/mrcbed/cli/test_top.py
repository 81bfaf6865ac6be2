"""``mrcbed results top`` as a process: a screen while a run goes on, a clean terminal afterwards,
and never a byte written."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.machine import exclusive, running
from testbed.results.manifest import Manifest
from tests.made import made
from tests.mrcbed.cli.conftest import Said
from tests.suite.contained import unique
from tests.waiting import wait_until
from topologies import load_fabric
from topologies.structs import plain
from topologies.units import US

TREE = Path(__file__).parents[3]
KEY = "mrc-tiny-packed-s1"
ENTER, LEAVE, SHOW = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"
"""Another screen, and back from it; the cursor is shown (xterm's control sequences, DEC private
modes 1049 and 25)."""


def begin(directory: Path, steps: int = 40) -> Path:
    """A results directory as it is while its first run goes on; the log of h0."""
    fabric = load_fabric("tiny")
    workload = {"steps": steps, "warmup_steps": 0, "placement": ["packed"]}
    scenario = {
        "seeds": [1],
        "transports": [{"name": "mrc", "kind": "mrc"}],
        "workload": workload,
        "variants": [],
    }
    manifest = {"world": "emulated", "fabrics": {"tiny": plain(fabric)}, "scenario": scenario}
    run = directory / "raw" / KEY
    run.mkdir(parents=True)
    (directory / "manifest.json").write_text(json.dumps(manifest))
    begun = {
        "world": "emulated",
        "transport": "mrc",
        "kind": "mrc",
        "fabric": fabric.to_dict(),
        "ranks": [0],
        "window": [1, 1],
        "seed": 1,
        "placement": "packed",
        "settings": {},
        "workload": "",
        "warmup_steps": 0,
        "paths": {},
    }
    (run / "begun.json").write_text(json.dumps(begun))
    (run / "runner.jsonl").write_text('{"t":1,"kind":"start","key":"x"}\n')
    log = run / "h0.jsonl"
    add_step(log, 0)
    return log


def add_step(log: Path, step: int) -> None:
    """A step, and the goodput of a second after it: the newest lines are shown when others can no
    longer come before them."""
    begin, end = 100 * US * step, 100 * US * (step + 1)
    lines = [
        {
            "t": end,
            "kind": "step",
            "host": 0,
            "rank": 0,
            "step": step,
            "start_ps": begin,
            "end_ps": end,
            "ok": True,
        },
        {"t": end, "kind": "goodput", "host": 0, "bin_ps": 100 * US, "tx": [0, 0], "rx": [0, 0]},
    ]
    with log.open("a") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self.end, far = pty.openpty()
        environment = {
            **os.environ,
            "PYTHONPATH": str(TREE),
            "TERM": "xterm-256color",
            "COLUMNS": "120",
            "LINES": "40",
        }
        command = [sys.executable, "-m", "mrcbed", "results", "top", *words]
        self.process = subprocess.Popen(
            command,
            stdin=far,
            stdout=far,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        os.close(far)
        self.seen = b""

    def until(self, pattern: bytes) -> None:
        """Read until the output has this. Raises AssertionError."""
        wait_until(
            lambda: self.read() and re.search(pattern, self.seen),
            lambda: f"no {pattern!r} in {self.seen[-2000:]!r}",
            pause=0,
        )

    def read(self) -> bool:
        if not select.select([self.end], [], [], 0.1)[0]:
            return True
        try:
            more = os.read(self.end, 65536)
        except OSError:  # the far end is closed
            return False
        self.seen += more
        return bool(more)

    def ended(self) -> int:
        """Its exit status, and all that it wrote."""
        while self.read() and (
            self.process.poll() is None or select.select([self.end], [], [], 0)[0]
        ):
            pass
        return self.process.wait(timeout=30)


@contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    shown = Terminal(*words)
    try:
        yield shown
    finally:
        shown.process.kill()
        shown.process.wait()
        os.close(shown.end)


def tree(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in directory.rglob("*")
    }


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_it_follows_a_run_and_leaves_a_clean_terminal(by: signal.Signals, tmp_path: Path) -> None:
    log = begin(tmp_path)
    with terminal(str(tmp_path), "--every", "0.2") as shown:
        shown.until(rb"1 of 40")
        assert ENTER in shown.seen and LEAVE not in shown.seen
        add_step(log, 1)
        shown.until(rb"2 of 40")
        before = tree(tmp_path)
        shown.process.send_signal(by)
        assert shown.ended() == 0
        assert LEAVE in shown.seen and shown.seen.rindex(SHOW) > shown.seen.rindex(b"\x1b[?25l")
        assert b"Traceback" not in shown.seen
        assert tree(tmp_path) == before


def test_it_ends_with_the_run_and_leaves_the_last_screen(tmp_path: Path) -> None:
    log = begin(tmp_path, steps=2)
    with terminal(str(tmp_path), "--every", "0.2") as shown:
        shown.until(rb"1 of 2")
        add_step(log, 1)
        (log.parent / "begun.json").rename(log.parent / "run.json")
        assert shown.ended() == 0
        assert b"2 of 2" in shown.seen[shown.seen.rindex(LEAVE) :]


@pytest.fixture
def top(monkeypatch: pytest.MonkeyPatch, mrcbed: Said) -> Said:
    """The command in this process, as if no other run went on here."""
    monkeypatch.setattr(os, "nice", lambda more: None)  # which cannot be taken back
    monkeypatch.setattr(exclusive, "NAME", unique("mrcbed-top"))
    monkeypatch.setattr(running, "sandboxes", list)
    return mrcbed


def test_without_a_terminal_it_prints_once(top: Said) -> None:
    begin(Path("r"))
    said = top("results", "top", "r")
    assert "1 of 40" in said and "running" in said and "\x1b" not in said


def test_the_run_that_measures_is_found(tmp_path: Path, top: Said) -> None:
    assert "nothing runs here" in top.refused("results", "top")
    begin(Path("r"))
    with exclusive.measuring(Path("r")):
        found = exclusive.measured_directory()
        assert found is None or found == (tmp_path / "r")  # None: longer than the notice takes
        if found is not None:
            assert "1 of 40" in top("results", "top")


def test_the_newest_run_under_results_is_found(top: Said) -> None:
    results = Path("results")
    begin(results / "older")
    begin(results / "newer", steps=77)
    os.utime(results / "older" / "manifest.json", (1, 1))
    (results / "finished").mkdir()
    (results / "finished" / "manifest.json").write_text(
        json.dumps(plain(made(Manifest, ended="now")))
    )
    assert "1 of 77" in top("results", "top")


def test_what_cannot_be_shown_is_one_line(top: Said) -> None:
    begin(Path("r"))
    assert "there are mrc-tiny-packed-s1" in top.refused(
        "results", "top", "r", "--run", "mrc-tiny-packed-s2"
    )
    assert "holds no results" in top.refused("results", "top", "r/raw")
