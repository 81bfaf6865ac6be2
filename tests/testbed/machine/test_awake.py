"""Cores are kept awake in a virtual machine alone, and only meanwhile."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from testbed.machine.awake import kept_awake, lacking, virtual


def held(file: Path) -> bool:
    """Whether this process has it open."""
    return any(link.resolve() == file for link in Path("/proc/self/fd").iterdir())


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """A file for requests, and what the processor says of itself: that it is a virtual one."""
    requests, cpuinfo = tmp_path / "cpu_dma_latency", tmp_path / "cpuinfo"
    requests.write_bytes(b"")
    cpuinfo.write_text(
        "processor\t: 0\nmodel name\t: a hypervisor's\nflags\t\t: fpu sse2 hypervisor lahf_lm\n"
    )
    return requests, cpuinfo


def test_a_virtual_machine_asks_for_no_delay(machine: tuple[Path, Path]) -> None:
    with kept_awake(*machine) as asked:
        assert asked and machine[0].read_bytes() == struct.pack("=i", 0)
        assert held(machine[0])
    assert not held(machine[0]), "the kernel forgets a request with its descriptor"


def test_bare_metal_asks_for_nothing(machine: tuple[Path, Path]) -> None:
    machine[1].write_text("model name\t: a hypervisor's\nflags\t\t: fpu sse2 lahf_lm\n")
    assert not virtual(machine[1])
    with kept_awake(*machine) as asked:
        assert not asked and machine[0].read_bytes() == b""


def test_where_the_kernel_takes_no_requests_nothing_fails(machine: tuple[Path, Path]) -> None:
    machine[0].unlink()
    with kept_awake(*machine) as asked:
        assert not asked and not machine[0].exists()
    with kept_awake(machine[0].parent, machine[1]) as asked:
        assert not asked


def test_a_request_is_heeded_by_a_driver_alone(machine: tuple[Path, Path], tmp_path: Path) -> None:
    driver = tmp_path / "current_driver"
    assert "driver" in lacking(machine[0], driver), "a kernel without cpuidle"
    driver.write_text("none\n")
    assert "driver" in lacking(machine[0], driver)
    driver.write_text("haltpoll\n")
    assert lacking(machine[0], driver) == ""
    machine[0].unlink()
    assert lacking(machine[0], driver) == "none"


def test_what_happens_meanwhile_is_not_swallowed(machine: tuple[Path, Path]) -> None:
    with pytest.raises(OSError, match="of the run"), kept_awake(*machine):
        raise OSError("of the run")
