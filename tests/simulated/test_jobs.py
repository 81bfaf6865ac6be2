"""Simulated runs over several processes: the same bytes, those that follow each other together, and
an end whatever ends it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrcbed import cli
from scenarios.run.planning import blocks_of, plan
from scenarios.run.processes import at_once
from scenarios.run.runner import results_directory
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from testbed.errors import ClusterDied, UserError
from testbed.world import EMULATED, SIMULATED
from tests.scenarios.small import TEXT, small, undrawn
from tests.simulated.dying import die

COMMAND = """
import sys, threading
from scenarios.run import runner
from mrcbed import cli
from tests.scenarios.small import undrawn
rows = runner.write_rows
def wait(*given):  # after the first result it takes no more: it is stopped before its end
    runner.write_rows = rows
    print("it waits", file=sys.stderr, flush=True)
    threading.Event().wait()
runner.write_rows = wait
with undrawn():
    sys.exit(cli.execute())
"""
DATED = ("manifest.json", "report.html")


def measured(directory: Path) -> dict[str, bytes]:
    """Every file's bytes but those with dates."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name not in DATED)
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six runs, one after the other; several processes take them in four parts."""
    directory = tmp_path_factory.mktemp("serial")
    with undrawn():
        simulate(small(directory, seeds=[1, 2]), results_directory("small", str(directory / "out")))
    return directory / "out"


@pytest.mark.dear("six runs, once in one process and once in several")
def test_several_processes_leave_the_same_bytes(serial: Path, tmp_path: Path) -> None:
    with undrawn():
        simulate(
            small(tmp_path, seeds=[1, 2]), results_directory("small", str(tmp_path / "out")), jobs=2
        )
    here = measured(tmp_path / "out")
    assert here == measured(serial) and len(here) > 30
    ours, theirs = (
        json.loads((path / "manifest.json").read_text()) for path in (tmp_path / "out", serial)
    )
    assert ours["fidelity"] == theirs["fidelity"] and list(ours["fidelity"]) == list(
        theirs["fidelity"]
    )


def test_runs_of_which_one_says_what_the_others_lose_stay_together(tmp_path: Path) -> None:
    groups = [
        [spec.key for spec in specs]
        for specs in blocks_of(plan(small(tmp_path, seeds=[1, 2])), SIMULATED)
    ]
    assert groups == [
        ["roce-tiny-interleaved-s1", "mrc-tiny-interleaved-s1"], ["roce-1p-tiny-1p-interleaved-s1"],
        ["roce-1p-tiny-1p-interleaved-s2"], ["roce-tiny-interleaved-s2", "mrc-tiny-interleaved-s2"],
    ]  # fmt: skip
    apart = small(
        tmp_path,
        seeds=[1, 2],
        overrides=['fault.0.on="p0-t0-0:p0-t1-0"', 'transport.roce-1p.fabric="tiny"'],
    )
    assert [len(specs) for specs in blocks_of(plan(apart), SIMULATED)] == [1] * 6
    assert [len(specs) for specs in blocks_of(plan(apart), EMULATED)] == [3, 3]


@pytest.fixture
def no_process_left() -> Iterator[None]:
    before = set(multiprocessing.active_children())
    yield
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.usefixtures("no_process_left")
def test_a_process_that_is_killed_is_named_and_ends_the_others() -> None:
    with pytest.raises(
        ClusterDied, match=r"^task dies: its process was killed .*--resume"
    ) as raised:
        list(at_once(die, ["lasts", "dies"], 2, "task {}".format))
    assert "\n" not in str(raised.value)


@pytest.mark.usefixtures("no_process_left")
def test_what_a_task_raises_is_raised() -> None:
    with pytest.raises(UserError, match="^one line$"):
        list(at_once(die, ["lasts", "fails"], 2))


@pytest.mark.usefixtures("no_process_left")
def test_results_come_with_the_number_of_their_task() -> None:
    assert sorted(at_once(die, ["a", "b", "c", "d", "e"], 2)) == list(enumerate("abcde"))


def stop(run: subprocess.Popen[str], number: int) -> None:
    """Send a signal to a command, and have it end as an interrupted one with all of its
    processes."""
    # a terminal's Ctrl-C is for all of its processes
    (os.killpg if number == signal.SIGINT else os.kill)(run.pid, number)
    assert run.stderr is not None
    said = run.stderr.read()  # to its end: no process has it open any more
    assert run.wait(60) == 130 and "Traceback" not in said


@pytest.mark.dear("a command with two processes of its own, and the rest of its runs")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_set_keeps_what_is_finished_and_goes_on(
    number: int, serial: Path, tmp_path: Path
) -> None:
    file, out = tmp_path / "small.toml", tmp_path / "out"
    file.write_text(TEXT)
    words = [
        sys.executable,
        "-c",
        COMMAND,
        "run",
        str(file),
        "--world",
        "simulated",
        "--jobs",
        "2",
        "--seeds",
        "1-2",
    ]
    words += ["--out", str(out), "--resume"]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    ) as run:
        try:
            assert run.stderr is not None
            # not before: its own end would wait, too
            while "it waits" not in (line := run.stderr.readline()):
                assert line, "it ended before its first run did"
            stop(run, number)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    assert json.loads((out / "summary.json").read_text())["verdict"] == "interrupted"
    kept = list((out / "raw").glob("*/run.json"))
    assert kept
    dates = {path: path.stat().st_mtime_ns for path in kept}
    with undrawn():
        simulate(load_scenario(str(file), seeds=[1, 2]), out, resume=True)
    assert {path: path.stat().st_mtime_ns for path in kept} == dates
    assert {k: v for k, v in measured(out).items() if not k.startswith("plots")} == measured(serial)


def test_emulated_runs_go_one_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["run", "smoke", "--jobs", "2", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("mrcbed: --jobs 2: emulated runs") and said.count("\n") == 1
    assert not (tmp_path / "out").exists()
