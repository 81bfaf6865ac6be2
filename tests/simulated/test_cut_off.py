"""A denylist that leaves a host no path: a collective says so, waits as long as it may, and goes on
once a path is allowed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from agents.collectives.steer import CutOff
from mrcbed.prompt.collective import kind_of
from mrcbed.prompt.collective import run as run_at_prompt
from scenarios.figures.measure import Run
from scenarios.run.one_run import OneRun, Spec
from scenarios.schema.scenario import Scenario, load_scenario
from testbed.errors import UserError
from testbed.results.log import Cutoff
from testbed.simulated.cluster import SimulatedCluster
from topologies import load_fabric
from topologies.units import US

TINY = load_fabric("tiny")
RING = """
description = "A ring, for a denylist to stop."
format = 3
fabric = "tiny"
timeout = "{timeout}"

[workload]
kind = "ring-allreduce"
message_bytes = "64KiB"
placement = ["interleaved"]
dtype = "int32"
steps = {steps}
warmup_steps = 0

[[transport]]
kind = "{kind}"
"""
LINE = (
    "every path from h0 to h2 and of 7 other pairs is denied: take entries off the denylist "
    "(p0, p1)"
)


def scenario(tmp_path: Path, timeout: str = "3s", steps: int = 20, kind: str = "mrc") -> Scenario:
    path = tmp_path / "ring.toml"
    path.write_text(RING.format(timeout=timeout, steps=steps, kind=kind))
    return load_scenario(str(path))


def one_run(cluster: SimulatedCluster, what: Scenario, directory: Path) -> tuple[OneRun, list[str]]:
    """The run, not yet begun, and what will have been shown beside its progress, each once."""
    shown: list[str] = []

    def progress(share: float, trouble: str) -> None:
        if shown[-1:] != [trouble]:
            shown.append(trouble)

    return OneRun(
        cluster, Spec(what, what.transports[0], "interleaved", 1), directory, progress
    ), shown


@pytest.mark.parametrize("at_us", [None, 50])
def test_a_run_with_every_plane_denied_says_so_and_ends_in_time(
    tmp_path: Path, at_us: int | None
) -> None:
    """From the start, and in the middle of a step."""
    with SimulatedCluster(TINY) as cluster:
        run, shown = one_run(cluster, scenario(tmp_path), tmp_path / "run")

        def deny(*_: object) -> None:
            cluster.deny("p0")
            cluster.deny("p1")

        if at_us is None:
            deny()
        else:
            cluster.network.at(cluster.clock.now() + at_us * US, deny)
        assert run.go() == "timeout"
    assert run.reason == f"no end after 3 s: ranks [0, 1, 2, 3] not done; {LINE}"
    assert [line for line in shown if line] == [LINE], "one line, once"
    assert [line.reason for line in Run(tmp_path / "run").of(Cutoff)] == [LINE]


def test_a_run_goes_on_when_a_plane_is_allowed_again(tmp_path: Path) -> None:
    with SimulatedCluster(TINY) as cluster:
        cluster.deny("p0")
        cluster.deny("p1")
        run, shown = one_run(cluster, scenario(tmp_path, timeout="60s", steps=3), tmp_path / "run")
        cluster.network.at(cluster.clock.now() + 100 * US, lambda *_: cluster.allow("p1"))
        assert run.go() == "done", run.reason
    assert shown[-2:] == [LINE, ""] and run.record["wrong"] == {str(rank): 0 for rank in range(4)}


def test_one_host_without_a_path_is_named(tmp_path: Path) -> None:
    with SimulatedCluster(TINY) as cluster:
        for uplink in (0, 1):
            for plane in (0, 1):
                cluster.deny(f"h2>h1@p{plane}/{uplink}")
        run, _ = one_run(cluster, scenario(tmp_path), tmp_path / "run")
        assert run.go() == "timeout"
    assert (
        "every path from h2 to h1 is denied: take entries off the denylist (h2>h1@p0/0, "
        in run.reason
    )


def test_a_denylist_that_leaves_a_path_is_no_trouble(tmp_path: Path) -> None:
    with SimulatedCluster(TINY) as cluster:
        cluster.deny("p0")
        run, shown = one_run(cluster, scenario(tmp_path, timeout="60s", steps=3), tmp_path / "run")
        assert run.go() == "done" and set(shown) == {""}


def test_a_transport_without_a_denylist_is_not_stopped(tmp_path: Path) -> None:
    with SimulatedCluster(TINY) as cluster:
        cluster.deny("p0")
        cluster.deny("p1")
        run, shown = one_run(
            cluster, scenario(tmp_path, timeout="60s", steps=3, kind="roce"), tmp_path / "run"
        )
        assert run.go() == "done" and set(shown) == {""}


def test_the_prompt_says_so_too(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=300)
    words = ["steps=2", "bytes=65536", "placement=interleaved"]
    with SimulatedCluster(TINY) as cluster:
        cluster.start_agents("mrc", {}, tmp_path, 1)
        cluster.deny("p0")
        cluster.deny("p1")
        with pytest.raises(UserError) as error:
            run_at_prompt(cluster, console, "allreduce", kind_of("ring-allreduce"), words)  # type: ignore[arg-type]
        assert str(error.value) == f"rank 0 (h0) lost rank 1: retries exhausted: {LINE}"
        cluster.network.at(cluster.clock.now() + 100 * US, lambda *_: cluster.allow("p0"))
        run_at_prompt(cluster, console, "allreduce", kind_of("ring-allreduce"), words)  # type: ignore[arg-type]
    first, second, third, figures = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert (first, second, third) == (
        LINE,
        LINE,
        "there is a path for every pair again",
    ) and figures.endswith("every sum right")


def test_the_line_names_some_entries_only() -> None:
    cut_off = CutOff([3, 5])
    assert cut_off.line == ""
    cut_off.hear({"rank": 1, "peers": [3], "entries": [f"p{n}" for n in range(9)]})
    assert cut_off.line == (
        "every path from h5 to h3 is denied: take entries off the denylist (p0, p1, p2, p3, "
        "p4, p5, p6, p7, ...)"
    )
    cut_off.hear({"rank": 1, "peers": [], "entries": []})
    assert cut_off.line == ""
