"""A block in the emulated world: root reads a scenario from standard input, its caller gets the
results, and root ends with its caller."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed")

from scenarios.run import workers
from scenarios.run.fitting import COMMAND
from scenarios.run.landing import land
from scenarios.run.one_run import Spec
from scenarios.run.planning import blocks_of, plan
from scenarios.run.workers import carry_out, text_of_block
from scenarios.schema.dilation import at_dilation
from scenarios.schema.scenario import load_scenario
from testbed.machine.sandbox import NOBODY
from testbed.machine.slowness import patient
from testbed.world import EMULATED

RUN = "mrc-tiny-interleaved-s1"
RUN_AS_ROOT = COMMAND[2:]
SUDO = """#!/bin/sh
[ "$*" = "-n {command}" ] || exit 9
shift
export SUDO_UID={user}
exec "$@"
"""


@pytest.fixture
def specs() -> list[Spec]:
    scenario = load_scenario("smoke", overrides=["workload.steps=3", "fault=[]"])
    return blocks_of(plan(at_dilation(scenario, 15_000.0)), EMULATED)[0]


@pytest.fixture
def sudo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program that stands for sudo, called by nobody in a folder of theirs, which it returns.
    Root's temporary files are in ``temp``."""
    # which nobody may enter
    with tempfile.TemporaryDirectory(prefix="mrcbed-piped-", dir="/tmp") as folder:
        above = Path(folder)
        above.chmod(0o755)
        program, place, temp = above / "sudo", above / "place", above / "temp"
        program.write_text(SUDO.format(command=" ".join(RUN_AS_ROOT), user=NOBODY))
        program.chmod(0o755)
        for made in (place, temp):
            made.mkdir()
        os.chown(place, NOBODY, NOBODY)
        monkeypatch.setenv("PATH", f"{above}:{os.environ['PATH']}")
        tempfile.gettempdir()  # Python keeps what it finds first, for the tests after these, too
        monkeypatch.setenv("TMPDIR", str(temp))
        yield place


def left(sudo: Path) -> list[Path]:
    """What is there of root's temporary files."""
    return list((sudo.parent / "temp").iterdir())


def test_a_block_goes_through_sudo_and_comes_back(
    specs: list[Spec], sudo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    results, _ = workers.through_root(text_of_block(specs), sudo)
    assert results.parent == sudo / "results" and {
        path.stat().st_uid for path in sudo.rglob("*")
    } == {NOBODY}
    assert not left(sudo), "nothing of root's stays"
    manifest = json.loads((results / "manifest.json").read_text())
    assert (
        manifest["dilation"]["value"] == manifest["scenario"]["dilation"] == 15_000
        and manifest["dilation"]["chosen"] == "user"
    )
    assert not (results / "plots").exists() and not (results / "report.html").exists()

    monkeypatch.setattr(workers.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(
        workers, "get_worker", lambda: SimpleNamespace(address="a", local_directory=None)
    )
    monkeypatch.setattr(workers, "through_root", lambda text, place: (results, "it was moved"))
    answer = carry_out(specs, EMULATED)
    assert (answer.problem, [*answer.entries]) == ("", [RUN])
    assert land(answer.archive, tmp_path, [RUN]) == []
    record = json.loads((tmp_path / "raw" / RUN / "run.json").read_text())
    assert (
        record["outcome"] == "done"
        and record["world"] == "emulated"
        and record["machine"]["kernel"] == os.uname().release
    )


def test_a_bring_up_that_fails_is_worth_another_machine(
    specs: list[Spec], sudo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRCBED_CRASH_AT", "hosts")
    results, problem = workers.through_root(text_of_block(specs), sudo)
    assert "MRCBED_CRASH_AT" in problem or "hosts" in problem, problem
    assert "\n" not in problem and not (results / "raw").exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: "rm -rf /", "is not valid TOML"),
        (
            lambda text: text.replace('"congestion"', '"x"').replace(
                "options = {", 'options = {"congestion" = "os:system", '
            ),
            "no module",
        ),
        (lambda text: text.replace("fabric = {", 'fabric = "/etc/shadow" # {'), "names no file"),
    ],
)
def test_root_refuses_what_is_no_scenario_of_its_own(
    change: Callable[[str], str], reason: str, specs: list[Spec], sudo: Path
) -> None:  # fmt: skip
    text = change(text_of_block(specs).replace('"options" = {', "options = {"))
    done = subprocess.run(
        RUN_AS_ROOT, input=text, capture_output=True, text=True, timeout=60, check=False, cwd=sudo
    )
    assert (
        done.returncode == 2
        and done.stdout == ""
        and reason in done.stderr
        and done.stderr.count("\n") == 1
    ), done.stderr
    assert not list(sudo.iterdir())


def test_root_ends_with_its_caller(specs: list[Spec], sudo: Path) -> None:
    text = text_of_block(specs).replace('"steps" = 3', '"steps" = 1000000')
    pipe = subprocess.PIPE
    with subprocess.Popen(
        COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, cwd=sudo, text=True
    ) as process:
        assert (
            process.stdin is not None and process.stdout is not None and process.stderr is not None
        )
        process.stdin.write(text)
        process.stdin.close()
        for line in process.stderr:
            if line.startswith("bringing up tiny: agents started"):  # the run begins
                break
        assert left(sudo)
        process.stdout.close()  # as the kernel does for one that was killed
        shutil.rmtree(sudo)  # as Dask does with the folder of one
        begin = time.monotonic()
        assert process.wait(patient(20)) != 0
        assert time.monotonic() - begin < patient(20)
    assert not left(sudo)
