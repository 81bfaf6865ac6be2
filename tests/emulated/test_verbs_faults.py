"""Faults of verbs as a real program sees them, by Debian's pyverbs over the kernel: injected by
itself, at the prompt, at a time."""

from __future__ import annotations

import errno
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrcbed.cli.launch import run
from mrcbed.prompt.fault_commands import FaultCommands
from testbed import terminal
from testbed.emulated.cluster import Cluster
from testbed.emulated.verbs_words import PYTHON
from testbed.errors import UserError
from testbed.verbs.build import BUILT
from testbed.world import Program
from tests.emulated.command import mrcbed
from tests.emulated.remains import CLOSED
from tests.emulated.ring import wait_until
from topologies import load_fabric
from topologies.fabrics import DILATION
from topologies.units import US

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(not BUILT.exists(), reason="the library is not built: make verbs"),
    pytest.mark.skipif(
        subprocess.run(
            [PYTHON, "-c", "import pyverbs"], capture_output=True, check=False
        ).returncode
        != 0,
        reason="no pyverbs here: apt-get install python3-pyverbs",
    ),
]
PROGRAM = str(Path(__file__).with_name("verbs_faults_program.py"))
CALLER = None if CLOSED else 54321
SEES = [
    (
        "wrong: error fabric 'tiny' has no host 'h9'.* \\| error status = 'nothing': there are "
        "loc_len_err.*"
    ),
    *(
        f"refused: {call} made {errno.ENOSPC} made ok"
        for call in ("reg_mr", "create_cq", "create_qp")
    ),
    r"lost: \[\(1, 0\), \(3, 0\)\] ok",
    "not lost: 16",
    r"late: 0 ok \[\(1, 0\), \(2, 0\)\]",
    r"error: \[\(1, 0\), \(2, 10\), \(3, 5\), \(4, 5\), \(9, 5\)\] 6 ok",
    r"well again: \[\(5, 0\)\]",
    r"dead: 1 \[\(9, 5\)\] 6 ok",
    "port: 10 1 ok 9 4",
    "cable: ok",
    f"left: {errno.ENOMEM}",
]
"""Statuses, states and events by the numbers of verbs.h."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def cluster(logs: Path) -> Iterator[Cluster]:
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        cluster.start_agents("mrc", {}, logs, 1)
        yield cluster


def test_a_program_breaks_its_own_nic(
    cluster: Cluster, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.fault_events()
    assert run(cluster, Program((PROGRAM, "{server}"), CALLER, verbs=True), [0, 1], "mrc") == 0, (
        capsys.readouterr()
    )
    said = [line[3:] for line in capsys.readouterr().out.splitlines() if line.startswith("1: ")]
    assert len(said) == len(SEES)
    for line, expected in zip(said, SEES, strict=True):
        assert re.fullmatch(expected, line), line
    assert wait_until(lambda: not cluster.faults()) and all(cluster.link_states().values()), (
        "a connection's end takes its faults back"
    )
    phases = Counter(event.phase for event in cluster.fault_events())
    assert phases == {"begin": 10, "heal": 10}
    path = logs / "h1.jsonl"
    assert wait_until(
        lambda: sum('"verbs-fault"' in line for line in path.read_text().splitlines()) == 18
    )
    rows = [json.loads(line) for line in path.read_text().splitlines() if '"verbs-fault"' in line]
    hits = [row["hits"] for row in rows if row["phase"] == "heal"]
    assert hits == [1, 1, 1, 1, 1, 1, 1, 0, 1] and rows[0]["what"] == "refused"


def test_the_prompts_words(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    commands = FaultCommands.alone(cluster.fabric, terminal.console())
    commands.cluster = cluster
    try:
        commands.carry_out("fault verbs-refused h0 call=reg_mr errno=EIO for=1000s")
        commands.carry_out("faults")
        assert re.search(
            r"verbs-refused +h0 +call=reg_mr errno=EIO after=0", capsys.readouterr().out
        )
        with pytest.raises(UserError, match="status is missing"):
            commands.carry_out("fault verbs-error h0")
        (fault,) = cluster.faults()
        commands.carry_out(f"heal {fault.number}")
    finally:
        cluster.heal()
    assert commands.complete_fault("st", "fault verbs-error h0 st", 0, 23) == ["status="]
    assert commands.complete_fault("f", "fault verbs-error h0 f", 0, 22) == ["for="]


def test_at_a_time_and_for_a_time(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.fault_events()
    waits = ("sh", "-c", "sleep 1.5")
    assert (
        run(
            cluster,
            Program(waits, verbs=True),
            [0, 1],
            "mrc",
            ((0.1, "fault verbs-port h0 for=10us"),),
        )
        == 0
    )
    assert wait_until(lambda: not cluster.faults())
    assert [event.phase for event in cluster.fault_events()] == ["begin", "heal"]
    assert "verbs-port h0" in capsys.readouterr().err


def test_an_agent_that_cannot_is_one_line(tmp_path: Path) -> None:
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        with pytest.raises(UserError, match="there is no agent of h1 running"):
            cluster.inject("verbs-lost", "h1")
        cluster.start_agents("tcp", {}, tmp_path, 1)
        with pytest.raises(UserError, match="this transport has no RDMA verbs: use mrc or roce"):
            cluster.inject("verbs-lost", "h1")
        assert cluster.faults() == []


def test_as_people_call_it() -> None:
    words = [
        "launch",
        "--fabric",
        "tiny",
        "--verbs",
        "-n",
        "2",
        "--fault",
        "verbs-refused h1 call=reg_mr errno=EPERM program=python3",
        "--",
    ]
    done = mrcbed(*words, PYTHON, "-c", TRIES)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (
        0,
        ["0: made", f"1: {errno.EPERM}"],
    ), done.stderr


TRIES = """
from pyverbs.device import Context; from pyverbs.pd import PD; from pyverbs.mr import MR
try:
    MR(PD(Context(name="mrcbed0")), 4096, 1); print("made")
except Exception as error:
    print(error.error_code)
"""
SCENARIO = f"""
format = 3
fabric = "tiny"
dilation = {DILATION}
[workload]
kind = "ring-allreduce"
message_bytes = "64KiB"
steps = 1
[[transport]]
kind = "mrc"
options = {{ active_evs = 4 }}
[[fault]]
name = "no memory"
kind = "verbs-refused"
on = "h1"
before = true
for = "60us"
call = "reg_mr"
errno = "EPERM"
[[fault]]
kind = "plane"
on = "p1"
at = "10us"
"""
WAITS = """
import time
from pyverbs.device import Context; from pyverbs.pd import PD; from pyverbs.mr import MR
pd, errors = PD(Context(name="mrcbed0")), set()
while True:
    try:
        MR(pd, 4096, 1)
        break
    except Exception as error:
        errors.add(error.error_code)
        time.sleep(0.01)
print("made", *errors)
"""


def test_a_scenarios_faults_under_a_program(tmp_path: Path) -> None:
    file, log = tmp_path / "own.toml", tmp_path / "log"
    file.write_text(SCENARIO)
    done = mrcbed(
        "launch",
        "--scenario",
        str(file),
        "--verbs",
        "-n",
        "2",
        "--log",
        str(log),
        "--",
        PYTHON,
        "-c",
        WAITS,
    )
    assert (done.returncode, sorted(done.stdout.splitlines())) == (
        0,
        ["0: made", f"1: made {errno.EPERM}"],
    ), done.stderr
    assert "fabric tiny, transport mrc, seed 1, 2 faults" in done.stderr
    rows = [json.loads(line) for line in (log / "runner.jsonl").read_text().splitlines()]
    assert [(row["kind"], row.get("name"), row.get("phase")) for row in rows] == [
        ("fault", "no memory", "begin"),
        ("start", None, None),
        ("fault", "plane p1", "begin"),
        ("fault", "no memory", "heal"),
        ("fault", "plane p1", "end"),
    ]
    begun = rows[1]["t"]
    assert (
        rows[2]["t"] - begun >= 10 * US
        and rows[3]["t"] - begun >= 60 * US
        and len(rows[2]["links"]) == 8
    )
    hits = [
        json.loads(line)
        for line in (log / "h1.jsonl").read_text().splitlines()
        if '"verbs-fault"' in line
    ]
    assert [row["phase"] for row in hits] == ["begin", "heal"] and hits[-1]["hits"] >= 1
