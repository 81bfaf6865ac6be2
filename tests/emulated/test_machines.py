"""One fabric on two machines that a coordinator steers: it comes up, carries traffic, and ends
everywhere whatever dies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.run.manifest import version
from testbed.dataplane.counters import books, totals
from testbed.errors import UserError
from testbed.machines.reach import places
from testbed.machines.world import Machines
from tests.emulated.command import ROOT
from tests.emulated.machines import Machine, machines, on, reach
from tests.emulated.ring import Ring, wait_until
from tests.emulated.test_machines_die import pids_in
from topologies import load_fabric
from topologies.fabrics import DILATION

pytestmark = pytest.mark.sandbox
TINY = load_fabric("tiny")


@pytest.fixture(scope="module")
def two() -> Iterator[list[Machine]]:
    with machines() as both:
        yield both


def test_a_ring_over_both_is_right_and_the_books_close(two: list[Machine], tmp_path: Path) -> None:
    with Machines(TINY, places(on(two), reach()), version(), dilation=DILATION) as world:
        world.start_agents("mrc", {}, tmp_path, 1)
        ring = Ring(world)  # type: ignore[arg-type]
        assert ring.run(5)
        assert ring.all_right()
        world.stop_agents()
        assert world.quiesce(world.clock.patience(10.0))
        rows = world.counters()
        assert books(rows) == [] and totals(rows)["drop_trunk"] == 0
    assert [path.name for path in sorted(tmp_path.glob("h*.jsonl"))] == [
        "h0.jsonl",
        "h1.jsonl",
        "h2.jsonl",
        "h3.jsonl",
    ]


def test_three_machines_carry_a_ring(tmp_path: Path) -> None:
    fabric = TINY.with_(t0_per_plane=3)
    with (
        machines(3) as places_of_three,
        Machines(
            fabric, places(on(places_of_three), reach()), version(), dilation=DILATION
        ) as world,
    ):
        world.start_agents("mrc", {}, tmp_path, 1)
        ring = Ring(world)  # type: ignore[arg-type]
        assert ring.run(2, size=96 * 512) and ring.all_right()
        world.stop_agents()
        assert world.quiesce(world.clock.patience(10.0)) and books(world.counters()) == []
        carried = [sum(words[0] for words in one.values()) for one in world._carried()]
        assert all(carried), carried  # each sends to another


@pytest.mark.parametrize(
    ("point", "line"),
    [
        ("queues", "internal error (please report): InjectedCrash"),
        ("queues:kill", "is gone"),
        ("links-up:kill", "is gone"),
    ],
)
def test_a_crash_while_one_comes_up_ends_both_in_a_line(
    two: list[Machine], point: str, line: str
) -> None:
    command = f"env MRCBED_CRASH_AT={point} {sys.executable} -m mrcbed tools machine"
    world = Machines(TINY, places(on(two), reach(command)), version(), dilation=DILATION)
    with pytest.raises(UserError) as refused:
        world.start()
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert all(channel.process.poll() is not None for channel in world.channels)
    assert wait_until(
        lambda: not [pid for machine in two for pid in pids_in(os.stat(machine.namespace).st_ino)]
    )


def test_a_machine_that_measures_already_is_left_alone(two: list[Machine], tmp_path: Path) -> None:
    hold = (
        "import sys, time; from pathlib import Path; from testbed.machine.exclusive import "
        "measuring; m = measuring(Path('/there')); "
    )
    hold += "m.__enter__(); print(flush=True); sys.stdin.read()"
    prefix = ["nsenter", f"--net={two[1].namespace}"]
    other = subprocess.Popen(
        [*prefix, sys.executable, "-c", hold],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert other.stdin is not None and other.stdout is not None and other.stdout.readline() == b"\n"
    try:
        with pytest.raises(
            UserError,
            match=f"^{two[1].name}: another run is measuring on this machine .*results in /there",
        ):
            Machines(
                TINY, places(on(two), reach()), version(), results=str(tmp_path), dilation=DILATION
            ).start()
        with Machines(TINY, places(on(two), reach()), version(), dilation=DILATION):
            pass  # a prompt may come up beside it, as on one machine
    finally:
        other.stdin.close()
        other.wait()
