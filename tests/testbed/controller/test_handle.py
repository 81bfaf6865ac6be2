"""The cluster's hold on its controller: without one the denylist goes straight to the agents."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from agents.clock import WallClock
from testbed.controller.handle import ControllerHandle
from topologies import FabricError, load_fabric

FABRIC = load_fabric("tiny")
LINK = "p0-t0-0:p0-t1-1"


class FakeAgent:
    def __init__(self, held: list[str] | None = None) -> None:
        self.held = held or []
        self.calls: list[str] = []

    def call(self, op: str, **args: Any) -> Any:
        self.calls.append(op)
        if op == "denied":
            return self.held
        assert op == "deny"
        self.held = args["entries"]
        return 1


@pytest.fixture
def dead() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", "print('ready 1')"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process.wait()
    yield process
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


def test_without_a_controller(dead: Any) -> None:
    handle = ControllerHandle(FABRIC, WallClock())
    assert handle.deny("p0-t1-1:p0-t0-0", "why") is True and handle.deny(LINK) is False
    first = [FakeAgent(), FakeAgent()]
    assert handle.begin(first, {}, "none") == ""
    assert [agent.held for agent in first] == [[LINK]] * 2, "what was denied before they came"
    assert handle.deny("p1", by="clustermapper")
    assert [agent.held for agent in first] == [[LINK, "p1"]] * 2
    assert handle.allow(LINK, "clustermapper") is False and handle.allow(LINK) is True
    assert [agent.held for agent in first] == [["p1"]] * 2
    handle.end()
    assert [(d["entry"], d["by"]) for d in handle.denied()] == [("p1", "clustermapper")]
    with pytest.raises(FabricError):
        handle.deny("p9")
    assert handle.journal(0) == []


def test_agents_of_a_healthy_fabric_are_not_bothered() -> None:
    agent = FakeAgent()
    ControllerHandle(FABRIC, WallClock()).begin([agent], {}, "hint")
    assert agent.calls == []


def test_after_its_death_what_agents_hold_is_in_force(dead: subprocess.Popen[bytes]) -> None:
    handle = ControllerHandle(FABRIC, WallClock(), dead)
    agents = [FakeAgent(["p1-t1-0", LINK]), FakeAgent(["p1-t1-0", LINK])]
    handle.begin(agents, {}, "hint")
    handle._own.deny("p0", "told it, and taken back by somebody else through REST", "operator", 1)
    assert [d["entry"] for d in handle.denied()] == ["p1-t1-0", LINK]
    assert handle.deny("h0>h3@p1/0") and agents[1].held == ["p1-t1-0", LINK, "h0>h3@p1/0"]
    assert handle.allow(LINK) and agents[0].held == ["p1-t1-0", "h0>h3@p1/0"]


def test_what_it_says_is_read_line_by_line_and_its_end_is_known(
    dead: subprocess.Popen[bytes],
) -> None:
    handle = ControllerHandle(FABRIC, WallClock(), dead)
    assert handle.line(1.0) == "ready 1" and not handle.over
    assert handle.line(1.0) == "" and handle.over


def test_one_that_is_silent_is_not_waited_for() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        handle = ControllerHandle(FABRIC, WallClock(), process)
        assert handle.line(0.05) == "" and not handle.over
        handle.close()
