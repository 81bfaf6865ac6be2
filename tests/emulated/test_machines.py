"""One fabric on two machines that a coordinator steers: it comes up, carries traffic, and ends everywhere whatever dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.sweeps.machines import version
from testbed.dataplane.counters import books, totals
from testbed.machines.reach import places
from testbed.machines.world import Machines
from tests.emulated.machines import Machine, machines, on, reach
from tests.emulated.ring import Ring
from topologies import load_fabric

pytestmark = pytest.mark.sandbox
TINY = load_fabric("tiny")


@pytest.fixture(scope="module")
def two() -> Iterator[list[Machine]]:
    with machines() as both:
        yield both


def test_a_ring_over_both_is_right_and_the_books_close(two: list[Machine], tmp_path: Path) -> None:
    with Machines(TINY, places(on(two), reach()), version()) as world:
        world.start_agents("mrc", {}, tmp_path, 1)
        ring = Ring(world)  # type: ignore[arg-type]
        assert ring.run(5)
        assert ring.all_right()
        world.stop_agents()
        assert world.quiesce(10.0)
        rows = world.counters()
        assert books(rows) == [] and totals(rows)["drop_trunk"] == 0
    assert [path.name for path in sorted(tmp_path.glob("h*.jsonl"))] == ["h0.jsonl", "h1.jsonl", "h2.jsonl", "h3.jsonl"]
