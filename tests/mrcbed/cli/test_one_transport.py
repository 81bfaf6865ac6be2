"""``--transport`` of perf, launch, replay and run: a kind whose queue pairs have one path runs on
the one-plane twin, and it is said."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mrcbed import cli
from mrcbed.cli.common import session_of
from scenarios.schema.scenario import load_scenario
from tests.mrcbed.cli.test_command_line import ENVIRONMENT
from tests.scenarios.jobs import traces
from topologies import load_fabric

PROGRAM = """
import sys
import numpy as np
from agents.communicator import Communicator

comm = Communicator.open()
begun = comm.now()
for _ in range(int(sys.argv[1])):
    comm.all_reduce(np.ones(50_000, np.float32))
    if comm.rank == 0:
        print("took", comm.now() - begun, flush=True)
"""
TRACE = ("replay", "small.txt", "demo", "--world", "simulated")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.txt").write_text(traces.AICB)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def ran(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Output and complaints of a command line that ends well."""
    try:
        status = cli.execute([*words])
    except SystemExit as left:
        status = int(left.code or 0)
    said = capsys.readouterr()
    assert status == 0, said.err
    return said.out, said.err


@pytest.mark.parametrize(
    "words",
    [
        ("perf", "write_bw", "FABRIC", "--world", "simulated", "-s", "64K", "-n", "40", "--json"),
        ("replay", "small.txt", "FABRIC", "--world", "simulated", "--passes", "1", "--json"),
        ("launch", "--fabric", "FABRIC", "--world", "simulated", "program.py", "1"),
    ],
)
def test_roce_on_a_fabric_is_roce_on_its_twin(
    words: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``demo-1p`` is a file of its own with the same rates; before, RoCE had one of a host's four
    ports on ``demo``."""
    option = (*words[:1], "--transport", "roce", *words[1:])
    on_demo, told = ran(tuple("demo" if word == "FABRIC" else word for word in option), capsys)
    on_twin, silent = ran(tuple("demo-1p" if word == "FABRIC" else word for word in option), capsys)
    line = (
        "mrcbed: a queue pair of roce has one path: it runs on demo-1p, where the 4 ports of a "
        "host are one"
    )
    assert line in told.splitlines() and line not in silent
    if words[-1] == "--json":
        first, second = json.loads(on_demo), json.loads(on_twin)
        assert first["fabric"] == "demo-1p"
        assert first == second
    else:
        assert on_demo == on_twin


def test_the_twin_has_the_rate_of_all_ports() -> None:
    for kind in ("roce", "tcp"):
        session, line = session_of("demo", "auto", kind)
        fabric = session.fabric
        assert (fabric.planes, fabric.host_rate, session.dilation, line != "") == (
            1,
            load_fabric("demo").host_rate,
            12_500,
            True,
        )
    for kind in ("mrc", "mptcp"):
        session, line = session_of("demo", "auto", kind)
        assert (session.fabric, session.dilation, line) == (load_fabric("demo"), 12_500, "")
    session, line = session_of("demo-1p", "50000", "roce")
    assert (session.fabric, session.dilation, line) == (load_fabric("demo-1p"), 50_000, "")


def test_a_kind_that_is_added_to_a_scenario_runs_there_too() -> None:
    """As ``kind = "roce", fabric = "twin"`` in a file. What a file says of its own transports
    stays."""
    [mrc] = load_scenario("smoke", transports=("mrc",)).transports
    [added] = load_scenario("smoke", transports=("roce",)).transports
    assert (mrc.fabric.name, added.fabric.name) == ("tiny", "tiny-1p")
    [own] = load_scenario("incast-victim", transports=("roce-8",)).transports
    assert own.fabric.planes > 1


@pytest.mark.dear("a command as a process, which measures until it is stopped")
@pytest.mark.parametrize(
    ("words", "begun", "last", "shown"),
    [
        (
            "perf all_reduce tiny -b 4K -e 8M -n 100 --world simulated",
            "  4096 ",
            "mrcbed: all_reduce: stopped",
            "# Avg bus bandwidth",
        ),
        (
            "perf write_bw tiny -a -n 10000 --world simulated",
            " 2  ",
            "mrcbed: write_bw: stopped",
            "-----",
        ),
        (
            "launch --fabric tiny --world simulated program.py 100000",
            "0: took",
            "mrcbed: interrupted",
            "0: took",
        ),
        ("replay small.txt --world simulated --passes 10000", "", "passes", "median pass"),
    ],
)
def test_ctrl_c_ends_with_130_and_shows_what_was_measured(
    words: str, begun: str, last: str, shown: str, here: Path
) -> None:
    command = [sys.executable, "-m", "mrcbed", *words.split()]
    with subprocess.Popen(
        command,
        cwd=here,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            early = ""
            for line in process.stdout if begun else process.stderr:
                early += line if begun else ""
                if (begun in line) if begun else line.startswith("pass 4 "):
                    process.send_signal(signal.SIGINT)
                    break
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert last in err.splitlines()[-1] and "Traceback" not in err
    assert shown in early + out
