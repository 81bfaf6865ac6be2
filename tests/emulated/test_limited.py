"""A machine that stops the agents now and then, in ways that no scheduler counts as waiting: the run is not called trustworthy."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scenarios.figures.fidelity import Evidence, Judgement, judge
from scenarios.run.watch import Watch
from testbed.emulated.cluster import Cluster
from testbed.machine import quota
from tests.emulated.ring import Ring, logged
from topologies import load_fabric

pytestmark = pytest.mark.sandbox
FABRIC = load_fabric("tiny")


def judged(cluster: Cluster, logs: Path, transport: str, acts: list[tuple[float, Callable[[], object]]]) -> Judgement:
    """The verdict on a ring of some two seconds, during which this is done to it."""
    cluster.start_agents(transport, {}, logs, seed=2, alone=False)
    watch = Watch(cluster.processes)
    watch.start()
    ring = Ring(cluster)
    watch.mark()
    assert ring.run(12, acts) and ring.all_right()
    watch.mark()
    watch.stop()
    cluster.stop_agents()
    evidence = Evidence((0, 1), logged(logs, "loop"), {}, 0, FABRIC.base_rtt_ns, {}, [], watch=watch.result())
    return judge(evidence)


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group that gets 4 ms of every 100; empty at first, and in the end again."""
    home = next(iter(quota.groups()), None)
    if home is None or not os.access(home / "cgroup.procs", os.W_OK):
        pytest.skip("may not make control groups here")
    made = home / f"mrcbed-test-{os.getpid()}"
    try:
        made.mkdir()
        file, text = ("cpu.max", "4000 100000") if (made / "cpu.max").exists() else ("cpu.cfs_quota_us", "4000")
        (made / file).write_text(text)
        (made / "cgroup.procs").write_text(str(os.getpid()))  # version 2 refuses it where the controller is not on
        (home / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        pytest.skip(f"may not limit control groups here: {error}")
    else:
        yield made
        for pid in (made / "cgroup.procs").read_text().split():
            (home / "cgroup.procs").write_text(pid)
    finally:
        made.rmdir()


@pytest.mark.parametrize("transport", ["mrc", "tcp"])
def test_a_cpu_quota_that_is_set_while_it_runs_is_a_doubt_and_is_named(transport: str, group: Path, tmp_path: Path) -> None:
    with Cluster(FABRIC, controller=False) as cluster:

        def limit() -> None:
            for name, pid in cluster.processes().items():
                if name.startswith("h"):
                    (group / "cgroup.procs").write_text(str(pid))

        said = judged(cluster, tmp_path / "logs", transport, [(0.4, limit)])
    (reason,) = [reason for reason in said.doubtful if "acted late" in reason]
    assert "a CPU quota of 0.04 cores stopped the run" in reason and said.too_slow


@pytest.mark.parametrize("transport", ["mrc", "tcp"])
def test_an_agent_that_stood_still_for_a_moment_is_a_doubt(transport: str, tmp_path: Path) -> None:
    with Cluster(FABRIC, controller=False) as cluster:

        def send(what: signal.Signals) -> Callable[[], object]:
            return lambda: os.kill(cluster.processes()["h0"], what)

        said = judged(cluster, tmp_path / "logs", transport, [(0.5, send(signal.SIGSTOP)), (0.8, send(signal.SIGCONT))])
    (reason,) = [reason for reason in said.doubtful if "acted late" in reason]
    assert "of h0" in reason or "worst: h0" in reason or "worst: h1" in reason, reason
