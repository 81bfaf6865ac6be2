"""Programs of RDMA verbs that check what is in memory at the end: the examples, and one that does
as NCCL's transport does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.installation import ROOT
from tests.emulated.verbs_rig import Cues, Ended, Verbs, compiled, needs

pytestmark = [pytest.mark.sandbox, needs()]
EXAMPLES = ROOT / "docs/examples"


@pytest.fixture(scope="module")
def nccl_like(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(
        ROOT / "tests/verbs_programs/nccl_like.c", tmp_path_factory.mktemp("programs"), "-ldl"
    )


@pytest.fixture(scope="module", params=["mrc", "roce"])
def verbs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Verbs]:
    with Verbs.up(request.param, tmp_path_factory.mktemp("logs")) as up:
        yield up


def test_the_example_in_python(verbs: Verbs) -> None:
    if not list(Path("/usr/lib/python3/dist-packages").glob("pyverbs/__init__.py")):
        pytest.skip("no pyverbs here: sudo make rdma-tools installs python3-pyverbs")
    ended = verbs.run((str(EXAMPLES / "verbs_write.py"), "{server}"), range(4))
    assert ended.failed == {} and sorted(ended.said) == [0], ended.text()
    assert sorted(ended.said[0]) == [
        f"rank {rank} wrote: greetings from h{rank}" for rank in (1, 2, 3)
    ]


def test_the_example_in_c(verbs: Verbs, tmp_path: Path) -> None:
    """It sleeps until an event comes, and sends inline."""
    ended = verbs.run((compiled(EXAMPLES / "verbs_write.c", tmp_path, "-libverbs"), "{server}"))
    assert (ended.failed, ended.said) == (
        {},
        {0: ["17 bytes with immediate 42: greetings from h2"]},
    )


def sums(ended: Ended, ranks: int, rounds: int, size: int) -> dict[int, tuple[int, int]]:
    """By rank, how many times a port was down and up. Every rank has found every sum right, and no
    queue pair has failed."""
    assert ended.failed == {}, ended.text()
    line = re.compile(
        rf"rank (\d+): {rounds} sums of {size} bytes are right; ports: (\d+) down, (\d+) up; "
        r"other events: 0"
    )
    found = [line.fullmatch(said) for lines in ended.said.values() for said in lines]
    assert all(found), ended.text()
    ports = {int(match[1]): (int(match[2]), int(match[3])) for match in found if match}
    assert sorted(ports) == list(range(ranks)), ended.text()
    return ports


def test_a_ring_as_nccl_has_it(verbs: Verbs, nccl_like: str) -> None:
    """Pieces and parts of odd sizes; then an array so short that most parts are empty."""
    assert set(
        sums(verbs.run((nccl_like, "100004", "1", "4"), range(4)), 4, 1, 100004).values()
    ) == {(0, 0)}
    sums(verbs.run((nccl_like, "28", "1", "2"), range(4)), 4, 1, 28)


def test_two_ranks_on_a_host(verbs: Verbs, nccl_like: str) -> None:
    """Between these no packet leaves the host."""
    sums(verbs.run((nccl_like, "100004", "2", "2", "2")), 4, 2, 100004)


def test_a_ring_while_a_port_flaps(verbs: Verbs, nccl_like: str) -> None:
    ended = verbs.run(
        (nccl_like, "131072", "3", "2"), range(4), verbs.flap(100, 250, "port", "h2-p0")
    )
    assert sums(ended, 4, 3, 131072) == {0: (0, 0), 1: (0, 0), 2: (1, 1), 3: (0, 0)}


@pytest.mark.dear("four processes that poll, for as long as RoCE's timeouts take")
def test_a_ring_while_one_thing_after_the_other_breaks(verbs: Verbs, nccl_like: str) -> None:
    """And while packets are lost everywhere."""
    cluster = verbs.cluster

    def instead(break_it: Callable[[], object]) -> None:
        cluster.heal()
        cluster.inject("loss", "nics", probability="0.01", direction="both")
        break_it()

    cues: Cues = [
        (40, lambda: instead(lambda: cluster.set_link("p0-t0-0:p0-t1-0", False))),
        (120, lambda: instead(lambda: cluster.set_switch("p0-t1-1", False))),
        *verbs.flap(200, 300, "plane", "p0"),
    ]
    sums(verbs.run((nccl_like, "65536", "3", "2"), range(4), cues), 4, 3, 65536)
