"""A disk that takes no more ends a run with one line; what was finished before stays, and the run
goes on from there later."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scenarios.figures.writing import Unwritable, check_writable, replacing, written_to
from scenarios.run.runner import results_directory
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from testbed.errors import FIXES, ClusterDied, Interrupted
from tests.scenarios.small import undrawn

QUICK = [
    "workload.steps=2",
    "workload.warmup_steps=0",
    "workload.message_bytes=16384",
    "fault=[]",
    "expect=[]",
]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of ours may become larger: a real refusal of the kernel's, for which nobody has to be
    root."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_run_that_cannot_be_written_keeps_those_before_and_goes_on(tmp_path: Path) -> None:
    scenario, limit = load_scenario("smoke", overrides=QUICK, seeds=[1, 2]), None
    raw = [tmp_path / "raw" / f"mrc-tiny-interleaved-s{seed}" / "run.json" for seed in (1, 2)]

    def progress(what: str, share: float) -> None:
        nonlocal limit
        if limit is None and "seed 2" in what:
            limit = files_up_to(3000)
            limit.__enter__()

    with undrawn():
        try:
            with pytest.raises(Unwritable) as told:
                simulate(scenario, tmp_path, progress=progress)
        finally:
            assert limit is not None, "it never came to the second run"
            limit.__exit__(None, None, None)
        line = str(told.value)
        assert (
            "\n" not in line
            and "File too large" in line
            and "ulimit -f" in line
            and f"--resume --out {tmp_path}" in line
        )
        assert told.value.status == 2
        assert json.loads(raw[0].read_text())["outcome"] == "done" and not raw[1].exists()
        assert json.loads((tmp_path / "manifest.json").read_text())["seeds"] == [1, 2]
        assert not list(tmp_path.rglob("*.part"))
        first = raw[0].read_bytes()
        summary = simulate(scenario, tmp_path, resume=True)
    assert [(run["seed"], run["outcome"], run["steps"]) for run in summary["runs"]] == [
        (1, "done", 2),
        (2, "done", 2),
    ]
    assert raw[0].read_bytes() == first


def test_a_file_is_replaced_whole_or_stays_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "table"
    with replacing(path) as part:
        part.write_text("first")
        assert not path.exists()
    assert path.read_text() == "first"
    with pytest.raises(OSError, match="large"), files_up_to(100), replacing(path) as part:
        part.write_bytes(b"x" * 1000)
    assert path.read_text() == "first" and os.listdir(tmp_path) == ["table"]


@pytest.mark.parametrize("number", FIXES)
def test_every_refusal_of_a_disk_is_one_line_with_its_fix(number: int, tmp_path: Path) -> None:
    with pytest.raises(Unwritable) as told, written_to(tmp_path):
        raise OSError(number, "as the kernel has it")
    assert (
        os.strerror(number) in str(told.value)
        and FIXES[number] in str(told.value)
        and str(told.value).startswith(str(tmp_path))
    )


def test_what_is_no_trouble_of_the_disks_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no route") as other, written_to(tmp_path):
        raise OSError(errno.EHOSTUNREACH, "no route")
    assert not isinstance(other.value, Unwritable)
    with pytest.raises(ClusterDied, match="killed"), written_to(tmp_path):
        raise ClusterDied("the agent of h1 was killed")


def test_an_agent_that_died_of_a_full_disk_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scenarios.figures.writing.is_full", lambda directory: True)
    with pytest.raises(Unwritable, match="No space left on device"), written_to(tmp_path):
        raise ClusterDied("the agent of h1 ended with status 70")


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_writable(tmp_path)
    asked: list[tuple[Path, int]] = []
    monkeypatch.setattr(
        "scenarios.figures.writing.os.access", lambda path, mode: asked.append((path, mode))
    )
    with pytest.raises(
        Unwritable,
        match=f"--out {tmp_path}: nothing can be written there: make it writable, or give another "
        "--out",
    ):
        results_directory("smoke", str(tmp_path))
    assert asked == [(tmp_path, os.W_OK | os.X_OK)]


def test_resume_clears_away_what_a_killed_run_was_writing(tmp_path: Path) -> None:
    scenario = load_scenario("smoke", overrides=QUICK, seeds=[1])
    with undrawn():
        simulate(scenario, tmp_path)
        left = [
            tmp_path / ".summary.json.part",
            tmp_path / "raw" / "mrc-tiny-interleaved-s1" / ".run.json.part",
        ]
        for path in left:
            path.write_text("{")
        simulate(scenario, tmp_path, resume=True)
    assert not [path for path in left if path.exists()]


@pytest.mark.parametrize("finished", [0, 1])
def test_a_user_who_does_not_wait_hears_what_was_kept_and_how_to_go_on(
    finished: int, tmp_path: Path
) -> None:
    scenario = load_scenario("smoke", overrides=QUICK, seeds=[1, 2])

    def progress(what: str, share: float) -> None:
        if f"({finished + 1} of 2)" in what or what.startswith("writing results"):
            raise KeyboardInterrupt

    with undrawn(), pytest.raises(Interrupted) as told:
        simulate(scenario, tmp_path, progress=progress)
    there = f"interrupted: {finished} of 2 runs are finished and kept in {tmp_path}; "
    assert str(told.value) == f"{there}the same command with --resume --out {tmp_path} goes on"
    with undrawn():
        assert [run["outcome"] for run in simulate(scenario, tmp_path, resume=True)["runs"]] == [
            "done",
            "done",
        ]


def test_lack_of_memory_keeps_what_is_finished(tmp_path: Path) -> None:
    def progress(what: str, share: float) -> None:
        if "(2 of 2)" in what:
            raise MemoryError

    with (
        undrawn(),
        pytest.raises(
            Unwritable,
            match=r"cannot go on \(Cannot allocate memory\): free memory.*"
            "what was finished is kept",
        ),
    ):
        simulate(load_scenario("smoke", overrides=QUICK, seeds=[1, 2]), tmp_path, progress=progress)
    assert [
        run["outcome"] for run in json.loads((tmp_path / "summary.json").read_text())["runs"]
    ] == ["done"]


def test_tables_are_read_without_threads(tmp_path: Path) -> None:
    """Arrow waits for ever where it cannot start one."""
    code = f"""
import os, sys, time
import pandas as pd
from pathlib import Path
from scenarios.figures.stored import Stored
def threads():
    names = [Path(f"/proc/self/task/{{t}}/comm").read_text() for t in os.listdir("/proc/self/task")]
    return len([name for name in names if "jemalloc" not in name])
pd.DataFrame({{"a": range(1000), "b": ["x"] * 1000}}).to_parquet({str(tmp_path / "any.parquet")!r})
before = threads()
assert len(Stored(Path({str(tmp_path)!r})).unjudged_table("any")) == 1000
for _ in range(100):  # jemalloc's is called so a moment after it began
    if threads() <= before:
        sys.exit(0)
    time.sleep(0.05)
sys.exit(1)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[3], timeout=120, check=False
    )
    assert done.returncode == 0
