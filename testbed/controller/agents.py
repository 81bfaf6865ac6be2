"""Sends lists to the agents over their control sockets, and never waits for an agent.

Each message is the complete list, so only the latest matters. An agent gets the next message once
it has answered the last. So each message fits its socket's buffer, and no timer is needed.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agents.process.control import Lines
from testbed.controller.journal import Journal
from testbed.machine.slowness import patient

ARGUMENT = {"deny": "entries", "hint": "links"}
EVENT = {"deny": "denylist-pushed", "hint": "hint-pushed"}
HELLO = b'{"id": 0, "op": "hello", "quiet": true}\n'
"""The first message: this client wants no notifications. Nobody waits for the answer."""
CONNECT_S = 1.0
ANSWER_S = 1.0
"""A slower agent counts as not reached [ours]; it still gets the latest list when it wakes."""


@dataclass(eq=False)
class Agent:
    name: str
    lines: Lines
    # request -> number of the message under way
    asked: dict[str, int] = field(default_factory=dict)
    behind: set[str] = field(default_factory=set)  # requests for which there is something newer
    ending: bool = False  # it has announced its end


@dataclass
class Push:
    number: int
    op: str
    values: list[str]
    heard_ps: int
    of: int
    pushed_ps: int  # when sending began
    effect_ps: dict[str, int] = field(default_factory=dict)  # agent -> when it took effect there


class AgentLinks:
    def __init__(self, journal: Journal, clock: Callable[[], int]) -> None:
        self.agents: list[Agent] = []
        self._journal, self._clock = journal, clock
        self._numbers = 0
        self._latest: dict[str, tuple[int, list[str]]] = {}
        self._open: list[Push] = []

    def join(self, sockets: Mapping[str, str]) -> list[Agent]:
        joined = []
        for name, path in sockets.items():
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(patient(CONNECT_S))
                sock.connect(path)
            except OSError as error:
                sock.close()
                self._journal.add(
                    self._clock(),
                    "agent-lost",
                    agent=name,
                    reason=f"cannot connect: {error.strerror or error}",
                )
                continue
            agent = Agent(name, Lines(sock))
            sock.send(HELLO)
            joined.append(agent)
        self.agents += joined
        return joined

    def leave(self) -> None:
        self._close_pushes(self._open)
        for agent in self.agents:
            _hang_up(agent)
        self.agents, self._latest = [], {}

    def push(self, op: str, values: list[str], heard_ps: int) -> None:
        """Agents that owe an answer get the list after that."""
        if not self.agents:
            return
        self._numbers += 1
        self._latest[op] = self._numbers, values
        # Dated before the first message leaves: an agent may act on it before this process runs
        # again.
        push = Push(self._numbers, op, values, heard_ps, len(self.agents), self._clock())
        self._open.append(push)
        for agent in list(self.agents):
            if op in agent.asked:
                agent.behind.add(op)
            else:
                self._send(agent, op)

    def heard(self, agent: Agent) -> bool:
        for message in agent.lines.read():
            agent.ending = agent.ending or message.get("event") == "bye"
            number = message.get("id")
            op = next((op for op, request in agent.asked.items() if request == number), None)
            if op is None or not isinstance(number, int):
                continue
            del agent.asked[op]
            if "error" in message:
                self._journal.add(
                    self._clock(), "refused", agent=agent.name, reason=str(message["error"])
                )
            else:
                at = message.get("ok")
                for push in self._open:
                    if push.op == op and push.number <= number and agent.name not in push.effect_ps:
                        push.effect_ps[agent.name] = at if isinstance(at, int) else self._clock()
            if op in agent.behind:
                agent.behind.discard(op)
                self._send(agent, op)
        self._close_pushes([push for push in self._open if len(push.effect_ps) >= push.of])
        if agent.lines.closed:
            self._lose(agent, "" if agent.ending else "it hung up")
        return not agent.lines.closed

    def expire(self, until_ps: int) -> None:
        self._close_pushes([push for push in self._open if push.pushed_ps <= until_ps])

    @property
    def settled(self) -> bool:
        return not self._open

    def _send(self, agent: Agent, op: str) -> None:
        number, values = self._latest[op]
        data = (
            json.dumps(
                {"id": number, "op": op, ARGUMENT[op]: values, "quiet": True}, separators=(",", ":")
            ).encode()
            + b"\n"
        )
        try:
            sent = agent.lines.sock.send(data)
        except OSError as error:
            self._lose(agent, f"the list cannot be sent to it: {error.strerror or error}")
            return
        if sent < len(data):
            self._lose(agent, "its socket's buffer cannot hold the list")
            return
        agent.asked[op] = number

    def _lose(self, agent: Agent, reason: str) -> None:
        if agent not in self.agents:
            return
        self.agents.remove(agent)
        _hang_up(agent)
        if reason:
            self._journal.add(self._clock(), "agent-lost", agent=agent.name, reason=reason)
        else:
            self._journal.add(self._clock(), "agents-left", agents=[agent.name])

    def _close_pushes(self, pushes: list[Push]) -> None:
        for push in list(pushes):
            self._open.remove(push)
            self._journal.add(
                self._clock(),
                EVENT[push.op],
                **{ARGUMENT[push.op]: push.values},
                heard_ps=push.heard_ps,
                pushed_ps=push.pushed_ps,
                effect_ps=max(push.effect_ps.values(), default=None),
                agents=len(push.effect_ps),
                of=push.of,
            )


def _hang_up(agent: Agent) -> None:
    """Shut the socket down without closing it, so that a thread that waits on it wakes and drops
    it."""
    agent.lines.closed = True
    try:
        agent.lines.sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
