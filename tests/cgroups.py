"""A control group of this machine with a CPU quota, for tests that need a real one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.machine import quota
from tests.suite.contained import unique


@contextmanager
def limited_group(quota_us: int) -> Iterator[Path]:
    """A new group beside this process, which gets so much of every 100 ms; empty at first and in
    the end. Skips the test where this user or this kernel makes none."""
    home = next(iter(quota.groups()), None)
    if home is None or not os.access(home / "cgroup.procs", os.W_OK):
        pytest.skip("may not make control groups here")
    made = home / unique("mrcbed-test")
    try:
        made.mkdir()
        file, text = (
            ("cpu.max", f"{quota_us} 100000")
            if (made / "cpu.max").exists()
            else ("cpu.cfs_quota_us", str(quota_us))
        )
        (made / file).write_text(text)
        # version 2 refuses it where the controller is not on
        (made / "cgroup.procs").write_text(str(os.getpid()))
        (home / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        pytest.skip(f"may not limit control groups here: {error}")
    else:
        yield made
        for pid in (made / "cgroup.procs").read_text().split():
            (home / "cgroup.procs").write_text(pid)
    finally:
        made.rmdir()
