"""The controller's HTTP server under attack from this machine: the answers come from a process like
the controller's, without a fabric."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.controller.client import ControllerClient
from testbed.controller.journal import MAX_READERS, OWNERS_READERS
from testbed.errors import UserError
from testbed.machine.slowness import patient
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "0123456789abcdef" * 2
MOST = 64 + 10
"""Descriptors of the server's that connections without a whole request may hold."""
FILES = 256
"""That the server may open."""
CONNECTIONS = 300
"""More than it takes by itself and than it may open: without a limit the next waits for ever."""
PATIENCE_S = patient(30.0)
"""For what must happen at all."""
SERVER = f"""
FILES = {FILES}
import sys
from itertools import count
from testbed.controller import ryu_base
import eventlet, resource
from testbed.controller.confine import listen
from testbed.controller.journal import Journal
from testbed.controller.links import FailedLinks
from testbed.controller.rest import Rest
from testbed.controller.steering import Steering
from testbed.controller.views import Views
from topologies import load_fabric
from topologies.paths import static_tables

resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
ryu_base.REQUEST_S = float(sys.argv[2])
fabric = load_fabric("demo")
steering = Steering(fabric, FailedLinks(fabric, 0), Journal(), count().__next__)
for t in range(int(sys.argv[3])):
    steering.journal.add(t, "deny", entry="p0", reason="x" * 500, by="operator")
tables = static_tables(fabric)
views = Views(fabric, tables, lambda: tables, steering.links, lambda: steering.denylist.entries)
listener, port = listen("127.0.0.1", 0)
ryu_base.serve(Rest(views, steering, sys.argv[1]), listener)
print(port, flush=True)
eventlet.event.Event().wait()
"""


class Server:
    def __init__(self, request_s: float, entries: int) -> None:
        words = [sys.executable, "-c", SERVER, TOKEN, str(request_s), str(entries)]
        self.process = subprocess.Popen(
            words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        self.port = int(self.process.stdout.readline())
        self.quiet = self.descriptors()
        self.url = f"http://127.0.0.1:{self.port}"
        self.owner, self.stranger = ControllerClient(self.url, TOKEN), ControllerClient(self.url)

    def connect(self, data: bytes, buffer: int = 0) -> socket.socket:
        made = socket.socket()
        if buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        made.settimeout(PATIENCE_S)
        made.connect(("127.0.0.1", self.port))
        made.sendall(data)
        return made

    def ask(self, text: str) -> tuple[int, bytes]:
        """Status and body of what a request, written out, is answered by."""
        with self.connect(text.replace("\n", "\r\n").encode()) as connection:
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def close(self) -> str:
        self.process.kill()
        return self.process.communicate()[1]


@contextlib.contextmanager
def serving(request_s: float = 3600.0, entries: int = 0) -> Iterator[Server]:
    """``entries``: how many the journal holds, half a kilobyte each. Requests have time enough that
    only their number counts."""
    server = Server(request_s, entries)
    try:
        yield server
    finally:
        complaints = server.close()
    assert complaints == "", "an attack is no reason to write anything"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.mark.parametrize(
    "half",
    [b"", b"GET /v1/li", b"GET /v1/links HTTP/1.1\r\nHost: 127.0.0.1\r\nX-More: ",
     b"POST /denylist HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n\r\n{"],
    ids=["nothing", "line", "headers", "body"],
)  # fmt: skip
def test_half_requests_silence_nobody(
    server: Server, crowd: list[socket.socket], half: bytes
) -> None:
    for number in range(CONNECTIONS):
        crowd.append(server.connect(half))
        # fewer than the kernel holds for the server: above that connecting waits by the second
        if number % 20 == 19:
            assert server.stranger.get("failed-links") == {}
            assert server.owner.deny("p0", f"while {number + 1} are there")["new"] is True
            assert server.owner.allow("p0")["entry"] == "p0"
    assert server.descriptors() - server.quiet <= MOST, "the oldest went"


def test_answers_that_nobody_reads_silence_nobody(crowd: list[socket.socket]) -> None:
    """A page of megabytes: more than the sockets' buffers take."""
    with serving(entries=4000) as server:
        request = b"GET /v1/journal HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        for number in range(2 * MOST):
            crowd.append(server.connect(request, buffer=2048))
            if number % 20 == 19:
                assert ControllerClient(server.url, TOKEN, PATIENCE_S).get("failed-links") == {}
        # patient: the answers that nobody reads take their time before this one does
        for token in ("", TOKEN):
            assert len(ControllerClient(server.url, token, PATIENCE_S).get("journal")) == 4000
        assert server.descriptors() - server.quiet <= MOST


@pytest.mark.parametrize(
    "request_line, header, status",
    [
        ("GET /links?x=%ff", "", 400),
        ("GET /journal?since=%ff", "", 400),
        ("DELETE /denylist/p0?by=%ff", "", 400),
        ("GET /%ff", "", 404),
        ("GET /links", f"Content-Length: {10**20}", 400),
        ("GET /links", "Content-Length: -1", 400),
        ("POST /denylist", "Content-Length: 60", 400),
        ("GET /links", "X: 1\n" * 500, 431),
    ],
)
def test_bytes_that_are_no_request_are_an_answer_and_no_line(
    server: Server, request_line: str, header: str, status: int
) -> None:
    with server.connect(
        f"{request_line} HTTP/1.1\nHost: 127.0.0.1\n{header}\n\n".replace("\n", "\r\n").encode()
    ) as connection:
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(1 << 16)
    assert int(answer.split()[1]) == status and b"Traceback" not in answer


def test_a_request_that_drips_ends_in_time() -> None:
    """However often a byte comes: the whole request has a time, not each read."""
    with (
        serving(1.0) as server,
        server.connect(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ") as connection,
    ):

        def closed() -> bool:
            connection.send(b"x")
            return bool(select.select([connection], [], [], 0)[0])

        wait_until(closed, "still open", 30, pause=0.1)
        with contextlib.suppress(ConnectionError):
            assert connection.recv(100) == b""


def test_streams_have_a_number_and_no_time(crowd: list[socket.socket]) -> None:
    """Those of strangers leave some to the owner, and connections that come push none of them
    out."""
    with serving(0.5) as server:
        follow = b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
        streams = [server.connect(follow) for _ in range(MAX_READERS - OWNERS_READERS)]
        crowd += streams
        wait_until(
            lambda: server.ask("GET /events HTTP/1.1\nHost: localhost\n\n")[0] == 503,
            "all streams are taken",
        )
        crowd += [server.connect(b"GET /") for _ in range(100)]
        wait_until(
            lambda: select.select(crowd[-1:], [], [], 0)[0],
            "the newest of the crowd has had its time, and the streams more",
        )
        server.owner.deny("p0", "news")
        assert next(server.owner.events(since=0))["entry"] == "p0"
        for stream in streams:
            data = b""
            while b'"entry": "p0"' not in data:
                data += stream.recv(1 << 16) or pytest.fail("a stream was closed")


@pytest.mark.parametrize(
    "headers",
    [
        "Host: evil.example",
        "Host: evil.example:{port}",
        "Host: 127.0.0.1\nHost: evil.example",
        "X-Host: 127.0.0.1",
    ],
)
def test_dns_rebinding_reads_nothing(server: Server, headers: str) -> None:
    for page in ("/v1/links", "/events", "/", "/v1/denylist"):
        status, body = server.ask(f"GET {page} HTTP/1.1\n{headers.format(port=server.port)}\n\n")
        assert status == 403 and list(json.loads(body)) == ["error"]


def test_changes_need_the_token(server: Server) -> None:
    wrong = ("Bearer", f"Basic {TOKEN}", TOKEN, "Bearer " + "0" * 32)
    for header in ("", f"X-Token: {TOKEN}\n", *(f"Authorization: {value}\n" for value in wrong)):
        for request in ("POST /denylist", "POST /v1/denylist", "DELETE /denylist/p1"):
            status, body = server.ask(
                f"{request} HTTP/1.1\nHost: 127.0.0.1\n{header}Content-Length: 15\n\n"
                '{"entry": "p0"}'
            )
            assert status == 401 and "mrcbed fabric denylist" in json.loads(body)["error"], (
                request,
                header,
            )
    with pytest.raises(UserError, match="needs the fabric's token"):
        server.stranger.deny("p0")
    assert server.stranger.get("denylist") == []
    headers = f"host: LOCALHOST:1\nauthorization: bearer {TOKEN}\nContent-Length: 15"
    status, _ = server.ask(f'POST /denylist HTTP/1.1\n{headers}\n\n{{"entry": "p0"}}')
    assert status == 201 and [d["entry"] for d in server.stranger.get("denylist")] == ["p0"]
    server.owner.allow("p0")
