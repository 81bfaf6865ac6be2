"""One boot of an image under qemu: its console to a file and, by markers, to the person who waits;
its results from the second drive."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.vm.guest import BEGIN, END
from tests.vm.image import Image

RESULTS_BYTES = 256 << 20  # sparse
GRACE_S = 120.0
"""What booting and switching off may take besides the guest's own limit."""
TRIAL_S = 20.0
CPU_UNDER_TCG = "Nehalem"
"""x86-64-v2, which NumPy needs, and no more: with `max` a run died of SIGSEGV in code for AVX [qemu
7.2]."""


def accelerator(kernel: Path) -> str:
    """`kvm` if a kernel really starts under it (a /dev/kvm that is only there is not enough), else
    `tcg`."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    command = [
        "qemu-system-x86_64",
        "-accel",
        "kvm",
        "-cpu",
        "host",
        "-m",
        "512",
        "-nographic",
        "-no-reboot",
        "-nodefaults",
        "-serial",
    ]
    command += ["stdio", "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1"]
    try:
        output = subprocess.run(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_S,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired:
        return "tcg"
    # it has no root file system, so a panic is the end that a working one reaches
    return "kvm" if b"Kernel panic" in output else "tcg"


def boot(image: Image, parts: tuple[str, ...], limit_s: float, folder: Path, kvm: bool) -> str:
    """Run the parts; `folder` gets the console and the results. Returns what went wrong with the
    machine, or nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    drive = folder / "results.img"
    with drive.open("wb") as file:
        file.truncate(RESULTS_BYTES)
    arguments = (
        "root=/dev/nvme0n1 rw console=ttyS0 panic=-1 quiet init=/check "
        f"mrcbed.parts={','.join(parts)} mrcbed.limit={limit_s:.0f}"
    )
    # two of a kind might change places
    drives = ((image.disk, "system", "nvme"), (drive, "results", "virtio-blk-pci"))
    command = [
        "nice",
        "-n",
        "15",
        "setpriv",
        "--pdeathsig",
        "KILL",
        "qemu-system-x86_64",
        *(
            ("-accel", "kvm", "-cpu", "host")
            if kvm
            else ("-accel", "tcg,thread=multi", "-cpu", CPU_UNDER_TCG)
        ),
        "-smp",
        "2",
        "-m",
        "3G",
        "-nographic",
        "-nodefaults",
        "-no-reboot",
        "-serial",
        "stdio",
        "-nic",
        "none",
        "-kernel",
        str(image.kernel),
        "-append",
        arguments,
    ]
    for path, name, kind in drives:
        command += [
            "-drive",
            f"file={path},if=none,id={name},format=raw,cache=unsafe",
            "-device",
            f"{kind},drive={name},serial={name}",
        ]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        late = _follow(process, folder / "console.log", time.monotonic() + limit_s + GRACE_S)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    trouble = (
        "the machine was ended at its limit"
        if late
        else ""
        if process.returncode == 0
        else f"qemu: exit status {process.returncode}"
    )
    unpacked = subprocess.run(
        ["tar", "-xf", str(drive), "-C", str(folder)], capture_output=True, text=True, check=False
    )
    if unpacked.returncode != 0:
        trouble = (
            trouble
            or f"no results on the drive ({unpacked.stderr.strip()[-100:]}): see "
            f"{folder}/console.log"
        )
    drive.unlink()
    return trouble


def _follow(process: subprocess.Popen[bytes], log: Path, until: float) -> bool:
    """Read the console until it ends; whether that took too long."""
    assert process.stdout is not None
    line = b""
    with log.open("wb") as out:
        while (left := until - time.monotonic()) > 0:
            if not select.select([process.stdout], [], [], left)[0]:
                break
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                return False
            out.write(data)
            out.flush()
            *lines, line = (line + data).split(b"\n")
            for text in (each.decode(errors="replace").strip() for each in lines):
                # the firmware's and the kernel's last words may stand before it
                if BEGIN in text or END in text:
                    print(f"  {text.rpartition('vm: ')[2]}", flush=True)
    print("  its limit is over", file=sys.stderr)
    return True
