"""The cluster's view of its controller. Nothing here waits long for one that does not answer.

After the controller's death, or without one, a denylist goes directly to the agents.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from agents.clock import Clock
from testbed.controller.client import ControllerClient
from testbed.controller.denylist import OPERATOR, Denylist
from testbed.errors import UserError
from testbed.machine.slowness import patient
from topologies import Fabric
from topologies.denylist import check_entry

ANSWER_S = 3.0
"""Seconds for a list to reach all agents [ours]: the controller gives up on one after 1 s."""


REST_S = 1.0


class Agent(Protocol):
    def call(self, op: str, **args: Any) -> Any: ...


class ControllerHandle:
    def __init__(
        self,
        fabric: Fabric,
        clock: Clock,
        process: subprocess.Popen[bytes] | None = None,
        token: str = "",
    ) -> None:
        self.url = ""
        self.token = token
        self.over = False
        self._process = process
        self._buffer = b""
        self._agents: Sequence[Agent] = ()
        self._fabric, self._now = fabric, clock.now
        self._own = Denylist(fabric)  # as far as this process knows; in force without a controller

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def _client(self) -> ControllerClient:
        return ControllerClient(self.url, self.token, patient(REST_S))

    def line(self, timeout: float) -> str:
        assert self._process is not None and self._process.stdout is not None
        until = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            if not select.select(
                [self._process.stdout], [], [], max(0.0, until - time.monotonic())
            )[0]:
                return ""
            data = os.read(self._process.stdout.fileno(), 4096)
            if not data:
                self.over = True
                return ""
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace").strip()

    def begin(self, agents: Sequence[Agent], sockets: Mapping[str, str], policy: str) -> str:
        """Return the controller's answer; empty without a controller."""
        self._agents = agents
        if not self.alive:
            if self._own.entries:
                self._tell_agents()
            return ""
        answer = self._request({"agents": dict(sockets), "policy": policy})
        if answer.startswith("error"):
            raise RuntimeError(f"the controller refused its agents: {answer}")
        return answer

    def end(self) -> None:
        if self._agents and self.alive:
            self._request({"agents": {}, "policy": "none"})
        self._agents = ()

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                pass

    def _request(self, message: Mapping[str, object]) -> str:
        assert self._process is not None and self._process.stdin is not None
        while self.line(0):
            pass  # answers that came too late
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return ""  # it died just now
        return self.line(patient(ANSWER_S))

    def journal(self, since_ps: int) -> list[dict[str, Any]]:
        if not self.alive or not self.url:
            return []
        try:
            return list(self._client.get("journal", since=since_ps))
        except UserError:
            return []

    # --- the denylist -----------------------------------------------------------------------------

    def deny(self, entry: str, reason: str = "", by: str = OPERATOR) -> bool:
        """Return whether the entry is new. Raises FabricError, and UserError if a living controller
        does not answer."""
        if self.alive:
            new = bool(self._client.deny(entry, reason, by)["new"])
            self._own.deny(entry, reason, by, self._now())
            return new
        self._adopt()
        new = self._own.deny(entry, reason, by, self._now())[1]
        self._tell_agents()
        return new

    def allow(self, entry: str, by: str | None = None) -> bool:
        if self.alive:
            denials = self._client.get("denylist")
            self._own.allow(entry, by)
            listed = any(
                d["entry"] == check_entry(self._fabric, entry) and by in (None, d["by"])
                for d in denials
            )
            if listed:
                self._client.allow(entry, by)
            return listed
        self._adopt()
        removed = self._own.allow(entry, by)
        self._tell_agents()
        return bool(removed)

    def denied(self) -> list[dict[str, Any]]:
        if self.alive:
            return list(self._client.get("denylist"))
        self._adopt()
        return [asdict(denial) for denial in self._own.denials]

    def _adopt(self) -> None:
        """Take over the entries that the agents have in force, whoever denied them, after the
        controller's death."""
        if self._process is None or not self._agents:
            return
        entries = list(self._agents[0].call("denied"))
        for entry in entries:
            if entry not in self._own.entries:
                self._own.deny(entry, "in force when the controller went", OPERATOR, self._now())
        for entry in self._own.entries:
            if entry not in entries:
                self._own.allow(entry)

    def _tell_agents(self) -> None:
        for agent in self._agents:
            agent.call("deny", entries=self._own.entries)
