"""What a run keeps in memory follows from its fabric and its messages, not from how long it takes,
nor from the runs before it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scenarios.figures.measure import TABLES, load_runs, write_tables
from scenarios.figures.summary import summarise
from scenarios.run.one_run import OneRun
from scenarios.run.planning import plan
from scenarios.run.runner import Runner, RunOptions, results_directory, run_block
from scenarios.schema.scenario import load_scenario
from testbed.simulated.cluster import SimulatedCluster
from testbed.world import SIMULATED
from tests.scenarios.small import small, undrawn
from topologies import Fabric

LOSSY = """
[[fault]]
kind = "loss"
on = "p0-t0-0:p0-t1-0"
probability = 0.02
at = "10us"
"""
RING = """
format = 3
fabric = "tiny"
timeout = "90s"
[workload]
kind = "ring-allreduce"
message_bytes = "32KiB"
steps = 20
warmup_steps = 0
[[transport]]
kind = "mrc"
options = { mpr = 128 }          # a small window: what it remembers of it is full soon
[[transport]]
kind = "roce"
"""
FLOWS = """
format = 3
fabric = "tiny"
timeout = "90s"
[workload]
kind = "incast"
senders = 3
message_bytes = "16KiB"
duration = "200us"
[[transport]]
kind = "mrc"
options = { mpr = 128 }
[[transport]]
kind = "roce"
"""


class Counting(SimulatedCluster):
    """Knows how many objects there are when all has come to rest."""

    objects = 0

    def stop_agents(self) -> None:
        if self.agents:
            gc.collect()
            self.objects = len(gc.get_objects())
        super().stop_agents()


def kept(tmp_path: Path, text: str, transport: str, setting: str) -> int:
    """Objects at the end of a run."""
    file = tmp_path / "made.toml"
    file.write_text(text + LOSSY)
    spec = plan(load_scenario(str(file), transports=[transport], overrides=[setting]))[0]
    cluster = Counting(spec.transport.fabric)
    assert (
        OneRun(cluster, spec, tmp_path / "raw" / setting, lambda share, trouble: None).go()
        == "done"
    )
    return cluster.objects


@pytest.mark.parametrize("transport", ["mrc", "roce"])
@pytest.mark.parametrize(
    ("text", "first", "short", "long"),
    [
        (RING, "workload.steps=2", "workload.steps=20", "workload.steps=60"),
        (FLOWS, "workload.duration=50us", "workload.duration=400us", "workload.duration=800us"),
    ],
    ids=["ring", "flows"],
)
def test_a_longer_run_keeps_no_more_objects(
    tmp_path: Path, text: str, first: str, short: str, long: str, transport: str
) -> None:
    kept(tmp_path, text, transport, first)  # what is imported and cached on first use
    before, after = kept(tmp_path, text, transport, short), kept(tmp_path, text, transport, long)
    # one more per step, or per message, would be 40 at least
    assert after - before < 30, (before, after)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is gone is gone because somebody saw to it."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("apart", [False, True])
def test_the_fabric_of_a_run_is_gone_before_the_next_is_made(tmp_path: Path, apart: bool) -> None:
    refs: list[weakref.ref[Any]] = []

    def factory(fabric: Fabric) -> SimulatedCluster:
        assert [ref() for ref in refs if ref() is not None] == []
        cluster = SimulatedCluster(fabric)
        refs.append(weakref.ref(cluster))
        return cluster

    scenario, out = (
        small(tmp_path, seeds=[1], overrides=["workload.steps=1"]),
        results_directory("small", str(tmp_path / "out")),
    )
    if apart:
        run_block(factory, out, plan(scenario))
    else:
        with undrawn():
            Runner(scenario, out, factory, RunOptions(world=SIMULATED)).run()
    assert len(refs) == 3


def test_results_keep_nothing_of_the_runs_that_they_came_from(tmp_path: Path) -> None:
    scenario, out = (
        small(tmp_path, seeds=[1], overrides=["workload.steps=1"]),
        results_directory("small", str(tmp_path / "out")),
    )
    run_block(SimulatedCluster, out, plan(scenario))
    runs = load_runs(out)
    assert len(summarise(scenario, runs)["runs"]) == 3
    assert all(vars(run).keys() <= {"directory", "key"} for run in runs)
    write_tables(runs, out)
    assert all((out / f"{name}.parquet").stat().st_size for name in TABLES)
    assert not runs, "nobody holds what was read for the tables"
