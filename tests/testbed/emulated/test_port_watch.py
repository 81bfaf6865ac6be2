"""Ports that keep their rate, go too fast or too slow, and queues that are not what was counted:
each is seen, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agents.clock import WallClock
from testbed.dataplane.counters import Traffic
from testbed.emulated.port_watch import JUDGED_RTTS, ON_THE_CABLE, PortWatch, allowed_bytes
from topologies import load_fabric
from topologies.units import BYTE, US

FABRIC = load_fabric("tiny")
PORT = next(port for link in FABRIC.links if link.kind == "fabric" for port in (link.a,))
RATE = FABRIC.fabric_rate / BYTE  # bytes per ps
LOOK = FABRIC.base_rtt_ps // 5  # whole bytes leave in it
FRAME = 4302


class Played(WallClock):
    """A port of which somebody says how much has left and been let in at each time; all others
    stand still."""

    def __init__(
        self,
        left: Callable[[int], float],
        waiting: Callable[[int], float],
        told: Callable[[int], int | None],
    ) -> None:
        super().__init__(10_000)
        self.time, self.left, self.waiting, self.told = 0, left, waiting, told
        self.paused: Callable[[int], float] = lambda t: 0
        self.watch = PortWatch(FABRIC, self, self.read, self.queued)

    def now(self) -> int:
        return self.time

    def read(self) -> Traffic:
        count = len(FABRIC.ports)
        left, admitted = np.zeros(count), np.zeros(count)
        left[PORT.number] = self.left(self.time)
        admitted[PORT.number] = left[PORT.number] + self.waiting(self.time)
        paused = np.zeros(count)
        paused[PORT.number] = self.paused(self.time)
        return Traffic(left, left.copy(), admitted, np.zeros(count), paused)

    def queued(self, port: int) -> int | None:
        assert port == PORT.number, "the longest queue is looked at"
        return self.told(self.time)

    def go(self, time: int, look: int = LOOK) -> dict[str, Any]:
        for _ in range(time // look):
            self.watch.look()
            self.time += look
        (row,) = self.watch.result()["ports"]
        return dict(row)


def play(
    share: Callable[[int], float] | float = 1.0,
    waiting: float = 60_000,
    told: Callable[[int], int | None] | None = None,
    look: int = LOOK,
) -> dict[str, Any]:
    """``share``: of the port's rate that leaves, or bytes that have left by a time."""
    left = (lambda t: share * RATE * t) if isinstance(share, float) else share
    return Played(left, lambda t: waiting, told or (lambda t: int(waiting))).go(600 * US, look)


def test_a_port_at_its_rate_with_a_queue_keeps_it() -> None:
    row = play()
    assert row["busy_share"] == pytest.approx(1.0, abs=1e-3) and row["busy_ps"] > 500 * US
    assert abs(row["excess_bytes"]) < FRAME and row["off_bytes"] == 0
    assert row["compared"] == row["equal"] > 50


@pytest.mark.parametrize("share", [0.97, 0.5])
def test_a_port_that_always_has_something_to_send_and_does_not_is_seen(share: float) -> None:
    assert play(share)["busy_share"] == pytest.approx(share, abs=2e-3)


def test_a_port_whose_queue_may_have_been_empty_between_two_looks_is_not_judged() -> None:
    most = RATE * LOOK * 0.5 + ON_THE_CABLE * FRAME
    assert play(0.5, waiting=most - 1)["busy_share"] is None
    assert play(0.5, waiting=most + 1)["busy_share"] is not None
    assert play(0.5, waiting=0)["busy_share"] is None


def test_a_stretch_too_short_to_tell_is_not_judged() -> None:
    enough = JUDGED_RTTS * FABRIC.base_rtt_ps

    def backlog_until(end: float) -> Callable[[int], float]:
        return lambda t: 60_000 if t < end else 0

    short = Played(lambda t: 0.5 * RATE * t, backlog_until(enough * 0.9), lambda t: None).go(
        900 * US
    )
    long = Played(lambda t: 0.5 * RATE * t, backlog_until(enough * 1.1), lambda t: None).go(
        900 * US
    )
    assert (short["busy_share"], short["busy_ps"]) == (None, 0)
    assert long["busy_share"] == pytest.approx(0.5, abs=0.01)


def test_the_worst_of_several_stretches_is_told() -> None:
    def left(t: int) -> float:  # half of the time at 0.9, then at full rate
        return RATE * (0.9 * min(t, 300 * US) + max(0, t - 300 * US))

    def waiting(t: int) -> float:
        return 0 if abs(t - 300 * US) < 2 * LOOK else 60_000

    row = Played(left, waiting, lambda t: None).go(600 * US)
    assert row["busy_share"] == pytest.approx(0.9, abs=5e-3)
    assert row["busy_bytes"] / (row["busy_ps"] * RATE) == pytest.approx(0.95, abs=0.01)


def test_a_port_is_not_held_to_its_rate_while_it_is_paused() -> None:
    """Half of the time: what leaves between pauses leaves at full rate, and only the looks without
    a pause are judged."""
    played = Played(lambda t: RATE * min(t, 300 * US), lambda t: 60_000, lambda t: None)
    played.paused = lambda t: max(0, t - 300 * US)
    row = played.go(600 * US)
    assert row["busy_share"] == pytest.approx(1.0, abs=1e-3) and row["busy_ps"] == pytest.approx(
        300 * US, rel=0.05
    )


@pytest.mark.parametrize(("burst", "seen"), [(20_000, False), (60_000, True)])
def test_a_burst_beyond_the_bucket_is_seen_wherever_it_is(burst: int, seen: bool) -> None:
    """After a pause, so that the mean rate over the run is far below the port's."""

    def left(t: int) -> float:
        return 0.2 * RATE * t + (burst if t > 300 * US else 0)

    row = play(left, waiting=0)
    assert (row["excess_bytes"] > row["allowed_bytes"]) is seen
    assert row["excess_bytes"] <= burst


def test_one_percent_too_fast_is_seen_though_no_two_looks_tell() -> None:
    row = play(1.01)
    assert (
        row["excess_bytes"]
        > row["allowed_bytes"]
        == allowed_bytes(FABRIC.fabric_rate, FRAME, WallClock(10_000))
    )
    assert RATE * LOOK * 0.01 < 1000, "one look's excess is far below what is allowed"


def test_a_reader_that_is_held_up_makes_no_excess() -> None:
    """A look may take long on a busy machine: counters read late belong to a longer time, not to a
    faster port."""
    played = Played(lambda t: RATE * t, lambda t: 0, lambda t: None)
    fast = played.read

    def slow() -> Traffic:
        played.time += 3 * US if played.watch.looks % 7 == 3 else 0
        traffic = fast()
        played.time += 3 * US if played.watch.looks % 5 == 3 else 0
        return traffic

    played.watch._read = slow
    row = played.go(600 * US)
    assert row["excess_bytes"] <= 1


def test_a_queue_that_is_not_what_was_counted_is_seen() -> None:
    room = ON_THE_CABLE * FRAME
    assert play(told=lambda t: 60_000 - room)["off_bytes"] == 0
    assert play(told=lambda t: 60_000 - room - 700)["off_bytes"] == 700
    assert play(told=lambda t: 60_000 + 700)["off_bytes"] == 700
    row = play(told=lambda t: None)
    assert (row["compared"], row["off_bytes"]) == (0, 0)


def test_ports_that_carry_nothing_are_left_out() -> None:
    watch = PortWatch(
        FABRIC, WallClock(), lambda: Traffic(*(np.zeros(len(FABRIC.ports)) for _ in range(5)))
    )
    assert watch.result() == {"looks": 0, "frame_bytes": FRAME, "ports": []}
    watch.look()
    watch.look()
    assert watch.result()["ports"] == []
