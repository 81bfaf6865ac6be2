"""Containers, rights and processors, by the kernel's own texts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mrcbed import doctor
from testbed.machine import surroundings

ROOT = Path(__file__).resolve().parents[3]
QEMU64 = "flags\t\t: fpu vme de pse tsc msr lm nx pni cx16 hypervisor lahf_lm\n"
NEHALEM = "flags\t\t: fpu sse sse2 nx lm pni ssse3 cx16 sse4_1 sse4_2 popcnt hypervisor lahf_lm\n"


def test_a_processor_of_level_2_lacks_nothing() -> None:
    assert surroundings.lacking_instructions(NEHALEM) == []
    assert surroundings.lacking_instructions(QEMU64) == ["popcnt", "sse4_1", "sse4_2", "ssse3"]
    # arm64 has no such levels
    assert surroundings.lacking_instructions("Features\t: fp asimd\n") == []


def test_capabilities_of_a_container_without_privileges() -> None:
    docker = "Name:\tx\nCapEff:\t00000000a80425fb\n"  # docker run's default set
    assert surroundings.lacking_capabilities(docker) == [
        "CAP_NET_ADMIN",
        "CAP_SYS_PTRACE",
        "CAP_SYS_ADMIN",
        "CAP_BPF",
    ]
    assert surroundings.lacking_capabilities("CapEff:\t000001ffffffffff\n") == []


@pytest.mark.parametrize(
    ("mark", "kind"), [(".dockerenv", "docker"), ("run/.containerenv", "podman"), (None, "")]
)
def test_containers_by_their_marks(mark: str | None, kind: str, tmp_path: Path) -> None:
    if mark:
        (tmp_path / mark).parent.mkdir(exist_ok=True)
        (tmp_path / mark).touch()
    assert surroundings.container(tmp_path) == kind


def test_a_container_by_the_environment_of_its_first_process(tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/environ").write_bytes(b"PATH=/bin\0container=systemd-nspawn\0")
    assert surroundings.container(tmp_path) == "systemd-nspawn"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up rights and be root still")
def test_the_doctor_names_what_a_container_withholds() -> None:
    code = (
        "from mrcbed import doctor; print([c.found + c.fix for c in doctor._container() if "
        "c.status == 'missing'])"
    )
    command = [
        "setpriv",
        "--bounding-set=-sys_admin",
        "--inh-caps=-all",
        sys.executable,
        "-c",
        code,
    ]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "without CAP_SYS_ADMIN" in output
    assert "--privileged" in output


def test_the_doctor_says_what_nobody_has_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.platform, "machine", lambda: "aarch64")
    (check,) = doctor._processor()
    assert (check.status, check.found) == ("limited", "aarch64")
    monkeypatch.setattr(doctor.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(doctor, "_read", lambda path: QEMU64)
    (check,) = doctor._processor()
    assert check.status == "missing"
    assert "host-passthrough" in check.fix
