"""Reads the traffic of each NIC port by the kernel's counters, in bytes of TCP payload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

HEADERS = 14 + 40 + 40 + 32
"""Ethernet, outer and inner IPv6, TCP with timestamps. MPTCP's options are 20 bytes more, which
changes no proportion."""


class PortBytes:
    """Raises OSError or ValueError if the interfaces are not in this process's namespace."""

    def __init__(self, ports: Sequence[str], file: Path = Path("/proc/self/net/dev")) -> None:
        self._ports, self._file = list(ports), file
        self._last = self._read()

    def _read(self) -> list[tuple[int, int]]:
        counts = {}
        for line in self._file.read_text(encoding="ascii").splitlines()[2:]:
            name, _, fields = line.partition(":")
            n = [int(word) for word in fields.split()]
            counts[name.strip()] = (max(0, n[0] - HEADERS * n[1]), max(0, n[8] - HEADERS * n[9]))
        missing = [port for port in self._ports if port not in counts]
        if missing:
            raise ValueError(f"no interface {missing[0]} in this network namespace")
        return [counts[port] for port in self._ports]

    def growth(self) -> tuple[list[int], list[int]]:
        """Return (sent, received) since the last call."""
        now, before = self._read(), self._last
        self._last = now
        received, sent = (
            [max(0, a[i] - b[i]) for a, b in zip(now, before, strict=True)] for i in (0, 1)
        )
        return sent, received


def bad_checksums(file: Path = Path("/proc/self/net/snmp")) -> int:
    names, values = (
        line.split()
        for line in file.read_text(encoding="ascii").splitlines()
        if line.startswith("Tcp:")
    )
    return int(dict(zip(names, values, strict=True)).get("InCsumErrors", 0))


def split(amount: int, weights: Sequence[int]) -> list[int]:
    shares = list(weights) if any(weights) else [1] * len(weights)
    total = sum(shares)
    parts = [amount * share // total for share in shares]
    parts[shares.index(max(shares))] += amount - sum(parts)
    return parts
