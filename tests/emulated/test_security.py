"""What a living cluster leaves open, as the kernel tells it: users, capabilities, descriptors,
sockets (docs/why/security.md)."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.emulated.cluster import Cluster
from testbed.machine import running, sandbox
from testbed.machine.slowness import patient
from topologies import load_fabric
from topologies.fabrics import DILATION

pytestmark = pytest.mark.sandbox

FABRIC = load_fabric("tiny")
ROOT = Path(__file__).resolve().parents[2]
LISTEN = "0A"
NOBODY = 65534


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def whole(logs: Path) -> Iterator[Cluster]:
    """With controller and agents."""
    with Cluster(FABRIC, dilation=DILATION) as cluster:
        cluster.start_agents("mrc", {}, logs, seed=1)
        yield cluster
        cluster.stop_agents()


def pids(cluster: Cluster) -> list[int]:
    return [agent.call("hello")["pid"] for agent in cluster.agents]


def status(pid: int) -> dict[str, str]:
    """/proc/<pid>/status by name."""
    return dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if ":\t" in line
    )


def test_agents_have_no_user_group_or_capability_of_roots_and_get_none_back(whole: Cluster) -> None:
    for number, pid in enumerate(pids(whole)):
        said = status(pid)
        assert (
            said["Uid"].split() == said["Gid"].split() == [str(sandbox.agent_uid(number))] * 4
            and said["Groups"].split() == []
        )
        assert {
            name: int(said[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
        } == dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0)
        assert said["NoNewPrivs"] == "1"


def test_an_agent_holds_its_own_sockets_and_log_and_nothing_that_it_inherited(
    whole: Cluster,
) -> None:
    """No namespace, map, program, pipe or socket of the worker's: these would be root's powers
    without root."""
    for number, pid in enumerate(pids(whole)):
        held = {
            int(fd): os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")
        }
        assert {held[0], held[1]} == {os.devnull} and held[2].endswith(f"/h{number}.err")
        others = [what for fd, what in held.items() if fd > 2]
        assert sum(what.endswith(f"/h{number}.jsonl") for what in others) == 1
        strange = [
            what
            for what in others
            if not what.startswith(("socket:[", "anon_inode:[event", "anon_inode:[timerfd"))
        ]
        assert len(strange) == 1, f"h{number} holds {strange}"
        # Per port one to send by; one to receive, one for link events, two listeners (one for
        # programs of verbs), and whoever steers: the runner, the controller.
        # Sockets, not descriptors: one of them is held twice.
        assert (
            len({what for what in others if what.startswith("socket:[")}) <= FABRIC.planes + 4 + 2
        )


def test_control_sockets_are_their_owners_alone(whole: Cluster) -> None:
    for agent in whole.agents:
        path = Path(agent.path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.stat().st_uid == 0
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700 and path.parent.stat().st_uid == 0


def as_user(uid: int, code: str) -> subprocess.CompletedProcess[str]:
    """Python ``code`` as another user, in this PID namespace: it sees the agents, as the machine's
    processes see them in theirs."""
    words = [
        "setpriv",
        f"--reuid={uid}",
        f"--regid={uid}",
        "--clear-groups",
        "/usr/bin/python3",
        "-c",
        code,
    ]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_another_users_process_cannot_signal_an_agent(whole: Cluster) -> None:
    """`nobody` is the user of other services, too. Nor can another agent, or a process without
    rights of this run. The same signal from the agent's own user succeeds, so the process is
    there."""
    for number, pid in enumerate(pids(whole)):
        for uid in (NOBODY, sandbox.agent_uid(number + 1), sandbox.unprivileged_uid()):
            tried = as_user(uid, f"import os; os.kill({pid}, 0)")
            assert tried.returncode != 0 and "PermissionError" in tried.stderr, uid
        assert as_user(sandbox.agent_uid(number), f"import os; os.kill({pid}, 0)").returncode == 0
    whole.check()


def test_runs_at_once_have_different_users() -> None:
    """Two more sandboxes beside this one."""
    every = "sandbox.unprivileged_uid(), *(sandbox.agent_uid(n) for n in range(64))"
    say = (
        f"import sys; from testbed.machine import sandbox; print({every}, flush=True); "
        "sys.stdin.read()"
    )
    words = [sys.executable, "-m", "testbed.machine.sandbox", "--", sys.executable, "-c", say]
    runs = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for _ in range(2)
    ]
    uids = [int(uid) for run in runs if run.stdout for uid in run.stdout.readline().split()]
    for run in runs:
        run.communicate(timeout=patient(20))
    own = [sandbox.unprivileged_uid(), *(sandbox.agent_uid(n) for n in range(64))]
    assert len({*uids, *own, NOBODY, 0}) == 3 * 65 + 2, uids


def test_logs_are_roots(whole: Cluster, logs: Path) -> None:
    """So that `make` can give what root wrote to the clone's owner: it looks for files of
    root's."""
    assert [(logs / f"{host}.jsonl").stat().st_uid for host in FABRIC.hosts] == [
        0
    ] * FABRIC.host_count


def test_an_agents_own_user_cannot_open_anothers_control_socket(whole: Cluster) -> None:
    """Nor its own: the sockets are root's."""
    tried = as_user(
        sandbox.agent_uid(0),
        f"import socket; socket.socket(socket.AF_UNIX).connect({str(whole.agents[0].path)!r})",
    )
    assert tried.returncode != 0 and "PermissionError" in tried.stderr


@pytest.mark.parametrize("uid", [NOBODY, 1000])
def test_another_user_may_look_at_the_rest_view_and_change_nothing(
    whole: Cluster, uid: int
) -> None:
    """Nor find the token: not in a file, not in a command line, not in an environment."""
    token = whole.control.token
    tried = as_user(
        uid,
        f"import urllib.request; urllib.request.urlopen({whole.rest_url + '/denylist'!r}, "
        'b\'{"entry": "p0"}\')',
    )
    assert tried.returncode != 0 and "HTTP Error 401" in tried.stderr
    looked = as_user(
        uid,
        "import json, urllib.request; "
        f"print(json.load(urllib.request.urlopen({whole.rest_url + '/denylist'!r})))",
    )
    assert looked.stdout == "[]\n", looked.stderr
    places = [str(running.NOTE), f"{sandbox.RUN_DIR}/controller.json"]
    for place in [
        *places,
        *(
            f"/proc/{pid}/root{place}"
            for pid in (os.getpid(), whole.controller_pid)
            for place in places
        ),
    ]:
        assert (
            token in Path(place).read_text() and stat.S_IMODE(Path(place).stat().st_mode) == 0o600
        )
        assert "PermissionError" in as_user(uid, f"open({place!r})").stderr
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            for page in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    assert token.encode() not in Path(f"/proc/{pid}/{page}").read_bytes()


def listening(pid: int) -> list[tuple[str, int]]:
    """(address, port) of the TCP sockets on which a process listens, in its own network namespace
    and in ours; addresses as /proc has them."""
    mine = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        what = os.readlink(f"/proc/{pid}/fd/{fd}")
        if what.startswith("socket:["):
            mine.add(what[8:-1])
    made = []
    for page in (
        f"/proc/{space}/net/{table}" for space in {pid, os.getpid()} for table in ("tcp", "tcp6")
    ):
        for line in Path(page).read_text().splitlines()[1:]:
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


# --- the controller, which is old code that strangers may talk to ---------------------------------


def test_the_controller_has_no_capability_and_gets_none_back(whole: Cluster) -> None:
    said = status(whole.controller_pid)
    names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    assert {name: int(said[name], 16) for name in names} == dict.fromkeys(names, 0)
    assert said["NoNewPrivs"] == "1"


@pytest.mark.parametrize("kind", ["net", "mnt", "ipc", "uts", "pid"])
def test_the_controller_has_namespaces_of_its_own(whole: Cluster, kind: str) -> None:
    space = os.readlink(f"/proc/{whole.controller_pid}/ns/{kind}")
    others = [os.getpid(), *pids(whole), *(host.pid for host in whole.net.hosts)]
    assert space not in {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in others}


def inside(cluster: Cluster, code: str) -> subprocess.CompletedProcess[str]:
    """Python ``code`` as the controller could run it: in its namespaces, as its user, without a
    capability."""
    words = [
        "nsenter",
        f"--target={cluster.controller_pid}",
        "--net",
        "--mount",
        "--ipc",
        "--uts",
        "--pid",
        "setpriv",
        "--no-new-privs",
    ]
    words += ["--bounding-set=-all", "--inh-caps=-all", "/usr/bin/python3", "-c", code]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "place",
    [
        "/etc/passwd",
        "/usr/lib/os-release",
        "/tmp/mrcbed-no-such-file",
        sandbox.RUN_DIR + "/x",
        "/root/x",
        "/dev/shm/x",
        "/sys/fs/bpf/x",
    ],
)
def test_the_controller_can_write_nowhere(whole: Cluster, place: str) -> None:
    """Not even where root needs no capability: in root's own files."""
    tried = inside(whole, f"open({place!r}, 'a')")
    assert tried.returncode != 0 and (
        "Read-only file system" in tried.stderr or "PermissionError" in tried.stderr
    ), tried.stderr


def test_the_controller_cannot_make_its_file_system_writable_again(whole: Cluster) -> None:
    for words in (
        ["mount", "-o", "remount,rw", "/"],
        ["umount", sandbox.RUN_DIR],
        ["unshare", "--mount", "true"],
    ):
        tried = inside(whole, f"import subprocess, sys; sys.exit(subprocess.call({words!r}))")
        assert tried.returncode != 0 and tried.stderr, words
    assert inside(whole, "open('/etc/passwd')").returncode == 0, "the way in works"


def test_the_controller_sees_no_process_but_itself(whole: Cluster) -> None:
    """And so signals none: it is root, as the runner is, which needs no capability for that."""
    seen = inside(
        whole, "import os; print(*sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))"
    ).stdout.split()
    assert seen[0] == "1" and len(seen) == 2, f"itself and our question, not {seen}"


def test_the_controller_reaches_no_network(whole: Cluster) -> None:
    """Not even the machine's loopback: the socket by which it serves REST was opened before."""
    port = int(whole.rest_url.rsplit(":", 1)[1])
    tried = inside(whole, f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)")
    assert tried.returncode != 0 and "Network is unreachable" in tried.stderr, tried.stderr
    assert (
        inside(whole, "import socket; print([name for _, name in socket.if_nameindex()])").stdout
        == "['lo']\n"
    )


def test_the_controller_holds_no_namespace_and_one_map(whole: Cluster) -> None:
    held = [
        os.readlink(f"/proc/{whole.controller_pid}/fd/{fd}")
        for fd in os.listdir(f"/proc/{whole.controller_pid}/fd")
    ]
    assert held.count("anon_inode:bpf-map") == 1
    known = (
        "socket:[",
        "pipe:[",
        "anon_inode:bpf-map",
        "anon_inode:[eventpoll]",
        f"{sandbox.RUN_DIR}/controller.log",
        "/dev/null",
    )
    assert [what for what in held if not what.startswith(known)] == []
