"""Finds a container and what it withholds, and a processor that lacks what NumPy needs."""

from __future__ import annotations

import re
from pathlib import Path

CAPABILITIES = {
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_BPF": 39,
}
X86_64_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})
"""The psABI's level x86-64-v2, in /proc/cpuinfo's names (pni is SSE3)."""
MARKS = (("/.dockerenv", "docker"), ("/run/.containerenv", "podman"))


def container(root: Path = Path("/")) -> str:
    """A virtual machine does not count: it has its own kernel."""
    for mark, name in MARKS:
        if (root / mark.lstrip("/")).exists():
            return name
    try:
        variables = (root / "proc/1/environ").read_bytes().split(b"\0")
        return next(
            (
                v.partition(b"=")[2].decode(errors="replace")
                for v in variables
                if v.startswith(b"container=")
            ),
            "",
        )
    except OSError:
        return ""


def lacking_capabilities(status: str) -> list[str]:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    held = int(found[1], 16) if found else 0
    return [name for name, number in CAPABILITIES.items() if not held >> number & 1]


def lacking_instructions(cpuinfo: str) -> list[str]:
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    return sorted(X86_64_V2 - set(flags[1].split())) if flags else []
