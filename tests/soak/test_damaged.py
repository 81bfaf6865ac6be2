"""Thousands of damaged results, each given to a command in a process of its own, whose memory and
time are bounded. Needs neither root nor a fabric.

MRCBED_SOAK_DAMAGED: how many (default 5000). MRCBED_SOAK_SEED: of the first (default 1); each has
the next one.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sys
from pathlib import Path

import pytest

from mrcbed.cli import execute
from scenarios.run.runner import Runner
from tests.scenarios.fakes import FakeCluster
from tests.scenarios.show.test_damaged import COMMANDS, spoil
from tests.scenarios.small import small, undrawn

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

ROOM = 4 << 30
"""Bytes of address space of a command, this process's libraries included: with less every command
refuses to begin."""
SECONDS = 120
"""What takes longer hangs: a command takes a moment [ours]."""


def ended(words: list[str], told: Path) -> int:
    """How a command ends in a child: its exit status, or the negative number of the signal that
    ended it, SIGALRM for one that hangs."""
    if (pid := os.fork()) == 0:
        status = 70
        try:
            resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            with told.open("w", errors="backslashreplace") as said:
                sys.stdout = sys.stderr = said
                status = execute(words)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_no_damage_is_an_internal_error_or_hangs(tmp_path: Path) -> None:
    count, first = (
        int(os.environ.get("MRCBED_SOAK_DAMAGED", "5000")),
        int(os.environ.get("MRCBED_SOAK_SEED", "1")),
    )
    results, told = tmp_path / "results", tmp_path / "told"
    results.mkdir()
    with undrawn():
        Runner(small(tmp_path, seeds=(1,), transports=("mrc",)), results, FakeCluster).run()
    (results / "plots").mkdir()  # which a report asks for
    shutil.copytree(results, tmp_path / "whole")
    bad, ends = [], dict.fromkeys((0, 2), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scenarios.show.plots.draw_all", lambda directory: [])
        for seed in range(first, first + count):
            draw = random.Random(seed)
            path, _ = spoil(results, draw)
            words = [*draw.choice(COMMANDS), str(results)]
            status = ended(words, told)
            if status in ends and "Cannot allocate memory" not in told.read_text():
                ends[status] += 1
            else:
                bad.append(
                    f"MRCBED_SOAK_SEED={seed} MRCBED_SOAK_DAMAGED=1: {words[0]}, {path.name}: "
                    f"{status}, {told.read_text()[-300:]}"
                )
            shutil.rmtree(results)  # tables and pages that a command wrote of what is damaged, too
            shutil.copytree(tmp_path / "whole", results)
    print(f"{count} damaged results from seed {first}: {ends[0]} told or read, {ends[2]} refused")
    assert bad == []
