"""CPU quotas as the kernel and containers present them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.machine import quota
from tests.cgroups import limited_group
from tests.waiting import wait_until

V2 = "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1 = (
    "31 25 0:27 {root} /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 25 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "33 25 0:29 / /proc rw - proc proc rw\n"
    "34 25 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
)
SERVICE = "/system.slice/run-r1.scope"


@pytest.mark.parametrize(
    ("cgroup", "mountinfo", "expected"),
    [
        (
            f"0::{SERVICE}",
            V2,
            [
                "/sys/fs/cgroup/system.slice/run-r1.scope",
                "/sys/fs/cgroup/system.slice",
                "/sys/fs/cgroup",
            ],
        ),
        ("0::/", V2, ["/sys/fs/cgroup"]),  # a container with a namespace of its own
        (
            "0::/../../kubepods",
            V2.replace(" / /sys", " /../.. /sys"),
            ["/sys/fs/cgroup/kubepods", "/sys/fs/cgroup"],
        ),
        (
            "4:cpu,cpuacct:/docker/7f\n3:cpuset:/else",
            V1.format(root="/docker/7f"),
            ["/sys/fs/cgroup/cpu,cpuacct"],
        ),
        (
            "4:cpuacct,cpu:/a\n0::/x",
            V1.format(root="/"),
            [
                "/sys/fs/cgroup/cpu,cpuacct/a",
                "/sys/fs/cgroup/cpu,cpuacct",
                "/sys/fs/cgroup/unified/x",
                "/sys/fs/cgroup/unified",
            ],
        ),
        # a process of another container
        ("4:cpu:/elsewhere", V1.format(root="/docker/7f"), ["/sys/fs/cgroup/cpu,cpuacct"]),
        (
            "0::/a b",
            V2.replace("/sys/fs/cgroup rw", r"/my\040groups rw"),
            ["/my groups/a b", "/my groups"],
        ),
        ("0::/", "33 25 0:29 / /proc rw - proc proc rw", []),
    ],
)
def test_groups_are_found_where_they_are_mounted(
    cgroup: str, mountinfo: str, expected: list[str]
) -> None:
    assert [str(group) for group in quota.groups_of(cgroup, mountinfo)] == expected


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A group within another one, none with a limit."""
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.setattr(quota, "groups", lambda pid="self": (inner, inner.parent))
    return inner


def test_the_tightest_limit_counts_in_both_versions(tree: Path) -> None:
    assert quota.quota_cores() == math.inf and quota.usable_cores() == len(os.sched_getaffinity(0))
    (tree / "cpu.max").write_text("max 100000\n")
    assert quota.quota_cores() == math.inf
    (tree.parent / "cpu.cfs_period_us").write_text("50000\n")
    (tree.parent / "cpu.cfs_quota_us").write_text("-1\n")
    assert quota.quota_cores() == math.inf
    (tree.parent / "cpu.cfs_quota_us").write_text("25000\n")
    assert quota.quota_cores() == quota.usable_cores() == 0.5
    (tree / "cpu.max").write_text("8000 100000\n")
    assert quota.quota_cores() == 0.08


def test_throttling_is_read_in_both_versions_and_what_cannot_be_read_is_left_out(
    tree: Path,
) -> None:
    (tree / "cpu.stat").write_text(
        "usage_usec 9\nnr_periods 4\nnr_throttled 3\nthrottled_usec 250\nnr_bursts 0\n"
    )
    (tree.parent / "cpu.stat").write_text("nr_periods 4\nnr_throttled 2\nthrottled_time 1234\n")
    assert quota.read_throttled([1]) == {
        tree: quota.Throttled(3, 250_000),
        tree.parent: quota.Throttled(2, 1234),
    }
    (tree / "cpu.stat").write_text("usage_usec 9\n")  # a root group has no limits
    (tree.parent / "cpu.stat").unlink()
    assert quota.read_throttled([1]) == {}


def test_a_process_that_is_gone_has_no_group() -> None:
    assert (
        quota.groups(2**22 + 1) == ()
        and quota.quota_cores(2**22 + 1) == math.inf
        and quota.read_throttled([2**22 + 1]) == {}
    )


@pytest.fixture
def limited() -> Iterator[Path]:
    """A group of this machine that gets 5 ms of every 100, with the test's process in it."""
    with limited_group(5000) as made:
        (made / "cgroup.procs").write_text(str(os.getpid()))
        yield made


def test_a_real_limit_is_seen_and_what_it_stops_is_counted(limited: Path) -> None:
    assert quota.groups()[0] == limited and quota.quota_cores() == quota.usable_cores() == 0.05

    def stopped() -> bool:
        sum(range(100_000))  # some of the 5 ms
        seen = quota.read_throttled([os.getpid()])[limited]
        return seen.times >= 2 and seen.ns > 50_000_000

    wait_until(stopped, "throttling is counted", pause=0)
