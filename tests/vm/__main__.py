"""`python -m tests.vm`, which `make vm-test` calls: images, boots, one after the other, and a table
of what came of them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from testbed.errors import UserError
from tests.vm import image, machine
from tests.vm.guest import PARTS

LIMIT_S = 7200.0
"""Of one release in the guest, s."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.vm",
        description="Debian's own kernels under qemu, with the testbed inside.",
    )
    parser.add_argument(
        "--releases",
        nargs="+",
        default=list(image.RELEASES),
        help=f"of {', '.join(image.RELEASES)}",
    )
    parser.add_argument("--parts", nargs="+", default=list(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument(
        "--mirror",
        default="",
        help="a Debian archive; without it the one that this machine's apt uses",
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="seconds in the guest, of one release"
    )
    parser.add_argument(
        "--no-kvm", action="store_true", help="emulate the CPU even where KVM works"
    )
    parser.add_argument(
        "--lacking",
        action="store_true",
        help="print the Debian packages that this needs and are not here, and end",
    )
    said = parser.parse_args()
    if said.lacking:
        print(" ".join(image.lacking()))
        return 0
    for name, chosen, known in (
        ("release", said.releases, image.RELEASES),
        ("part", said.parts, PARTS),
    ):
        for word in set(chosen) - set(known):
            raise UserError(f"{word}: no such {name}; they are {', '.join(known)}")
    image.require_tools()
    right, tables = True, []
    for release in said.releases:
        folder = image.BUILD / release / "results"
        began = time.monotonic()
        print(f"{release}: making the image (log: {image.BUILD / release}/image.log)", flush=True)
        disk = image.make(release, said.mirror, image.BUILD / release / "image.log")
        kvm = not said.no_kvm and machine.accelerator(disk.kernel) == "kvm"
        print(
            f"{release}: image made in {time.monotonic() - began:.0f} s; booting, CPU "
            f"{'under KVM' if kvm else 'emulated'}",
            flush=True,
        )
        trouble = machine.boot(disk, tuple(said.parts), said.limit, folder, kvm)
        table, well = summary(release, folder, trouble)
        (folder / "summary.txt").write_text(table)
        tables.append(table)
        right = right and well
    print("\n" + "\n".join(tables))
    return 0 if right else 1


def summary(release: str, folder: Path, trouble: str) -> tuple[str, bool]:
    """(the table of one release, whether everything passed)."""
    file = folder / "summary.json"
    facts: dict[str, Any] = (
        json.loads(file.read_text())
        if file.exists()
        else {"kernel": "?", "python": "?", "steps": []}
    )
    lines = [f"=== {release}: Linux {facts['kernel']}, Python {facts['python']} ==="]
    for step in facts["steps"]:
        tests = f"{step['tests'] - step['skipped']} tests" if step["tests"] else ""
        lines.append(
            f"{step['status']:8} {step['name']:32} {step['by']:5} {step['seconds']:5.0f} s  "
            f"{tests:10} {step['detail']}".rstrip()
        )
        lines += [f"         {name}" for name in step["failed"]]
    if not facts["steps"] or facts["steps"][-1]["part"] != "kernel":  # which comes last
        trouble = (
            trouble or f"the guest ended before its checks did: {panic(folder / 'console.log')}"
        )
    if trouble:
        lines.append(f"FAILED   {trouble}")
    lines.append(f"files: {folder}")
    return "\n".join(lines) + "\n", not trouble and all(
        step["status"] == "passed" for step in facts["steps"]
    )


def panic(console: Path) -> str:
    """What the kernel said last, if that was a panic."""
    text = console.read_text(errors="replace") if console.exists() else ""
    return next(
        (line.partition("] ")[2] for line in text.splitlines() if "Kernel panic" in line),
        "see its console",
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"mrcbed: {error}")
