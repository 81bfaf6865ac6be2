"""Runs killed at random moments, again and again, and gone on with: nothing is left, nothing
finished is lost, the end is the same.

MRCBED_SOAK_KILLS: how many (default 60). MRCBED_SOAK_SEED: whom and when (default 1).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.emulated.chaos import QUICK, VICTIMS, Victim, machine, mrcbed
from tests.emulated.test_chaos import fill, small_disk, wait_for

__all__ = ["small_disk"]
pytestmark = [pytest.mark.soak, pytest.mark.sandbox, pytest.mark.timeout(0)]
SEEDS = 3
MOST_S = 12.0
"""Three runs with their figures take about as long."""


def test_runs_killed_again_and_again_come_to_their_end(tmp_path: Path) -> None:
    rng = random.Random(int(os.environ.get("MRCBED_SOAK_SEED", "1")))
    left, number, before = int(os.environ.get("MRCBED_SOAK_KILLS", "60")), 0, machine()
    killed: Counter[str] = Counter()
    ended = 0
    words = (*QUICK, "--seeds", f"1-{SEEDS}")
    while left > 0:
        number += 1
        out, kept = tmp_path / f"out-{number}", dict[Path, bytes]()
        for turn in range(6):
            victim, after = rng.choice(VICTIMS), rng.uniform(0.0, MOST_S)
            where = f"run {number}, turn {turn}: {victim} after {after:.2f} s"
            run = Victim(out, tmp_path / "said", *words, *(["--resume"] if turn else []))
            try:
                hit = run.kill(victim, rng, after)
                run.judge(victim, hit)
            except AssertionError as error:
                raise AssertionError(f"{where}: {error}") from error
            finally:
                run.end()
            assert machine() == before, where
            for path, text in kept.items():
                assert path.read_bytes() == text, f"{where}: {path} was finished and has changed"
            kept = {
                path: text
                for path in out.glob("raw/*/run.json")
                if b'"outcome": "done"' in (text := path.read_bytes())
            } | kept
            killed[victim] += hit
            left -= hit
            if left <= 0 or (out / "summary.json").is_file():
                break
        if not (out / "summary.json").is_file():
            done = mrcbed("run", "smoke", *words, "--resume", "--out", out)
            assert done.returncode in (0, 3), f"run {number}: {done.stderr}"
            ended += 1
            assert len(list(out.glob("raw/*/run.json"))) == SEEDS
    print(
        f"{sum(killed.values())} kills in {number} runs ({dict(killed)}), {ended} of them gone "
        "on with to their end"
    )


def test_a_disk_that_is_full_again_and_again_loses_nothing(
    tmp_path: Path, small_disk: Path
) -> None:
    words = (*QUICK, "--seeds", f"1-{SEEDS}")
    out = small_disk / "out"
    for count in range(1, SEEDS):
        run = Victim(out, tmp_path / "said", *words, *(["--resume"] if count > 1 else []))
        try:
            wait_for(lambda wanted=count: len(list(out.glob("raw/*/run.json"))) >= wanted, run)
            run.look()
            fill(small_disk)
            assert run.front.wait(60) == 2, run.said.read_text()
            run.seen.assert_gone()
            assert "No space left on device" in run.said.read_text().splitlines()[-1]
            assert len(run.valid()) == count
        finally:
            run.end()
            (small_disk / "filler").unlink(missing_ok=True)
    done = mrcbed("run", "smoke", *words, "--resume", "--out", out)
    assert done.returncode in (0, 3), done.stderr
