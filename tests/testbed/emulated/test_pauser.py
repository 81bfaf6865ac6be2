"""What the pauser makes of counters: when a port is paused and when it goes on. Counters and times
are made up."""

from __future__ import annotations

import numpy as np

from agents.clock import WallClock
from testbed.dataplane import layout
from testbed.emulated.pauser import LOOKS, Pauser
from topologies import load_fabric
from topologies.clos import Port
from topologies.units import wire_time

FABRIC = load_fabric("tiny").with_(pfc=True)
XOFF, XON = FABRIC.pfc_bytes
LINK = FABRIC.link("h0:p0-t0-0")
NIC, INGRESS = LINK.a.number, LINK.b.number
CLOCK = WallClock(10_000)
PFC_NS, FRAME_NS = (
    CLOCK.wall_ns(FABRIC.pfc_ps),
    CLOCK.wall_ns(wire_time(FABRIC.frame_bytes, LINK.rate)),
)
DUE_NS = PFC_NS - FRAME_NS
TAKEN, RELEASED, OVER, UNDER = range(4)


class Played:
    """One NIC port and its switch; ``told``: (ns, port, whether to pause)."""

    def __init__(self, takes_ns: int = 0) -> None:
        self.now = 1_000_000_000
        self.told: list[tuple[int, str, bool]] = []
        self.takes_ns = takes_ns
        self.held = np.zeros((layout.MAX_PORTS, len(layout.HELD_WORDS)), dtype=np.uint64)
        self.pauses = np.zeros((layout.MAX_PORTS, len(layout.PAUSE_WORDS)), dtype=np.uint64)
        self.gates = np.zeros(layout.MAX_PORTS, dtype=np.uint64)
        self.pauser = Pauser(
            FABRIC, CLOCK, self.held, self.pauses, self.gates, self, lambda: self.now
        )

    def pause(self, port: Port) -> None:
        self.now += self.takes_ns
        self.told.append((self.now, port.name, True))

    def go_on(self, port: Port) -> None:
        self.told.append((self.now, port.name, False))

    def holds(self, size: int) -> None:
        """As the programs count it: a crossing is noted at its moment."""
        before = int(self.held[INGRESS, TAKEN]) - int(self.held[INGRESS, RELEASED])
        if size > before:
            self.held[INGRESS, TAKEN] += np.uint64(size - before)
            if before <= XOFF < size:
                self.held[INGRESS, OVER] = self.now
        else:
            self.held[INGRESS, RELEASED] += np.uint64(before - size)
            if before > XON >= size:
                self.held[INGRESS, UNDER] = self.now

    def run(self, until: int) -> None:
        """Turns at the times that the pauser asks for."""
        while (wake := self.pauser.turn()) <= until:
            assert wake > self.now
            self.now = wake
        self.now = until

    def word(self, name: str) -> int:
        return int(self.pauses[NIC, layout.PAUSE_WORDS.index(name)])


def test_a_pause_and_its_end_take_effect_when_they_would_have_come_over_the_cable() -> None:
    played = Played()
    begun = played.now
    played.holds(XOFF)
    played.run(begun + 1_000_000_000)
    assert played.told == [], "XOFF itself is not too much"
    over = played.now
    played.holds(XOFF + 1)
    played.run(over + 500_000_000)
    assert played.told == [(over + DUE_NS, "h0-p0", True)]
    under = played.now
    played.holds(XON)
    played.run(under + 500_000_000)
    assert played.told[1:] == [(under + PFC_NS, "h0-p0", False)]
    lasted = under + PFC_NS - (over + DUE_NS)
    assert (played.word("pauses"), played.word("paused_ns"), played.word("longest_ns")) == (
        1,
        lasted,
        lasted,
    )
    assert (
        played.word("reaction_ns") == played.word("longest_reaction_ns") == DUE_NS
        and played.word("since_ns") == 0
    )


def test_between_xon_and_xoff_everything_stays_as_it_is() -> None:
    played = Played()
    played.holds(XOFF + 1)
    played.run(played.now + 500_000_000)
    played.holds(XON + 1)
    played.run(played.now + 500_000_000)
    assert [stop for _, _, stop in played.told] == [True]


def test_a_crossing_between_two_looks_is_not_missed() -> None:
    played = Played()
    played.run(played.now + 10_000_000)
    at = played.now
    played.holds(XOFF + 1)
    played.holds(XON + 1)
    played.run(at + 500_000_000)
    assert played.told == [(at + DUE_NS, "h0-p0", True)]


def test_who_is_below_xon_again_before_the_pause_is_due_is_not_paused() -> None:
    played = Played()
    played.holds(XOFF + 1)
    played.run(played.now + DUE_NS // 2)
    played.holds(0)
    played.run(played.now + 500_000_000)
    assert played.told == []


def test_it_looks_often_enough_to_be_in_time_and_no_more() -> None:
    played = Played()
    assert played.pauser.turn() - played.now == PFC_NS // LOOKS
    played.now += PFC_NS // LOOKS
    over = played.now - 1_000_000
    played.holds(XOFF + 1)
    played.held[INGRESS, OVER] = over  # a moment ago
    played.run(over + 500_000_000)
    assert played.told[0][0] == over + DUE_NS, "the crossing counts, not when it was seen"


def test_what_was_lost_with_a_link_is_let_go_of() -> None:
    played = Played()
    played.holds(XOFF + 1)
    played.run(played.now + 500_000_000)
    played.pauses[INGRESS, layout.PAUSE_WORDS.index("lost_bytes")] = XOFF + 1
    played.run(played.now + 500_000_000)
    assert [stop for _, _, stop in played.told] == [True, False]


def test_a_cable_that_is_down_pauses_nobody_from_either_gate() -> None:
    for gate in (NIC, INGRESS):
        played = Played()
        played.holds(XOFF + 1)
        played.run(played.now + 500_000_000)
        played.gates[gate] = 1
        at = played.now
        played.run(at + 500_000_000)
        assert [stop for _, _, stop in played.told] == [True, False] and played.told[1][
            0
        ] - at <= PFC_NS // LOOKS
        played.gates[gate] = 0
        played.run(played.now + 500_000_000)
        assert [stop for _, _, stop in played.told] == [True, False, True], (
            "there is still too much from it"
        )


def test_the_time_that_the_kernel_takes_is_told() -> None:
    played = Played(takes_ns=700_000)
    played.holds(XOFF + 1)
    played.run(played.now + 500_000_000)
    assert played.word("reaction_ns") == DUE_NS + 700_000
