"""Programs of RDMA verbs as launch and the prompt start them: the management network, words,
variables, who waits for whom, how they end.

The programs here are plain ones: any library stands in for that of verbs, to see that it is loaded,
and into what.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mininet.log import lg, setLogLevel

from mrcbed.cli.launch import run
from mrcbed.prompt.machines import MachinesPrompt
from testbed.emulated import management
from testbed.emulated.cluster import Cluster
from testbed.emulated.netlink import LinkSocket
from testbed.emulated.programs import GRACE_S, EmulatedPrograms
from testbed.errors import UserError
from testbed.machine.slowness import patient
from testbed.world import Program
from tests.emulated.command import mrcbed
from tests.emulated.remains import CLOSED
from tests.emulated.typing_at import typing_at
from topologies import load_fabric
from topologies.addressing import management_address
from topologies.fabrics import DILATION

pytestmark = pytest.mark.sandbox
STAND_IN = next(Path("/usr/lib").glob("*-linux-gnu/libanl.so.1"))
"""A library that no program uses."""
EXCHANGE = """
    import socket, sys
    if len(sys.argv) > 1:
        with socket.create_connection((sys.argv[1], 7000)) as there:
            print("heard", there.recv(100).decode())
    else:
        time.sleep(0.5)
        with socket.create_server(("", 7000)) as listener:
            for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
                there, (address, _) = listener.accept()
                there.sendall(address.encode())
                there.close()
        print("served")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("testbed.emulated.programs", "mrcbed.prompt.verbs"):
            patch.setattr(f"{module}.library", lambda: STAND_IN)
        with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
            cluster.start_agents("mrc", {}, tmp_path_factory.mktemp("logs"), 1)
            yield cluster


def go(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], ranks: int = 4,
    at: tuple[tuple[float, str], ...] = (), user: int | None = None,
) -> tuple[int, list[str], list[str]]:  # fmt: skip
    """Exit status, what the ranks said (sorted), and what launch said."""
    status = run(cluster, Program(words, user, verbs=True), list(range(ranks)), "mrc", at)
    said = capsys.readouterr()
    return status, sorted(said.out.splitlines()), said.err.splitlines()


def script(path: Path, text: str) -> str:
    file = path / "program.py"
    file.write_text("import os, signal, sys, time\n" + textwrap.dedent(text))
    return str(file)


def test_every_host_reaches_every_other_one_and_the_fabric_hears_nothing(cluster: Cluster) -> None:
    begun = time.monotonic()
    cluster.management()
    assert time.monotonic() - begun < patient(2)
    cluster.management()  # and once more is nothing
    moved = [row["admitted_packets"] for row in cluster.counters()]
    for number, host in enumerate(cluster.net.hosts):
        for other in range(cluster.fabric.host_count):
            said, _, status = host.pexec(
                ["ping", "-c", "1", "-W", f"{patient(5):.0f}", management_address(other)]
            )
            assert status == 0, (number, other, said)
        addresses = host.pexec(["ip", "-o", "addr", "show", "dev", management.NAME])[0]
        assert f"{management_address(number)}/16" in addresses and "inet6" not in addresses
    assert [row["admitted_packets"] for row in cluster.counters()] == moved


def test_it_is_no_port_of_the_fabric_and_no_fault_reaches_it(cluster: Cluster) -> None:
    cluster.management()
    names = {row["port"] for row in cluster.counters()} | {
        str(interface) for node in cluster.net.values() for interface in node.intfList()
    }
    assert not [name for name in names if management.NAME in name]
    try:
        for plane in range(cluster.fabric.planes):
            cluster.inject("plane", f"p{plane}")
        cluster.inject("loss", "nics", probability="1", direction="both")
        said, _, status = cluster.net["h0"].pexec(
            ["ping", "-c", "1", "-W", f"{patient(5):.0f}", management_address(3)]
        )
        assert status == 0, said
    finally:
        cluster.heal()


def test_nothing_of_it_is_left(tmp_path: Path) -> None:
    """An interface goes with its namespace, and a namespace with the last descriptor and process in
    it."""
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        cluster.management()
        spaces = {os.fstat(fd).st_ino for fd in cluster.net.namespaces.values()}
        assert len(LinkSocket(cluster.net.namespaces[""]).dump()) > 1 + cluster.fabric.host_count
    held = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            held |= {
                os.stat(f"/proc/{process}/fd/{fd}").st_ino
                for fd in os.listdir(f"/proc/{process}/fd")
            }
            held.add(os.stat(f"/proc/{process}/ns/net").st_ino)
        except OSError:
            continue
    assert not held & spaces
    assert (
        management.BRIDGE
        not in subprocess.run(
            ["ip", "-br", "link"], capture_output=True, text=True, check=True
        ).stdout
    )


def test_a_kernel_without_bridges_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        management, "bridge_lines", lambda: ["link add name management type no-such-kind"]
    )
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        with pytest.raises(
            UserError, match="needs a bridge, which this kernel does not give us: modprobe bridge"
        ):
            cluster.management()
        monkeypatch.undo()
        cluster.management()


def test_words_and_variables(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_IB_HCA", "mine")
    line = (
        "echo $0 $RANK/$WORLD_SIZE/$LOCAL_RANK $MRCBED_HOST $MRCBED_ADDRESS $MASTER_ADDR; "
        "echo $MRCBED_ADDRESSES $MRCBED_DILATION; "
        "        echo $NCCL_IB_HCA $NCCL_IBVERBS_LIB $NCCL_SOCKET_IFNAME $UCX_NET_DEVICES; "
        "nice; id -u; [ -t 0 ] || read x || echo nothing to read"
    )
    line = line.replace("{", "{{")
    status, said, _ = go(
        cluster,
        capsys,
        ("sh", "-c", line, "{rank}-{host}-{address}-{peer}-{{}}"),
        2,
        user=54321 if not CLOSED else None,
    )
    here, there = management_address(0), management_address(1)
    assert status == 0
    for rank, (own, other) in enumerate(((here, there), (there, here))):
        mine = [text[3:] for text in said if text.startswith(f"{rank}: ")]
        assert f"{rank}-h{rank}-{own}-{other}-{{}} {rank}/2/0 h{rank} {own} {here}" in mine
        assert f"{here},{there} {DILATION:g}" in mine and f"mine {STAND_IN} eth0 mrcbed0:1" in mine
        assert {"19", "0" if CLOSED else "54321", "nothing to read"} <= set(mine)


def test_the_library_is_in_the_program_alone(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = f"""
        print(sys.executable, any("{STAND_IN.name}" in line for line in open("/proc/self/maps")))
    """
    status, said, _ = go(cluster, capsys, (script(tmp_path, text),), 2)
    assert status == 0 and "0: /usr/bin/python3 True" in said and "1: /usr/bin/python3 True" in said
    assert not [agent for agent in cluster.agents if agent.call("steps")], (
        "no communicator was made"
    )


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_others_start_when_the_server_listens(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path, ranks: int
) -> None:
    status, said, complaints = go(cluster, capsys, (script(tmp_path, EXCHANGE), "{server}"), ranks)
    assert (status, complaints) == (0, [])
    assert said == [
        "0: served",
        *(f"{rank}: heard {management_address(rank)}" for rank in range(1, ranks)),
    ]


def test_a_server_that_never_listens_is_said(
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("testbed.emulated.programs.SERVER_S", 0.3)
    line = (
        f"echo $#; [ $# = 1 ] && touch {tmp_path}/begun; until [ -e {tmp_path}/begun ]; do sleep "
        "0.1; done"
    )
    status, said, complaints = go(cluster, capsys, ("sh", "-c", line, "x", "{server}"), 2)
    assert (status, said) == (0, ["0: 0", "1: 1"])
    assert len(complaints) == 1 and "rank 0 (h0) listens on no TCP port after" in complaints[0]
    # who has ended is not waited for
    status, said, complaints = go(cluster, capsys, ("sh", "-c", "exit 0", "x", "{server}"), 2)
    assert (status, said, complaints) == (0, [], [])


def test_who_ends_well_is_no_loss_and_who_fails_ends_the_others(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert GRACE_S == 5
    monkeypatch.setattr("testbed.emulated.programs.GRACE_S", 0.5)
    assert go(cluster, capsys, ("sh", "-c", '[ "$RANK" = 0 ] || sleep 1.5'))[0] == 0
    status, _, complaints = go(
        cluster, capsys, ("sh", "-c", 'case "$RANK" in 1) exit 7;; 2) exit 0;; *) sleep 1000; esac')
    )
    assert status == 1 and "mrcbed: rank 1 (h1): its program ended with status 7" in complaints
    late = "its program went on for 0.5 s after rank 1 (h1) was lost, and was ended"
    assert {f"mrcbed: rank {rank} (h{rank}): {late}" for rank in (0, 3)} <= set(complaints)
    assert len(complaints) == 3


def test_who_is_killed_is_named(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    programs = EmulatedPrograms(cluster, Program(("sleep", "1000"), verbs=True), [0, 1])
    try:
        os.kill(programs.processes[1].pid, signal.SIGKILL)
        programs.processes[0].terminate()
        failed = programs.run(lambda rank, line: None, lambda rank, note: None, lambda: None)
    finally:
        programs.end()
    assert failed == {0: "its program was ended by SIGTERM", 1: "its program was ended by SIGKILL"}


def test_what_is_there_after_verbs(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Agents have lost nobody: a communicator works."""
    text = (
        "from agents.communicator import Communicator; import numpy as np; "
        "print(Communicator.open().all_reduce(np.ones(3)).tolist())"
    )
    file = Path(os.environ["TMPDIR"]) / "after.py"
    file.write_text(text)
    assert run(cluster, Program((str(file),)), [0, 1], "mrc") == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "0: [2.0, 2.0, 2.0]",
        "1: [2.0, 2.0, 2.0]",
    ]


def test_commands_at_times(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cable = "p0-t0-0:p0-t1-1"
    seen: list[bool] = []
    real = cluster.set_link

    def set_link(name: str, up: bool) -> int:
        seen.append(up)
        return real(name, up)

    monkeypatch.setattr(cluster, "set_link", set_link)
    try:
        at = (
            (0.3, f"break {cable}"),
            (0.6, f"mend {cable}"),
            (0.6, "fault loss h0-p1 probability=0.5"),
        )
        status, _, complaints = go(cluster, capsys, ("sleep", "1.5"), 2, at)
        assert (status, seen) == (0, [False, True]) and all(cluster.link_states().values())
        assert complaints[:2] == [
            f"mrcbed: after 0.3 s: break {cable}",
            f"mrcbed: after 0.6 s: mend {cable}",
        ]
        assert (
            re.fullmatch(r"fault \d+: loss h0-p1: h0:p1-t0-0", complaints[-1])
            and len(cluster.faults()) == 1
        )
        # and the program ends with it
        with pytest.raises(UserError, match="there is no fault number 99"):
            go(cluster, capsys, ("sleep", "1000"), 2, ((0.1, "heal 99"),))
    finally:
        cluster.heal()


def test_the_prompt(cluster: Cluster, tmp_path: Path) -> None:
    text = io.StringIO()
    stream = lg.handlers[0].setStream(text)
    setLogLevel("output")
    try:
        with typing_at(cluster, tmp_path, text) as say:
            said = say(
                "h0 verbs sh -c 'echo $MRCBED_HOST $MRCBED_ADDRESS $UCX_NET_DEVICES $(nice) $1' "
                "x h2"
            )
            assert (
                said.strip() == f"h0 {management_address(0)} mrcbed0:1 19 {management_address(2)}"
            )
            assert say("h0 echo h2").strip() == "fd6d:7263::3"
            assert STAND_IN.name in say(
                "verbs h1 cat /proc/self/maps"
            ) and STAND_IN.name not in say("h1 cat /proc/self/maps")
            say("h2 export UCX_NET_DEVICES=mine")
            assert say("h2 verbs sh -c 'echo $UCX_NET_DEVICES'").strip() == "mine"
            server = (
                '/usr/bin/python3 -c \'import socket; socket.create_server(("", '
                '7001)).accept()[0].sendall(b"well")\''
            )
            begun = time.monotonic()
            say(f"h3 verbs {server} &")
            client = (
                "/usr/bin/python3 -c 'import socket, sys; "
                "print(socket.create_connection((sys.argv[1], 7001)).recv(9))' h3"
            )
            while "b'well'" not in (said := say(f"h0 verbs {client}")):
                assert time.monotonic() - begun < patient(20), said
            assert say("h0 verbs") == say("verbs h0") and say("verbs h0").startswith(
                "usage: HOST verbs PROGRAM"
            )
            assert say("verbs").startswith("no program uses verbs")
            assert "p0-t0-0" in say("p0-t0-0 verbs true") and "no host" in say("verbs h9 true")
            assert "HOST verbs PROGRAM" in say("help verbs")
    finally:
        setLogLevel("warning")
        lg.handlers[0].setStream(stream)


def test_several_machines_have_no_verbs() -> None:
    prompt: Any = MachinesPrompt.__new__(MachinesPrompt)
    prompt.mn, prompt.fabric, prompt.cluster = (
        {"h0": None},
        load_fabric("tiny"),
        SimpleNamespace(check=lambda: None),
    )
    for way, line in ((prompt.default, "h0 verbs true"), (prompt.run_command, "verbs h0 true")):
        with pytest.raises(UserError, match="needs all hosts on one machine"):
            way(line)


def test_as_people_call_it_without_the_library_or_with_it() -> None:
    """Which of the two depends on the machine."""
    done = mrcbed(
        "launch",
        "--fabric",
        "tiny",
        "--verbs",
        "-n",
        "2",
        "--at",
        "0s break p0-t1-0",
        "--",
        "sh",
        "-c",
        "echo $0",
        "{host}",
    )
    if done.returncode == 2:
        assert (
            "the verbs library cannot be built: " in done.stderr
            and done.stderr.count("mrcbed:") == 1
        )
    else:
        assert done.returncode == 0 and sorted(done.stdout.splitlines()) == ["0: h0", "1: h1"], (
            done.stderr
        )
