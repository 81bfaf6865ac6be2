"""What a living cluster leaves open, as the kernel tells it: users, capabilities, descriptors, sockets (docs/security.md)."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from topologies import load_fabric

pytestmark = pytest.mark.sandbox

FABRIC = load_fabric("tiny")
LISTEN = "0A"
NOBODY = 65534


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With controller and agents."""
    with Cluster(FABRIC) as cluster:
        cluster.start_agents("mrc", {}, tmp_path_factory.mktemp("logs"), seed=1)
        yield cluster
        cluster.stop_agents()


def pids(cluster: Cluster) -> list[int]:
    return [agent.call("hello")["pid"] for agent in cluster.agents]


def status(pid: int) -> dict[str, str]:
    """/proc/<pid>/status by name."""
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def test_agents_have_no_user_group_or_capability_of_roots_and_get_none_back(whole: Cluster) -> None:
    for pid in pids(whole):
        said = status(pid)
        assert said["Uid"].split() == said["Gid"].split() == [str(NOBODY)] * 4 and said["Groups"].split() == []
        assert {name: int(said[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == dict.fromkeys(
            ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0
        )
        assert said["NoNewPrivs"] == "1"


def test_an_agent_holds_its_own_sockets_and_log_and_nothing_that_it_inherited(whole: Cluster) -> None:
    """No namespace, map, program, pipe or socket of the worker's: these would be root's powers without root."""
    for number, pid in enumerate(pids(whole)):
        held = {int(fd): os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        assert {held[0], held[1]} == {os.devnull} and held[2].endswith(f"/h{number}.err")
        others = [what for fd, what in held.items() if fd > 2]
        assert sum(what.endswith(f"/h{number}.jsonl") for what in others) == 1
        strange = [what for what in others if not what.startswith(("socket:[", "anon_inode:[event", "anon_inode:[timerfd"))]
        assert len(strange) == 1, f"h{number} holds {strange}"
        # Per port one to send by; one to receive, one for link events, the listener, and whoever steers: the runner, the controller.
        # Sockets, not descriptors: one of them is held twice.
        assert len({what for what in others if what.startswith("socket:[")}) <= FABRIC.planes + 3 + 2


def test_control_sockets_are_their_owners_alone(whole: Cluster) -> None:
    for agent in whole.agents:
        path = Path(agent.path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.stat().st_uid == 0
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700 and path.parent.stat().st_uid == 0


def test_an_agents_own_user_cannot_open_anothers_control_socket(whole: Cluster) -> None:
    """Agents share a user: what keeps them from steering each other is that the sockets are root's."""
    path = whole.agents[0].path
    tried = subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "/usr/bin/python3", "-c",
         f"import socket; socket.socket(socket.AF_UNIX).connect({path!r})"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tried.returncode != 0 and "PermissionError" in tried.stderr


def listening(pid: int) -> list[tuple[str, int]]:
    """(address, port) of the TCP sockets on which a process listens, in its own network namespace; addresses as /proc has them."""
    mine = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        what = os.readlink(f"/proc/{pid}/fd/{fd}")
        if what.startswith("socket:["):
            mine.add(what[8:-1])
    made = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in mine:
                address, port = fields[1].split(":")
                made.append((address, int(port, 16)))
    return made


def test_the_rest_view_is_on_the_loopback_only_and_nothing_else_listens(whole: Cluster) -> None:
    port = int(whole.rest_url.rsplit(":", 1)[1])
    assert listening(whole.controller_pid) == [("0100007F", port)], "127.0.0.1, as /proc writes it"
    for pid in pids(whole):
        assert listening(pid) == []
