"""Keeps the cores of a virtual machine from halting while it is measured (docs/why/fidelity.md).

A process may bound the time that cores need to wake up (PM QoS, the kernel's
Documentation/power/pm_qos_interface.rst); below 1 us they poll instead of halting. On bare metal a
halted core is back in microseconds, so there it may save power.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REQUESTS = Path("/dev/cpu_dma_latency")
CPUINFO = Path("/proc/cpuinfo")
DRIVER = Path("/sys/devices/system/cpu/cpuidle/current_driver")


def virtual(cpuinfo: Path = CPUINFO) -> bool:
    """Say whether a hypervisor runs the processor, by its own word (x86 alone gives it)."""
    try:
        lines = cpuinfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return False
    return any(line.startswith("flags") and "hypervisor" in line.split() for line in lines)


def lacking(requests: Path = REQUESTS, driver: Path = DRIVER) -> str:
    """Say why idle cores halt although asked not to, or "". A cpuidle driver heeds requests, and a
    guest may lack it."""
    if not os.access(requests, os.W_OK):
        return "none"
    try:
        name = driver.read_text(encoding="ascii").strip()
    except OSError:
        name = "none"
    return "no cpuidle driver heeds it" if name == "none" else ""


@contextmanager
def kept_awake(requests: Path = REQUESTS, cpuinfo: Path = CPUINFO) -> Iterator[bool]:
    """Let idle cores poll meanwhile. Yields whether the kernel was asked: not on bare metal, nor
    where it takes no requests. The request ends with this process."""
    if not virtual(cpuinfo):
        yield False
        return
    try:
        request = os.open(requests, os.O_WRONLY)
    except OSError:
        yield False
        return
    try:
        yield os.write(request, struct.pack("=i", 0)) > 0
    finally:
        os.close(request)
