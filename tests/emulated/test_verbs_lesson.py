"""Lesson 6 as a student does it, in less time: its commands, its Python, its answers."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
from pathlib import Path

import pytest

from mrcbed import cli
from tests.emulated.command import mrcbed
from tests.scenarios.lessons.pages import PAGES, typed

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        shutil.which("ib_write_bw") is None, reason="no perftest here: make rdma-tools"
    ),
]
SOONER = (("4s", "3s"), ("8s", "6s"), ("timeout 14", "timeout 9"), ("-D 2", "-D 1"))


@pytest.mark.dear("two launches of ib_write_bw")
def test_lesson_6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = {}
    for item in typed(next(page for page in PAGES if page.name.startswith("6"))):
        if item.python:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(item.text, "page", "exec"), {})
            failed = re.findall(
                r"(\w+): \d+ packets lost, queue pairs that failed: (.*)", printed.getvalue()
            )
            assert [(name, "retries exhausted" in causes) for name, causes in failed] == [
                ("mrc", False),
                ("roce", True),
            ]
        elif item.text.startswith("sudo mrcbed launch"):
            command = item.text.replace("results/", f"{tmp_path}/results/")
            for slow, quick in SOONER:
                command = command.replace(slow, quick)
            done = mrcbed(*shlex.split(command)[2:])
            said["roce" if "roce" in command else "mrc"] = done.stdout
    # IBV_WC_RETRY_EXC_ERR
    assert "Failed status 12" in said["roce"] and "Failed" not in said["mrc"]
    # What perftest says, times the dilation.
    rates = [
        float(rate) * 10_000
        for rate in re.findall(r"^1:  65536 +\d+ +\S+ +(\S+)", said["mrc"], re.MULTILINE)
    ]
    answers = {"a": max(rates), "b": min(rates), "c": 0, "d": 1}
    assert (
        cli.execute(["lesson", "6", *(f"{key}={value:g}" for key, value in answers.items())]) == 0
    ), rates
    assert cli.execute(["lesson", "6", "a=100", "b=190", "c=1", "d=0"]) == 1
