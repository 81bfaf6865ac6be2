"""The line between the controller and whoever started it: what only the owner may say comes over the controller's standard input.

The owner tells where its agents listen and what the policy is: ``{"agents": {"h0": "/run/.../h0.sock", ...}, "policy": "hint"}``, no agents
when they are about to stop. Each line is answered by one on standard output: ``agents 8 of 8`` once they have heard what they must know, or
``error ...``. The controller, run as root, opens these sockets: which they are is not for the REST view, which any user can reach.
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


def follow_owner(steering: Steering, spawn: Callable[[Callable[[], None]], None], read_fd: int) -> None:
    """Answer the owner until it hangs up. To be run in a (green) thread; needs a pipe or a socket, else there is no owner to hear."""
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
    until = time.monotonic() + ANSWER_S
    while not steering.agents.settled and time.monotonic() < until:
        time.sleep(0.002)
    return f"agents {len(joined)} of {len(sockets)}"


def _follow(steering: Steering, agent: Agent) -> None:
    """Take an agent's answers until it hangs up."""
    while not agent.lines.closed:
        select.select([agent.lines.sock], [], [])
        steering.agents.heard(agent)
    agent.lines.sock.close()
