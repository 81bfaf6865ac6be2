"""Target ``control``: any bytes on an agent's control socket are requests or the end of that
client, and any request has one answer.

An input is what a client writes. The agent is the real one on a real MRC engine; its NIC and its
socket are not there.
"""

from __future__ import annotations

import socket
from typing import Any, cast

import msgspec

from agents.collectives import base, flows, group
from agents.mrc.endpoint import Endpoint
from agents.nic.device import Nic
from agents.process.agent import Agent
from agents.process.control import Lines
from tests.fabrics import near
from topologies.clos import Fabric
from topologies.units import NS, US

TINY = near(Fabric("tiny", 2, 2, 2, 2))
SMALL_ARENA = 1 << 16
"""The product's 256 MiB would make memory, not code, what is exercised."""
AGE = 50
"""Inputs after which the agent is made anew."""
MOST_QPS = 64


class Heard:
    """A socket that has heard ``data``, in pieces."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def setblocking(self, _: bool) -> None:
        """It never blocks."""

    def recv(self, most: int) -> bytes:
        if not self.data:
            raise BlockingIOError
        piece, self.data = self.data[: min(most, 100)], self.data[min(most, 100) :]
        return piece


class NoPorts:
    """The NIC of an agent that sends nothing."""

    ring: Any = type("Ring", (), {"not_ours": 0})()

    def port_states(self) -> list[bool]:
        return [True] * TINY.planes

    def drops(self) -> int:
        return 0


def ask(op: str, **fields: Any) -> bytes:
    return msgspec.json.encode({"id": 1, "op": op, **fields}) + b"\n"


THEIRS = [{"host": 1, "qpn": 16, "psn": 5, "mpr": 1024, "arena": [1 << 36, 77, 1 << 16]}]
STORIES = (
    ask("setup", collective="ring-allreduce", ranks=[0, 1], rank=0, qps=1, slices=1)
    + ask("connect", remotes={"1": THEIRS})
    + ask("prepare", collective="ring-allreduce", message_bytes=64, steps=1)
    + ask("start", collective="ring-allreduce", message_bytes=64, steps=1),
    ask(
        "setup",
        collective="flows",
        ranks=[0, 1],
        rank=0,
        flows=[{"name": "a", "src": 0, "dst": 1, "messages": 2}],
    )
    + ask("connect", remotes={"1": THEIRS})
    + ask("start", collective="flows", message_bytes=64, outstanding=2, at=0),
    ask(
        "setup",
        collective="flows",
        ranks=[0, 1],
        rank=0,
        flows=[{"name": "a", "src": 0, "dst": 1, "messages": 2}],
    )
    + ask("connect", remotes={"1": [{**THEIRS[0], "arena": [-1, 77, 1 << 16]}]})
    + ask("start", collective="flows", message_bytes=64, outstanding=2, at=0),
    ask("setup", collective="all-to-all", ranks=[0, 1, 2], rank=0, qps=2) + ask("abort"),
    ask("counters") + ask("paths") + ask("mapper") + ask("denied") + ask("mapper_stop"),
    ask("deny", entries=["p0", "p0-t1-1", "h0>h1@p0/0"])
    + ask("hint", links=["p0-t0-0:p0-t1-0"])
    + ask("reroute", dead_links=[]),
    ask("mapper_start", seed=1, options={}, report=True) + ask("mapper_stop"),
    ask("program", size=4096)
    + ask("group", group="world", ranks=[0, 1], rank=0)
    + ask("join", group="world", remotes={"1": [{**THEIRS[0], "memory": [1 << 37, 78, 4096]}]})
    + ask(
        "call",
        group="world",
        call=1,
        name="ring-allreduce",
        dtype="float64",
        size=64,
        source=0,
        target=64,
    )
    + ask(
        "call",
        group="world",
        call=2,
        name="broadcast",
        dtype="int8",
        size=16,
        source=0,
        target=0,
        root=1,
    )
    + ask("send", group="world", call=3, peer=1, offset=0, size=8)
    + ask("recv", group="world", call=4, peer=1, offset=4088, size=8)
    + ask("steps")
    + ask("lose", host=1, reason="it ended", steps={"world": 1})
    + ask("tell", note={"step": 1}),
    ask("program", size=1 << 40)
    + ask("program", size="x")
    + ask("group", group="world", ranks=[0, 1], rank=0),
    ask("stop"),
    b'{"id":1}\n[]\n{"op":null,"id":"x"}\nGET / HTTP/1.0\r\n\r\n',
)


class Control:
    """One execution: what one client writes."""

    max_len = 1024
    words = (
        b'"id":',
        b'"op":',
        b'"setup"',
        b'"connect"',
        b'"prepare"',
        b'"start"',
        b'"abort"',
        b'"deny"',
        b'"hint"',
        b'"reroute"',
        b'"ranks":',
        b'"rank":',
        b'"flows":',
        b'"remotes":',
        b'"entries":',
        b'"links":',
        b'"message_bytes":',
        b'"collective":',
        b'"ring-allreduce"',
        b'"mapper_start"',
        b'"options":',
        b'"dtype":',
        b"null",
        b"true",
        b"-1",
        b"1e999",
        b"18446744073709551616",
        b"[]",
        b"{}",
        b'""',
        b"\n",
    )

    def __init__(self) -> None:
        for module in (group, base, flows):
            module.ARENA = SMALL_ARENA  # type: ignore[attr-defined]
        group.RECEIVES = 4  # type: ignore[misc]
        self.story: list[bytes] = []
        self.renew()

    def renew(self) -> None:
        """An agent that was asked nothing yet."""
        self.now = 100 * US
        self.story.clear()
        engine = Endpoint(TINY, 0, {"mpr": 128}, 1)
        nic = Nic(TINY, 0, engine, cast("Any", NoPorts()), lambda: self.now)
        self.agent = Agent(TINY, 0, nic, lambda line: None, lambda note: None, lambda: self.now)
        self.engine = engine

    def one(self, data: bytes) -> None:
        """Raises AssertionError, or whatever the code under test lets out."""
        if len(self.story) >= AGE or len(self.engine.qps) > MOST_QPS or not self.agent.running:
            self.renew()
        self.story.append(data)
        lines = Lines(cast("socket.socket", Heard(data)))
        asked = lines.read()
        assert lines.closed or len(asked) == data.count(b"\n"), "a line was lost"
        for request in asked:
            answer = self.agent.answer(request)
            assert set(answer) in ({"id", "ok"}, {"id", "error"}), f"not an answer: {answer}"
            if "error" in answer:
                assert isinstance(answer["error"], str) and answer["error"]
            assert b"\n" not in msgspec.json.encode(answer)
            self.now += 100 * NS
            self.agent.advance()
            self.engine.timer(self.now)
            while self.engine.transmit(self.now) >= 0:
                pass
            self.agent.record(self.now)

    def seeds(self) -> list[bytes]:
        """A sound story of each kind, and its single requests."""
        return [
            *STORIES,
            *(line + b"\n" for story in STORIES[:6] for line in story.split(b"\n") if line),
        ]
