"""Programs of RDMA verbs that check what is in memory at the end: the examples, and one that does as NCCL's transport does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.installation import ROOT
from tests.emulated.verbs_rig import Verbs, compiled, needs

pytestmark = [pytest.mark.sandbox, needs()]
EXAMPLES = ROOT / "docs/examples"


@pytest.fixture(scope="module", params=["mrc", "roce"])
def verbs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verbs]:
    with Verbs.up(request.param, tmp_path_factory.mktemp("logs")) as up:
        yield up


def test_the_example_in_python(verbs: Verbs) -> None:
    if not list(Path("/usr/lib/python3/dist-packages").glob("pyverbs/__init__.py")):
        pytest.skip("no pyverbs here: sudo make rdma-tools installs python3-pyverbs")
    ended = verbs.run((str(EXAMPLES / "verbs_write.py"), "{server}"), range(4))
    assert ended.failed == {} and sorted(ended.said) == [0], ended.text()
    assert sorted(ended.said[0]) == [f"rank {rank} wrote: greetings from h{rank}" for rank in (1, 2, 3)]


def test_the_example_in_c(verbs: Verbs, tmp_path: Path) -> None:
    """It sleeps until an event comes, and sends inline."""
    ended = verbs.run((compiled(EXAMPLES / "verbs_write.c", tmp_path, "-libverbs"), "{server}"))
    assert (ended.failed, ended.said) == ({}, {0: ["17 bytes with immediate 42: greetings from h2"]})
