"""Turns findings into entries of the denylist, and removes them again. Pure.

MRC cannot blame a NIC-T0 link by itself, so that plane of that host is denied (MRC paper). A denial
never takes the last path between two hosts. All numbers are [ours].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from agents.clustermapper.localise import DEAD, Finding
from agents.clustermapper.options import Options
from agents.clustermapper.probes import nic_link, upper_link
from agents.transport import NEVER
from topologies.clos import Fabric

MOST_HOLDS: Final = 6


class Decision(NamedTuple):
    """``kept``: an entry would be denied, but is part of the last path of some hosts."""

    what: str  # "deny", "allow" or "kept"
    entry: str
    reason: str


@dataclass
class _Denied:
    links: tuple[str, ...]
    rate: float
    clear_since: int = NEVER  # ps; NEVER: it is not


def cut(fabric: Fabric, bad: Iterable[str]) -> set[tuple[int, int]]:
    """Find the pairs of hosts without a path that has no link in ``bad``."""
    dead = set(bad)
    planes = range(fabric.planes)
    t0s = range(fabric.t0_per_plane)
    nic = [
        {p for p in planes if nic_link(fabric, p, h) not in dead} for h in range(fabric.host_count)
    ]
    ups = [
        [{j for j in range(fabric.t1_per_plane) if upper_link(p, i, j) not in dead} for i in t0s]
        for p in planes
    ]
    across = {
        (a, b): {p for p in planes if a == b or ups[p][a] & ups[p][b]} for a in t0s for b in t0s
    }
    hosts = range(fabric.host_count)
    return {
        (a, b)
        for a in hosts
        for b in hosts
        if a < b and not nic[a] & nic[b] & across[fabric.t0_of(a), fabric.t0_of(b)]
    }


class Policy:
    def __init__(self, fabric: Fabric, options: Options) -> None:
        self.fabric = fabric
        self.mode = options.policy
        self.hold = int(options.hold * fabric.base_rtt_ps)
        self.denied: dict[str, _Denied] = {}
        self.times: dict[str, int] = {}  # how often an entry was denied
        self.kept: set[str] = set()

    def decide(self, now: int, findings: Sequence[Finding]) -> list[Decision]:
        decisions: list[Decision] = []
        concerned = {f.name: f for f in findings if self._concerns(f)}
        dead = {link for f in findings if f.state == DEAD for link in f.links}
        for entry, denial in list(self.denied.items()):
            if entry in concerned:
                denial.clear_since = NEVER
                denial.rate = concerned[entry].rate
            elif denial.clear_since == NEVER:
                denial.clear_since = now
            elif now - denial.clear_since >= self._hold_of(entry):
                decisions.append(
                    self._allow(
                        entry,
                        f"clear for {self._hold_of(entry) / self.fabric.base_rtt_ps:.0f} base RTTs",
                    )
                )
        unreachable = cut(self.fabric, dead)  # not caused by denials
        if cut(self.fabric, dead | self._links()) != unreachable:
            worst = sorted(self.denied, key=lambda e: self.denied[e].rate, reverse=True)
            staying: set[str] = set()  # the worst that leave everybody a path stay
            for entry in worst:
                if cut(self.fabric, dead | staying | set(self.denied[entry].links)) == unreachable:
                    staying |= set(self.denied[entry].links)
                else:
                    decisions.append(
                        self._allow(
                            entry, "what else there was is dead: a lossy path is better than none"
                        )
                    )
        for entry, finding in concerned.items():
            if entry in self.denied:
                continue
            reason = f"{finding.state}, {finding.lost} of {finding.sent} probes lost"
            if cut(self.fabric, dead | self._links() | set(finding.links)) != unreachable:
                if entry not in self.kept:
                    self.kept.add(entry)
                    decisions.append(
                        Decision(
                            "kept",
                            entry,
                            f"{reason}, but without it two hosts would have no path left",
                        )
                    )
                continue
            self.kept.discard(entry)
            self.denied[entry] = _Denied(finding.links, finding.rate)
            self.times[entry] = self.times.get(entry, 0) + 1
            decisions.append(Decision("deny", entry, reason))
        self.kept &= set(concerned)
        return decisions

    def _concerns(self, finding: Finding) -> bool:
        if self.mode == "report" or not finding.carrier:
            # without carrier the host itself stops using the port, and tells its peers
            return False
        return self.mode == "all" or finding.name.startswith("h")

    def _links(self) -> set[str]:
        return {link for denial in self.denied.values() for link in denial.links}

    def _hold_of(self, entry: str) -> int:
        return self.hold << min(self.times[entry] - 1, MOST_HOLDS)

    def _allow(self, entry: str, reason: str) -> Decision:
        del self.denied[entry]
        return Decision("allow", entry, reason)
