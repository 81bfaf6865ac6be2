"""What the kernel's own `tc -s` says of a switch port's queues, for tests that compare."""

from __future__ import annotations

import json
import select
import subprocess
from types import TracebackType
from typing import NamedTuple

from testbed.emulated.cluster import Cluster
from testbed.machine.slowness import patient

HIGH, DATA = "11:", "12:"
"""Handles of the two classes' FIFOs."""


class Stats(NamedTuple):
    """Of one queue: sent so far, dropped, and waiting now."""

    bytes: int
    packets: int
    drops: int
    backlog_bytes: int
    backlog_packets: int


class Watch:
    """A `tc` that stays, asked over and over about one port's queues: an answer takes well under a
    millisecond."""

    def __init__(self, cluster: Cluster, port: str) -> None:
        space = f"--net={cluster.net.switch_namespace}"
        # As JSON: what it prints for people rounds a size near a multiple of 1024.
        command = ["nsenter", space, "--", "stdbuf", "-oL", "tc", "-s", "-j", "-batch", "-"]
        self._ask = f"qdisc show dev {port}\n"
        self._tc = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self) -> dict[str, Stats]:
        """By handle: "1:" is HTB as a whole, then :data:`HIGH` and :data:`DATA`."""
        assert self._tc.stdin is not None and self._tc.stdout is not None
        self._tc.stdin.write(self._ask)
        self._tc.stdin.flush()
        assert select.select([self._tc.stdout], [], [], 5)[0], "tc does not answer"
        return {
            q["handle"]: Stats(q["bytes"], q["packets"], q["drops"], q["backlog"], q["qlen"])
            for q in json.loads(self._tc.stdout.readline())
            if q["kind"] != "clsact"
        }

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tc.communicate(timeout=patient(5))
