"""What the guest's steps report: a step that failed, was ended or tested nothing is never `passed`.
Without a guest, on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.vm import guest
from tests.vm.__main__ import summary
from tests.vm.guest import Step, carry_out


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(guest, "RESULTS", tmp_path)
    return tmp_path


def shell(script: str, **more: object) -> Step:
    return Step("part", "a step", ("sh", "-c", script), 5, **more)  # type: ignore[arg-type]


def test_exit_status_and_output_decide(results: Path) -> None:
    assert carry_out(shell("echo fine"), 5).status == "passed"
    assert (results / "a-step.log").read_text() == "fine\n"
    assert carry_out(shell("exit 3", accepted=(0, 3)), 5).detail == "not trustworthy"
    failed = carry_out(shell("echo first; echo the reason; exit 2"), 5)
    assert (failed.status, failed.detail) == ("FAILED", "exit status 2: the reason")
    assert carry_out(shell("echo netdev@", expects="system@"), 5).status == "FAILED"


def test_a_step_is_ended_at_its_limit_with_its_children() -> None:
    outcome = carry_out(shell("sleep 60 & sleep 60"), 0.3)
    assert (outcome.status, outcome.detail) == ("FAILED", "ended after its limit of 0 s")
    assert outcome.seconds < 30


@pytest.mark.parametrize(
    ("body", "status", "tests", "failed"),
    [
        ("def test_a(): pass", "passed", 1, 0),
        ("def test_a(): assert 0\ndef test_b(): pass", "FAILED", 2, 1),
        ("import pytest\n@pytest.mark.skip\ndef test_a(): pass", "FAILED", 1, 1),  # nothing ran
        ("def test_a(:", "FAILED", 1, 1),
    ],
)
def test_pytests_report_decides(
    body: str, status: str, tests: int, failed: int, tmp_path: Path
) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(body + "\n")
    step = Step(
        "part",
        "tests",
        (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(file)),
        60,
        tests=True,
    )
    outcome = carry_out(step, 60)
    assert (outcome.status, outcome.tests, len(outcome.failed)) == (status, tests, failed)


def test_the_table_needs_every_step_to_have_passed(results: Path) -> None:
    step = {
        "name": "x",
        "by": "root",
        "seconds": 1.0,
        "tests": 3,
        "skipped": 1,
        "failed": [],
        "detail": "",
    }
    for statuses, last, trouble, well in (
        (["passed", "passed"], "kernel", "", True),
        (["not run", "passed"], "kernel", "", False),
        (["passed", "passed"], "kernel", "qemu: 1", False),
        (["passed", "passed"], "demo", "", False),
        ([], "", "", False),
    ):
        steps = [{**step, "status": status, "part": "smoke"} for status in statuses]
        if steps:
            steps[-1]["part"] = last
        (results / "summary.json").write_text(
            json.dumps({"kernel": "6.1", "python": "3.11", "steps": steps})
        )
        table, passed = summary("bookworm", results, trouble)
        assert passed is well
        assert table.startswith("=== bookworm: Linux 6.1, Python 3.11")


def test_a_kernel_that_panicked_is_named(results: Path) -> None:
    (results / "console.log").write_text(
        "vm: begin 1/2 x\n[  718.12] Kernel panic - not syncing: Fatal exception in interrupt\n"
    )
    (results / "summary.json").write_text(
        json.dumps({"kernel": "6.12", "python": "3.13", "steps": []})
    )
    table, passed = summary("trixie", results, "")
    assert (
        not passed
        and (
            "the guest ended before its checks did: Kernel panic - not syncing: Fatal exception "
            "in interrupt"
        )
        in table
    )
