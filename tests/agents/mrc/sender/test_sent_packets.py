"""The window of one queue pair: what each transmission becomes, and what is in flight."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.mrc.paths.path import Path
from agents.mrc.sender.message import Message
from agents.mrc.sender.sent_packets import ACKED, CUT, LOST, SENT, SentPacket, SentPackets
from agents.transport import NEVER

FIRST = 0xFFFFFE
MESSAGE = Message(1, memoryview(b""), 0, 1, -1, (FIRST, FIRST + 1000), 0, 0)
GAP = 10


class Window:
    """128 PSNs, and one path that carries them all."""

    def __init__(self, packets: int = 0) -> None:
        self.sent = SentPackets(128)
        self.sent.start(FIRST, 64)
        self.path = Path(0, 0x10002, 1, 3)
        self.now = 0
        for _ in range(packets):
            self.send()

    def send(self, again: bool = False) -> SentPacket:
        self.now += GAP
        packet = (
            self.sent.sent_again(self.now, self.path)
            if again
            else self.sent.sent(self.now, self.path, MESSAGE, 100)
        )
        self.path.sent(self.now, packet, GAP)
        return packet

    def books(self) -> None:
        """Bytes in flight, packets in flight on the path and the path's oldest are those of the
        packets."""
        flying = self.sent.flying()
        assert (self.sent.in_flight, self.path.flying) == (100 * len(flying), len(flying))
        assert self.path.oldest_ps == min((p.sent_ps for p in flying), default=NEVER)


def test_a_packet_acknowledged_leaves_flight_once() -> None:
    w = Window(3)
    for _ in range(2):
        w.sent.acked(w.sent.latest(FIRST))
    w.books()
    assert (
        w.sent.latest(FIRST).state == ACKED
        and w.sent.in_flight == 200
        and w.path.oldest_ps == 2 * GAP
    )


def test_what_is_lost_or_trimmed_goes_again_the_lowest_first_as_another_transmission() -> None:
    w = Window(4)
    third, first = w.sent.latest(FIRST + 2), w.sent.latest(FIRST)
    w.sent.lost(third, True)
    w.sent.trimmed(first)
    w.books()
    assert (third.state, third.blamed, first.state, first.blamed) == (LOST, w.path, CUT, None)
    assert w.sent.first_lost() is first
    again = w.send(again=True)
    assert (again.psn, again.count, again.seq, again.state, first.state) == (FIRST, 2, 5, SENT, CUT)
    assert w.send(again=True).blamed is w.path and w.sent.first_lost() is None
    w.sent.acked(w.sent.latest(FIRST + 1))
    w.books()


def test_a_lost_packet_that_arrives_after_all_does_not_go_again() -> None:
    w = Window(2)
    w.sent.lost(w.sent.latest(FIRST), False)
    w.sent.acked(w.sent.latest(FIRST))
    assert w.sent.first_lost() is None and w.sent.lost_queue == []
    w.books()


@pytest.mark.parametrize(
    "arrived, late", [(0, []), (1, []), (2, [0]), (4, [0, 1, 2]), (5, [0, 1, 2])]
)
def test_overdue_is_what_left_before_something_that_arrived_and_long_enough_ago(
    arrived: int, late: list[int]
) -> None:
    w = Window(5)
    w.sent.arrived(arrived)
    assert [p.psn - FIRST for p in w.sent.overdue(w.now + GAP, 3 * GAP)] == late
    assert w.sent.overdue(w.now + GAP, 3 * GAP) == [], "each is named once"


def test_the_peers_window_is_never_taken_back() -> None:
    w = Window()
    assert w.sent.limit == FIRST + 64
    w.sent.widen(FIRST, 32)
    assert w.sent.limit == FIRST + 64
    w.sent.widen(FIRST, 1 << 20)
    assert w.sent.limit == FIRST + 128, "the ring holds no more"


def test_only_what_was_sent_within_a_window_is_found() -> None:
    w = Window(130)
    assert [
        k for k in (-200, -1, 0, 1, 2, 129, 130, 300) if w.sent.find(FIRST + k) is not None
    ] == [2, 129]


@given(st.sets(st.integers(0, 39)), st.integers(0, 40))
def test_the_edge_passes_all_that_is_known_to_have_arrived(got: set[int], edge: int) -> None:
    w = Window(40)
    for k in sorted(got):
        w.sent.acked(w.sent.latest(FIRST + k))
        w.sent.note(FIRST + k)
    for k in range(edge):
        w.sent.acked(w.sent.latest(FIRST + k))
    empty = w.sent.advance(FIRST + edge)
    reached = next(k for k in range(edge, 41) if k == 40 or k not in got)
    assert w.sent.una == FIRST + reached and empty == (reached == 40)
    assert w.sent.arrived_bitmap(w.sent.una) == sum(1 << k - reached for k in got if k >= reached)
    assert w.sent.arrived_bitmap(FIRST) & (1 << reached) - 1 == (1 << reached) - 1
    w.books()
