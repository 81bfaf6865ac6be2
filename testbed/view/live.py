"""Starts and ends the server of a living view (testbed.view.server), and prints where it is."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from testbed.crowd import BACKLOG, REQUEST_S
from testbed.errors import UserError

HERE = "127.0.0.1"
END_S = 3.0
REQUEST_BUFFER = 1 << 14
"""Receive buffer of a connection, bytes [ours]: the kernel's part of a request is read at once,
from each of a crowd."""
ROOT = Path(__file__).resolve().parents[2]


class LiveView:
    """The view of a directory's runs that are not over. ``name`` is for people. ``looks``: colour
    and sign of transports. ``user``: whom the server becomes, -1 to stay. ``port``: 0 for a free
    one. ``control``: pages may command, by the socket :attr:`commands`. Raises
    :class:`UserError`."""

    def __init__(
        self,
        name: str,
        directory: Path,
        looks: Mapping[str, tuple[str, str]],
        user: int,
        port: int = 0,
        control: bool = False,
        request_s: float = REQUEST_S,
    ) -> None:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, REQUEST_BUFFER)
        try:
            listening.bind((HERE, port))
        except OSError as error:
            listening.close()
            raise UserError(
                f"--view-port {port}: {error.strerror}: give another one, or none"
            ) from None
        listening.listen(BACKLOG)
        token, control_token = (
            secrets.token_urlsafe(16),
            secrets.token_urlsafe(16) if control else "",
        )
        self.commands: socket.socket | None
        self.commands, theirs = socket.socketpair() if control else (None, None)
        place = {
            "name": name,
            "socket": listening.fileno(),
            "directory": str(directory.resolve()),
            "token": token,
            "control_token": control_token,
            "control": -1 if theirs is None else theirs.fileno(),
            "user": user,
            "looks": dict(looks),
            "request_s": request_s,
        }
        descriptors = [listening.fileno()] + ([theirs.fileno()] if theirs is not None else [])
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "testbed.view.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=descriptors,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(place).encode() + b"\n")
        self.process.stdin.flush()
        self.url = f"http://{HERE}:{listening.getsockname()[1]}/#" + "&".join(
            [token, *([control_token] if control else [])]
        )
        listening.close()
        if theirs is not None:
            theirs.close()

    def end(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.commands is not None:
            self.commands.close()
