"""What the kernel's own `tc -s` says of a switch port's queues, for tests that compare."""

from __future__ import annotations

import re
import subprocess
from typing import NamedTuple

from testbed.cluster import Cluster


class Stats(NamedTuple):
    """Of one HTB class: sent so far, dropped, and waiting now."""

    bytes: int
    packets: int
    drops: int
    backlog_bytes: int
    backlog_packets: int


def _tc(cluster: Cluster, *words: str) -> str:
    command = ["nsenter", f"--net={cluster.net.switch_namespace}", "--", "tc", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def classes(cluster: Cluster, port: str) -> dict[str, Stats]:
    """By class: 1:1 (high), 1:2 (data), 1:f (both)."""
    found = {}
    for text in _tc(cluster, "-s", "class", "show", "dev", port).split("class htb ")[1:]:
        sent = re.search(r"Sent (\d+) bytes (\d+) pkt \(dropped (\d+),", text)
        held = re.search(r"backlog (\d+)b (\d+)p", text)
        assert sent and held, text
        found[text.split()[0]] = Stats(*map(int, sent.groups()), *map(int, held.groups()))
    return found


class Watch:
    """A `tc` that stays, asked over and over about one port's queues: an answer takes well under a millisecond."""

    QDISCS = 4  # HTB, two FIFOs, clsact

    def __init__(self, cluster: Cluster, port: str) -> None:
        space = f"--net={cluster.net.switch_namespace}"
        command = ["nsenter", space, "--", "stdbuf", "-oL", "tc", "-s", "-batch", "-"]
        self._ask = f"qdisc show dev {port}\n"
        self._tc = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self) -> dict[str, Stats]:
        """By handle: 1: (HTB), 11: (FIFO of the high class), 12: (of data), ffff: (the programs)."""
        assert self._tc.stdin is not None and self._tc.stdout is not None
        self._tc.stdin.write(self._ask)
        self._tc.stdin.flush()
        found: dict[str, Stats] = {}
        handle, sent = "", (0, 0, 0)
        while len(found) < self.QDISCS:
            line = self._tc.stdout.readline()
            assert line, "tc has gone"
            if line.startswith("qdisc "):
                handle = line.split()[2]
            elif match := re.match(r" Sent (\d+) bytes (\d+) pkt \(dropped (\d+),", line):
                sent = int(match[1]), int(match[2]), int(match[3])
            elif match := re.match(r" backlog (\d+)b (\d+)p", line):
                found[handle] = Stats(*sent, int(match[1]), int(match[2]))
        return found

    def close(self) -> None:
        self._tc.communicate(timeout=5)
