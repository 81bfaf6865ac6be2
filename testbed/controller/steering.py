"""Keeps the denylist, and tells the agents of link events as the run's policy says
(docs/why/controller.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from testbed.controller.agents import Agent, AgentLinks
from testbed.controller.denylist import POLICY, Denial, Denylist
from testbed.controller.journal import Journal
from testbed.controller.links import FailedLinks, LinkChange
from topologies import Fabric

POLICIES = ("none", "hint", "denylist")


class Steering:
    def __init__(
        self, fabric: Fabric, links: FailedLinks, journal: Journal, clock: Callable[[], int]
    ) -> None:
        self.links, self.journal, self._clock = links, journal, clock
        self.denylist = Denylist(fabric)
        self.agents = AgentLinks(journal, clock)
        self.policy = POLICIES[0]
        self.after_push: Callable[[], None] = lambda: None
        """Called after something was sent to agents: who sets it has ``agents.expire`` called in
        time."""

    def set_agents(self, sockets: Mapping[str, str], policy: str) -> list[Agent]:
        """An empty mapping stops the agents. Raises ValueError for an unknown policy."""
        if policy not in POLICIES:
            raise ValueError(f"no policy {policy!r}: there are {', '.join(POLICIES)}")
        if self.agents.agents:
            self.journal.add(
                self._clock(), "agents-left", agents=[agent.name for agent in self.agents.agents]
            )
        self.agents.leave()
        self.policy = policy
        joined = self.agents.join(sockets)
        if joined:
            self.journal.add(
                self._clock(),
                "agents-joined",
                agents=[agent.name for agent in joined],
                policy=policy,
            )
        now = self._clock()
        failed = list(self.links.failed)
        for denial in self.denylist.denials:
            if denial.by == POLICY and (policy != "denylist" or denial.entry not in failed):
                self._allow(denial.entry, POLICY)
        if policy == "denylist":
            for link in failed:
                self._deny(link, "link down", POLICY)
        if self.denylist.entries:
            self._push("deny", self.denylist.entries, now)
        if policy == "hint" and failed:
            self._push("hint", failed, now)
        return joined

    def link_changed(self, change: LinkChange) -> None:
        event = "link-up" if change.up else "link-down"
        self.journal.add(
            self._clock(), event, link=change.link, port=change.port, heard_ps=change.heard_ps
        )
        if self.policy == "hint":
            self._push("hint", list(self.links.failed), change.heard_ps)
        elif self.policy == "denylist":
            changed = (
                self._allow(change.link, POLICY)
                if change.up
                else self._deny(change.link, "link down", POLICY)[1]
            )
            if changed:
                self._push("deny", self.denylist.entries, change.heard_ps)

    def deny(self, text: str, reason: str, by: str) -> tuple[Denial, bool]:
        heard_ps = self._clock()
        denial, new = self._deny(text, reason, by)
        if new:
            self._push("deny", self.denylist.entries, heard_ps)
        return denial, new

    def allow(self, text: str, by: str | None, actor: str) -> list[Denial]:
        """``by`` None removes everybody's denials; ``actor`` asks for it. Raises FabricError."""
        heard_ps = self._clock()
        removed = self._allow(text, by, actor)
        if removed:
            self._push("deny", self.denylist.entries, heard_ps)
        return removed

    def _deny(self, text: str, reason: str, by: str) -> tuple[Denial, bool]:
        denial, new = self.denylist.deny(text, reason, by, self._clock())
        if new:
            self.journal.add(denial.since_ps, "deny", entry=denial.entry, reason=reason, by=by)
        return denial, new

    def _allow(self, text: str, by: str | None, actor: str = POLICY) -> list[Denial]:
        removed = self.denylist.allow(text, by)
        for denial in removed:
            self.journal.add(
                self._clock(),
                "allow",
                entry=denial.entry,
                by=actor,
                denied_by=denial.by,
                since_ps=denial.since_ps,
            )
        return removed

    def _push(self, op: str, values: list[str], heard_ps: int) -> None:
        self.agents.push(op, values, heard_ps)
        self.after_push()
