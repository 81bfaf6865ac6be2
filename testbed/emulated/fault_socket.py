"""A Unix socket that takes faults from the program under test (docs/how/faults.md): a line per
order, and a line of answer.

- inject KIND ON [KEY=VALUE...]: ok NUMBER, or ok alone for a kind that cannot be taken back
- heal [NUMBER...]: ok; without a number all of this connection's
- anything that is wrong: error TEXT

A connection's faults are taken back when it closes. The socket is mode 0600 and belongs to the
program's user, who can break this run's fabric and nothing beyond it.
"""

from __future__ import annotations

import os
import selectors
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agents.process.control import peer_uid
from testbed.emulated.prompt import words_of
from testbed.errors import UserError
from testbed.faults.injections import Injections
from testbed.faults.kinds import KINDS, read_words
from testbed.machine import sandbox
from testbed.machine.sandbox import group_of
from topologies import FabricError

VARIABLE = "MRCBED_FAULTS"
USAGE = 'inject KIND ON [KEY=VALUE...], like "inject loss h0-p1 probability=0.01"'
MOST_CLIENTS = 64
MOST_FAULTS = 256
LINE = 4096


class _Client:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.incoming = b""
        self.numbers: list[int] = []  # of its faults


class FaultSocket:
    """Serves until :meth:`close`. ``user`` may connect beside root (None: root alone). Raises
    OSError."""

    def __init__(self, injections: Injections, user: int | None) -> None:
        self._injections = injections
        self._owners = {0, user or 0}
        folder = tempfile.mkdtemp(prefix="faults-", dir=sandbox.PROGRAMS_DIR)
        self.path = Path(folder) / "socket"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self.path.chmod(0o600)
        if user:
            # the folder last: nobody replaces the socket before it has its owner
            for place in (self.path, folder):
                os.chown(place, user, group_of(user))
        self._listener.listen(8)
        self._listener.setblocking(False)
        self._waker, self._wake = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._clients: set[_Client] = set()
        self._thread = threading.Thread(target=self._serve, name="mrcbed-fault-socket", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._waker.send(b"x")
            self._thread.join()

    def _serve(self) -> None:
        over = False
        while not over:
            for key, _ in self._selector.select():
                act: Callable[[], None] | None = key.data
                if act is None:
                    over = True
                else:
                    act()
        for client in list(self._clients):
            self._drop(client)
        for sock in (self._listener, self._waker, self._wake):
            sock.close()
        self._selector.close()

    def _accept(self) -> None:
        with suppress(OSError):
            sock, _ = self._listener.accept()
            if len(self._clients) >= MOST_CLIENTS or peer_uid(sock) not in self._owners:
                sock.close()
                return
            sock.setblocking(False)
            client = _Client(sock)
            self._clients.add(client)
            self._selector.register(sock, selectors.EVENT_READ, lambda: self._read(client))

    def _drop(self, client: _Client) -> None:
        self._clients.discard(client)
        self._selector.unregister(client.sock)
        client.sock.close()
        self._heal(client, client.numbers)

    def _read(self, client: _Client) -> None:
        """Read orders. A client that sends no lines, or does not read answers, is dropped."""
        try:
            data = client.sock.recv(LINE)
            *lines, client.incoming = (client.incoming + data).split(b"\n")
            for line in lines:
                client.sock.sendall(
                    self._answer(client, line.decode(errors="replace")).encode() + b"\n"
                )
        except OSError:
            data = b""
        if not data or len(client.incoming) > LINE:
            self._drop(client)

    def _answer(self, client: _Client, line: str) -> str:
        try:
            match words_of(line):
                case ["inject", *words]:
                    return f"ok {self._inject(client, words)}".rstrip()
                case ["heal", *words]:
                    numbers = self._numbers(client, words)
                    self._heal(client, numbers)
                    return "ok"
                case _:
                    raise UserError(f"{line[:80]!r}: the orders are {USAGE}, and heal [NUMBER...]")
        except (UserError, FabricError) as error:
            return "error " + " ".join(str(error).split())
        except Exception as error:
            # the run is ending, or a bug: either way the program hears of it
            return f"error {type(error).__name__}: " + " ".join(str(error).split())

    def _inject(self, client: _Client, words: list[str]) -> str:
        self._forget_over(client)
        if len(client.numbers) >= MOST_FAULTS:
            raise UserError(f"there are {MOST_FAULTS} faults of this connection: heal some")
        kind, on, keys = read_words(words, USAGE)
        fault = self._injections.inject(kind, on, keys, run_seed=0)
        if not KINDS[kind].heals:
            return ""
        client.numbers.append(fault.number)
        return str(fault.number)

    def _forget_over(self, client: _Client) -> None:
        there = {fault.number for fault in self._injections.active()}
        client.numbers = [number for number in client.numbers if number in there]

    def _numbers(self, client: _Client, words: list[str]) -> list[int]:
        for word in words:
            if word not in map(str, client.numbers):
                raise UserError(
                    f"heal: {word} is no fault of this connection: there are "
                    f"{', '.join(map(str, client.numbers)) or 'none'}"
                )
        return [int(word) for word in words] or client.numbers

    def _heal(self, client: _Client, numbers: list[int]) -> None:
        client.numbers = [number for number in client.numbers if number not in numbers]
        for number in numbers:
            with suppress(UserError):
                self._injections.clear(number)
