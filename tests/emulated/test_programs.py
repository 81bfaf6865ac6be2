"""Programs of users' own on the kernel: without root, at low priority; who dies is named to all
others; nothing stays."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.process.control import AgentClient, AgentError
from testbed.emulated.cluster import Cluster
from testbed.emulated.programs import GRACE_S, PIECES
from testbed.machine.slowness import patient
from testbed.streams import MOST_LINE
from testbed.world import Program
from tests.emulated.ring import logged, wait_until

pytestmark = pytest.mark.sandbox


def program(path: Path, text: str) -> str:
    file = path / "program.py"
    file.write_text(
        (
            "import os, signal, time\nimport numpy as np\n"
            "from agents.communicator import Communicator, CommunicatorError\n"
        )
        + textwrap.dedent(text)
    )
    return str(file)


def go(
    cluster: Cluster,
    path: Path,
    text: str,
    transport: str = "mrc",
    ranks: int = 4,
    then: Callable[[], None] = lambda: None,
) -> tuple[dict[int, str], list[tuple[int, str]]]:
    """On agents of their own: which ranks failed and why, and what all have printed."""
    lines: list[tuple[int, str]] = []
    cluster.start_agents(transport, {}, path / "logs", 1)
    try:
        programs = cluster.programs(Program((program(path, text),)), range(ranks))
        try:
            failed = programs.run(
                lambda rank, line: lines.append((rank, line)), lambda rank, note: None, lambda: None
            )
        finally:
            programs.end()
        then()
    finally:
        cluster.stop_agents()
    return failed, lines


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_a_program_that_sleeps_for_seconds_harms_no_one(
    tiny: Cluster, transport: str, tmp_path: Path
) -> None:
    failed, lines = go(
        tiny,
        tmp_path,
        """
        comm = Communicator.open()
        for _ in range(2):
            assert (comm.all_reduce(np.full(3000, comm.rank, np.float32)) == 6).all()
            time.sleep(2)
        print(comm.all_gather(np.array([comm.rank])).ravel().tolist())
        """,
        transport,
    )
    assert failed == {} and sorted(lines) == [(rank, "[0, 1, 2, 3]") for rank in range(4)]
    assert [
        line for line in logged(tmp_path / "logs", "ev") if line.get("to") == "ASSUMED_BAD"
    ] == []
    counters = logged(tmp_path / "logs", "counters")
    assert len(counters) == 4
    assert sum(line.get("rto", 0) + line.get("timeouts", 0) for line in counters) == 0


def test_a_rank_that_is_killed_is_named_to_every_other_within_five_seconds(
    tiny: Cluster, tmp_path: Path
) -> None:
    failed, lines = go(
        tiny,
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


def test_a_rank_that_ends_well_while_others_need_it_leaves_them_five_seconds(
    tiny: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert GRACE_S == 5
    monkeypatch.setattr("testbed.emulated.programs.GRACE_S", 1.0)
    begun = time.monotonic()
    failed, lines = go(
        tiny,
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
    assert (
        lines == [(rank, "rank 1 (h1) was lost: its program has ended") for rank, _ in lines]
        and len(lines) == 3
    )
    assert failed == dict.fromkeys(
        (0, 2, 3), "its program went on for 1 s after rank 1 (h1) was lost, and was ended"
    )
    assert time.monotonic() - begun < patient(60)


def test_ranks_that_need_no_one_may_end_as_late_as_they_like(
    tiny: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.emulated.programs.GRACE_S", 0.5)
    failed, lines = go(
        tiny,
        tmp_path,
        """
        comm = Communicator.open()
        comm.barrier()
        if comm.rank != 1:
            time.sleep(2)
            print("fine")
        """,
    )
    assert failed == {} and sorted(lines) == [(0, "fine"), (2, "fine"), (3, "fine")]


def test_a_message_to_or_from_a_rank_that_has_ended_names_it(tiny: Cluster, tmp_path: Path) -> None:
    failed, lines = go(
        tiny,
        tmp_path,
        """
        comm = Communicator.open()
        others = comm.group([0, 2, 3])
        comm.barrier()
        if comm.rank == 1:
            raise SystemExit
        time.sleep(1)  # the others' agents have been told
        for call in (lambda: comm.send(np.ones(3), 1), lambda: comm.recv(np.ones(3), 1), lambda: comm.group([0, 1, 2, 3])):
            try:
                call()
            except CommunicatorError as error:
                print(error.rank, "rank 1 (h1) was lost: its program has ended" in str(error))
        others.barrier()  # who ends before another has asked is lost to that one, too
        """,  # noqa: E501
    )
    assert failed == {} and sorted(lines) == sorted(
        (rank, "1 True") for rank in (0, 2, 3) for _ in range(3)
    )


def test_what_a_rank_leaves_behind_ends_with_it(tiny: Cluster, tmp_path: Path) -> None:
    """It holds the output, and would print for ever."""
    begun = time.monotonic()
    failed, lines = go(
        tiny,
        tmp_path,
        """
        comm = Communicator.open()
        if comm.rank == 1 and os.fork() == 0:
            while True:
                os.write(1, b"z\\n")
        comm.barrier()
        """,
    )
    assert (
        failed == {}
        and {line for _, line in lines} <= {"z"}
        and time.monotonic() - begun < patient(60)
    )


def test_a_line_without_an_end_is_cut_and_counted(tiny: Cluster, tmp_path: Path) -> None:
    failed, lines = go(
        tiny,
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
    assert (
        long == f"{'x' * MOST_LINE} ... and {23 << 20:,} characters more, left out"
        and others == ["after", "no end"]
    )


def test_output_without_a_pause_is_passed_on_and_not_kept(tiny: Cluster, tmp_path: Path) -> None:
    text = """
        if Communicator.open().rank == 1:
            for _ in range(128):
                os.write(1, (b"y" * 63 + b"\\n") * (1 << 10))
    """
    tiny.start_agents("mrc", {}, tmp_path / "logs", 1)
    programs = tiny.programs(Program((program(tmp_path, text),)), range(4))
    count, most = 0, 0

    def on_line(rank: int, line: str) -> None:
        nonlocal count, most
        count += 1
        if count == 1:  # who shows it is slow
            assert wait_until(lambda: programs.output.full())
        most = max(most, programs.output.qsize())

    try:
        failed = programs.run(on_line, lambda rank, note: None, lambda: None)
    finally:
        programs.end()
        tiny.stop_agents()
    assert failed == {} and count == 128 << 10 and most == PIECES


def test_no_program_takes_memory_or_sense_from_its_agent(tiny: Cluster, tmp_path: Path) -> None:
    """A file that becomes shorter ends whoever has it mapped; ten thousand brackets ended it, and a
    request without an end grew."""
    failed, lines = go(
        tiny,
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
        time.sleep(1)
        print(comm.group([2, 3]).all_reduce(np.ones(3))[0])
        """,
    )
    assert failed == {}
    said = {rank: [line for r, line in lines if r == rank] for rank in range(4)}
    assert said == {
        0: ["Operation not permitted"] * 2 + ["BrokenPipeError"],
        1: ["b''"],
        2: ["2.0"],
        3: ["2.0"],
    }


def test_a_program_has_no_rights_but_its_two_descriptors(tiny: Cluster, tmp_path: Path) -> None:
    text = """
        comm = Communicator.open()
        try:
            comm._link.call("stop", {})
        except Exception as error:
            print(os.getuid(), os.getgroups(), os.nice(0), error)
        comm.barrier()
    """
    refused: list[str] = []

    def ask_for_a_second() -> None:
        with pytest.raises(AgentError) as error:
            AgentClient(tiny.agents[0].path).call("program", size=4096)
        refused.append(str(error.value))

    failed, lines = go(tiny, tmp_path, text, ranks=2, then=ask_for_a_second)
    assert "there is a program already" in refused[0]
    assert failed == {} and len(lines) == 2
    assert all(
        line.endswith("a program may not ask for that") and " 19 " in line for _, line in lines
    )
