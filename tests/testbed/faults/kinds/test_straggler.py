"""An agent that is stopped for a part of every period."""

from __future__ import annotations

from testbed.faults.kinds import KINDS, FaultError
from testbed.faults.targets import Injected
from tests.testbed.faults.places import refused, tiny
from topologies import FabricError
from topologies.units import US


class Bench:
    """A machine with a clock that the test moves; keeps what was asked of it."""

    def __init__(self) -> None:
        self.now, self.calls, self.phases = 0, [], []

    def clock(self) -> int:
        return self.now

    def pause(self, host: int, stop: bool) -> None:
        self.calls.append((self.now, host, stop))

    def report(self, t: int, fault: Injected, phase: str, links: tuple[str, ...]) -> None:
        self.phases.append(phase)


def test_it_runs_for_its_share_and_a_late_part_does_not_shift_the_next() -> None:
    kind, bench = KINDS["straggler"], Bench()
    fault = Injected(1, tiny("straggler", "h2", share=0.25, period="100us"), 0)
    kind.begin(fault, bench)
    for late in (0, 3 * US, 0):
        bench.now = fault.due_ps + late
        kind.advance(fault, bench)
    assert bench.calls == [
        (0, 2, True),
        (75 * US, 2, False),
        (103 * US, 2, True),
        (175 * US, 2, False),
    ]
    assert bench.phases == ["begin"], "nothing of the fabric comes and goes"
    assert kind.just_now(fault) == "running"
    kind.undo(fault, bench)
    assert bench.calls[-1] == (175 * US, 2, False)


def test_what_it_cannot_be() -> None:
    refused(FaultError, "straggler", "h0", "share = 1 leaves the agent all", share=1)
    refused(FabricError, "straggler", "h4", "no host 'h4'", share=0.5)
