"""RDMA programs that treat their host's NIC badly: each gets its errors, and a victim on the same
two hosts goes on with every byte right.

tests/verbs_programs/hostile.c has the programs and says what each must see; garbage.py speaks to
the agent without a library.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest

from testbed.emulated.cluster import Cluster
from testbed.installation import ROOT
from testbed.verbs import build
from tests.waiting import wait_until
from topologies import load_fabric
from topologies.addressing import management_address
from topologies.fabrics import DILATION

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(build.missing() is not None, reason=build.missing() or ""),
]  # fmt: skip
HERE, THERE = 0, 3
PORT = "7100"
MOST_BYTES = 2 << 30
"""Of an agent's memory at any time."""
WAYS = (
    "overrun",
    "threads",
    "deregister",
    "unmap",
    "dontneed",
    "truncate",
    "fork",
    "execute",
    "exit",
    "peer",
    "target",
    "many",
    "keys",
    "masks",
    "overflow",
)


class Stage:
    """Two hosts of a cluster, a peer on one of them, and a victim that writes from the other all
    the while."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.library, self.program = folder / build.BUILT.name, folder / "hostile"
        build.compile_library(self.library)
        source = str(ROOT / "tests/verbs_programs/hostile.c")
        options = ("-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-libverbs")
        subprocess.run(("gcc", source, "-o", str(self.program), *options), check=True)
        self.peer = self.start(THERE, "serve", PORT)
        assert self.peer.stdout is not None and self.peer.stdout.readline() == b"serve: listens\n"
        self.told = folder / "victim"
        with self.told.open("wb") as told:
            self.victim = self.start(HERE, "victim", management_address(THERE), PORT, stdout=told)
        self.lives()
        self.open = self.descriptors()

    def start(
        self, host: int, *words: str, stdout: Any = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        command = ["env", f"LD_PRELOAD={self.library}", str(self.program), *words]
        process: subprocess.Popen[bytes] = self.cluster.net.hosts[host].popen(
            command, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.STDOUT
        )
        return process

    def lives(self) -> None:
        """The victim gets three more rounds done."""
        size = lambda: self.told.read_bytes().count(b"round")  # noqa: E731
        before = size()
        wait_until(
            lambda: size() >= before + 3 or self.victim.poll() is not None, self.told.read_text
        )
        assert self.victim.poll() is None, self.told.read_text()

    def rows(self) -> list[list[dict[str, Any]]]:
        return [self.cluster.agents[host].call("verbs") for host in (HERE, THERE)]

    def pids(self) -> list[int]:
        return [self.cluster.agents[host].call("hello")["pid"] for host in (HERE, THERE)]

    def descriptors(self) -> list[int]:
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in self.pids()]

    def is_as_before(self) -> None:
        """Nothing is left but the victim, which lives, in agents that have not grown without
        bound."""
        wait_until(
            lambda: [[row["qps"] for row in rows] for rows in self.rows()] == [[1], [1]], self.rows
        )
        wait_until(lambda: self.descriptors() == self.open, self.descriptors)
        self.lives()
        for pid in self.pids():
            (highest,) = (
                line.split()[1]
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if line.startswith("VmHWM")
            )
            assert int(highest) << 10 < MOST_BYTES

    def end(self) -> None:
        for process in (self.victim, self.peer):
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("hostile")
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        cluster.start_agents("mrc", {}, folder, 1)
        cluster.management()
        made = Stage(cluster, folder)
        yield made
        made.end()


@pytest.mark.dear("thousands of messages, queue pairs and regions")
@pytest.mark.parametrize("way", WAYS)
def test_a_hostile_program_harms_itself_alone(stage: Stage, way: str) -> None:
    said, _ = stage.start(HERE, way, management_address(THERE), PORT).communicate(timeout=60)
    assert said.decode() == f"{way}: well\n"
    stage.is_as_before()


@pytest.mark.parametrize("seed", [1, None])
def test_garbage(stage: Stage, seed: int | None) -> None:
    seed = SystemRandom().getrandbits(32) if seed is None else seed
    print(f"seed {seed}")
    command = [
        "env",
        f"PYTHONPATH={ROOT}",
        sys.executable,
        str(ROOT / "tests/verbs_programs/garbage.py"),
        str(seed),
        "60",
    ]
    said, _ = (
        stage.cluster.net.hosts[HERE]
        .popen(command, stderr=subprocess.STDOUT)
        .communicate(timeout=60)
    )
    assert said.decode().startswith(f"seed {seed}: 60 sessions, "), said.decode()
    stage.is_as_before()


@pytest.mark.dear("ends the agents, whose time counts here")
def test_one_that_is_killed(stage: Stage) -> None:
    process = stage.start(HERE, "kill", management_address(THERE), PORT)
    said, _ = process.communicate(timeout=60)
    assert said.decode() == "kill: well\n" and process.returncode == -9
    stage.is_as_before()
