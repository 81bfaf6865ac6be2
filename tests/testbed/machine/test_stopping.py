"""Ctrl-C at the first moments of a command."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.machine.slowness import patient

INTERRUPT = "import os, signal, testbed.start; os.kill(os.getpid(), signal.SIGINT); print('went on')"


def ended(code: str, **how: object) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **how)
    return done.returncode, done.stdout, done.stderr


def test_before_a_command_begins_it_leaves_with_one_line() -> None:
    assert ended(INTERRUPT) == (130, "", "mrcbed: interrupted\n")


def test_a_background_job_of_a_shell_goes_on_ignoring_it() -> None:
    status, said, _ = ended(INTERRUPT, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert (status, said) == (0, "went on\n")


SWALLOWED = """
import os, signal, sys
import testbed.start
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
import testbed.start
from testbed import cli
cli.group.add_command(click.Command("list", callback=lambda: exec("os.kill(os.getpid(), signal.SIGINT)")))
cli.Commands.get_command = lambda self, ctx, name: click.Group.get_command(self, ctx, name)
import sys
sys.argv = ["mrcbed", "list"]
testbed.start.main()
"""


def test_the_status_is_130_wherever_it_came() -> None:
    """Python itself ends by the signal where the exception has passed through exec() of a string."""
    status, _, said = ended(THROUGH_EXEC)
    assert (status, said.strip()) == (130, "mrcbed: interrupted")


@pytest.mark.parametrize("after_s", [0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.2])
def test_a_run_ends_with_130_at_any_moment(tmp_path: Path, after_s: float) -> None:
    """From a tenth of a second on; before, Python's own start may have the signal."""
    code = "from testbed.start import main; main()"
    words = ["run", "smoke", "--world", "simulated", "--set", "workload.steps=100000", "--out", str(tmp_path / "out")]
    run = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(after_s)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=patient(60))
    assert run.returncode == 130 and "Traceback" not in said
