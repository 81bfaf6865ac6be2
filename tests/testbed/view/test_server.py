"""The server of a living view, as a process: each of its rules of safety, and that nobody waits for
it."""

from __future__ import annotations

import http.client
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.crowd import MOST_IN_TURNS, REQUEST_S
from testbed.machine.sandbox import unprivileged_uid
from testbed.machine.slowness import patient
from testbed.view.live import LiveView
from testbed.view.server import READERS
from tests.testbed.view.conftest import Growing
from tests.waiting import wait_until

TREE = Path(__file__).parents[3]
FILES = 400
"""That a server may open."""
Serve = Callable[..., "Served"]


class Served:
    def __init__(self, view: LiveView) -> None:
        self.view = view
        address, _, tokens = view.url.partition("/#")
        self.host = address.removeprefix("http://")
        self.token, *control = tokens.split("&")
        self.control_token = control[0] if control else ""
        self.open: list[http.client.HTTPConnection] = []
        # it listened before it began
        assert self.ask("GET", "/").status == 200 and view.process.poll() is None

    def ask(
        self, method: str, path: str, body: str | bytes = "", **headers: str
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.host, timeout=patient(10))
        self.open.append(connection)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body or None, named)
        return connection.getresponse()

    def connect(self, data: bytes = b"") -> socket.socket:
        host, _, port = self.host.partition(":")
        made = socket.create_connection((host, int(port)), timeout=patient(10))
        made.sendall(data)
        return made

    def commanded(self) -> bytes:
        """What has gone on to whoever has the fabric."""
        assert self.view.commands is not None
        return (
            self.view.commands.recv(1000, socket.MSG_DONTWAIT)
            if select.select([self.view.commands], [], [], 0)[0]
            else b""
        )

    def frames(self, **headers: str) -> http.client.HTTPResponse:
        return self.ask("GET", "/frames", **({"Authorization": f"Bearer {self.token}"} | headers))

    def command(
        self, body: str | bytes = '{"do": "cut", "link": "p0-t0-0:p0-t1-0"}', **headers: str
    ) -> http.client.HTTPResponse:
        usual = {
            "Authorization": f"Bearer {self.control_token}",
            "Origin": f"http://{self.host}",
            "Content_Type": "application/json",
        }
        return self.ask("POST", "/command", body, **(usual | headers))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that takes commands, of a directory without runs: for tests after which it is as
    before."""
    directory = tmp_path_factory.mktemp("shared")
    directory.chmod(0o755)
    served = Served(LiveView("small", directory, {}, unprivileged_uid(), control=True))
    yield served
    served.view.end()


@pytest.fixture(autouse=True)
def silent(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Whatever its clients do, a server writes nothing."""
    yield
    assert capfd.readouterr().err == ""


@pytest.fixture
def serve(growing: Growing, silent: None) -> Iterator[Serve]:
    """What starts a server that may open :data:`FILES`."""
    views: list[Served] = []

    def start(control: bool = False, request_s: float = REQUEST_S) -> Served:
        look = {"mrc": ("#0072b2", "x")}
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
        try:
            view = LiveView(
                "small",
                growing.directory,
                look,
                unprivileged_uid(),
                control=control,
                request_s=request_s,
            )
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        served = Served(view)
        views.append(served)
        return served

    yield start
    for served in views:
        for connection in served.open:
            connection.close()
        served.view.end()
        assert served.view.process.poll() is not None


def line(answer: http.client.HTTPResponse) -> Any:
    return json.loads(answer.readline())


def test_the_page_runs_its_own_scripts_alone(shared: Served) -> None:
    answer = shared.ask("GET", "/")
    policy = answer.headers["Content-Security-Policy"]
    assert (
        answer.status == 200
        and "default-src 'none'" in policy
        and "connect-src 'self'" in policy
        and "unsafe" not in policy
    )
    assert (
        answer.headers["Referrer-Policy"] == "no-referrer"
        and answer.headers["X-Content-Type-Options"] == "nosniff"
    )
    assert (
        "Access-Control-Allow-Origin" not in answer.headers
        and answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    )


def test_a_page_gets_frames_while_the_run_grows(serve: Serve, growing: Growing) -> None:
    served = serve()
    answer = served.frames()
    assert answer.status == 200 and line(answer) == ["", {"f": "hello", "control": False}]
    growing.begin()
    source, header = line(answer)
    assert source == growing.key and header["f"] == "run" and header["colour"] == "#0072b2"
    growing.grow(1.0)
    assert line(answer)[1]["f"] != "run"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", ""])
def test_another_host_name_is_refused(shared: Served, host: str) -> None:
    """A page of another name that resolves to this machine (DNS rebinding)."""
    assert [shared.ask("GET", "/", Host=host).status, shared.frames(Host=host).status] in (
        [421, 421],
        [400, 400],
    )
    assert shared.ask("GET", "/", Host=shared.host.replace("127.0.0.1", "localhost")).status == 200


def test_frames_need_the_token(shared: Served) -> None:
    served = shared
    for given in (
        "",
        "Bearer ",
        "Bearer x",
        f"Basic {served.token}",
        f"Bearer {served.control_token}",
    ):
        assert served.frames(Authorization=given).status == 401
    # never in an address that is logged
    assert served.ask("GET", f"/frames?token={served.token}").status == 401
    assert len(served.token) >= 22 and served.token != served.control_token


def test_commands_need_their_own_token_our_origin_and_json(shared: Served) -> None:
    served = shared
    assert served.command(Authorization=f"Bearer {served.token}").status == 401
    assert served.command(Origin="http://evil.example").status == 403
    assert served.command(Origin="null").status == 403
    assert served.command(Content_Type="text/plain").status == 415
    assert served.command(Host="evil.example").status == 421
    assert served.command(json.dumps({"do": "cut", "link": "x" * 2000})).status == 413
    unknown = (b"{", b'{"do": "cut"}', b'{"do": "cut", "link": "x", "sh": 1}')
    for body in (
        *unknown,
        b'{"do": "cut", "link": "\xff"}',
        b"\xff",
        b'{"do": "cut", "link": "\\ud800"}',
        b"[" * 1000,
    ):
        assert served.command(body).status == 400
    assert served.ask("GET", "/command").status == 405
    assert served.commanded() == b"", "none of these went on"


def test_a_command_goes_to_whoever_has_the_fabric_and_its_answer_back(shared: Served) -> None:
    served = shared
    commands = served.view.commands
    assert commands is not None
    for answer, status in (({}, 200), ({"error": "it is cut already"}, 409)):
        commands.send(json.dumps(answer).encode() + b"\n")
        got = served.command()
        assert got.status == status and json.loads(got.read()) == answer
        assert json.loads(commands.recv(1000)) == {"do": "cut", "link": "p0-t0-0:p0-t1-0"}


def test_a_view_that_only_shows_takes_no_command(serve: Serve) -> None:
    served = serve()
    for token in ("", "-", served.token):
        assert served.command(Authorization=f"Bearer {token}").status in (401, 403)
    assert line(served.frames())[1]["control"] is False


def test_so_many_pages_read_at_once_and_no_more(serve: Serve) -> None:
    served = serve()
    answers = [served.frames() for _ in range(READERS)]
    assert [line(answer)[1]["f"] for answer in answers] == ["hello"] * READERS
    assert served.frames().status == 503
    for connection in served.open:
        connection.close()
    assert (
        wait_until(
            lambda: answer if (answer := served.frames()).status != 503 else None,
            "a closed page makes room",
        ).status
        == 200
    )


def test_pages_that_come_at_once_are_counted_too(serve: Serve) -> None:
    served = serve()
    request = (
        f"GET /frames HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n"
        "\r\n"
    ).encode()
    pages = [served.connect() for _ in range(2 * READERS)]
    served.view.process.send_signal(signal.SIGSTOP)
    try:
        for page in pages:
            page.sendall(request)
    finally:
        served.view.process.send_signal(signal.SIGCONT)
    assert (
        sorted(page.recv(1 << 16).split()[1] for page in pages)
        == [b"200"] * READERS + [b"503"] * READERS
    )
    for page in pages:
        page.close()


HALVES = {
    "nothing": "",
    "line": "GET /fra",
    "headers": "GET / HTTP/1.1\r\nHost: {host}\r\nX-More: ",
    "body": "POST /command HTTP/1.1\r\nHost: {host}\r\nContent-Length: 900\r\n\r\n{{",
    "long": "GET /" + "x" * 60_000,
}


def test_half_requests_shut_nobody_out(
    serve: Serve, growing: Growing, crowd: list[socket.socket]
) -> None:
    """A hundred and fifty of each kind, altogether more than the server may open. Were one kind
    left open, descriptors would tell."""
    served = serve(control=True)
    commands = served.view.commands
    assert commands is not None
    reading = served.frames()
    assert line(reading)[1]["f"] == "hello"
    for number, half in enumerate(half for half in HALVES.values() for _ in range(150)):
        crowd.append(served.connect())
        with suppress(OSError):  # what is too long is refused while it is sent
            crowd[-1].sendall(half.format(host=served.host).encode())
        if number % 75 == 74:
            commands.send(b"{}\n")
            assert served.command().status == served.ask("GET", "/").status == 200
            page = served.frames()
            assert line(page)[1]["f"] == "hello"
            page.close()
            served.open.pop().close()
    assert (
        len(os.listdir(f"/proc/{served.view.process.pid}/fd")) <= MOST_IN_TURNS + 2 * READERS + 16
    )
    growing.begin()
    assert line(reading)[1]["f"] == "run", "who reads is not pushed out"


@pytest.mark.parametrize(
    "half",
    ["GET / HTTP/1.1\r\nX: ", "POST /command HTTP/1.1\r\nContent-Length: 900\r\n{headers}\r\n"],
)
def test_a_request_that_drips_ends_in_time(serve: Serve, half: str) -> None:
    """The owner's own, too."""
    served = serve(control=True, request_s=0.5)
    headers = (
        f"Host: {served.host}\r\nAuthorization: Bearer {served.control_token}\r\n"
        f"Origin: http://{served.host}\r\n"
    )
    with served.connect(
        half.format(headers=headers + "Content-Type: application/json\r\n").encode()
    ) as connection:

        def closed() -> bool:
            connection.send(b"x")
            return bool(select.select([connection], [], [], 0)[0])

        wait_until(closed, "still open", 30, pause=0.05)
        with suppress(ConnectionError):
            assert connection.recv(100) == b""


def test_one_connection_is_one_request(shared: Served) -> None:
    served = shared
    with (
        served.connect(f"GET / HTTP/1.1\r\nHost: {served.host}\r\n\r\n".encode() * 3) as connection,
        suppress(ConnectionError),
    ):
        assert b"".join(iter(lambda: connection.recv(1 << 16), b"")).count(b"HTTP/1.1 200") == 1


def test_a_client_that_leaves_in_the_middle_of_a_command_is_nobodys_trouble(shared: Served) -> None:
    served = shared
    head = (
        f"Host: {served.host}\r\nAuthorization: Bearer {served.control_token}\r\n"
        f"Origin: http://{served.host}\r\n"
    )
    head += "Content-Type: application/json\r\nContent-Length: 50\r\nExpect: 100-continue\r\n\r\n"
    for _ in range(5):
        with served.connect(f"POST /command HTTP/1.1\r\n{head}".encode()) as connection:
            assert b" 100 " in connection.recv(100)  # it reads the command now
            connection.sendall(b"{")
    assert served.ask("GET", "/").status == 200 and served.commanded() == b""


def test_a_page_that_reads_nothing_keeps_nobody_waiting(serve: Serve, growing: Growing) -> None:
    served = serve()
    host, _, port = served.host.partition(":")
    with socket.create_connection((host, int(port))) as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        stalled.send(
            f"GET /frames HTTP/1.1\r\nHost: {served.host}\r\n"
            f"Authorization: Bearer {served.token}\r\n\r\n".encode()
        )
        growing.begin()
        growing.grow(1.0)
        growing.end()
        answer = served.frames()
        kinds = []
        while "end" not in kinds:
            kinds.append(line(answer)[1]["f"])
        assert len(kinds) > 50


def test_it_listens_on_this_machine_alone_and_has_no_rights(shared: Served) -> None:
    served = shared
    process = served.view.process
    assert served.host.startswith("127.0.0.1:")
    status = dict(
        row.split(":\t", 1)
        for row in Path(f"/proc/{process.pid}/status").read_text().splitlines()
        if ":\t" in row
    )
    if os.geteuid() == 0:
        assert (
            set(status["Uid"].split()) == {str(unprivileged_uid())} != {"0"}
            and status["CapEff"].strip("0") == ""
        )
        assert status["Groups"].strip() == ""
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
    inodes = (
        {
            os.readlink(f"/proc/{process.pid}/fd/{fd}")
            for fd in os.listdir(f"/proc/{process.pid}/fd")
        }
        if os.geteuid() == 0
        else set()
    )
    own = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in own if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    assert all(address.startswith("0100007F:") for address in listening)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives rights up")
def test_it_serves_from_a_clone_that_only_root_can_reach(growing: Growing, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    for room in ("testbed", "topologies"):
        shutil.copytree(
            TREE / room, clone / room, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
    clone.chmod(0o700)
    growing.begin()
    text = f"""
import sys, testbed
from pathlib import Path
from testbed.view.live import LiveView
assert testbed.__file__.startswith({str(clone)!r})
view = LiveView("small", Path({str(growing.directory)!r}), {{}}, 65534)
print(view.url, flush=True)
sys.stdin.read()
view.end()
"""
    command = [sys.executable, "-c", text]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone)},
    ) as starter:
        assert starter.stdin is not None and starter.stdout is not None
        host, _, token = starter.stdout.readline().strip().removeprefix("http://").partition("/#")
        connection = http.client.HTTPConnection(host, timeout=patient(10))
        connection.request("GET", "/frames", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        assert [line(answer)[1]["f"], line(answer)[1]["f"]] == ["hello", "run"]
        connection.close()
        starter.stdin.close()


def test_it_ends_with_its_starter_and_never_the_other_way_round(serve: Serve) -> None:
    served = serve()
    answer = served.frames()
    line(answer)
    assert served.view.process.stdin is not None
    served.view.process.stdin.close()  # as when the starter dies
    assert served.view.process.wait(patient(10)) == 0
    with suppress(http.client.IncompleteRead):
        assert answer.read() == b""


def test_a_port_that_is_taken_is_one_line(growing: Growing) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(Exception, match=r"--view-port \d+: .*give another one"),
    ):
        LiveView("small", growing.directory, {}, -1, taken.getsockname()[1])
