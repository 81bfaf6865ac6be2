"""The client of the controller's REST view, against servers that are none: whatever answers, or
does not, is one line, in time."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from mrcbed.cli import execute
from testbed.controller.client import ControllerClient
from testbed.errors import UserError

Answer = Callable[[socket.socket], None]


def whole(connection: socket.socket) -> None:
    """Read a request with its body, which comes by itself: who hangs up on what he has not read
    resets the connection."""
    with connection.makefile("rb") as request:
        head = b"".join(iter(request.readline, b"\r\n"))
        request.read(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0))


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Starts a server that answers every request so; its address."""
    opened: list[socket.socket] = []
    over = threading.Event()

    def start(answer: Answer) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        opened.append(listener)

        def work() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                with connection:
                    try:
                        whole(connection)
                        answer(connection)
                    except OSError:
                        pass

        threading.Thread(target=work, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    over.set()
    for listener in opened:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def page(data: bytes, head: str = "200 OK") -> Answer:
    return lambda connection: connection.sendall(
        f"HTTP/1.1 {head}\r\nConnection: close\r\n\r\n".encode() + data
    )


def endless(first: bytes, again: bytes, pause: float = 0.0) -> Answer:
    def answer(connection: socket.socket) -> None:
        connection.sendall(first)
        while not select.select([], [], [], pause)[0]:  # for ever: a client that leaves ends it
            connection.sendall(again)

    return answer


OK = b"HTTP/1.1 200 OK\r\n\r\n"
LINK = {"link": "a:b", "state": "up", "since_ps": 1, "denied": [], "paths": 3}


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://[::1]x",
        "http://",
        "http://:80",
        "http://h:x",
        "http://h:99999",
        "http://h:１０",
        "http://h:-1",
        "ftp://h",
        "http://h/\u00e9",
        "http://\u0661.1",
        "http://\u2100:1",
        "http://a b",
        "http://u@h",
        "http://h?x",
        "http://h\n",
        "http://\udcff",
        "",
        "//h",
        "h:80",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="is not a controller's address: they look like http"):
        ControllerClient(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1",
        "http://a..b:1",
        "http://" + "a" * 70 + ".x:1",
        "http://[::1]:1",
        "http://[1:2]:1",
    ],
)
def test_nobody_there_is_one_line(url: str) -> None:
    with pytest.raises(UserError, match="^no controller answers at ") as refused:
        ControllerClient(url).get("links")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("token", ["a b", "a\n", "\u00e9", "\udcff"])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(UserError, match="token"):
        ControllerClient("http://127.0.0.1:1", token)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (page(b""), "is not a controller of mrcbed"),
        (page(b"<html>"), "is not a controller of mrcbed"),
        (page(b"\xff\xfe"), "is not a controller of mrcbed"),
        (page(b"[" * 100_000), "is not a controller of mrcbed"),
        (page(b"[" * 100 + b"]" * 100), "is not a controller of mrcbed"),
        (page(b"9" * 5000), "is not a controller of mrcbed"),
        (page(b"{}"), "is not a controller of mrcbed"),
        (page(b"[1]"), "is not a controller of mrcbed"),
        (page(b"[{}]"), "is not a controller of mrcbed"),
        (page(json.dumps([{**LINK, "since_ps": None}]).encode()), "is not a controller of mrcbed"),
        (page(json.dumps([{**LINK, "denied": [1]}]).encode()), "is not a controller of mrcbed"),
        (page(b"[NaN]"), "is not a controller of mrcbed"),
        (page(b"", "302 Found\r\nLocation: http://127.0.0.1:1/"), "answered 302 Found"),
        (page(b"", "500 Oh"), "answered 500 Oh"),
        (page(b'{"error": 5, "near": 7}', "404 Not"), "answered 404 Not"),
        (page(b'["error"]', "404 Not"), "answered 404 Not"),
        (
            page(b'{"error": "no h9", "near": ["h1", "h2"]}', "404 Not"),
            "^no h9: did you mean h1 or h2[?]$",
        ),
        (page(b'{"error": "' + b"x" * 100_000 + b'"}', "404 Not"), "^x{1000}$"),
        (lambda connection: connection.sendall(b"hello\r\n"), "no controller answers"),
        (lambda connection: None, "no controller answers"),
        (
            lambda connection: connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[]"
            ),
            "no controller answers",
        ),
        (endless(b"HTTP/1.1 200 OK\r\n", b"A: " + b"b" * 1000 + b"\r\n"), "no controller answers"),
        (endless(b"HTTP/1.1 200 OK\r\nA: ", b"b" * 1000), "no controller answers"),
        (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01), "no whole answer within 1 s"),
        (endless(OK, b" ", 0.01), "no whole answer within 1 s"),
        (endless(b"", b"H", 0.3), "no whole answer within 1 s"),
    ],
)
def test_what_is_no_controller_is_one_line(
    serve: Callable[[Answer], str], answer: Answer, said: str
) -> None:
    client = ControllerClient(serve(answer), timeout=1.0)
    with pytest.raises(UserError, match=said) as refused:
        client.get("links")
    assert "\n" not in str(refused.value)
    assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())


def test_an_answer_without_end_is_cut(
    serve: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.controller.client.MOST", 1 << 20)
    with pytest.raises(UserError, match="is not a controller of mrcbed"):
        ControllerClient(serve(endless(OK, b" " * (1 << 16))), timeout=60).get("links")


def test_what_a_controller_says_is_returned_whole(serve: Callable[[Answer], str]) -> None:
    rows = [{**LINK, "more": 1}]
    assert ControllerClient(serve(page(json.dumps(rows).encode()))).get("links") == rows
    assert (
        ControllerClient(serve(page(b'{"entry": "p0", "new": true}', "201 Created"))).deny("p0")[
            "new"
        ]
        is True
    )


@pytest.mark.parametrize(
    "command",
    [
        "links",
        "paths h0 h1",
        "denylist",
        "denylist add p0",
        "denylist remove p0",
        "events",
        "events --json",
    ],
)
@pytest.mark.parametrize(
    "data",
    [
        b"[{}]",
        b"{}",
        b'{"entry": "p0"}',
        b'{"t_ps": 1, "event": "deny"}\n',
        b'{"t_ps": 1e400, "event": "x"}\n',
        b"[]\n",
        b'{"t_ps": -9000000000000000000, "event": "hint-pushed", "links": 5}\n',
        b"x" * (3 << 20),
    ],
)
def test_commands_end_in_one_line(
    command: str, data: bytes, serve: Callable[[Answer], str], capsys: pytest.CaptureFixture[str]
) -> None:
    status = execute(["fabric", *command.split(), "--url", serve(page(data))])
    error = capsys.readouterr().err
    assert status in (0, 2) and error.count("\n") <= 1 and "internal error" not in error
    assert status == 2 or command.startswith("events") or data in (b"[]\n", b"{}")
