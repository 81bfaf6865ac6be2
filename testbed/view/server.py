"""The server of a living view: a process of its own that follows a run's files and gives pages
their frames.

It takes what it needs of the machine, a listening socket and its working directory, before it gives
up root. It ends when its starter does, never the other way round. docs/why/security.md has the
rules of safety, each of which is tested. At most :data:`READERS` pages read at once; who has shown
no token yet is one of a :class:`Crowd`. It writes nothing: its standard error is the owner's
terminal, and clients could fill that.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio._backends._asyncio  # noqa: F401 anyio loads it late, and by then its file may not be readable
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from testbed.crowd import BACKLOG, MOST_IN_TURNS, Crowd
from testbed.view.follow import Following
from testbed.view.history import History
from testbed.view.inline import live_page

READERS = 8
LOOK_S = 0.1
MOST_COMMAND = 1024
ANSWER_S = 10.0
NICE = 19


class Place(msgspec.Struct):
    """The starter's words, as JSON on standard input, which stays open for as long as the server is
    to run. ``name``, ``looks``, ``user``: as of :class:`testbed.view.live.LiveView`. ``control``:
    the descriptor of a socket for commands, or -1. ``request_s``: the time for a request to come
    and be answered."""

    name: str
    socket: int
    directory: str
    token: str
    control_token: str
    control: int
    user: int
    looks: dict[str, tuple[str, str]]
    request_s: float


class Command(msgspec.Struct, forbid_unknown_fields=True):
    do: str
    link: str


class View:
    def __init__(self, place: Place, port: int) -> None:
        self.place = place
        self.send: Callable[[Command], Awaitable[dict[str, Any]]] | None = None
        self.hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self.page, self.policy = live_page(place.name)
        self.following = Following(Path())
        self.history = History()
        self.news = asyncio.Event()
        self.readers = 0
        self.over = False

    def end(self) -> None:
        self.over = True
        self.news.set()

    def app(self) -> Starlette:
        routes = [
            Route("/", self.root, methods=["GET"]), Route("/frames", self.frames, methods=["GET"]),
            Route("/command", self.command, methods=["POST"]),
        ]  # fmt: skip
        return Starlette(routes=routes)

    async def follow(self) -> None:
        while True:
            before = self.history.end
            for source, frame in self.following.look():
                if frame["f"] == "run":
                    frame["colour"], frame["marker"] = self.place.looks.get(
                        frame["transport"], ("", "")
                    )
                self.history.add(source, frame)
            if self.history.end != before:
                self.news.set()
                self.news = asyncio.Event()
            await asyncio.sleep(LOOK_S)

    # --- requests ---------------------------------------------------------------------------------

    def refusal(self, request: Request, token: str) -> Response | None:
        """Return None if the request is to be answered. ``token`` is what it must bring, "" for the
        page itself, which contains no secret."""
        if request.headers.get("host") not in self.hosts:
            return PlainTextResponse("mrcbed: this address is not the view's\n", 421)
        given = request.headers.get("authorization", "")
        if token and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return PlainTextResponse(
                "mrcbed: the token is missing or wrong: open the address that mrcbed printed\n", 401
            )
        return None

    async def root(self, request: Request) -> Response:
        refused = self.refusal(request, "")
        if refused is not None:
            return refused
        headers = {
            "Content-Security-Policy": self.policy,
            "Referrer-Policy": "no-referrer",
            **_HEADERS,
        }
        return Response(self.page, media_type="text/html", headers=headers)

    async def frames(self, request: Request) -> Response:
        refused = self.refusal(request, self.place.token)
        if refused is not None:
            return refused
        request.state.leave()
        return _Frames(self)

    async def lines(self) -> AsyncIterator[str]:
        place = -1
        yield json.dumps(["", {"f": "hello", "control": self.send is not None}]) + "\n"
        while not self.over:
            news = self.news
            text, place = self.history.since(place)
            if text:
                yield text
            else:
                await news.wait()

    async def command(self, request: Request) -> Response:
        refused = self.refusal(request, self.place.control_token or "-")
        if refused is not None:
            return refused
        if request.headers.get("origin") not in [f"http://{host}" for host in self.hosts]:
            return PlainTextResponse("mrcbed: commands come from the view's own page\n", 403)
        if request.headers.get("content-type") != "application/json":
            return PlainTextResponse("mrcbed: a command is JSON\n", 415)
        if self.send is None:
            return PlainTextResponse(
                "mrcbed: this view only shows: start it with --view-control\n", 403
            )
        body = b""
        try:
            async for part in request.stream():
                body += part
                if len(body) > MOST_COMMAND:
                    return PlainTextResponse("mrcbed: a command has at most 1,024 bytes\n", 413)
            wanted = msgspec.json.decode(body, type=Command)
        except (ValueError, ClientDisconnect) as error:  # also what is no UTF-8
            return PlainTextResponse(f"mrcbed: {error}\n", 400)
        request.state.leave()  # the whole command is here: its answer may take longer
        answer = await self.send(wanted)
        return JSONResponse(answer, 409 if "error" in answer else 200, headers=_HEADERS)


_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _Frames(StreamingResponse):
    def __init__(self, view: View) -> None:
        super().__init__(view.lines(), media_type="application/x-ndjson", headers=_HEADERS)
        self.view = view

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.view.readers >= READERS:
            await PlainTextResponse(f"mrcbed: {READERS} pages read already: close one\n", 503)(
                scope, receive, send
            )
            return
        self.view.readers += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.view.readers -= 1


class _Connection(H11Protocol):
    """The connection belongs to the crowd until ``leave`` is called
    (:attr:`starlette.requests.Request.state`)."""

    crowd: Crowd[asyncio.Transport]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.crowd.join(transport)
        self.app_state = {"leave": self.leave}

    def connection_lost(self, exc: Exception | None) -> None:
        self.crowd.leave(self.transport)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def leave(self) -> None:
        self.crowd.leave(self.transport)
        self.cycle.keep_alive = True


class Control:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.lock = reader, writer, asyncio.Lock()

    async def send(self, command: Command) -> dict[str, Any]:
        async with self.lock:
            try:
                self.writer.write(msgspec.json.encode(command) + b"\n")
                answer = await asyncio.wait_for(self.reader.readline(), ANSWER_S)
                return dict(json.loads(answer)) if answer else {"error": "the fabric is gone"}
            except (TimeoutError, OSError):
                return {"error": "no answer from the fabric"}


async def serve(view: View, config: uvicorn.Config, listening: socket.socket) -> None:
    if view.place.control >= 0:
        view.send = Control(
            *await asyncio.open_unix_connection(sock=socket.socket(fileno=view.place.control))
        ).send
    later = asyncio.get_running_loop().call_later
    _Connection.crowd = Crowd(
        later, lambda transport: transport.abort(), view.place.request_s, MOST_IN_TURNS
    )
    server = uvicorn.Server(config)
    following = asyncio.create_task(view.follow())
    await asyncio.get_running_loop().connect_read_pipe(lambda: _Wanted(server, view), sys.stdin)
    await server.serve(sockets=[listening])
    following.cancel()


class _Wanted(asyncio.Protocol):
    def __init__(self, server: uvicorn.Server, view: View) -> None:
        self.server, self.view = server, view

    def connection_lost(self, exc: Exception | None) -> None:
        self.view.end()
        self.server.should_exit = True


def main() -> int:
    place = msgspec.json.decode(sys.stdin.buffer.readline(), type=Place)
    listening = socket.socket(fileno=place.socket)
    view = View(place, listening.getsockname()[1])
    config = uvicorn.Config(
        view.app(),
        http=_Connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=1,
    )
    logging.disable()
    config.load()  # all that is read from this clone is read now: another user may not reach it
    os.chdir(place.directory)
    os.nice(NICE)
    if place.user >= 0:
        os.setgroups([])
        os.setgid(place.user)
        os.setuid(place.user)
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(view, config, listening))
    return 0


if __name__ == "__main__":
    sys.exit(main())
