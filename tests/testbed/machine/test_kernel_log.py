"""The kernel's messages are counted from the moment of opening on, and a log that cannot be read is
not taken for a silent one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.machine.kernel_log import KMSG, SHAPER_LATE, KernelLog


def test_only_what_comes_afterwards_counts(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.write_bytes(b"4,1,2,-;htb: too many events!\n")
    log = KernelLog(str(file))
    assert log.count(SHAPER_LATE) == 0
    for _ in range(2):
        with file.open("ab") as out:
            out.write(b"4,2,3,-;htb: too many events!\n")
        assert log.count(SHAPER_LATE) is not None
    with file.open("ab") as out:
        out.write(b"6,3,4,-;veth0: link becomes ready\n")
    assert log.count(SHAPER_LATE) == 2
    log.close()
    assert log.count(SHAPER_LATE) is None


def test_a_log_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert KernelLog(str(tmp_path / "absent")).count(SHAPER_LATE) is None


@pytest.mark.skipif(not os.access(KMSG, os.R_OK), reason="this user may not read the kernel's log")
def test_the_kernels_own_log_can_be_read_to_its_end() -> None:
    log = KernelLog()
    # ends although nothing more comes: reading does not wait
    assert log.count(SHAPER_LATE) is not None
    log.close()
