"""The control channel of a host process: JSON lines over a Unix socket that only its owner can
open.

A request is ``{"id", "op", ...}``, its answer ``{"id", "ok": ...}`` or ``{"id", "error": "one
line"}``; lines without an id are notifications.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeGuard

import msgspec

from agents.transport import Note

MAX_CLIENTS = 8
"""Most clients; more are rejected [ours]."""


MAX_LINE = 1 << 26
"""A client that sends a longer line, in bytes, is disconnected [ours]."""
AT_ONCE = 1 << 16
"""Bytes that a server takes from a client in a turn [ours]."""
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid: struct ucred


class Message(Note, total=False):
    id: int
    op: str
    quiet: bool
    error: str


class Answer(TypedDict, total=False):
    id: int
    ok: object
    error: str
    rank: int
    lost: int


def is_message(value: object) -> TypeGuard[Message]:
    return isinstance(value, dict)


class AgentError(Exception):
    """The agent refused a request, or is gone. The text is one line. ``rank``: who was lost, if
    that is why."""

    def __init__(self, line: str, rank: int | None = None) -> None:
        super().__init__(line)
        self.rank = rank


def result(answer: Message) -> Any:
    """Raises :class:`AgentError`."""
    if "error" in answer:
        raise AgentError(answer["error"], answer.get("rank"))
    return answer["ok"]


class Lines:
    """``at_once``: about as many bytes a :meth:`read` takes. ``longest``: bytes of a line, and of
    what waits for a peer."""

    def __init__(self, sock: socket.socket, at_once: int = MAX_LINE) -> None:
        self.sock = sock
        self.sock.setblocking(False)
        self.at_once, self.longest = at_once, MAX_LINE
        self.incoming, self.outgoing = bytearray(), bytearray()
        self.closed = False

    def read(self) -> list[Message]:
        before = len(self.incoming)
        while not self.closed and len(self.incoming) - before < self.at_once:
            try:
                data = self.sock.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                self.closed = True
                break
            if not data:
                self.closed = True
                break
            self.incoming += data
        messages: list[Message] = []
        while (end := self.incoming.find(b"\n", before)) >= 0:
            line = bytes(self.incoming[:end])
            del self.incoming[: end + 1]
            before = 0
            try:
                message = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                message = None
            if not is_message(message):
                self.closed = True  # this client does not speak our protocol
                break
            messages.append(message)
        if len(self.incoming) > self.longest:
            self.closed = True
        return messages

    def write(self, message: Mapping[str, object], wait: bool = True) -> None:
        """With ``wait``, the peer reads promptly. Without, :meth:`flush` sends the rest."""
        self.outgoing += msgspec.json.encode(message) + b"\n"
        end = time.monotonic() + 5.0
        while self.flush() and wait:
            if time.monotonic() > end:
                self.closed = True
            time.sleep(0.001)

    def flush(self) -> bool:
        """Returns whether something still waits."""
        while self.outgoing and not self.closed:
            try:
                del self.outgoing[: self.sock.send(self.outgoing)]
            except BlockingIOError:
                self.closed = len(self.outgoing) > self.longest
                break
            except OSError:
                self.closed = True
        return bool(self.outgoing) and not self.closed


def peer_uid(sock: socket.socket) -> int:
    _, uid, _ = _CREDENTIALS.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return int(uid)


class AgentServer:
    """It serves its owner and root: ``path`` has mode 0600, the folder must be closed to others,
    and the kernel is asked who connects. It is made before root is dropped. Raises OSError.

    Notifications go to the oldest client that has not said ``"quiet": true`` with a request: that
    client steers the collective.
    """

    def __init__(self, path: str) -> None:
        folder = os.path.dirname(path) or "."
        if stat.S_IMODE(os.stat(folder).st_mode) & 0o077:
            raise PermissionError(
                f"others may enter {folder}, where a control socket is to lie: chmod 700 it"
            )
        self.owners = (os.geteuid(), 0)
        self.strangers = 0  # turned away
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old = os.umask(0o177)
        try:
            self.listener.bind(path)
        finally:
            os.umask(old)
        self.listener.listen(4)
        self.listener.setblocking(False)
        self.clients: list[Lines] = []  # oldest first
        self.quiet: set[Lines] = set()
        self.sockets: list[socket.socket] = [self.listener]

    def readers(self) -> list[socket.socket]:
        return self.sockets

    def requests(self) -> list[tuple[Lines, Message]]:
        self._accept()
        requests: list[tuple[Lines, Message]] = []
        for client in self.clients:
            for request in client.read():
                if request.pop("quiet", False):
                    self.quiet.add(client)
                if not isinstance(request.get("id"), int):
                    request["id"] = 0  # it comes back with the answer
                requests.append((client, request))
        if any(client.closed for client in self.clients):
            for client in self.clients:
                if client.closed:
                    client.sock.close()
                    self.quiet.discard(client)
            self.clients = [client for client in self.clients if not client.closed]
            self.sockets = [self.listener, *(client.sock for client in self.clients)]
        return requests

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            if peer_uid(sock) not in self.owners:
                self.strangers += 1
                sock.close()
                continue
            if len(self.clients) >= MAX_CLIENTS:
                sock.close()
                continue
            self.clients.append(Lines(sock, AT_ONCE))
            self.sockets = [*self.sockets, sock]

    def answer(self, client: Lines, message: Mapping[str, object], wait: bool = True) -> None:
        if not client.closed:
            client.write(message, wait)

    def notify(self, message: Mapping[str, object]) -> None:
        for client in self.clients:
            if client not in self.quiet and not client.closed:
                client.write(message, wait=False)
                return

    def flush(self) -> None:
        for client in self.clients:
            client.flush()

    def end_wait(self) -> None:
        """End a wait on :meth:`readers`, going on or about to begin: a signal alone does not."""
        self.listener.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Quiet clients hear that this is intended; the client that steers has asked for it."""
        for client in self.quiet:
            if not client.closed:
                client.write({"event": "bye"}, wait=False)
        for sock in self.sockets:
            sock.close()


class AgentClient:
    """Raises :class:`AgentError` when the agent cannot be reached within ``timeout`` seconds."""

    def __init__(self, path: str | Path, timeout: float = 10.0) -> None:
        self.path = str(path)
        self.timeout = timeout
        self.serial = 0
        self.waiting: list[Note] = []
        end = time.monotonic() + timeout
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(self.path)
                break
            except OSError as error:
                sock.close()
                if time.monotonic() > end:
                    raise AgentError(f"no agent answers at {self.path}: {error.strerror}") from None
                time.sleep(0.01)
        self.lines = Lines(sock)

    def fileno(self) -> int:
        return self.lines.sock.fileno()

    @property
    def closed(self) -> bool:
        return self.lines.closed

    def call(self, op: str, **args: Any) -> Any:
        """Raises :class:`AgentError` with the agent's own words, or when it is gone."""
        self.serial += 1
        me = self.serial
        self.lines.write({"id": me, "op": op, **args})
        end = time.monotonic() + self.timeout
        import select

        while True:
            answer: Message | None = None
            # all of it: a notification may come right behind the answer
            for message in self.lines.read():
                if message.get("id") == me:
                    answer = message
                elif "id" not in message:
                    self.waiting.append(message)
            if answer is not None:
                return result(answer)
            if self.lines.closed:
                raise AgentError(f"the agent at {self.path} is gone")
            left = end - time.monotonic()
            if left <= 0:
                raise AgentError(
                    f"the agent at {self.path} did not answer {op!r} within {self.timeout:g} s"
                )
            select.select([self.lines.sock], [], [], left)

    def notifications(self) -> list[Note]:
        notes: list[Note] = self.waiting + [m for m in self.lines.read() if "id" not in m]
        self.waiting = []
        return notes

    def close(self) -> None:
        self.lines.sock.close()
