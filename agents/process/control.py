"""The control channel of a host process: JSON lines over a Unix socket that only its owner can open.

The server half runs in the agent, the client half in the program that steers agents. A request is ``{"id", "op", ...}``, its answer
``{"id", "ok": ...}`` or ``{"id", "error": "one line"}``; lines without an id are notifications, ``{"event": ...}``. Several clients may be
connected at once: the runner or the prompt, and the controller.
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
"""The most clients: a runner or prompt, a controller, and some spare ones; more are rejected [ours]."""


MAX_LINE = 1 << 26
"""The longest line, in bytes; a client that sends a longer one is disconnected [ours]."""
AT_ONCE = 1 << 16
"""Bytes that a server takes from a client before it looks at what else there is to do [ours]."""
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid: struct ucred


class Message(Note, total=False):
    """A request with its arguments, an answer, or without ``id`` a notification."""

    id: int
    op: str
    quiet: bool
    error: str


class Answer(TypedDict, total=False):
    """An answer; of a refusal for a lost rank, the ``rank`` and the number of its host."""

    id: int
    ok: object
    error: str
    rank: int
    lost: int


def is_message(value: object) -> TypeGuard[Message]:
    """Say whether a value that was read is a message, whose keys its sender answers for."""
    return isinstance(value, dict)


class AgentError(Exception):
    """The agent refused a request, or is gone. The text is one line. ``rank``: who was lost, if that is why."""

    def __init__(self, line: str, rank: int | None = None) -> None:
        super().__init__(line)
        self.rank = rank


def result(answer: Message) -> Any:
    """Return what an agent answered to a request. Raises :class:`AgentError`."""
    if "error" in answer:
        raise AgentError(answer["error"], answer.get("rank"))
    return answer["ok"]


class Lines:
    """JSON in lines over a non-blocking stream socket. ``at_once``: about as many bytes a :meth:`read` takes at most, so that a peer that
    never pauses holds nobody up. ``longest``: bytes of a line, and of what waits for a peer that does not read."""

    def __init__(self, sock: socket.socket, at_once: int = MAX_LINE) -> None:
        self.sock = sock
        self.sock.setblocking(False)
        self.at_once, self.longest = at_once, MAX_LINE
        self.incoming, self.outgoing = bytearray(), bytearray()
        self.closed = False

    def read(self) -> list[Message]:
        """Read complete lines that have arrived."""
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
        """Send a line. With ``wait``, the peer reads promptly: a short wait for room is enough. Without, :meth:`flush` sends the rest."""
        self.outgoing += msgspec.json.encode(message) + b"\n"
        end = time.monotonic() + 5.0
        while self.flush() and wait:
            if time.monotonic() > end:
                self.closed = True
            time.sleep(0.001)

    def flush(self) -> bool:
        """Send what waits, as far as there is room; returns whether something still waits."""
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
    """Return the user of the process at the other end when it connected, as the kernel reports it."""
    _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(uid)


class AgentServer:
    """A server that listens at ``path`` (mode 0600, made before root is dropped). Every client gets the answers to its own requests.

    It serves its owner (the user who made it) and root: the folder must be closed to others, and the kernel is asked who connects. Raises
    OSError.

    Notifications go to the oldest client that has not said ``"quiet": true`` with a request: that client steers the collective; a
    controller, which only sends lists, is quiet.
    """

    def __init__(self, path: str) -> None:
        folder = os.path.dirname(path) or "."
        if stat.S_IMODE(os.stat(folder).st_mode) & 0o077:
            raise PermissionError(f"others may enter {folder}, where a control socket is to lie: chmod 700 it")
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
        """Return requests that have arrived, each with its client; accepts new clients, and forgets those that hung up."""
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
        """Send the answer to a request of this client, if it is still connected."""
        if not client.closed:
            client.write(message, wait)

    def notify(self, message: Mapping[str, object]) -> None:
        """Send a notification, without waiting for who reads it."""
        for client in self.clients:
            if client not in self.quiet and not client.closed:
                client.write(message, wait=False)
                return

    def flush(self) -> None:
        """Send what waits for clients that did not read; call it now and then."""
        for client in self.clients:
            client.flush()

    def end_wait(self) -> None:
        """End a wait on :meth:`readers` that is going on or about to begin: a signal alone does not. Nobody new is accepted from now on."""
        self.listener.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the sockets. Quiet clients hear that this is intended; the client that steers has asked for it."""
        for client in self.quiet:
            if not client.closed:
                client.write({"event": "bye"}, wait=False)
        for sock in self.sockets:
            sock.close()


class AgentClient:
    """A client that steers one agent. Raises :class:`AgentError` when it cannot be reached within ``timeout`` seconds."""

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
        """Perform a request and return the answer. Raises :class:`AgentError` with the agent's own words, or when it is gone."""
        self.serial += 1
        me = self.serial
        self.lines.write({"id": me, "op": op, **args})
        end = time.monotonic() + self.timeout
        import select

        while True:
            answer: Message | None = None
            for message in self.lines.read():  # all of it: a notification may come right behind the answer
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
                raise AgentError(f"the agent at {self.path} did not answer {op!r} within {self.timeout:g} s")
            select.select([self.lines.sock], [], [], left)

    def notifications(self) -> list[Note]:
        """Take the agent's notifications since the last call."""
        notes: list[Note] = self.waiting + [m for m in self.lines.read() if "id" not in m]
        self.waiting = []
        return notes

    def close(self) -> None:
        self.lines.sock.close()
