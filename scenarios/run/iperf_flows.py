"""Prepares a run's background traffic, starts flows when due, and ends them with the run.

It journals (kind ``background``) when each flow began and ended. A flow that fails is noted and
fails nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.run.timeline import NEVER
from scenarios.schema.iperf_tables import Background
from testbed.emulated.iperf_flows import wire_rate
from testbed.emulated.iperf_report import complaint
from testbed.world import Background as Flow
from testbed.world import World

CHECK_EVERY_S = 0.3


@dataclass
class _FlowState:
    entry: Background
    flow: Flow
    began_ps: int = 0
    ended_ps: int = 0


class BackgroundRun:
    """``journal(t, kind, **fields)`` writes a line. Files go to ``directory``."""

    def __init__(
        self,
        cluster: World,
        entries: Sequence[Background],
        timeout: int,
        directory: Path,
        journal: Callable[..., None],
    ) -> None:
        self.cluster, self.entries, self.directory, self.journal = (
            cluster,
            entries,
            directory,
            journal,
        )
        self.longest = timeout
        self.flows: list[_FlowState] = []
        self.t0 = 0
        self.next_check_ps = NEVER

    def prepare(self) -> None:
        """Give every flow its path and its server. Raises UserError."""
        for number, entry in enumerate(self.entries):
            stem = self.directory / f"iperf3-{entry.name}"
            self.flows.append(
                _FlowState(
                    entry,
                    self.cluster.background(
                        entry.stream(self.cluster.fabric, number, self.longest), stem
                    ),
                )
            )
            self.flows[-1].flow.prepare()

    def start(self, t0: int) -> None:
        self.t0 = t0
        self.next_check_ps = t0 if self.flows else NEVER

    def tick(self, now: int) -> None:
        if now < self.next_check_ps:
            return
        for state in self.flows:
            if not state.flow.begun and now >= self.t0 + state.entry.start_ps:
                state.flow.begin()
                state.began_ps = self.cluster.clock.now()
                self._journal_phase(state, state.began_ps, "begin")
            if state.flow.over and not state.ended_ps:
                state.ended_ps = now
                self._journal_phase(state, now, "end")
        waiting = [self.t0 + state.entry.start_ps for state in self.flows if not state.flow.begun]
        running = any(not state.ended_ps for state in self.flows)
        self.next_check_ps = (
            min([*waiting, now + self.cluster.clock.patience(CHECK_EVERY_S)]) if running else NEVER
        )

    def _journal_phase(self, state: _FlowState, t: int, phase: str) -> None:
        self.journal(
            t,
            "background",
            name=state.entry.name,
            phase=phase,
            on=state.entry.path_on(self.cluster.fabric),
        )

    def end(self) -> None:
        """Stop all flows and remove what they left. Idempotent."""
        for state in self.flows:
            state.flow.ask()
        for state in self.flows:
            state.flow.end()
            if state.began_ps and not state.ended_ps:
                state.ended_ps = self.cluster.clock.now()
                self._journal_phase(state, state.ended_ps, "end")

    def records(self) -> list[dict[str, Any]]:
        fabric = self.cluster.fabric
        return [
            {
                "name": entry.name,
                "tool": entry.tool,
                "protocol": entry.protocol,
                "src": entry.src,
                "dst": entry.dst,
                "path": entry.path_on(fabric),
                "ev": entry.ev_on(fabric),
                "rate_bps": entry.rate_bps,
                "parallel": entry.parallel,
                "congestion": entry.congestion,
                "wire_bps": None if entry.rate_bps is None else wire_rate(fabric, entry.rate_bps),
                "began_ps": state.began_ps or None,
                "ended_ps": state.ended_ps or None,
                "cut": state.flow.cut,
            }
            for state in self.flows
            for entry in [state.entry]
        ]

    def complaints(self) -> list[str]:
        complaints = []
        for state in self.flows:
            stem = self.directory / f"iperf3-{state.entry.name}"
            problem = (
                complaint(stem, state.flow.cut)
                if state.began_ps
                else "it was never begun, the run had ended"
            )
            if problem:
                complaints.append(f"background {state.entry.name}: {problem}")
        return complaints
