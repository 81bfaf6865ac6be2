"""Chaos in the machinery: processes killed at random moments, disks that are full or read-only, two
runs at once, the rest of a dead run.

Each time: a clear end, nothing lost that was finished, nothing left behind.
tests/soak/test_chaos.py goes on for as long as one likes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.machine.exclusive import Measuring, refuse_if_measuring
from testbed.machine.sandbox import RUN_MARK
from tests.emulated.chaos import QUICK, VICTIMS, Victim, machine, mrcbed
from tests.emulated.remains import mark_of
from tests.emulated.ring import PATIENCE_S

pytestmark = pytest.mark.sandbox


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    made: list[Victim] = []

    def begin(out: Path, *words: str) -> Victim:
        made.append(Victim(out, tmp_path / f"said-{len(made)}", *words))
        return made[-1]

    yield begin
    for one in made:
        one.end()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB, in the mount namespace of the tests alone."""
    where = tmp_path / "disk"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(where)], check=True)
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


def fill(directory: Path) -> None:
    """Not a page of room is left."""
    with suppress(OSError), open(directory / "filler", "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def wait_for(what: Any, run: Victim, seconds: float = 4 * PATIENCE_S) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert run.front.poll() is None and time.monotonic() < until, run.said.read_text()
        time.sleep(0.01)


@pytest.mark.parametrize("seed", [1, 2])
def test_kill_9_at_a_random_moment(seed: int, start: Any, tmp_path: Path) -> None:
    rng = random.Random(f"chaos {seed}")
    victim, after = VICTIMS[(seed + rng.randrange(2) * 3) % len(VICTIMS)], rng.uniform(0.5, 2.5)
    before = machine()
    run = start(tmp_path / "out", *QUICK, "--seeds", "1-2")
    killed = run.kill(victim, rng, after)
    run.judge(victim, killed)
    assert killed, "two runs take longer than that"
    assert machine() == before


def test_a_disk_that_fills_up_in_mid_run(start: Any, small_disk: Path) -> None:
    run = start(small_disk / "out", *QUICK, "--seeds", "1-2")
    wait_for(lambda: (run.out / "runs.csv").is_file(), run)  # the first is over
    run.look()
    fill(small_disk)
    assert run.front.wait(4 * PATIENCE_S) == 2, run.said.read_text()
    run.seen.assert_gone()
    last = run.said.read_text().splitlines()[-1]
    assert last.startswith(
        f"mrcbed: {run.out}: cannot write results (No space left on device): make room there"
    ), last
    assert f"--resume --out {run.out}" in last and "Traceback" not in run.said.read_text()
    assert [(record["seed"], record["outcome"]) for record in run.valid()] == [(1, "done")]
    assert not list(run.out.glob(".*.part"))


def test_a_folder_that_cannot_be_written(small_disk: Path) -> None:
    (small_disk / "out").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for out, says in (
        (small_disk / "out", "nothing can be written there"),
        (small_disk / "new", "Read-only file system"),
    ):
        done = mrcbed("run", "smoke", "--out", out)
        last = done.stderr.splitlines()[-1]
        assert (
            (done.returncode, done.stdout) == (2, "")
            and last.startswith("mrcbed: ")
            and says in last
        ), done.stderr
        assert "building" not in done.stderr, "it is refused before anything is built"


def test_the_second_of_two_runs_is_refused_and_the_first_goes_on(
    start: Any, tmp_path: Path
) -> None:
    first = start(
        tmp_path / "first", *QUICK, "--set", "workload.steps=100000", "--set", "timeout=100"
    )
    wait_for(lambda: list(first.out.glob("raw/*/h0.jsonl")), first)
    first.look()
    done = mrcbed("run", "smoke", "--out", tmp_path / "second")
    line = done.stderr.splitlines()[-1]
    assert (
        done.returncode == 2
        and f"(process {first.front.pid}, results in {tmp_path / 'first'}"[:60] in line
    ), done.stderr
    assert "wait for its end" in line and not (tmp_path / "second").exists()
    assert first.front.poll() is None
    with pytest.raises(Measuring):
        refuse_if_measuring()
    first.front.kill()
    first.front.wait()
    first.seen.assert_gone()
    refuse_if_measuring()


def test_a_run_beside_the_rest_of_a_dead_one(start: Any, tmp_path: Path) -> None:
    """Should the mechanism ever fail: the next run comes up all the same, and leaves to `clean`
    what is not its own."""
    front = subprocess.Popen(["sleep", "60"])
    mark = mark_of(front)
    front.kill()
    front.wait()
    stale = (
        "ip link add name p0-t0-0-u0 index 1000 type veth peer name h0-p0 index 1001 && echo up "
        "&& exec sleep 60"
    )
    words = ["unshare", "-n", "sh", "-c", stale]
    rest = subprocess.Popen(words, env={**os.environ, RUN_MARK: mark}, stdout=subprocess.PIPE)
    try:
        assert rest.stdout is not None and rest.stdout.readline() == b"up\n"
        run = start(tmp_path / "out", *QUICK)
        assert run.front.wait(4 * PATIENCE_S) in (0, 3), run.said.read_text()
        run.seen.assert_gone()
        assert rest.poll() is None, "it was not ours to end"
        assert [
            item["pid"] for item in json.loads(mrcbed("tools", "clean", "--json").stdout)["found"]
        ] == [rest.pid]
        assert rest.wait(PATIENCE_S) == -9
    finally:
        rest.kill()
        rest.wait()
        if rest.stdout is not None:
            rest.stdout.close()
