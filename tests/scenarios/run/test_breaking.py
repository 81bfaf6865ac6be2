"""Faults of a timeline on a living world: injected, journalled and taken back, also by others;
virtual time."""

from __future__ import annotations

from typing import Any

from scenarios.run.breaking import Breaking
from scenarios.run.timeline import Timeline
from scenarios.schema.fault_tables import Fault
from testbed.faults.kinds import read_keys
from testbed.simulated.cluster import SimulatedCluster
from tests.testbed.faults.places import TINY
from topologies.units import US

CABLE, OTHER = "p0-t0-0:p0-t1-0", "p0-t0-0:p0-t1-1"


def link(name: str, on: str, at: int | None, lasts: int | None, before: bool = False) -> Fault:
    return Fault(name, "link", on, at, None, lasts, before=before, keys=read_keys("link", {}))


class Played:
    def __init__(self, *faults: Fault) -> None:
        self.world = SimulatedCluster(TINY)
        self.lines: list[tuple[int, str, str]] = []
        self.changes: list[int] = []
        self.faults = Breaking(
            self.world, Timeline(TINY, faults), self.journal, self.changes.append
        )

    def journal(self, t: int, kind: str, **fields: Any) -> None:
        self.lines.append(
            (
                t // US,
                kind,
                " ".join(str(fields[key]) for key in ("name", "phase") if key in fields),
            )
        )

    def until(self, us: int) -> int | None:
        self.world.clock.sleep(us * US - self.world.clock.now())
        return self.faults.act(self.world.clock.now())

    @property
    def down(self) -> list[str]:
        return [name for name, up in self.world.link_states().items() if not up]


def test_faults_come_go_and_are_journalled() -> None:
    played = Played(
        link("first", CABLE, None, 30 * US, before=True), link("second", OTHER, 10 * US, None)
    )
    played.faults.begin_before()
    assert played.down == [CABLE]
    played.world.clock.sleep(5 * US)
    played.faults.start()
    assert played.until(5) == 10 * US and played.down == [CABLE]
    assert played.until(15) == 20 * US and played.down == [CABLE, OTHER]
    assert played.until(35) is None and played.down == [OTHER]
    played.world.inject("link", CABLE)  # not of this timeline: taken back, not journalled
    played.faults.heal()
    assert played.down == [] and played.world.faults() == []
    assert played.lines == [
        (0, "fault", "first begin"), (5, "start", ""),
        (15, "fault", "second begin"), (35, "fault", "first heal"), (35, "fault", "second end"),
    ]  # fmt: skip
    assert [t // US for t in played.changes] == [0, 15, 35, 35]


def test_what_others_have_healed_stays_healed() -> None:
    played = Played(link("cut", CABLE, 0, 20 * US))
    played.faults.start()
    assert played.until(1) == 20 * US
    played.world.heal()
    assert played.until(30) is None
    assert [line[2] for line in played.lines] == ["", "cut begin", "cut heal"]


def test_a_world_that_breaks_down_is_a_line_of_the_journal() -> None:
    played = Played()

    def fails() -> None:
        raise OSError("gone")

    played.faults.heal(fails)
    assert played.lines == [(0, "unhealed", "")]
