"""Reads the kernel's figures on the machine and on processes. One that the kernel does not report
is None, never a guess."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import NamedTuple


class Work(NamedTuple):
    cpu_ns: int  # on a core
    delay_ns: int  # ready to run, without a core
    turns: int  # times that it got one


class Cpu(NamedTuple):
    """Clock ticks of the cores that this process may use. ``busy`` includes ``interrupts`` (the
    kernel's work on packets) and ``steal`` (time taken by another virtual machine)."""

    busy: int
    total: int
    interrupts: int
    steal: int


class Clocks(NamedTuple):
    """The readings, ns, may be ``width`` apart."""

    monotonic: int
    real: int
    raw: int  # of the hardware: no daemon slews it
    boot: int  # goes on while the machine sleeps
    width: int


def read_cpu() -> Cpu:
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    with open("/proc/stat", encoding="ascii") as stat:
        ticks = [
            [int(x) for x in line.split()[1:9]] for line in stat if line.split(" ", 1)[0] in usable
        ]
    user, nice, system, idle, waiting, irq, softirq, steal = map(sum, zip(*ticks, strict=True))
    busy = user + nice + system + irq + softirq + steal
    return Cpu(busy, busy + idle + waiting, irq + softirq, steal)


def read_pressure() -> int | None:
    """Return us since boot in which some task waited for a core (PSI,
    Documentation/accounting/psi.rst)."""
    try:
        with open("/proc/pressure/cpu", encoding="ascii") as file:
            return int(file.readline().rpartition("total=")[2])
    except (OSError, ValueError):
        return None


def read_thread(directory: str) -> Work | None:
    """Returns None if the thread is gone or not accounted for
    (Documentation/scheduler/sched-stats.rst)."""
    with (
        suppress(OSError, ValueError, TypeError),
        open(f"{directory}/schedstat", encoding="ascii") as file,
    ):
        return Work(*map(int, file.read().split()))
    return None


def read_work(pid: int) -> Work | None:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return None
    # one may end meanwhile
    per_thread = [
        work
        for thread in threads
        if (work := read_thread(f"/proc/{pid}/task/{thread}")) is not None
    ]
    return Work(*map(sum, zip(*per_thread, strict=True))) if per_thread else None


def read_clocks() -> Clocks:
    before = time.monotonic_ns()
    real, raw = (
        time.clock_gettime_ns(time.CLOCK_REALTIME),
        time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW),
    )
    boot, after = time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.monotonic_ns()
    return Clocks((before + after) // 2, real, raw, boot, after - before)
