"""One simulated run in several processes: the same bytes whatever their number, and an end whatever
ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.process.control import AgentError
from mrcbed import cli
from scenarios.run.simulate import Worlds, check_split, simulate
from scenarios.schema.scenario import ScenarioError, load_scenario
from testbed.errors import ClusterDied, UserError
from testbed.simulated.cluster import SimulatedCluster
from testbed.world import Program
from tests.simulated.test_jobs import measured, no_process_left, stop  # noqa: F401  (a fixture)
from tests.waiting import wait_until
from topologies import load_fabric
from topologies.units import US

UNDRAWN = (
    "import sys; from mrcbed import cli; from tests.scenarios.small import undrawn\n"
    "with undrawn(): sys.exit(cli.execute())"
)
HEAD = """
format = 3
fabric = "demo"
timeout = "30s"
"""
RING = """
[workload]
kind = "ring-allreduce"
placement = "interleaved"
message_bytes = "128KiB"
steps = 4
warmup_steps = 1
"""
BOTH = """
[[transport]]
kind = "mrc"
controller = "hint"
[[transport]]
kind = "roce"
options = { reconvergence = "20us" }
"""


def fault(kind: str, on: str, rest: str) -> str:
    return f'\n[[fault]]\nname = "{kind} {on}"\nkind = "{kind}"\non = "{on}"\n{rest}\n'


STORIES = {
    "cables and switches": HEAD + RING + BOTH
    + fault("link", "h5:p2-t0-1", 'at = "10us"\nfor = "30us"')
    + fault("link", "used-by-qp", 'step = 1\nfor = "40us"')
    + fault("silent", "p0-t1-1", 'step = 2\nfor = "30us"\nreboot = "5us"')
    + fault("switch", "p1-t0-1", 'at = "60us"\nfor = "20us"'),
    "packets": HEAD + RING + BOTH
    + fault("loss", "h6:p1-t0-1", 'at = "1us"\nfor = "80us"\nprobability = 0.02')
    + fault("loss", "p1-t0-0:p1-t1-2", 'at = "2us"\nfor = "80us"\nprobability = 0.05')
    + fault("corrupt", "p3-t0-0:p3-t1-0", 'at = "3us"\nfor = "80us"\nprobability = 0.05')
    + fault("slow", "p1-t0-1:p1-t1-3", 'at = "5us"\nfor = "60us"\nrate = 0.25'),
    "hosts": HEAD + RING + BOTH
    + fault("straggler", "h7", 'step = 1\nshare = 0.5\nperiod = "20us"\nfor = "50us"')
    + fault("kill", "h6", "step = 3"),
    "tree": HEAD + RING.replace("ring", "tree") + BOTH
    + fault("flap", "p2-t0-0:p2-t1-1", 'at = "5us"\nfor = "60us"\nperiod = "6us"\nduty = 0.5'),
    "probes, denied": HEAD + RING + """
[[transport]]
kind = "mrc"
controller = "denylist"
clustermapper = true
""" + fault("loss", "h6:p1-t0-1", 'at = "1us"\nfor = "80us"\nprobability = 0.3'),
    "flows, sampled": HEAD + """
[workload]
kind = "incast"
senders = 3
duration = "100us"
message_bytes = "64KiB"
outstanding = 2
[[transport]]
kind = "mrc"
fabric_options = { pool_mb_per_tbps = 0.3, pool_alpha = 1.0 }
[[transport]]
kind = "roce"
name = "adaptive"
fabric_options = { routing = "adaptive" }
""" + fault("link", "p0-t0-1:p0-t1-1", 'at = "20us"\nfor = "30us"'),
}  # fmt: skip
"""Faults of the network and of hosts in either process, by time and by step, on what either process
computes."""


def raw(directory: Path, split: int) -> dict[str, bytes]:
    out = directory / f"out-{split}"
    out.mkdir()
    simulate(
        load_scenario(str(directory / "story.toml")), out, figures=False, worlds=Worlds(split=split)
    )
    return measured(out)


@pytest.mark.dear("the same run in one process and in several")
@pytest.mark.parametrize(("name", "split"), list(zip(STORIES, (2, 3, 2, 3, 2, 3), strict=True)))
@pytest.mark.usefixtures("no_process_left")
def test_any_number_of_processes_leaves_the_same_bytes(
    name: str, split: int, tmp_path: Path
) -> None:
    (tmp_path / "story.toml").write_text(STORIES[name])
    alone, shared = raw(tmp_path, 1), raw(tmp_path, split)
    assert len(alone) > 10
    assert [
        file for file in alone if shared.get(file) != alone[file]
    ] == [] and shared.keys() == alone.keys()


def refused(words: str) -> Any:
    return pytest.raises(ScenarioError, match=words)


def test_what_one_process_has_to_simulate_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with refused("has PFC"):
        check_split(load_scenario("incast-pfc"), 2)
    with refused("jobs are threads of one process"):
        check_split(load_scenario("job-dp"), 2)
    with refused("one process captures"):
        check_split(load_scenario("smoke"), 2, ["h0:p0-t0-0"])
    file = tmp_path / "at-once.toml"
    file.write_text(
        "format = 3\nplanes = 2\nt0_per_plane = 2\nt1_per_plane = 2\nhosts_per_t0 = 2\ndelay = 0\n"
    )
    with refused("has no delay, so hosts act on each other at once"):
        check_split(load_scenario("smoke", fabric=str(file)), 2)
    check_split(load_scenario("incast-pfc"), 1)
    assert cli.execute(["run", "smoke", "--split", "2", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert (
        said.startswith("mrcbed: --split works in the simulated world only")
        and said.count("\n") == 1
    )


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SimulatedCluster]:
    """Two processes with MRC on `demo`."""
    with SimulatedCluster(load_fabric("demo"), split=2) as cluster:
        cluster.start_agents("mrc", {}, tmp_path / "logs", 1)
        yield cluster


@pytest.mark.usefixtures("no_process_left")
def test_agents_of_both_processes_answer_and_refuse_alike(shared: SimulatedCluster) -> None:
    for host in (0, 7):
        assert shared.agents[host].call("counters")["tx_packets"] == 0
        with pytest.raises(
            AgentError, match=f"h{host}: start: setup and connect come before start"
        ):
            shared.agents[host].call("start", collective="ring-allreduce", message_bytes=4096)
    with pytest.raises(UserError, match="drop --split"):
        shared.programs(Program(("rank.py",)), [0, 7])
    shared.inject("kill", "h7")
    with pytest.raises(AgentError, match="the agent of h7 is gone"):
        shared.agents[7].call("counters")


@pytest.mark.usefixtures("no_process_left")
def test_bad_options_are_refused_as_in_one_process(tmp_path: Path) -> None:
    said = []
    for split in (1, 2):
        with (
            SimulatedCluster(load_fabric("demo"), split=split) as cluster,
            pytest.raises(UserError) as caught,
        ):
            cluster.start_agents("mrc", {"nonsense": 1}, tmp_path / f"logs-{split}", 1)
        said.append(str(caught.value))
    assert said[0] == said[1]


@pytest.mark.usefixtures("no_process_left")
def test_a_killed_process_ends_the_run_and_is_named(shared: SimulatedCluster) -> None:
    assert shared.crew is not None
    child = shared.crew.children[0]
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    with pytest.raises(
        ClusterDied,
        match=r"process 2 of the 2 of this simulation was killed \(out of memory\?\): use a "
        r"smaller --split",
    ):
        shared.clock.sleep(100 * US)


@pytest.mark.usefixtures("no_process_left")
def test_a_bug_in_another_process_comes_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "testbed.simulated.split.Share.advance", lambda share, end: {}["no such host"]
    )
    with SimulatedCluster(load_fabric("demo"), split=3) as cluster:
        cluster.start_agents("mrc", {}, tmp_path / "logs", 1)
        with pytest.raises(
            RuntimeError,
            match="(?s)in a process of a simulation: KeyError: 'no such host'.*Traceback",
        ):
            cluster.clock.sleep(100 * US)


@pytest.mark.dear("a command with two processes of its own")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_keeps_its_logs_and_leaves_no_process(number: int, tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(
        HEAD + RING.replace("steps = 4", "steps = 100000").replace("30s", "3000s") + BOTH
    )
    out = tmp_path / "out"
    words = [
        sys.executable,
        "-c",
        UNDRAWN,
        "run",
        str(tmp_path / "long.toml"),
        "--world",
        "simulated",
        "-t",
        "mrc",
        "--split",
        "2",
    ]
    words += ["--out", str(out)]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    ) as run:
        try:
            wait_until(
                lambda: any(log.stat().st_size > 10_000 for log in out.glob("raw/*/h7.jsonl"))
            )
            stop(run, number)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    assert json.loads((out / "summary.json").read_text())["verdict"] == "interrupted"
    for host in (0, 7):
        assert (
            '"kind":"counters"'
            in next(out.glob(f"raw/*/h{host}.jsonl")).read_text().splitlines()[-2]
        )
