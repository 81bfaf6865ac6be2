"""The channel between the controller and the process that started it, its owner, over standard
input and output.

The owner says where its agents listen and what the policy is: ``{"agents": {"h0":
"/run/.../h0.sock", ...}, "policy": "hint"}``, with no agents when they are about to stop. The
answer is ``agents 8 of 8`` once they have their lists, or ``error ...``. As root opens these
sockets, their paths must not come from the REST API, which any user can reach.
"""

from __future__ import annotations

import json
import os
import select
import stat
import time
from collections.abc import Callable
from typing import Any

from testbed.controller.agents import ANSWER_S, Agent
from testbed.controller.steering import Steering
from testbed.machine.slowness import patient


def follow_owner(
    steering: Steering, spawn: Callable[[Callable[[], None]], None], read_fd: int
) -> None:
    """Runs in a (green) thread until the owner hangs up. Unless standard input is a pipe or socket,
    there is no owner."""
    mode = os.fstat(read_fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return
    partial = b""
    while True:
        select.select([read_fd], [], [])
        data = os.read(read_fd, 1 << 16)
        if not data:
            return
        *lines, partial = (partial + data).split(b"\n")
        for line in lines:
            print(_answer(steering, spawn, line), flush=True)


def _answer(steering: Steering, spawn: Callable[[Callable[[], None]], None], line: bytes) -> str:
    try:
        request: Any = json.loads(line)
        sockets, policy = request["agents"], request["policy"]
        joined = steering.set_agents(sockets, policy)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"error {type(error).__name__}: {error}".replace("\n", " ")
    for agent in joined:
        spawn(lambda agent=agent: _follow(steering, agent))  # type: ignore[misc]
    until = time.monotonic() + patient(ANSWER_S)
    while not steering.agents.settled and time.monotonic() < until:
        time.sleep(0.002)
    return f"agents {len(joined)} of {len(sockets)}"


def _follow(steering: Steering, agent: Agent) -> None:
    while not agent.lines.closed:
        select.select([agent.lines.sock], [], [])
        steering.agents.heard(agent)
    agent.lines.sock.close()
