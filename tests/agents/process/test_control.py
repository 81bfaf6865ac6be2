"""The control channel: lines whole whatever the socket does, answers matched, errors in one line,
readable by its owner alone."""

from __future__ import annotations

import os
import select
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agents.process.control import MAX_CLIENTS, AgentClient, AgentError, AgentServer, Lines


class Agent(threading.Thread):
    """Serves one channel until closed; ``reply`` makes each answer."""

    def __init__(
        self, path: Path, reply: Callable[[AgentServer, Any, dict[str, Any]], None]
    ) -> None:
        super().__init__(daemon=True)
        self.server = AgentServer(str(path))
        self.reply = reply
        self.running = True

    def run(self) -> None:
        while self.running:
            select.select(self.server.readers(), [], [], 0.02)
            for client, request in self.server.requests():
                self.reply(self.server, client, request)


def echo(server: AgentServer, client: Any, request: dict[str, Any]) -> None:
    if request["op"] == "fail":
        server.answer(client, {"id": request["id"], "error": "no such thing"})
    elif request["op"] == "noisy":
        server.notify({"event": "first"})
        server.answer(client, {"id": request["id"], "ok": "answer"})
    elif request["op"] != "silent":
        server.answer(client, {"id": request["id"], "ok": request.get("what")})


def asked(server: AgentServer) -> list[dict[str, Any]]:
    return [request for _, request in server.requests()]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path / "s", echo)
    made.start()
    yield made
    made.running = False
    made.join()
    made.server.close()


def test_only_the_owner_may_open_it(agent: Agent, tmp_path: Path) -> None:
    mode = stat.S_IMODE(os.stat(tmp_path / "s").st_mode)
    assert mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701])
def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PermissionError, match="chmod 700 it"):
        AgentServer(str(folder / "s"))
    assert not (folder / "s").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_process_of_another_user_is_turned_away_whatever_the_files_say(
    agent: Agent, tmp_path: Path
) -> None:
    """As if somebody had opened the folder and the socket to all: the kernel tells who
    connected."""
    others = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "os.chdir(sys.argv[1])\n"
        "os.setresuid(int(sys.argv[2]), int(sys.argv[2]), 0)\n"
        's.connect(\'s\'); s.sendall(b\'{"id": 1, "op": "echo", "what": 7}\\n\')\n'
        "s.settimeout(10); print(s.recv(100))\n"
    )
    tmp_path.chmod(0o755)
    (tmp_path / "s").chmod(0o666)
    said = {}
    for uid in ("65534", "1000", "0"):
        done = subprocess.run(
            [sys.executable, "-c", others, str(tmp_path), uid],
            capture_output=True,
            text=True,
            check=False,
        )
        said[uid] = done.stdout + done.stderr
    assert b'"ok":7' in said["0"].encode()
    for uid in ("65534", "1000"):
        assert '"ok"' not in said[uid] and (
            said[uid] == "b''\n" or "ConnectionReset" in said[uid] or "BrokenPipe" in said[uid]
        ), said[uid]
    assert agent.server.strangers == 2
    client = AgentClient(tmp_path / "s")
    assert client.call("echo", what=1) == 1
    client.close()


def test_a_line_without_an_end_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what is held for it would grow as long as somebody writes."""
    monkeypatch.setattr("agents.process.control.MAX_LINE", 1000)
    ours, theirs = socket.socketpair()
    lines = Lines(ours)
    theirs.send(b"x" * 1000)
    assert lines.read() == [] and not lines.closed
    theirs.send(b"x")
    assert lines.read() == [] and lines.closed
    ours.close()
    theirs.close()


def test_a_peer_that_never_pauses_is_read_in_parts() -> None:
    ours, theirs = socket.socketpair()
    lines = Lines(ours, at_once=1 << 16)
    theirs.setblocking(False)
    for _ in range(10):
        with suppress(BlockingIOError):
            while True:
                theirs.send(b'{"a": 1}\n' * 1000)
        assert 0 < len(lines.read()) <= (1 << 17) // 9  # the rest can wait
        assert len(lines.incoming) < 9 and not lines.closed
    ours.close()
    theirs.close()


def test_what_nests_too_deep_is_hung_up_on() -> None:
    ours, theirs = socket.socketpair()
    lines = Lines(ours)
    theirs.send(b'{"a": ' + b"[" * 20_000 + b"]" * 20_000 + b"}\n")
    assert lines.read() == [] and lines.closed
    ours.close()
    theirs.close()


def test_whoever_does_not_read_holds_nobody_up_and_is_given_all_later() -> None:
    ours, theirs = socket.socketpair()
    lines, reader = Lines(ours), Lines(theirs)
    for number in range(5000):  # in this thread: had one waited, nobody would have read
        lines.write({"event": "over", "number": number}, wait=False)
    assert lines.outgoing and not lines.closed
    numbers: list[int] = []
    while len(numbers) < 5000:
        lines.flush()
        numbers += [message["number"] for message in reader.read()]
    assert numbers == list(range(5000)) and not lines.outgoing
    lines.longest = 1 << 16
    while not lines.closed:  # and not for ever
        lines.write({"event": "over"}, wait=False)
    assert len(lines.outgoing) < (1 << 16) + 100
    ours.close()
    theirs.close()


def test_the_umask_is_as_before(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        AgentServer(str(tmp_path / "s")).close()
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    "what",
    [None, "a\nb", {"k": [1, 2.5, None]}, "\u00fc" * 10, "x" * 3_000_000],
    ids=["none", "newline", "nested", "utf8", "3 MB"],
)
def test_values_come_back_as_they_went(agent: Agent, tmp_path: Path, what: object) -> None:
    client = AgentClient(tmp_path / "s")
    for _ in range(3):
        assert client.call("echo", what=what) == what
    client.close()


def test_an_error_is_the_agents_own_words_and_the_channel_goes_on(
    agent: Agent, tmp_path: Path
) -> None:
    client = AgentClient(tmp_path / "s")
    with pytest.raises(AgentError, match="^no such thing$"):
        client.call("fail")
    assert client.call("echo", what=1) == 1
    client.close()


def test_what_is_said_unasked_waits_to_be_read(agent: Agent, tmp_path: Path) -> None:
    client = AgentClient(tmp_path / "s")
    assert client.call("noisy") == "answer"
    assert client.call("echo", what=1) == 1
    assert [m["event"] for m in client.notifications()] == ["first"]
    assert client.notifications() == []
    client.close()


def test_a_notification_right_behind_an_answer_is_kept(tmp_path: Path) -> None:
    server = AgentServer(str(tmp_path / "s"))
    client = AgentClient(tmp_path / "s")
    server.requests()
    server.clients[0].sock.send(b'{"id":1,"ok":"answer"}\n{"event":"behind"}\n')
    assert client.call("op") == "answer"
    assert [m["event"] for m in client.notifications()] == ["behind"]
    client.close()
    server.close()


def test_silence_is_an_error_after_the_timeout(agent: Agent, tmp_path: Path) -> None:
    client = AgentClient(tmp_path / "s", timeout=0.1)
    with pytest.raises(AgentError, match="did not answer 'silent'"):
        client.call("silent")
    client.close()


def test_a_late_answer_is_not_taken_for_the_next_one(agent: Agent, tmp_path: Path) -> None:
    late: list[dict[str, Any]] = []

    def reply(server: AgentServer, client: Any, request: dict[str, Any]) -> None:
        if request["op"] == "slow":
            late.append(request)
            return
        for old in late:
            server.answer(client, {"id": old["id"], "ok": "late"})
        server.answer(client, {"id": request["id"], "ok": "prompt"})

    agent.reply = reply
    client = AgentClient(tmp_path / "s", timeout=0.1)
    with pytest.raises(AgentError):
        client.call("slow")
    client.timeout = 30.0
    assert client.call("fast") == "prompt"
    client.close()


def test_an_agent_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="no agent answers"):
        AgentClient(tmp_path / "nobody", timeout=0.05)


def test_an_agent_that_goes_away(agent: Agent, tmp_path: Path) -> None:
    client = AgentClient(tmp_path / "s")
    assert client.call("echo", what=1) == 1
    agent.running = False
    agent.join()
    agent.server.close()
    with pytest.raises(AgentError, match="gone"):
        client.call("echo")
    client.close()


def test_lines_are_whole_however_they_arrive(tmp_path: Path) -> None:
    server = AgentServer(str(tmp_path / "s"))
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(str(tmp_path / "s"))
    got: list[dict[str, Any]] = []
    for piece in (b'{"id":1,', b'"op":"a"}', b'\n{"id":2,"op":"b"}\n{"id"', b':3,"op":"c"}\n'):
        raw.send(piece)
        got += asked(server)
    assert [(m["id"], m["op"]) for m in got] == [(1, "a"), (2, "b"), (3, "c")]
    raw.close()
    assert (
        server.requests() == [] and server.clients == [] and server.readers() == [server.listener]
    )
    server.close()


@pytest.mark.parametrize("line", [b"not json\n", b"[1, 2]\n", b'"text"\n', b"\xff\xfe\n", b"\n"])
def test_a_line_that_is_no_message_ends_the_connection_and_not_the_agent(
    tmp_path: Path, line: bytes
) -> None:
    server = AgentServer(str(tmp_path / "s"))
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(str(tmp_path / "s"))
    raw.send(line)
    assert server.requests() == []
    client = AgentClient(tmp_path / "s")
    client.lines.write({"id": 1, "op": "x"})
    assert asked(server) == [{"id": 1, "op": "x"}]
    client.close()
    raw.close()
    server.close()


def test_each_client_gets_its_own_answers(agent: Agent, tmp_path: Path) -> None:
    clients = [AgentClient(tmp_path / "s") for _ in range(3)]
    # all asked before any answer is read; every client's first request has the same id
    for client in clients:
        client.lines.write({"id": 1, "op": "echo", "what": f"for {clients.index(client)}"})
        client.serial = 1
    for number, client in enumerate(clients):
        client.lines.write({"id": 2, "op": "echo", "what": "more"})
        said: list[dict[str, Any]] = []
        while len(said) < 2:
            said += client.lines.read()
        assert said == [{"id": 1, "ok": f"for {number}"}, {"id": 2, "ok": "more"}]
        client.close()


def test_news_goes_to_the_oldest_client_that_is_not_quiet(tmp_path: Path) -> None:
    server = AgentServer(str(tmp_path / "s"))
    clients = [AgentClient(tmp_path / "s") for _ in range(3)]
    controller, runner, second = clients
    controller.lines.write({"id": 1, "op": "deny", "entries": [], "quiet": True})
    # what an operation is given does not hold the word
    assert asked(server) == [{"id": 1, "op": "deny", "entries": []}]
    server.notify({"event": "first"})
    assert [client.notifications() for client in clients] == [[], [{"event": "first"}], []]
    runner.close()
    server.requests()
    server.notify({"event": "second"})
    assert controller.notifications() == [] and second.notifications() == [{"event": "second"}]
    second.close()
    server.requests()
    server.notify({"event": "to nobody"})
    assert controller.notifications() == [] and not controller.closed
    controller.close()
    server.close()


def test_one_that_hangs_up_takes_nobody_along(agent: Agent, tmp_path: Path) -> None:
    stays, goes = AgentClient(tmp_path / "s"), AgentClient(tmp_path / "s")
    assert stays.call("echo", what=1) == 1 and goes.call("echo", what=2) == 2
    goes.lines.write({"id": 9, "op": "echo", "what": "never read"})
    goes.close()
    assert stays.call("echo", what=3) == 3
    stays.close()


def test_too_many_clients_are_turned_away_and_make_room(agent: Agent, tmp_path: Path) -> None:
    clients = [AgentClient(tmp_path / "s") for _ in range(MAX_CLIENTS)]
    for client in clients:
        assert client.call("echo", what=1) == 1
    late = AgentClient(tmp_path / "s")
    with pytest.raises(AgentError, match="gone"):
        late.call("echo", what=1)
    clients.pop(0).close()
    clients[0].call("echo")  # the agent has seen it go, or sees it together with this
    clients[0].call("echo")
    late = AgentClient(tmp_path / "s")
    assert late.call("echo", what=2) == 2
    for client in [*clients, late]:
        client.close()


def test_a_signal_ends_a_wait_that_is_about_to_begin(tmp_path: Path) -> None:
    """Its handler may run between the look at `running` and the wait, which nothing would end."""
    server = AgentServer(str(tmp_path / "a.sock"))
    client = AgentClient(tmp_path / "a.sock")
    server.requests()
    assert select.select(server.readers(), [], [], 0)[0] == []
    server.end_wait()
    assert select.select(server.readers(), [], [], 0)[0] and server.requests() == []
    client.close()
    server.close()
