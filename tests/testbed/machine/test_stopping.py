"""Ctrl-C at the first moments of a command."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPT = "import os, signal, mrcbed.start; os.kill(os.getpid(), signal.SIGINT); print('went on')"


def ended(code: str, **how: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, **how
    )
    return done.returncode, done.stdout, done.stderr


def test_before_a_command_begins_it_leaves_with_one_line() -> None:
    assert ended(INTERRUPT) == (130, "", "mrcbed: interrupted\n")


def test_a_background_job_of_a_shell_goes_on_ignoring_it() -> None:
    status, said, _ = ended(
        INTERRUPT, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
    )
    assert (status, said) == (0, "went on\n")


SWALLOWED = """
import os, signal, sys
import mrcbed.start
from testbed.machine.stopping import started
started()
try:
    os.kill(os.getpid(), signal.SIGINT)
except BaseException:
    pass
from testbed.simulated.cluster import SimulatedCluster
from topologies import load_fabric
cluster = SimulatedCluster(load_fabric("tiny"))
try:
    cluster.start()
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_one_that_an_import_swallowed_is_raised_before_a_world_starts() -> None:
    assert ended(SWALLOWED)[0] == 130


THROUGH_EXEC = """
import os, signal, click
import mrcbed.start
from mrcbed import cli
cli.group.add_command(click.Command("list", callback=lambda: exec("os.kill(os.getpid(), signal.SIGINT)")))
cli.Commands.get_command = lambda self, ctx, name: click.Group.get_command(self, ctx, name)
import sys
sys.argv = ["mrcbed", "list"]
mrcbed.start.main()
"""  # noqa: E501


def test_the_status_is_130_wherever_it_came() -> None:
    """Python itself ends by the signal where the exception has passed through exec() of a
    string."""
    status, _, said = ended(THROUGH_EXEC)
    assert (status, said.strip()) == (130, "mrcbed: interrupted")


AT = """
import os, signal, sys, threading
from mrcbed.start import main
moments = 0
def look(event, given):
    global moments
    if event == EVENT:
        moments += 1
        if moments == NUMBER:
            threading.Thread(target=come).start() if LATER else os.kill(os.getpid(), signal.SIGINT)
def come():
    for _ in range(LATER):
        os.sched_yield()  # gets its turn again when the interpreter takes the other thread's
    os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(look)
sys.argv = ["mrcbed", "run", "smoke", "--world", "simulated", "--set", "workload.steps=100000", "--out", OUT]
main()
"""  # noqa: E501


@pytest.mark.dear("a command as a process, stopped where it has imported and simulated")
@pytest.mark.parametrize(
    ("event", "number", "later"),
    [
        ("import", 1, 0),
        ("import", 100, 0),
        ("import", 300, 0),
        ("import", 600, 0),
        ("os.mkdir", 3, 20),
    ],
)
def test_a_run_ends_with_130_at_any_moment(
    tmp_path: Path, event: str, number: int, later: int
) -> None:
    """Among imports, whose first are the command line's, and in the simulation, which begins when
    the folder of its files is made."""
    code = (
        AT.replace("EVENT", repr(event)).replace("NUMBER", str(number)).replace("LATER", str(later))
    )
    code = code.replace("OUT", repr(str(tmp_path / "out")))
    status, _, said = ended(code)
    assert status == 130 and "Traceback" not in said
