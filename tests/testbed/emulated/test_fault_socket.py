"""Faults over a socket: the words, what is wrong with them in one line, whose they are, and that a
connection's end takes them back."""

from __future__ import annotations

import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator

import pytest

from testbed.emulated import fault_socket
from testbed.emulated.fault_socket import LINE, MOST_FAULTS, FaultSocket
from testbed.machine import sandbox
from testbed.simulated.cluster import SimulatedCluster
from tests.waiting import wait_until
from topologies import load_fabric


class Client:
    def __init__(self, served: FaultSocket) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(served.path))
        self.lines = self.sock.makefile("r")

    def say(self, words: str) -> str:
        self.sock.sendall(words.encode() + b"\n")
        return self.lines.readline().rstrip("\n")

    def gone(self) -> bool:
        return self.lines.readline() == ""

    def close(self) -> None:
        self.lines.close()
        self.sock.close()


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(load_fabric("tiny"))


@pytest.fixture
def served(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultSocket]:
    folder = tempfile.mkdtemp(prefix="mrcbed-", dir="/tmp")  # a socket's path has 108 bytes
    monkeypatch.setattr(sandbox, "PROGRAMS_DIR", folder)
    made = FaultSocket(cluster.injections, None)
    yield made
    made.close()
    made.close()
    shutil.rmtree(folder)


@pytest.fixture
def client(served: FaultSocket) -> Iterator[Client]:
    made = Client(served)
    yield made
    made.close()


def there(cluster: SimulatedCluster) -> list[int]:
    return [fault.number for fault in cluster.faults()]


def test_it_is_its_users_alone(served: FaultSocket) -> None:
    assert (
        stat.S_IMODE(served.path.stat().st_mode) == 0o600
        and stat.S_IMODE(served.path.parent.stat().st_mode) == 0o700
    )


def test_every_kind_comes_and_goes(client: Client, cluster: SimulatedCluster) -> None:
    assert (
        client.say("inject link h0:p0-t0-0") == "ok 1" and not cluster.link_states()["h0:p0-t0-0"]
    )
    assert client.say("inject plane p1") == "ok 2"
    assert client.say("inject path-loss 'h0>h2@p0/1' probability=0.5 seed=3") == "ok 3"
    assert client.say("inject loss h0-p1 probability=0.5 for=80us") == "ok 4"
    assert there(cluster) == [1, 2, 3, 4]
    assert client.say("heal 2") == "ok" and there(cluster) == [1, 3, 4]
    assert client.say("heal 1 3") == "ok" and cluster.link_states()["h0:p0-t0-0"]
    assert client.say("heal") == "ok" and there(cluster) == []
    assert client.say("heal") == "ok"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("", "error '': the orders are inject KIND ON"),
        ("break p0-t1-0", "error 'break p0-t1-0': the orders are"),
        ("inject", "error fault needs a kind; usage: inject KIND ON"),
        ("inject lose h0", "error kind = 'lose': there are link"),
        ("inject loss h0-p0", "error probability is missing"),
        ("inject link h0:p9-t0-0", "error fabric 'tiny' has no link"),
        ("inject verbs-lost h0", "error the simulated world runs no programs"),
        ("inject kill h0 for=1us", "error for is not for kind 'kill'"),
        ("heal 9", "error heal: 9 is no fault of this connection: there are none"),
        ("heal x", "error heal: x is no fault"),
        ("inject 'link", "error inject 'link: no closing quotation"),
        ("inject \x00\xff\x1b[2J", "error kind = "),
    ],
)
def test_what_is_wrong_is_one_line_and_changes_nothing(
    client: Client, cluster: SimulatedCluster, line: str, text: str
) -> None:
    assert client.say(line).startswith(text)
    assert there(cluster) == [] == cluster.fault_events() and client.say(
        "inject plane p0"
    ).startswith("ok ")


def test_the_end_of_a_connection_takes_its_faults_back_and_no_others(
    served: FaultSocket, client: Client, cluster: SimulatedCluster
) -> None:  # fmt: skip
    other = Client(served)
    assert (client.say("inject plane p0"), other.say("inject plane p1")) == ("ok 1", "ok 2")
    cluster.inject("port", "h0-p0")
    assert other.say("heal 1").startswith(
        "error heal: 1 is no fault of this connection: there are 2"
    )
    other.close()
    assert wait_until(lambda: there(cluster) == [1, 3])
    served.close()
    assert there(cluster) == [3] and client.gone()


def test_faults_that_somebody_else_healed_are_none(
    client: Client, cluster: SimulatedCluster
) -> None:
    assert client.say("inject plane p0") == "ok 1"
    cluster.heal()
    assert client.say("heal 1") == "ok"
    assert client.say("inject plane p0") == "ok 2"


def test_lines_come_in_any_pieces(client: Client) -> None:
    client.sock.sendall(b"inject pla")
    client.sock.sendall(b"ne p0\ninject plane p1\nhe")
    assert [client.lines.readline() for _ in range(2)] == ["ok 1\n", "ok 2\n"]
    assert client.say("al") == "ok"


def test_who_sends_no_lines_is_dropped(
    served: FaultSocket, client: Client, cluster: SimulatedCluster
) -> None:
    assert client.say("inject plane p0") == "ok 1"
    client.sock.sendall(b"x" * (2 * LINE))
    assert client.gone() and wait_until(lambda: there(cluster) == [])
    assert Client(served).say("inject plane p0") == "ok 2"


def test_a_connection_has_its_limit(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_socket, "MOST_FAULTS", 2)
    assert [client.say("inject plane p0") for _ in range(2)] == ["ok 1", "ok 2"]
    assert client.say("inject plane p0").startswith(
        "error there are 2 faults of this connection: heal some"
    )
    assert (
        client.say("heal 1") == "ok" and client.say("inject plane p0") == "ok 3" and MOST_FAULTS > 2
    )


def test_strangers_and_crowds_are_turned_away(
    served: FaultSocket, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.say("heal") == "ok"
    monkeypatch.setattr(fault_socket, "peer_uid", lambda sock: 12345)
    assert Client(served).gone()
    monkeypatch.undo()
    monkeypatch.setattr(fault_socket, "MOST_CLIENTS", 1)
    assert Client(served).gone() and client.say("heal") == "ok"


def test_a_bug_is_one_line_too(
    client: Client, cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inject(*_: object, **__: object) -> None:
        raise RuntimeError("a bug\nof two lines")

    monkeypatch.setattr(cluster.injections, "inject", inject)
    assert client.say("inject plane p0") == "error RuntimeError: a bug of two lines"
    assert client.say("heal") == "ok"
