"""CPU quotas of control groups (``docker --cpus``, Kubernetes limits, ``CPUQuota=``) and how often
they stopped a process.

A process beyond its quota is stopped until the next period begins, by default up to 0.1 s; no
figure of the scheduler counts this as waiting (Documentation/admin-guide/cgroup-v2.rst,
Documentation/scheduler/sched-bwc.rst). A limit outside this process's container is not visible;
agents' lateness shows it all the same.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple


class Throttled(NamedTuple):
    """``times``: periods in which a group used up its quota; ``ns``: how long it was stopped,
    summed over cores."""

    times: int
    ns: int


def usable_cores() -> float:
    return min(len(os.sched_getaffinity(0)), quota_cores())


def quota_cores(pid: int | str = "self") -> float:
    return min((_cores(group) for group in groups(pid)), default=math.inf)


def groups(pid: int | str = "self") -> tuple[Path, ...]:
    """Return the process's group in the CPU controller and those above it, as far as they are
    mounted; empty if it is gone."""
    with suppress(OSError, ValueError):
        return groups_of(Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8"), _mounts())
    return ()


def read_throttled(pids: Iterable[int]) -> dict[Path, Throttled]:
    return {
        group: seen
        for group in {group for pid in pids for group in groups(pid)}
        if (seen := _throttled(group)) is not None
    }


@lru_cache(maxsize=1)
def _mounts() -> str:
    return Path("/proc/self/mountinfo").read_text(encoding="utf-8")


@lru_cache(maxsize=64)
def groups_of(cgroup: str, mountinfo: str) -> tuple[Path, ...]:
    places = dict(line.split(":", 2)[1:] for line in cgroup.splitlines())
    found: list[Path] = []
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind == "cgroup2":
            path = places.get("")
        elif kind == "cgroup" and "cpu" in options.split(" ")[-1].split(","):
            path = next((path for names, path in places.items() if "cpu" in names.split(",")), None)
        else:
            continue
        if path is not None:
            root, mount = (field.encode().decode("unicode_escape") for field in fields.split()[3:5])
            inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
            found += [Path(mount) / inside, *(Path(mount) / above for above in inside.parents)]
    return tuple(found)


def _cores(group: Path) -> float:
    with suppress(OSError, ValueError, ZeroDivisionError):
        if (file := group / "cpu.max").exists():
            quota, period = file.read_text(encoding="ascii").split()
            return math.inf if quota == "max" else int(quota) / int(period)
        quota_us, period_us = (
            int((group / f"cpu.cfs_{name}_us").read_text(encoding="ascii"))
            for name in ("quota", "period")
        )
        return quota_us / period_us if quota_us > 0 else math.inf
    return math.inf


def _throttled(group: Path) -> Throttled | None:
    with suppress(OSError, ValueError, KeyError):
        stat = dict(
            line.split() for line in (group / "cpu.stat").read_text(encoding="ascii").splitlines()
        )
        ns = (
            int(stat["throttled_time"])
            if "throttled_time" in stat
            else 1000 * int(stat["throttled_usec"])
        )
        return Throttled(int(stat["nr_throttled"]), ns)
    return None
