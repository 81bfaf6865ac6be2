"""Programs under the verbs library without a fabric: what compiles them, and starts them in a
network namespace of their own, with the agent of tests/testbed/verbs/agent.py there or with
none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from testbed.installation import ROOT
from testbed.verbs import build

HERE = Path(__file__).parent
REAL = next((path for path in Path("/usr/lib").glob("*-linux-gnu/libibverbs.so.1")), None)
SECONDS = 30
"""After which a program that hangs is ended [ours]."""


@cache
def lacking() -> str | None:
    """Why these tests cannot be here; None if they can."""
    if (reason := build.missing()) is not None:
        return reason
    if REAL is None:
        return "no libibverbs.so.1 is installed: apt install libibverbs1"
    if (
        shutil.which("unshare") is None
        or subprocess.run(("unshare", "-rn", "true"), capture_output=True).returncode
    ):
        return "no network namespace without root: unshare -rn is refused here"
    return None


def needs_the_library() -> pytest.MarkDecorator:
    return pytest.mark.skipif(lacking() is not None, reason=lacking() or "")


def compiled(source: Path, to: Path, *options: str) -> Path:
    """Compile a C program or, with ``-shared``, a library."""
    command = (
        "gcc",
        "-D_GNU_SOURCE",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
        str(source),
        "-o",
        str(to),
        *options,
    )
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return to


def _run(
    command: Sequence[str | Path], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    words = ("unshare", "-rn", *map(str, command))
    environment = {**os.environ, "MRCBED_INTERPRETED": "1", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        words, capture_output=True, text=True, env=environment, timeout=SECONDS, cwd=ROOT
    )


def under_agent(
    *command: str | Path, library: Path, words: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with the library and an agent; ``words`` are the agent's."""
    agent = (sys.executable, "-m", "tests.testbed.verbs.agent", *command)
    return _run(agent, {"LIBRARY": str(library), "AGENT": words, **environment})


def alone(
    *command: str | Path, library: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with the library where no agent is."""
    return _run(("env", f"LD_PRELOAD={library}", *command), environment)
