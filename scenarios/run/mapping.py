"""Judges links in a run by the agents' counts (Clustermapper), and sets the denylist entries that
follow.

It journals ``mapper`` for a link's or switch's state, ``deny``, ``allow`` and ``kept`` for the
policy's decisions.
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
from agents.transport import Note
from testbed.controller.denylist import CLUSTERMAPPER
from testbed.errors import UserError
from topologies import Fabric, FabricError


class _Agent(Protocol):
    def call(self, op: str, **args: Any) -> Any: ...


class _Cluster(Protocol):
    fabric: Fabric

    @property
    def clock(self) -> Clock: ...
    @property
    def agents(self) -> Sequence[_Agent]: ...
    def deny(self, entry: str, reason: str = "", by: str = ...) -> bool: ...
    def allow(self, entry: str, by: str | None = None) -> bool: ...


class Mapping:
    """With ``options`` None it does nothing."""

    def __init__(
        self, cluster: _Cluster, options: Options | None, seed: int, journal: Callable[..., None]
    ) -> None:
        self.cluster, self.options, self.seed, self.journal = cluster, options, seed, journal
        self.fabric = cluster.fabric
        if options is not None:
            self.localiser = Localiser(self.fabric, options, range(self.fabric.host_count))
            self.policy = Policy(self.fabric, options)
        self.findings: dict[str, Finding] = {}
        self.fading: dict[str, Finding] = {}  # no longer in ``findings``, but not known to be clear
        self.has_reports = False

    def start(self) -> None:
        if self.options is None:
            return
        for agent in self.cluster.agents:
            agent.call("mapper_start", options=self.options.to_dict(), seed=self.seed)
        self.journal(
            self.cluster.clock.now(), "mapper", phase="start", options=self.options.to_dict()
        )

    @property
    def start_check_ps(self) -> int:
        return (
            0 if self.options is None else round(self.options.start_check * self.fabric.base_rtt_ps)
        )

    def hear(self, note: Note) -> None:
        if self.options is not None:
            self.localiser.add(
                note["host"], note["bucket"], note["sent"], note["lost"], note["carrier"]
            )
            self.has_reports = True

    def tick(self, now: int) -> None:
        if self.options is None or not self.has_reports:
            return
        self.has_reports = False
        self.localiser.judge(now)
        findings = {f.name: f for f in self.localiser.findings()}
        for name, finding in findings.items():
            before = self.findings.get(name)
            if before is None or (before.state, before.carrier) != (finding.state, finding.carrier):
                self._journal_state(now, finding, finding.state)
        blamed = {link for finding in findings.values() for link in finding.links}
        self.fading |= {
            name: finding for name, finding in self.findings.items() if name not in findings
        }
        for name, finding in list(self.fading.items()):
            # A link may now be blamed as part of a switch, or some links of a switch may still be
            # blamed: neither is clear.
            if blamed.isdisjoint(finding.links):
                self._journal_state(now, finding, CLEAR_STATE)
                del self.fading[name]
            elif name in findings:
                del self.fading[name]
        self.findings = findings
        for action, entry, reason in self.policy.decide(now, list(findings.values())):
            self._change(action, entry, reason)

    def stop(self) -> None:
        """Stop all probing, so that the books can be closed, and remove the entries. Agents that
        are gone are passed over."""
        if self.options is None:
            return
        for agent in self.cluster.agents:
            with suppress(AgentError, OSError):
                agent.call("mapper_stop")
        self.release()

    def release(self) -> None:
        """Remove the policy's entries, so that none outlives the run."""
        if self.options is None:
            return
        for entry in list(self.policy.denied):
            del self.policy.denied[entry]
            self._change("allow", entry, "the run is over")

    def _journal_state(self, now: int, finding: Finding, state: str) -> None:
        counts = [self.localiser.verdicts[link] for link in finding.links]
        self.journal(
            now,
            "mapper",
            on=finding.name,
            state=state,
            links=list(finding.links),
            rate=max(v.rate for v in counts),
            sent=sum(v.sent for v in counts),
            lost=sum(v.lost for v in counts),
            carrier=any(v.carrier for v in counts),
        )

    def _change(self, action: str, entry: str, reason: str) -> None:
        """A refusal is journalled and changes nothing else."""
        fields: dict[str, Any] = {"on": entry, "by": CLUSTERMAPPER, "reason": reason}
        try:
            if action == "deny":
                self.cluster.deny(entry, f"clustermapper: {reason}", CLUSTERMAPPER)
            elif action == "allow":
                self.cluster.allow(entry, CLUSTERMAPPER)
        except (UserError, FabricError, AgentError, OSError) as error:
            fields["refused"] = str(error)
        self.journal(self.cluster.clock.now(), action, **fields)
