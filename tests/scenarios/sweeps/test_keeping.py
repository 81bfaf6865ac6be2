"""Processes that never begin are given up. This file imports little: each process for blocks that it starts imports it, too."""

from __future__ import annotations

import os

import pytest

from scenarios.sweeps.keeping import kept
from tests.waiting import wait_until


def never(task: object, ready: object) -> None:
    if task is not None:
        raise ValueError(task)
    os._exit(1)


@pytest.mark.dear("three processes start in each case")
@pytest.mark.parametrize(("task", "why"), [(None, "is there memory for it?"), ("no way", "ValueError: no way")])
def test_workers_that_never_begin_are_one_line(task: str | None, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    with kept(never, task, 1) as why_none:
        wait_until(why_none)
        assert why_none() == f"no process for blocks starts, 3 tries: {why}"
    assert capfd.readouterr().err == ""
