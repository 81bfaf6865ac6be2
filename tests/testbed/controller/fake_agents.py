"""Agents as the controller meets them: real sockets, answered when the test says so."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from testbed.controller.agents import AgentLinks


class FakeAgent:
    """Listens like an agent; :meth:`hear` reads what was asked, :meth:`answer` answers the oldest
    unanswered request."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.path = name, str(folder / f"{name}.sock")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(1)
        self._held = b""
        self.sock: socket.socket | None = None
        self.asked: list[dict[str, Any]] = []
        self._unanswered: list[int] = []

    def hear(self) -> list[dict[str, Any]]:
        """Everything asked so far, oldest first."""
        if self.sock is None:
            self.sock = self._listener.accept()[0]
            self.sock.setblocking(False)
        try:
            while data := self.sock.recv(1 << 16):
                self._held += data
        except BlockingIOError:
            pass
        *lines, self._held = self._held.split(b"\n")
        for line in lines:
            message = json.loads(line)
            assert message.pop("quiet") is True
            if message["op"] == "hello":
                continue
            self._unanswered.append(message.pop("id"))
            self.asked.append(message)
        return self.asked

    def answer(self, links: AgentLinks, ok: Any = None, **other: Any) -> None:
        """Answer, and let the controller's side hear it."""
        self.hear()
        assert self.sock is not None
        self.sock.send(
            json.dumps({"id": self._unanswered.pop(0), **(other or {"ok": ok})}).encode() + b"\n"
        )
        links.heard(self.seen_by(links))

    def seen_by(self, links: AgentLinks) -> Any:
        return next(agent for agent in links.agents if agent.name == self.name)

    def close(self) -> None:
        self._listener.close()
        if self.sock is not None:
            self.sock.close()
