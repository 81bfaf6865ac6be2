"""The kernel's figures on the machine, read on the machine that the tests run on."""

from __future__ import annotations

import os

import pytest

from testbed.machine.load import read_cpu


def test_only_the_cores_that_this_process_may_use_count() -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("one core")
    all_cores = read_cpu()
    os.sched_setaffinity(0, {min(cores)})
    try:
        one_core = read_cpu()
    finally:
        os.sched_setaffinity(0, cores)
    # every core's clock has ticked equally often since boot, give or take those that came up later
    assert one_core.total == pytest.approx(all_cores.total / len(cores), rel=0.1)
    assert 0 <= one_core.steal <= one_core.busy <= one_core.total
