"""``mrcbed run --on``: a scenario on two machines gives what it gives on one, says what their
network lost, and ends as any run ends."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agents.clock import WallClock
from mrcbed.cli.run import command
from scenarios.figures.measure import Run
from testbed.errors import UserError
from testbed.results.log import Step
from tests.emulated.command import DONE, LONG, QUICK, ROOT, UNDRAWN, manifest_of, mrcbed, summary_of
from tests.emulated.machines import EARLIER_S, Machine, machines, on, reach
from tests.emulated.remains import Outside
from tests.emulated.ring import PATIENCE_S, wait_until
from tests.emulated.test_machines_die import Front
from topologies import load_fabric
from topologies.fabrics import DILATION

pytestmark = pytest.mark.sandbox
RING = ROOT / "scenarios" / "sets" / "validation" / "ring.toml"
MEDIAN_BOUND = 0.05
"""That of validation (docs/why/fidelity.md)."""


@pytest.fixture(scope="module")
def two() -> Iterator[list[Machine]]:
    with machines() as both:
        yield both


def over(two: list[Machine]) -> list[str]:
    return ["--on", on(two), "--reach", reach()]


def record_of(directory: Path) -> dict[str, Any]:
    (file,) = directory.glob("raw/*/run.json")
    return dict(json.loads(file.read_text()))


def test_a_run_on_two_machines_is_complete(two: list[Machine], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = mrcbed("run", "smoke", "-t", "mrc", *QUICK, "--out", out, *over(two))
    summary = summary_of(out)
    assert DONE[done.returncode] == summary["verdict"], done.stderr
    (run,) = summary["runs"]
    assert run["packets"]["unexplained"] == 0 and run["wrong"] == 0
    assert not any("time namespace" in reason or "clock" in reason for reason in run["distrust"])
    record = record_of(out)
    assert record["outcome"] == "done"
    clocks, trunk = record["watch"]["clocks"], record["watch"]["trunk"]
    assert 0 < clocks["unsure_ps"] < load_fabric("tiny").base_rtt_ps / 20
    assert [row["name"] for row in record["watch"]["machines"]] == [machine.name for machine in two]
    assert all(
        row["kernel"] == os.uname().release and row["cores"] > 0
        for row in record["watch"]["machines"]
    )
    assert (
        trunk["sent_packets"] == trunk["received_packets"] > 0
        and trunk["merged"] == trunk["strays"] == 0
    )
    assert {row["name"] for row in record["watch"]["processes"] if row["name"][0] == "h"} == {
        "h0",
        "h1",
        "h2",
        "h3",
    }
    assert any("carried by" in note for note in manifest_of(out)["notes"])
    (raw,) = out.glob("raw/*")
    ends = [line.t for host in range(4) for line in Run(raw).of(Step) if line.host == host]
    begin, end = record["window"]
    assert ends and all(
        begin <= t <= end + WallClock(DILATION).patience(EARLIER_S) / 100 for t in ends
    )  # one clock, though theirs are 1,000 s apart
    journal = [json.loads(line) for line in (raw / "runner.jsonl").read_text().splitlines()]
    faults = [line for line in journal if line["kind"] == "fault"]
    assert [line["phase"] for line in faults] == ["begin", "heal"] and all(
        begin <= line["t"] <= end for line in faults
    )


def test_what_the_network_between_loses_makes_a_run_doubtful(
    two: list[Machine], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with two[1].wire("lose_some"):
        done = mrcbed("run", "smoke", "-t", "mrc", *QUICK, "--out", out, *over(two))
    (run,) = summary_of(out)["runs"]
    assert done.returncode == 3 and run["wrong"] == 0
    assert run["packets"]["causes"]["drop_trunk"] > 0 and run["packets"]["unexplained"] == 0
    assert any("packets were lost between the machines" in reason for reason in run["distrust"])


@pytest.mark.quiet
@pytest.mark.dear("the same run twice, slowly enough to be compared")
def test_two_machines_measure_what_one_measures(two: list[Machine], tmp_path: Path) -> None:
    """Within validation's bound for medians, at a dilation that any machine carries."""
    medians = []
    for number, where in enumerate(([], over(two))):
        out = tmp_path / str(number)
        words = (
            "run",
            RING,
            "-t",
            "mrc",
            "--seed",
            "1",
            "--dilation",
            "40000",
            "--out",
            out,
            *where,
        )
        done = mrcbed(
            *words, *("--set", "workload.steps=6", "--set", "workload.message_bytes=327680")
        )
        assert done.returncode in DONE, done.stderr
        (raw,) = out.glob("raw/*")
        medians.append(statistics.median(line.end_ns - line.start_ns for line in Run(raw).of(Step)))
    print([round(ns / 1e3, 2) for ns in medians], "µs on one machine and on two")
    assert abs(medians[1] / medians[0] - 1) < MEDIAN_BOUND, medians


class Begun:
    """A run that goes on until it is ended."""

    def __init__(self, two: list[Machine], out: Path, *words: str) -> None:
        self.out = out
        self.process = subprocess.Popen(
            [
                *UNDRAWN,
                "run",
                "smoke",
                "-t",
                "mrc",
                "--dilation",
                "fabric",
                *LONG,
                *words,
                "--out",
                str(out),
                *over(two),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert wait_until(lambda: any(out.glob("raw/*/begun.json")), 2 * PATIENCE_S)
        self.seen = [Outside(Front(machine)) for machine in two]  # type: ignore[arg-type]
        for seen in self.seen:
            seen.look()
        time.sleep(1.0)  # so that some steps end

    def end(self) -> tuple[int, str]:
        _, complaints = self.process.communicate(timeout=2 * PATIENCE_S)
        for seen in self.seen:
            seen.assert_gone()
        return self.process.returncode, complaints.splitlines()[-1]


def test_ctrl_c_keeps_what_was_measured_on_all_machines(two: list[Machine], tmp_path: Path) -> None:
    run = Begun(two, tmp_path / "out")
    run.process.send_signal(signal.SIGINT)
    status, _ = run.end()
    assert status == 130 and summary_of(run.out)["verdict"] == "interrupted"
    (raw,) = run.out.glob("raw/*")
    assert {line.host for line in Run(raw).of(Step)} == {0, 1, 2, 3}


def test_a_machine_that_dies_is_named_and_the_others_logs_are_kept(
    two: list[Machine], tmp_path: Path
) -> None:
    run = Begun(two, tmp_path / "out")
    os.kill(run.seen[1].worker(), signal.SIGKILL)
    status, line = run.end()
    assert status == 1 and line.startswith(
        f"mrcbed: machine {two[1].name} is gone: its command ended with status 137"
    )
    summary = summary_of(run.out)
    assert (
        summary["verdict"] == "failed" and f"machine {two[1].name} is gone" in summary["stopped_by"]
    )
    (raw,) = run.out.glob("raw/*")
    assert {line.host for line in Run(raw).of(Step)} == {0, 1}


def test_a_fault_may_kill_an_agent_of_another_machine(two: list[Machine], tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--set", "workload.steps=60", "--set", "workload.message_bytes=32768"]
    fault = ["--set", "fault.0.kind=kill", "--set", "fault.0.on=h3", "--set", "fault.0.at=100us"]
    done = mrcbed(
        "run", "agent-killed", "--fabric", "tiny", *words, *fault, "--out", out, *over(two)
    )
    record = record_of(out)
    assert record["outcome"] == "failed" and "(h3) is gone" in record["reason"], (
        record["reason"],
        done.stderr,
    )
    (raw,) = out.glob("raw/*")
    assert {line.host for line in Run(raw).of(Step)} >= {0, 1, 2}


REFUSED = {
    "tcp": (
        ("link-failure", "-t", "tcp"),
        "transport 'tcp' is one kernel's, which several machines do not have",
    ),
    "pcap": (("smoke", "--pcap", "p0-t0-0:p0-t1-0"), "drop --pcap, --view, --switch, --jobs"),
    "simulated": (("smoke", "--world", "simulated"), "drop --pcap, --view, --switch, --jobs"),
    "one machine": (("smoke", "--on", "a"), "name two machines or more"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_several_machines_cannot_is_refused_in_a_line(case: str, tmp_path: Path) -> None:
    words, said = REFUSED[case]
    given = [
        *words,
        *(() if "--on" in words else ("--on", "a=10.9.0.1,b=10.9.0.2")),
        "--out",
        str(tmp_path / "out"),
    ]
    refused = CliRunner().invoke(command, given, standalone_mode=False).exception
    assert isinstance(refused, UserError) and said in str(refused) and "\n" not in str(refused), (
        refused
    )
    assert not (tmp_path / "out").exists()
