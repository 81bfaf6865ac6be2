"""The controller's part in a simulated fabric: the same steering, which reaches agents without
sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agents.process.control import AgentError, Lines
from testbed.controller.agents import ARGUMENT, EVENT, Agent, AgentLinks
from testbed.controller.denylist import OPERATOR
from testbed.controller.journal import Journal
from testbed.controller.links import FailedLinks, PortStates
from testbed.controller.steering import Steering
from testbed.simulated.hosts import SimulatedAgent
from testbed.simulated.network import Network
from topologies.clos import Fabric


class _NoLines(Lines):
    def __init__(self) -> None:
        self.closed = False


class DirectLinks(AgentLinks):
    def __init__(self, journal: Journal, network: Network) -> None:
        super().__init__(journal, network.now)
        self.reached: dict[str, SimulatedAgent] = {}

    def join(self, sockets: Mapping[str, str]) -> list[Agent]:
        self.agents = [Agent(name, _NoLines()) for name in sockets]
        return self.agents

    def leave(self) -> None:
        self.agents = []

    def push(self, op: str, values: list[str], heard_ps: int) -> None:
        effect: list[int] = []
        for agent in list(self.agents):
            try:
                effect.append(int(self.reached[agent.name].call(op, **{ARGUMENT[op]: values})))
            except AgentError as error:
                self.agents.remove(agent)
                self._journal.add(self._clock(), "agent-lost", agent=agent.name, reason=str(error))
        if effect:
            now = self._clock()
            self._journal.add(
                now,
                EVENT[op],
                **{ARGUMENT[op]: values},
                heard_ps=heard_ps,
                pushed_ps=now,
                effect_ps=max(effect),
                agents=len(effect),
                of=len(effect),
            )


class SimulatedController:
    def __init__(self, fabric: Fabric, network: Network) -> None:
        self.network = network
        self.journal = Journal()
        self.links = FailedLinks(fabric, network.time)
        self.ports = PortStates(fabric)
        self.end_of = {link.name: link.b.name for link in fabric.links}
        self.direct_links = DirectLinks(self.journal, network)
        self.steering = Steering(fabric, self.links, self.journal, network.now)
        self.steering.agents = self.direct_links

    def link_changed(self, name: str, up: bool) -> None:
        """Agents hear of the cable after everything else that happens at this moment."""
        self.network.at(self.network.time, self._handle, name, up)

    def _handle(self, name: str, up: bool) -> None:
        change = self.ports.report(self.end_of[name], up, self.network.time)
        if change is not None:
            self.links.apply(change, self.network.time)
            self.steering.link_changed(change)

    def begin(self, agents: Sequence[SimulatedAgent], policy: str) -> None:
        self.direct_links.reached = {f"h{agent.host.number}": agent for agent in agents}
        self.steering.set_agents(dict.fromkeys(self.direct_links.reached, ""), policy)

    def end(self) -> None:
        self.steering.set_agents({}, "none")

    def deny(self, entry: str, reason: str = "", by: str = OPERATOR) -> bool:
        return self.steering.deny(entry, reason, by)[1]

    def allow(self, entry: str, by: str | None = None) -> bool:
        return bool(self.steering.allow(entry, by, by or OPERATOR))

    def denied(self) -> list[dict[str, Any]]:
        return [asdict(denial) for denial in self.steering.denylist.denials]
