"""Programs of users' own as people run them, `mrcbed launch`, `perf` and `train`; and one whose
agent is killed, with its cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from mrcbed.perf.tables import RULE
from testbed.emulated.cluster import Cluster
from testbed.errors import ClusterDied
from testbed.machine.slowness import patient
from testbed.world import Program
from tests.emulated.command import MRCBED, ROOT, mrcbed
from tests.emulated.remains import CLOSED
from tests.emulated.test_programs import program
from topologies import load_fabric
from topologies.fabrics import DILATION

pytestmark = pytest.mark.sandbox
EXAMPLE = ROOT / "docs" / "examples" / "data_parallel.py"

ROOTS = {name: value for name, value in os.environ.items() if name != "SUDO_UID"}
"""These tests' folders are root's alone, and a program is of the user who called sudo."""


def test_the_example_as_people_call_it() -> None:
    done = mrcbed("launch", "--fabric", "tiny", "--fault", "link p0-t0-0:p0-t1-0", EXAMPLE)
    assert done.returncode == 0, done.stderr
    assert "0: step 15: loss" in done.stdout and ", the same on 4 ranks" in done.stdout


@pytest.mark.skipif(CLOSED, reason="another user cannot reach this clone")
def test_under_sudo_a_program_runs_as_who_called_it() -> None:
    file = Path(__file__).with_name("who_program.py")
    done = mrcbed("launch", "--fabric", "tiny", file, env={**os.environ, "SUDO_UID": "54321"})
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == [
        f"{rank}: 54321 [] 4.0" for rank in range(4)
    ], done.stderr


def test_an_agent_that_is_killed_is_named_too(tmp_path: Path) -> None:
    """And the programs may take a moment to end. It dies when all have begun, which takes seconds
    on a busy machine."""
    lines: list[tuple[int, str]] = []
    text = """
        comm = Communicator.open()
        print("begun")
        try:
            while True:
                comm.all_reduce(np.ones(1000))
        except CommunicatorError as error:
            time.sleep(1)
            print(error.rank, error)
    """
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        cluster.start_agents("mrc", {}, tmp_path / "logs", 1)
        programs = cluster.programs(Program((program(tmp_path, text),)), range(4))
        killed: list[bool] = []

        def look() -> None:
            if not killed and len(lines) == 4:
                killed.append(True)
                cluster.inject("kill", "h2")

        with pytest.raises(ClusterDied, match="the agent of h2"):
            programs.run(
                lambda rank, line: lines.append((rank, line)), lambda rank, note: None, look
            )
        programs.end()
    said = dict(lines)
    assert "the agent of this rank (h2) is gone" in said[2]
    assert all(
        said[rank].startswith("2 rank 2 (h2) was lost: the agent of h2") for rank in (0, 1, 3)
    ), said


def test_perf_measures_on_the_kernel() -> None:
    done = mrcbed(
        "perf", "all_reduce", "tiny", "-b", "16K", "-n", "1", "--fault", "link p0-t0-0:p0-t1-0"
    )
    assert done.returncode == 0, done.stderr
    [row] = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert len(row) == 13 and row[0] == "16384" and row[8] == row[12] == "0"
    done = mrcbed("up", "tiny", input="perf write_lat -s 64 -n 3\nperf nothing\nexit\n")
    assert "RDMA_Write Latency Test" in done.stdout and "no operation 'nothing'" in " ".join(
        (done.stdout + done.stderr).split()
    )


def test_ctrl_c_in_perf_shows_the_rows_before() -> None:
    command = [MRCBED, "perf", "ib_write_bw", "tiny", "-a", "-n", "500"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(" 2 "):
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=patient(60))
    assert process.returncode == 130 and err.splitlines()[-1] == "mrcbed: ib_write_bw: stopped"
    assert out.splitlines()[-1] == RULE


@pytest.mark.dear("two whole trainings, one of them on the kernel")
def test_a_model_trains_on_the_kernel_as_in_virtual_time(tmp_path: Path) -> None:
    digests = set()
    for world, dilation in {"emulated": ("--dilation", "fabric"), "simulated": ()}.items():
        out = tmp_path / world
        where = ("--world", world, "--fabric", "tiny", "--out", out)
        done = mrcbed("train", *where, *dilation, "--steps", "8", "-t", "mrc", "--json", env=ROOTS)
        assert done.returncode in (0, 1, 3), done.stderr  # how long it took is not the subject
        (run,) = json.loads(done.stdout)["runs"]
        digests.update(run["jobs"]["gpt"]["digests"])
        assert (out / "report.html").exists() and (
            run["outcome"],
            run["wrong"],
            run["faults_missed"],
        ) == ("done", 0, [])
    assert len(digests) == 1
