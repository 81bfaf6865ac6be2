"""Programs of users' own in virtual time: every call gives what NumPy gives, and what goes wrong is
one line that names the rank."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from mrcbed import cli
from testbed.errors import UserError
from testbed.simulated.cluster import SimulatedCluster
from testbed.streams import MOST_LINE
from testbed.world import Program
from tests.fabrics import near
from topologies.clos import Fabric

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "data_parallel.py"
FOUR = near(Fabric("four", 2, 2, 2, 2, mtu=1024))


class Seen:
    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        self.notes: list[tuple[int, dict[str, object]]] = []
        self.failed: dict[int, str] = {}
        self.cluster: SimulatedCluster

    def of(self, rank: int) -> list[str]:
        return [line for r, line in self.lines if r == rank]


def run(text: str, path: Path, fabric: Fabric = FOUR, fault: tuple[str, str] | None = None) -> Seen:
    """Run a program on every host of a small fabric."""
    file = path / "program.py"
    file.write_text(
        "import numpy as np\nfrom agents.communicator import Communicator, CommunicatorError\n"
        + textwrap.dedent(text)
    )
    seen = Seen()
    with SimulatedCluster(fabric) as cluster:
        seen.cluster = cluster
        cluster.start_agents("mrc", {}, path / "logs", 1)
        programs = cluster.programs(
            Program((str(file), "an", "argument")), range(fabric.host_count)
        )
        if fault is not None:
            cluster.inject(*fault)
        seen.failed = programs.run(
            lambda rank, line: seen.lines.append((rank, line)),
            lambda rank, note: seen.notes.append((rank, note)),
            lambda: None,
        )
    return seen


def test_every_collective_gives_what_numpy_gives_for_arrays_of_any_length(tmp_path: Path) -> None:
    seen = run(
        """
        comm = Communicator.open()
        n, rank = comm.size, comm.rank
        bad = []
        for length in (0, 1, 3, 17, 1000, 4099):
            for dtype in (np.float32, np.float64, np.int64, np.uint8, np.float16):
                rng = np.random.default_rng(length)
                given = [(rng.integers(0, 50, (n, length))).astype(dtype) for _ in range(n)]
                mine = given[rank]
                def same(name, got, want):
                    if got.dtype != want.dtype or got.shape != want.shape or not (got == want).all():
                        bad.append((name, length, dtype.__name__))
                same("all_reduce", comm.all_reduce(mine[0]), sum(g[0] for g in given[1:]) + given[0][0])
                same("tree", comm.all_reduce(mine[0], algorithm="tree"), sum(g[0] for g in given[1:]) + given[0][0])
                same("max", comm.all_reduce(mine[0], op="max"), np.max([g[0] for g in given], axis=0))
                same("all_gather", comm.all_gather(mine[0]), np.stack([g[0] for g in given]))
                same("reduce_scatter", comm.reduce_scatter(mine), sum(g[rank:rank + 1] for g in given[1:]) + given[0][rank:rank + 1])
                same("all_to_all", comm.all_to_all(mine), np.stack([g[rank] for g in given]))
                same("broadcast", comm.broadcast(mine[1], root=2), given[2][1])
                handles = [comm.send(mine[0], to, wait=False) for to in range(n) if to != rank]
                for source in range(n):
                    if source != rank:
                        same("recv", comm.recv(np.empty(length, dtype), source), given[source][0])
                for handle in handles:
                    handle.wait()
        print("wrong", bad)
        """,  # noqa: E501
        tmp_path,
    )
    assert seen.failed == {} and [seen.of(rank) for rank in range(4)] == [["wrong []"]] * 4, (
        seen.lines[:5]
    )


def test_large_arrays_go_in_pieces_and_calls_may_overlap_computing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.communicator.PIECE", 1 << 12)  # many pieces
    seen = run(
        """
        comm = Communicator.open()
        array = np.arange(20_000, dtype=np.int32).reshape(100, 200)[:, ::2] + comm.rank  # not contiguous
        first, second = comm.all_reduce(array, wait=False), comm.all_reduce(array * 2, wait=False)
        comm.compute(1e-3)
        assert first.done and second.done
        want = np.arange(20_000, dtype=np.int32).reshape(100, 200)[:, ::2] * 4 + 6
        assert (first.wait() == want).all() and (second.wait() == 2 * want).all()
        out = np.zeros_like(want)
        assert comm.all_reduce(array, out=out) is out and (out == want).all()
        comm.tell(fine=comm.rank)
        """,  # noqa: E501
        tmp_path,
    )
    assert seen.failed == {}
    assert sorted(note["note"]["fine"] for _, note in seen.notes if note["event"] == "told") == [
        0,
        1,
        2,
        3,
    ]  # type: ignore[index]


def test_groups_within_the_group(tmp_path: Path) -> None:
    seen = run(
        """
        comm = Communicator.open()
        even, odd = comm.group([0, 2]), comm.group([3, 1])
        mine = even or odd
        assert mine.size == 2 and [mine.rank] == [[0, 1, 1, 0][comm.rank]] and (odd is None) == (comm.rank % 2 == 0)
        print(int(mine.all_reduce(np.array([10 + comm.rank]))[0]), int(comm.all_reduce(np.array([1]))[0]))
        """,  # noqa: E501
        tmp_path,
    )
    assert seen.failed == {}
    assert [seen.of(rank) for rank in range(4)] == [["22 4"], ["24 4"], ["22 4"], ["24 4"]]


def test_a_program_that_computes_for_seconds_harms_no_one(tmp_path: Path) -> None:
    seen = run(
        """
        comm = Communicator.open()
        for _ in range(2):
            assert comm.all_reduce(np.ones(50_000, np.float32))[0] == 4
            comm.compute(5e-3)  # five hundred base round trips
        """,
        tmp_path,
    )
    assert seen.failed == {}
    logs = "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
    assert "ASSUMED_BAD" not in logs and '"failed"' not in logs


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("raise SystemExit(3)", "status 3"),
        ("raise SystemExit", "has ended"),
    ],
)
def test_a_rank_that_ends_is_named_to_all_others(end: str, reason: str, tmp_path: Path) -> None:
    seen = run(
        f"""
        comm = Communicator.open()
        comm.all_reduce(np.ones(5))
        if comm.rank == 2:
            {end}
        try:
            comm.all_reduce(np.ones(5))
        except CommunicatorError as error:
            print(error.rank, error)
        """,
        tmp_path,
    )
    for rank in (0, 1, 3):
        [line] = seen.of(rank)
        assert line.startswith("2 rank 2 (h2) was lost: its program") and reason in line
    assert list(seen.failed) == ([] if reason == "has ended" else [2])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("comm.all_reduce(np.ones(3, np.complex64))", "of complex64: there are float32"),
        ("comm.reduce_scatter(np.ones(5))", "is not 4 equal parts"),
        ("comm.all_reduce(np.ones(3), out=np.ones(4))", r"shape (3,)"),
        ("comm.all_reduce(np.ones(3), op='mean')", "op 'mean'"),
        ("comm.all_reduce(np.ones(3), algorithm='star')", "there are ring, tree"),
        ("comm.send(np.ones(3), 4)", "rank 4: there are ranks 0 to 3"),
        ("comm.broadcast(np.ones(3), root=9)", "the ranks are 0 to 3"),
        ("comm.group([0, 0])", "at least two different ones"),
    ],
)
def test_bad_calls_are_one_line(call: str, words: str, tmp_path: Path) -> None:
    seen = run(
        f"comm = Communicator.open()\ntry:\n    {call}\nexcept CommunicatorError as error:\n"
        "    print(error)\n",
        tmp_path,
    )
    for rank in range(4):
        [line] = seen.of(rank)
        assert words in line


@pytest.mark.dear("four ranks, each a process that imports NumPy")
def test_ranks_that_wait_for_each_other_for_ever_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ranks 0, 1, 2, 3 wait for what no rank does"):
        run("comm = Communicator.open()\ncomm.recv(np.ones(1), (comm.rank + 1) % 4)\n", tmp_path)


def test_failures_of_the_fabric_change_no_bit(tmp_path: Path) -> None:
    program = """
        import hashlib
        comm = Communicator.open()
        rng = np.random.default_rng(comm.rank)
        total = np.zeros(30_000, np.float32)
        for _ in range(4):
            total += comm.all_reduce(rng.standard_normal(30_000).astype(np.float32))
        print(hashlib.sha256(total.tobytes()).hexdigest(), comm.now())
    """
    healthy, broken = (
        run(program, tmp_path),
        run(program, tmp_path, fault=("link", "p0-t0-0:p0-t1-0")),
    )
    assert len({line.split()[0] for seen in (healthy, broken) for _, line in seen.lines}) == 1
    assert float(broken.of(0)[0].split()[1]) > float(healthy.of(0)[0].split()[1])  # it took longer


def test_the_example_runs_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.group.main(
            ["launch", "--world", "simulated", "--fabric", "tiny", str(EXAMPLE)],
            standalone_mode=False,
        )
    said = capsys.readouterr().out
    assert left.value.code == 0 and "0: step 15: loss" in said and ", the same on 4 ranks" in said
    assert len(EXAMPLE.read_text().splitlines()) <= 45


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.py"], "there is no such file"),
        (["true"], "ranks are threads"),
        (["-n", "99", str(EXAMPLE)], "has 4 hosts"),
        (["--fault", "link", str(EXAMPLE)], "say on which link"),
        (["--fault", "link p0-t0-0:p0-t1-9", str(EXAMPLE)], "has no link"),
        (["--transport", "tcp", str(EXAMPLE)], "the simulated world has no kernel"),
        (["--transport", "quic", str(EXAMPLE)], "quic"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.execute(["launch", "--world", "simulated", "--fabric", "tiny", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_what_a_rank_prints_is_passed_on_at_once_and_long_lines_are_cut(tmp_path: Path) -> None:
    seen = run(
        """
        import sys
        if Communicator.open().rank == 1:
            for _ in range(3):
                sys.stdout.write("x" * (1 << 20))
            print()
            print("no end", end="")
            raise ValueError("no")
        """,
        tmp_path,
    )
    long, unended, *trace = seen.of(1)
    assert (
        long == "x" * MOST_LINE + f" ... and {2 * MOST_LINE:,} characters more, left out"
        and unended == "no end"
    )
    assert (
        trace[0].startswith("Traceback")
        and trace[-1] == "ValueError: no"
        and len(seen.lines) == 2 + len(trace)
    )


def test_a_program_has_as_many_queue_pairs_calls_and_words_as_its_agent_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.process.calls.MOST_OUTSTANDING", 5000)
    seen = run(
        """
        comm = Communicator.open()
        if comm.rank == 1:
            ask = comm._link.call
            requests = {
                "recv": lambda n: {"group": "world", "call": n, "peer": 0, "offset": 0, "size": 8},
                "tell": lambda n: {"note": {"x": "x" * (1 << 22)}},
                "group": lambda n: {"group": f"g{n}", "ranks": [0, 1, 2, 3], "rank": 1, "qps": 64},
            }
            for name, request in requests.items():
                for number in range(100_000):
                    try:
                        ask(name, request(number))
                    except Exception as error:
                        print(number, error)
                        break
            try:
                ask("group", {"group": "g" * 101, "ranks": [0, 1, 2, 3], "rank": 1})
            except Exception as error:
                print(error)
        else:
            comm.compute(1e-6)  # who has ended is not asked for anything
        """,
        tmp_path,
    )
    assert seen.of(1) == [
        "5000 h1: recv: 5000 calls are waiting: wait for some of them",
        "15 h1: tell: a program may tell 67108864 bytes: tell less",
        (
            "20 h1: group: a group's name has up to 100 characters, and a program's groups 4096 "
            "queue pairs in all"
        ),
        (
            "h1: group: a group's name has up to 100 characters, and a program's groups 4096 "
            "queue pairs in all"
        ),
    ]
