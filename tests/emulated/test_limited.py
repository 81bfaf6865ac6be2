"""A machine that stops the agents now and then, in ways that no scheduler counts as waiting: the
run is not called trustworthy."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scenarios.run.watch import Doubts
from testbed.emulated.cluster import Cluster
from tests.cgroups import limited_group
from tests.emulated.ring import Ring

pytestmark = pytest.mark.sandbox


def reason(
    cluster: Cluster, logs: Path, transport: str, acts: list[tuple[float, Callable[[], object]]]
) -> str:
    """Why the figures of a ring of some two seconds, during which this is done to it, are
    doubtful."""
    cluster.start_agents(transport, {}, logs, seed=2, alone=False)
    try:
        ring = Ring(cluster)
        with Doubts(cluster) as doubts:
            assert ring.run(12, acts) and ring.all_right()
            doubts.look()
            (only,) = doubts.reasons()
    finally:
        cluster.stop_agents()
    return only


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group that gets 4 ms of every 100."""
    with limited_group(4000) as made:
        yield made


@pytest.mark.parametrize("transport", ["mrc", "tcp"])
def test_a_cpu_quota_that_is_set_while_it_runs_is_a_doubt_and_is_named(
    tiny: Cluster, transport: str, group: Path, tmp_path: Path
) -> None:
    def limit() -> None:
        for name, pid in tiny.processes().items():
            if name.startswith("h"):
                (group / "cgroup.procs").write_text(str(pid))

    said = reason(tiny, tmp_path / "logs", transport, [(0.4, limit)])
    assert "acted late" in said and "a CPU quota of 0.04 cores stopped the run" in said


@pytest.mark.parametrize("transport", ["mrc", "tcp"])
def test_an_agent_that_stood_still_for_a_moment_is_a_doubt(
    tiny: Cluster, transport: str, tmp_path: Path
) -> None:
    def pause() -> None:
        os.kill(tiny.processes()["h0"], signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(tiny.processes()["h0"], signal.SIGCONT)

    said = reason(tiny, tmp_path / "logs", transport, [(0.5, pause)])
    assert "acted late" in said and (
        "of h0 " in said or "worst: h0" in said or "worst: h1" in said
    ), said
