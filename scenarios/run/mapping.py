"""Clustermapper in a run: the agents' counts together, what they say of links, and the denylist entries that follow.

Made by scenarios.run.one_run, which passes it the agents' reports and calls it as time goes by. It journals every change: kind ``mapper``
for a link's or switch's state, ``deny``, ``allow`` and ``kept`` for the policy's decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from agents.clock import Clock
from agents.clustermapper.localise import CLEAR_STATE, Finding, Localiser
from agents.clustermapper.options import Options
from agents.clustermapper.policy import Policy
from agents.process.control import AgentError
from testbed.controller.denylist import CLUSTERMAPPER
from testbed.errors import UserError
from topologies import Fabric, FabricError


class _Agent(Protocol):
    def call(self, op: str, **args: Any) -> Any: ...


class _Cluster(Protocol):
    """What is asked of testbed.emulated.cluster.Cluster."""

    fabric: Fabric

    @property
    def clock(self) -> Clock: ...
    @property
    def agents(self) -> Sequence[_Agent]: ...
    def deny(self, entry: str, reason: str = "", by: str = ...) -> bool: ...
    def allow(self, entry: str, by: str | None = None) -> bool: ...


class Mapping:
    """One run's mapper. ``journal(t, kind, **fields)`` takes a line. With ``options`` None there is none, and nothing happens."""

    def __init__(self, cluster: _Cluster, options: Options | None, seed: int, journal: Callable[..., None]) -> None:
        self.cluster, self.options, self.seed, self.journal = cluster, options, seed, journal
        self.fabric = cluster.fabric
        if options is not None:
            self.localiser = Localiser(self.fabric, options, range(self.fabric.host_count))
            self.policy = Policy(self.fabric, options)
        self.found: dict[str, Finding] = {}
        self.fading: dict[str, Finding] = {}  # no longer found as such, and not known to be clear
        self.news = False

    def start(self) -> None:
        """Every agent begins to probe."""
        if self.options is None:
            return
        for agent in self.cluster.agents:
            agent.call("mapper_start", options=self.options.to_dict(), seed=self.seed)
        self.journal(self.cluster.clock.now(), "mapper", phase="start", options=self.options.to_dict())

    def hear(self, note: dict[str, Any]) -> None:
        """An agent's report."""
        if self.options is not None:
            self.localiser.add(note["host"], note["bucket"], note["sent"], note["lost"], note["carrier"])
            self.news = True

    def tick(self, now: int) -> None:
        """Judge what came since the last call; tell the denylist."""
        if self.options is None or not self.news:
            return
        self.news = False
        self.localiser.judge(now)
        findings = {f.name: f for f in self.localiser.findings()}
        for name, finding in findings.items():
            before = self.found.get(name)
            if before is None or (before.state, before.carrier) != (finding.state, finding.carrier):
                self._tell(now, finding, finding.state)
        blamed = {link for finding in findings.values() for link in finding.links}
        self.fading |= {name: finding for name, finding in self.found.items() if name not in findings}
        for name, finding in list(self.fading.items()):
            # A link may have become part of a switch that is to blame, or a switch left some of its links behind: neither is clear.
            if blamed.isdisjoint(finding.links):
                self._tell(now, finding, CLEAR_STATE)
                del self.fading[name]
            elif name in findings:
                del self.fading[name]
        self.found = findings
        for what, entry, reason in self.policy.decide(now, list(findings.values())):
            self._change(what, entry, reason)

    def stop(self) -> None:
        """Silence, so that the books can be closed; the entries go, agents that are gone do not matter."""
        if self.options is None:
            return
        for agent in self.cluster.agents:
            with suppress(AgentError, OSError):
                agent.call("mapper_stop")
        self.release()

    def release(self) -> None:
        """No entry of the policy's outlives the run."""
        if self.options is None:
            return
        for entry in list(self.policy.denied):
            del self.policy.denied[entry]
            self._change("allow", entry, "the run is over")

    def _tell(self, now: int, finding: Finding, state: str) -> None:
        counts = [self.localiser.verdicts[link] for link in finding.links]
        self.journal(
            now, "mapper", on=finding.name, state=state, links=list(finding.links), rate=max(v.rate for v in counts),
            sent=sum(v.sent for v in counts), lost=sum(v.lost for v in counts), carrier=any(v.carrier for v in counts),
        )  # fmt: skip

    def _change(self, what: str, entry: str, reason: str) -> None:
        """Tell the denylist; a refusal is journalled and changes nothing else."""
        fields: dict[str, Any] = {"on": entry, "by": CLUSTERMAPPER, "reason": reason}
        try:
            if what == "deny":
                self.cluster.deny(entry, f"clustermapper: {reason}", CLUSTERMAPPER)
            elif what == "allow":
                self.cluster.allow(entry, CLUSTERMAPPER)
        except (UserError, FabricError, AgentError, OSError) as error:
            fields["refused"] = str(error)
        self.journal(self.cluster.clock.now(), what, **fields)
