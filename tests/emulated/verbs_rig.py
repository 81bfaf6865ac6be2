"""Programs of RDMA verbs on a fabric, as ``mrcbed launch --verbs`` starts them, and faults on cue:
after so many completed messages."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scenarios.schema.fabrics import usual_fabric
from testbed.emulated.cluster import Cluster
from testbed.emulated.programs import EmulatedPrograms
from testbed.reconvergence import usual
from testbed.verbs.build import BUILT, missing
from testbed.world import Program
from tests.waiting import wait_until
from topologies import load_fabric
from topologies.fabrics import DILATION

LOOK_S = 0.05
Cues = Sequence[tuple[int, Callable[[], Any]]]
"""(messages completed, what happens then), in order."""


def needs(*commands: str, package: str = "") -> pytest.MarkDecorator:
    """Skip where the library, or a program of a Debian package, is not there."""
    lacking = [command for command in commands if shutil.which(command) is None]
    reason = (
        f"no {lacking[0]} here: sudo make rdma-tools installs {package}"
        if lacking
        else ""
        if BUILT.exists()
        else missing()
    )
    return pytest.mark.skipif(bool(reason), reason=reason or "all is here")


def compiled(source: Path, to: Path, *libraries: str) -> str:
    """Compile a C program of verbs; returns its path. Skips where there is no gcc or header."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    program = to / source.stem
    command = [
        "gcc",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
        str(source),
        "-o",
        str(program),
        *libraries,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(program)


@dataclass
class Ended:
    """How programs ended: by rank what they said, who failed and why, and by cue how many messages
    were over when it came."""

    failed: dict[int, str]
    said: dict[int, list[str]] = field(default_factory=dict)
    cued: list[int] = field(default_factory=list)

    def text(self) -> str:
        return (
            "\n".join(f"{rank}: {line}" for rank, lines in self.said.items() for line in lines)
            + f"\n{self.failed}"
        )


class Verbs:
    """A living `tiny` whose agents carry one transport: its single-plane twin for one of a single
    path."""

    def __init__(self, cluster: Cluster, transport: str, logs: Path) -> None:
        self.cluster, self.transport, self.logs = cluster, transport, logs
        self.fabric = cluster.fabric

    @staticmethod
    @contextmanager
    def up(transport: str, logs: Path) -> Iterator[Verbs]:
        with Cluster(
            usual_fabric(transport, load_fabric("tiny")), dilation=DILATION, controller=False
        ) as cluster:
            cluster.start_agents(transport, {}, logs, 1)
            yield Verbs(cluster, transport, logs)

    @property
    def line_bytes(self) -> float:
        """Line rate of a host, in bytes per second of the network."""
        return self.fabric.nic_rate * self.fabric.planes / 8

    def messages(self) -> int:
        """Return how many messages the programs that run have completed."""
        return sum(row["messages"] for agent in self.cluster.agents for row in agent.call("verbs"))

    def flap(self, first: int, last: int, kind: str, on: str) -> Cues:
        """A fault at so many messages. MRC goes on without what is broken, which returns at
        ``last`` messages; where that may be the one way of RoCE, it returns once something was sent
        in vain."""

        def out_and_back() -> None:
            before = self.repeated()
            self.cluster.inject(kind, on)
            wait_until(lambda: self.repeated() > before, "nothing was sent in vain")
            self.cluster.heal()

        if self.transport == "mrc":
            return [(first, lambda: self.cluster.inject(kind, on)), (last, self.cluster.heal)]
        return [(first, out_and_back)]

    def repeated(self) -> int:
        return sum(agent.call("counters")["retransmitted"] for agent in self.cluster.agents)

    def run(self, words: Sequence[str], hosts: Sequence[int] = (0, 2), cues: Cues = ()) -> Ended:
        """Run a program on some hosts to its end. Afterwards the fabric is whole."""
        network = usual(self.cluster, self.transport)
        programs = EmulatedPrograms(self.cluster, Program(tuple(words), None, verbs=True), hosts)
        ended = Ended({})
        coming = list(cues)

        def look() -> int:
            while coming and (messages := self.messages()) >= coming[0][0]:
                ended.cued.append(messages)
                coming.pop(0)[1]()
            if network is not None:
                network.look()
            return self.cluster.clock.patience(LOOK_S)

        try:
            ended.failed = programs.run(
                lambda rank, line: ended.said.setdefault(rank, []).append(line),
                lambda rank, note: None,
                look,
            )
        finally:
            programs.end()
            self.cluster.heal()
        assert not coming, f"ended before {coming[0][0]} messages\n{ended.text()}"
        return ended

    def logged(self, host: int) -> list[dict[str, Any]]:
        """Return what the log of a host has of its programs' messages so far."""
        with open(self.logs / f"h{host}.jsonl") as file:
            lines = [line for line in file if line.endswith("\n")]
        return [row for row in map(json.loads, lines) if row["kind"] == "verbs"]

    @contextmanager
    def heard(self, host: int, messages: int) -> Iterator[list[dict[str, Any]]]:
        """What the log gains in the context is in the list afterwards, once it has so many
        messages. Fails if it never has."""
        before = len(self.logged(host))
        rows: list[dict[str, Any]] = []
        yield rows

        def enough() -> bool:
            rows[:] = self.logged(host)[before:]
            return sum(row["messages"] for row in rows) >= messages

        wait_until(enough, lambda: f"the log has {rows}")
