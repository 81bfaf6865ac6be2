"""Events in their order, and frames whose header is kept as numbers: held against plain bytes and a
sorted list."""

from __future__ import annotations

import gc
import heapq
import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.packets import dscp
from testbed.simulated.frame import Calendar, Call, Fifo, Frame, merged
from tests.simulated.test_queue import CUT, arrival, frame

SIZES = (54, 100, CUT - 1, CUT, CUT + 1, 1500, 4242)


def nothing(a: object, b: object) -> None: ...


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=60), st.integers(0, 1 << 32))
def test_events_come_by_time_and_then_by_order(entries: list[tuple[int, bool]], seed: int) -> None:
    """Entered in bursts, taken in between, some of them behind one another: as a heap of (time,
    order) would give them."""
    rng = Random(seed)
    calendar, heap, last, now = Calendar(), list[tuple[int, int]](), (0, 0), 0
    entered: dict[int, object] = {}
    for number, (after, follows) in enumerate(entries):
        order = rng.randrange(4) << 20 | number
        event: Frame | Call
        if follows:
            last = max(last, (now + after, order))
            event = Frame(frame(54))
            event.at, event.order = last[0], last[1] | number  # as last, or behind it
            last = event.at, event.order
            lane = Fifo()
            lane.append(event)
            calendar.follow(lane)
            assert lane.first is None
        else:
            event = Call(nothing, number, None)
            calendar.enter(event, now + after, order)
        if event.order in entered:
            return  # two of one order: none is before the other
        entered[event.order] = event
        heapq.heappush(heap, (event.at, event.order))
        while heap and rng.random() < 0.4:
            now, first = heapq.heappop(heap)
            assert calendar.first_at() == now and calendar.take() is entered[first]
    while heap:
        at, first = heapq.heappop(heap)
        assert calendar.first_at() == at and calendar.take() is entered[first]


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5)))
def test_two_queues_merge_in_the_order_of_their_events(left: list[int], right: list[int]) -> None:
    queues, all_of_them = [], list[tuple[int, int]]()
    for side, times in enumerate((left, right)):
        fifo = Fifo()
        for number, at in enumerate(sorted(times)):
            each = Frame(frame(54))
            each.at, each.order = at, number << 1 | side
            fifo.append(each)
            all_of_them.append((at, each.order))
        queues.append(fifo)
    both = merged(*queues)
    assert [(each.at, each.order) for each in both.frames()] == sorted(all_of_them)
    assert len(both.frames()) == 0 or both.last is both.frames()[-1]


def test_a_fifo_is_one() -> None:
    fifo, frames = Fifo(), [Frame(frame(54)) for _ in range(5)]
    for each in frames[:3]:
        fifo.append(each)
    assert fifo.pop() is frames[0]
    for each in frames[3:]:
        fifo.append(each)
    assert [fifo.pop() for _ in range(4)] == frames[1:] and fifo.first is None and fifo.last is None
    for each in frames:
        fifo.append(each)
    fifo.clear()
    assert fifo.first is None and fifo.last is None


def test_a_long_queue_that_is_dropped_does_not_exhaust_the_stack() -> None:
    fifo, data = Fifo(), frame(54)
    for _ in range(500_000):
        fifo.append(Frame(data))
    del fifo


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("klass", [dscp.TRIMMABLE, dscp.CONTROL, dscp.ROCE])
@pytest.mark.parametrize("ecn", range(4))
def test_a_frame_nobody_touches_stays_what_it_was(size: int, klass: int, ecn: int) -> None:
    sent = frame(size, klass, ecn, 7)
    made = Frame(sent)
    assert (bytes(made.contents()), made.size, made.klass(), made.hop_limit) == (
        sent,
        size,
        klass,
        7,
    )


@pytest.mark.parametrize("size", SIZES)
def test_shifts_marks_and_cuts_are_those_of_a_switch(size: int) -> None:
    sent = frame(size, dscp.TRIMMABLE)
    made = Frame(sent)
    for _ in range(3):
        made.shift()
    assert bytes(made.contents()) == arrival(sent)
    made.mark()
    assert bytes(made.contents()) == arrival(sent, ecn=dscp.CE)
    made.trim(dscp.TRIMMED)
    assert bytes(made.contents()) == arrival(
        sent, dscp.TRIMMED, dscp.CE, cut=True
    ) and made.size == min(size, CUT)


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=2, max_size=2))
def test_any_address_and_class_is_kept_and_shifted(address: bytes, word: bytes) -> None:
    sent = bytearray(frame(100))
    sent[14:16], sent[38:54] = word, address
    made = Frame(bytes(sent))
    assert made.contents() == sent
    assert made.klass() == struct.unpack("!H", word)[0] >> 6 & 0x3F
    uses = [made.usid()]
    for _ in range(6):
        made.shift()
        uses.append(made.usid())
    assert uses == [*struct.unpack("!6H", address[4:]), 0]


@pytest.mark.parametrize("size", [60, CUT, 1500])
def test_corruption_changes_one_byte_behind_the_outer_header(size: int) -> None:
    for random in range(0, 1 << 20, 4099):
        sent = frame(size)
        made = Frame(sent)
        changed = made.corrupt(random)
        differ = [k for k, (a, b) in enumerate(zip(sent, made.contents(), strict=True)) if a != b]
        assert len(differ) == changed and all(k >= 94 for k in differ)


def test_a_long_queue_is_dropped_and_its_neighbours_in_memory_stay() -> None:
    """A flush may drop thousands, each of which holds the next one."""
    fifo, kept = Fifo(), list[Frame]()
    for _ in range(5_000):
        fifo.append(Frame(frame(54)))
        kept.append(Frame(frame(54)))
    fifo.clear()
    gc.collect()
    assert all(one.ingress == -1 and one.next is None for one in kept)
