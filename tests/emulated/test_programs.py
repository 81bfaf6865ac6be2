"""Programs of users' own on the kernel: without root, at low priority; who dies is named to all others; nothing stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from agents.process.control import AgentClient, AgentError
from testbed.emulated.cluster import Cluster
from testbed.emulated.programs import GRACE_S, PIECES
from testbed.errors import ClusterDied
from testbed.machine.slowness import patient
from testbed.perf.tables import RULE
from testbed.streams import MOST_LINE
from testbed.world import Program
from tests.emulated.command import MRCBED, ROOT, mrcbed
from tests.emulated.remains import CLOSED
from tests.emulated.ring import logged
from topologies import load_fabric

pytestmark = pytest.mark.sandbox
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "data_parallel.py"

ROOTS = {name: value for name, value in os.environ.items() if name != "SUDO_UID"}
"""These tests' folders are root's alone, and a program is of the user who called sudo."""


def program(path: Path, text: str) -> str:
    file = path / "program.py"
    file.write_text(
        "import os, signal, time\nimport numpy as np\nfrom agents.communicator import Communicator, CommunicatorError\n"
        + textwrap.dedent(text)
    )
    return str(file)


def go(path: Path, text: str, transport: str = "mrc", fault: tuple[str, str] | None = None) -> tuple[dict[int, str], list[tuple[int, str]]]:
    lines: list[tuple[int, str]] = []
    with Cluster(load_fabric("tiny"), controller=False) as cluster:
        cluster.start_agents(transport, {}, path / "logs", 1)
        programs = cluster.programs(Program((program(path, text),)), range(4))
        if fault is not None:
            cluster.inject(*fault)
        try:
            failed = programs.run(lambda rank, line: lines.append((rank, line)), lambda rank, note: None, lambda: None)
        finally:
            programs.end()
    return failed, lines


def test_the_example_as_people_call_it() -> None:
    done = mrcbed("launch", "--fabric", "tiny", "--fault", "link p0-t0-0:p0-t1-0", EXAMPLE)
    assert done.returncode == 0, done.stderr
    assert "0: step 15: loss" in done.stdout and ", the same on 4 ranks" in done.stdout


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_a_program_that_sleeps_for_seconds_harms_no_one(transport: str, tmp_path: Path) -> None:
    failed, lines = go(
        tmp_path,
        """
        comm = Communicator.open()
        for _ in range(2):
            assert (comm.all_reduce(np.full(3000, comm.rank, np.float32)) == 6).all()
            time.sleep(5)
        print(comm.all_gather(np.array([comm.rank])).ravel().tolist())
        """,
        transport,
    )
    assert failed == {} and sorted(lines) == [(rank, "[0, 1, 2, 3]") for rank in range(4)]
    assert [line for line in logged(tmp_path / "logs", "ev") if line.get("to") == "ASSUMED_BAD"] == []
    counters = logged(tmp_path / "logs", "counters")
    assert len(counters) == 4
    assert sum(line.get("rto", 0) + line.get("timeouts", 0) for line in counters) == 0


@pytest.mark.skipif(CLOSED, reason="another user cannot reach this clone")
def test_under_sudo_a_program_runs_as_who_called_it() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        file = program(Path(directory), "print(os.getuid(), os.getgroups(), Communicator.open().all_reduce(np.ones(1))[0])")
        done = mrcbed("launch", "--fabric", "tiny", file, env={**os.environ, "SUDO_UID": "54321"})
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == [f"{rank}: 54321 [] 4.0" for rank in range(4)], done.stderr


def test_a_rank_that_is_killed_is_named_to_every_other_within_five_seconds(tmp_path: Path) -> None:
    failed, lines = go(
        tmp_path,
        """
        comm = Communicator.open()
        comm.all_reduce(np.ones(10))
        if comm.rank == 1:
            print(time.monotonic(), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                comm.all_reduce(np.ones(1000))
        except CommunicatorError as error:
            print(time.monotonic(), error.rank, error)
        """,
    )
    said = dict(lines)
    assert failed == {1: "its program was ended by SIGKILL"} and len(said) == 4
    killed = float(said.pop(1))
    for line in said.values():
        at, _, text = line.partition(" ")
        assert text == "1 rank 1 (h1) was lost: its program was ended by SIGKILL"
        assert float(at) - killed < patient(5)


def test_a_rank_that_ends_well_while_others_need_it_leaves_them_five_seconds(tmp_path: Path) -> None:
    begun = time.monotonic()
    failed, lines = go(
        tmp_path,
        """
        comm = Communicator.open()
        comm.all_reduce(np.ones(10))
        if comm.rank == 1:
            os._exit(0)
        try:
            comm.barrier()
        except CommunicatorError as error:
            print(error)
        time.sleep(1000)
        """,
    )
    assert lines == [(rank, "rank 1 (h1) was lost: its program has ended") for rank, _ in lines] and len(lines) == 3
    assert failed == dict.fromkeys((0, 2, 3), "its program went on for 5 s after rank 1 (h1) was lost, and was ended")
    assert time.monotonic() - begun < patient(60)


def test_ranks_that_need_no_one_may_end_as_late_as_they_like(tmp_path: Path) -> None:
    failed, lines = go(
        tmp_path,
        f"""
        comm = Communicator.open()
        comm.barrier()
        if comm.rank != 1:
            time.sleep({GRACE_S + 2})
            print("fine")
        """,
    )
    assert failed == {} and sorted(lines) == [(0, "fine"), (2, "fine"), (3, "fine")]


def test_a_message_to_or_from_a_rank_that_has_ended_names_it(tmp_path: Path) -> None:
    failed, lines = go(
        tmp_path,
        """
        comm = Communicator.open()
        comm.barrier()
        if comm.rank == 1:
            raise SystemExit
        time.sleep(2)  # the others' agents have been told
        for call in (lambda: comm.send(np.ones(3), 1), lambda: comm.recv(np.ones(3), 1), lambda: comm.group([0, 1, 2, 3])):
            try:
                call()
            except CommunicatorError as error:
                print(error.rank, "rank 1 (h1) was lost: its program has ended" in str(error))
        """,
    )
    assert failed == {} and sorted(lines) == sorted((rank, "1 True") for rank in (0, 2, 3) for _ in range(3))


def test_what_a_rank_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    """It holds the output, and would print for ever."""
    begun = time.monotonic()
    failed, lines = go(
        tmp_path,
        """
        comm = Communicator.open()
        if comm.rank == 1 and os.fork() == 0:
            while True:
                os.write(1, b"z\\n")
        comm.barrier()
        """,
    )
    assert failed == {} and {line for _, line in lines} <= {"z"} and time.monotonic() - begun < patient(60)


def test_a_line_without_an_end_is_cut_and_counted(tmp_path: Path) -> None:
    failed, lines = go(
        tmp_path,
        """
        if Communicator.open().rank == 1:
            for _ in range(24):
                os.write(1, b"x" * (1 << 20))
            print("\\nafter")
            print("no end", end="")
        """,
    )
    assert failed == {}
    long, *others = [line for _, line in lines]
    assert long == f"{'x' * MOST_LINE} ... and {23 << 20:,} characters more, left out" and others == ["after", "no end"]


def test_output_without_a_pause_is_passed_on_and_not_kept(tmp_path: Path) -> None:
    text = """
        if Communicator.open().rank == 1:
            for _ in range(128):
                os.write(1, b"y\\n" * (1 << 15))
    """
    with Cluster(load_fabric("tiny"), controller=False) as cluster:
        cluster.start_agents("mrc", {}, tmp_path / "logs", 1)
        programs = cluster.programs(Program((program(tmp_path, text),)), range(4))
        count, most = 0, 0

        def on_line(rank: int, line: str) -> None:
            nonlocal count, most
            count += 1
            if count == 1:
                time.sleep(1.0)  # who shows it is slow
            most = max(most, programs.output.qsize())

        failed = programs.run(on_line, lambda rank, note: None, lambda: None)
        programs.end()
    assert failed == {} and count == 128 << 15 and most == PIECES


def test_no_program_takes_memory_or_sense_from_its_agent(tmp_path: Path) -> None:
    """A file that becomes shorter ends whoever has it mapped; ten thousand brackets ended it, and a request without an end grew."""
    failed, lines = go(
        tmp_path,
        """
        import json, socket
        given = json.loads(os.environ["MRCBED_RANK"])
        if given["rank"] == 0:
            for size in (0, 1 << 40):
                try:
                    os.ftruncate(given["memory"], size)
                except OSError as error:
                    print(error.strerror)
            agent = socket.socket(fileno=given["socket"])
            agent.setblocking(True)
            agent.sendall(b'{"op": "tell", "note": ' + b"[" * 10000)
            try:
                for _ in range(64):
                    agent.sendall(b"[" * (1 << 20))
            except OSError as error:
                print(type(error).__name__)
            raise SystemExit
        if given["rank"] == 1:
            agent = socket.socket(fileno=given["socket"])
            agent.setblocking(True)
            agent.sendall(b'{"op": "tell", "note": ' + b"[" * 10000 + b"]" * 10000 + b"}\\n")
            print(agent.recv(100))
            raise SystemExit
        comm = Communicator.open()
        time.sleep(3)
        print(comm.group([2, 3]).all_reduce(np.ones(3))[0])
        """,
    )
    assert failed == {}
    said = {rank: [line for r, line in lines if r == rank] for rank in range(4)}
    assert said == {0: ["Operation not permitted"] * 2 + ["BrokenPipeError"], 1: ["b''"], 2: ["2.0"], 3: ["2.0"]}


def test_an_agent_that_is_killed_is_named_too(tmp_path: Path) -> None:
    """And the programs may take a moment to end. It dies when all have begun, which takes seconds on a busy machine."""
    lines: list[tuple[int, str]] = []
    text = """
        comm = Communicator.open()
        print("begun")
        try:
            while True:
                comm.all_reduce(np.ones(1000))
        except CommunicatorError as error:
            time.sleep(3)
            print(error.rank, error)
    """
    with Cluster(load_fabric("tiny"), controller=False) as cluster:
        cluster.start_agents("mrc", {}, tmp_path / "logs", 1)
        programs = cluster.programs(Program((program(tmp_path, text),)), range(4))
        killed: list[bool] = []

        def look() -> None:
            if not killed and len(lines) == 4:
                killed.append(True)
                cluster.inject("kill", "h2")

        with pytest.raises(ClusterDied, match="the agent of h2"):
            programs.run(lambda rank, line: lines.append((rank, line)), lambda rank, note: None, look)
        programs.end()
    said = dict(lines)
    assert "the agent of this rank (h2) is gone" in said[2]
    assert all(said[rank].startswith("2 rank 2 (h2) was lost: the agent of h2") for rank in (0, 1, 3)), said


def test_a_program_has_no_rights_but_its_two_descriptors(tmp_path: Path) -> None:
    text = """
        comm = Communicator.open()
        try:
            comm._link.call("stop", {})
        except Exception as error:
            print(os.getuid(), os.getgroups(), os.nice(0), error)
        comm.barrier()
    """
    file = program(tmp_path, text)
    lines: list[tuple[int, str]] = []
    with Cluster(load_fabric("tiny"), controller=False) as cluster:
        cluster.start_agents("mrc", {}, tmp_path / "logs", 1)
        programs = cluster.programs(Program((file,)), range(2))
        failed = programs.run(lambda rank, line: lines.append((rank, line)), lambda rank, note: None, lambda: None)
        programs.end()
        with pytest.raises(AgentError, match="there is a program already"):
            AgentClient(cluster.agents[0].path).call("program", size=4096)
    assert failed == {} and len(lines) == 2
    assert all(line.endswith("a program may not ask for that") and " 19 " in line for _, line in lines)


def test_perf_measures_on_the_kernel() -> None:
    done = mrcbed("perf", "all_reduce", "tiny", "-b", "16K", "-n", "1", "--fault", "link p0-t0-0:p0-t1-0")
    assert done.returncode == 0, done.stderr
    [row] = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert len(row) == 13 and row[0] == "16384" and row[8] == row[12] == "0"
    done = mrcbed("up", "tiny", input="perf write_lat -s 64 -n 3\nperf nothing\nexit\n")
    assert "RDMA_Write Latency Test" in done.stdout and "no operation 'nothing'" in " ".join((done.stdout + done.stderr).split())


def test_ctrl_c_in_perf_shows_the_rows_before() -> None:
    command = [MRCBED, "perf", "ib_write_bw", "tiny", "-a", "-n", "500"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(" 2 "):
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=patient(60))
    assert process.returncode == 130 and err.splitlines()[-1] == "mrcbed: ib_write_bw: stopped"
    assert out.splitlines()[-1] == RULE


def test_training_into_a_folder_that_the_caller_of_sudo_cannot_read_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    done = mrcbed(
        "train", "--fabric", "tiny", "--steps", "8", "-t", "mrc", "--out", tmp_path / "x", env={**os.environ, "SUDO_UID": "54321"}
    )
    assert done.returncode == 2 and "user 54321, who called sudo and runs the program, cannot read" in done.stderr


def test_a_model_trains_on_the_kernel_as_in_virtual_time(tmp_path: Path) -> None:
    digests = set()
    for world in ("emulated", "simulated"):
        out = tmp_path / world
        where = ("--world", world, "--fabric", "tiny", "--dilation", "fabric", "--out", out)
        done = mrcbed("train", *where, "--steps", "8", "-t", "mrc", "--json", env=ROOTS)
        assert done.returncode in (0, 1), done.stderr  # how long it took is not the subject
        runs = json.loads(done.stdout)["runs"]
        digests.update(digest for run in runs.values() for digest in run["hashes"])
        assert (out / "report.html").exists() and {name: run["failed"] for name, run in runs.items()} == {name: {} for name in runs}
    assert len(digests) == 1
