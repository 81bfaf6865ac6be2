"""Frames are handed over when they are due, each class of each port in order, from a ring in plain
memory and with a clock by hand."""

from __future__ import annotations

import itertools
import struct
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.clock import WallClock
from agents.delay_line import CUT, DelayLine
from agents.nic.receive_ring import ReceiveRing
from agents.packets import dscp
from agents.transport import NEVER, FrameIO
from topologies.clos import MAX_RATE, SACK_BYTES, Fabric
from topologies.units import MS, NS, US

FABRIC = Fabric(
    "tiny",
    2,
    2,
    2,
    2,
    nic_rate=10**10,
    fabric_rate=4 * 10**10,
    delay_ps=10 * US,
    hop_delay_ps=0,
    cut_through=False,
)
NIC, UPPER = 2 * 800, 2 * 200  # ps per byte on the path's links of each kind
FULL = FABRIC.frame_bytes
CROSSING, LOCAL = 61, 63
SLOT = 4416
BLOCK = 4 * SLOT
STATUS_LOSING = 4
EPOCH = 1_790_000_000_000_000_000  # of the real-time clock, when the monotonic one was 0


class Kernel(WallClock):
    """The far side of the ring: fills slot after slot, and drops while its next one is taken
    (TPACKET_V2). A ns of its clocks is a ps."""

    def __init__(self, blocks: int = 2, fabric: Fabric = FABRIC) -> None:
        super().__init__(dilation=NS, origin=0)
        self.memory = bytearray(BLOCK * blocks)
        self.present = 0  # on the monotonic clock
        self.ring = ReceiveRing(
            self.memory, BLOCK, blocks, SLOT, {1000: 0, 1001: 1}, DelayLine(fabric), self
        )
        self.head = 0
        self.dropped = 0
        self.step = 0  # what the real-time clock was set forward by
        self.frames = 0

    def now(self) -> int:
        return self.present

    def arrive(
        self,
        at: int,
        port: int = 0,
        klass: int = dscp.NO_TRIM,
        length: int = FULL,
        hops: int = CROSSING,
        ecn: int = 2,
        was: int = 0,
    ) -> int:
        """A frame at a (monotonic) time; its number, or -1 when the ring was full. ``was``: its
        length when it was sent, if more."""
        offset = self.head // 4 * BLOCK + self.head % 4 * SLOT
        (status,) = struct.unpack_from("=I", self.memory, offset)
        if status != 0:
            self.dropped += 1
            return -1
        real = at + EPOCH + self.step
        self.frames += 1
        frame = bytearray(length)
        struct.pack_into(
            "!IHBB", frame, 14, 6 << 28 | klass << 22 | ecn << 20, length - 54, 41, hops
        )
        struct.pack_into("!H", frame, 58, max(was, length) - 94)
        struct.pack_into("!Q", frame, 62, self.frames)
        kept = min(length, SLOT - 80)
        # The kernel's other status bits come and go.
        header = (
            1 | STATUS_LOSING * (self.frames % 2),
            length,
            kept,
            66,
            80,
            real // 10**9,
            real % 10**9,
            0,
            0,
            0,
            17,
            0,
            1000 + port,
        )
        struct.pack_into("=IIIHHIIHHIHHi", self.memory, offset, *header)
        self.memory[offset + 66 : offset + 66 + kept] = frame[:kept]
        self.head = (self.head + 1) % self.ring.slots
        return self.frames

    def look(self, now: int, took: int = 0) -> None:
        """At a (monotonic) time; ``took``: how long after it frames are read, ps."""
        self.present = now + took
        self.ring.look(now, now + EPOCH + self.step)


class Engine(FrameIO):
    """Remembers what it is handed: (now, port, number, length)."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[tuple[int, int, int, int]] = []

    def receive(self, now: int, port: int, buffer: Any, start: int, length: int) -> None:
        assert not buffer.readonly
        (number,) = struct.unpack_from("!Q", buffer, start + 62)
        self.got.append((now, port, number, length))

    def numbers(self) -> list[int]:
        return [number for _, _, number, _ in self.got]


def run(kernel: Kernel, until: int, most: int = 64) -> Any:
    """Turn after turn as the device's loop does, with perfect timers."""
    engine: Any = Engine()
    now = kernel.ring.looked
    while kernel.ring.held:
        now = max(now, kernel.ring.next_look())
        if now > until:
            break
        kernel.look(now)
        kernel.ring.hand_over(engine, now, most)
    return engine


@pytest.mark.parametrize(
    ("length", "hops", "wire"),
    [
        (FULL, CROSSING, FULL * (NIC + UPPER)),
        (FULL, LOCAL, FULL * NIC),
        (SACK_BYTES, CROSSING, SACK_BYTES * (NIC + UPPER)),
        (SACK_BYTES, LOCAL, SACK_BYTES * NIC),
        (FULL, 64, FULL * (NIC + UPPER)),
        (FULL, 5, FULL * (NIC + UPPER)),
    ],
)
def test_a_frame_is_due_after_the_delay_and_its_time_on_every_link(
    length: int, hops: int, wire: int
) -> None:
    kernel = Kernel()
    kernel.arrive(1000, length=length, hops=hops)
    kernel.look(5000)
    due = 1000 + FABRIC.delay_ps + wire
    assert kernel.ring.line.next == due and kernel.ring.held == 1
    engine: Any = Engine()
    assert kernel.ring.hand_over(engine, due - 1, 64) == 0
    assert kernel.ring.hand_over(engine, due, 64) == 1
    assert engine.got == [(due, 0, 1, length)] and kernel.ring.first_due == due
    assert kernel.ring.held == 0 and kernel.ring.line.next == NEVER


def test_data_and_its_sack_make_the_base_rtt() -> None:
    line = DelayLine(FABRIC)
    for hops, expected in ((CROSSING, FABRIC.base_rtt_ps), (LOCAL, FABRIC.local_rtt_ps)):
        assert line.transit(FULL, hops) + line.transit(SACK_BYTES, hops) == expected


@pytest.mark.parametrize("upper", [10**10, 4 * 10**10, 5 * 10**9])
@pytest.mark.parametrize("cut_through", [False, True])
def test_paths_under_one_t0_have_two_switches_less_and_both_worlds_one_base_rtt(
    upper: int, cut_through: bool
) -> None:
    fabric = FABRIC.with_(fabric_rate=upper, hop_delay_ps=US, cut_through=cut_through)
    line = DelayLine(fabric)
    crossing, local = (
        line.transit(FULL, hops) + line.transit(SACK_BYTES, hops) for hops in (CROSSING, LOCAL)
    )
    assert (crossing, local) == (fabric.base_rtt_ps, fabric.local_rtt_ps)
    assert fabric.base_rtt_ps - 20 * US == fabric.wire_ps(FULL, False) + fabric.wire_ps(
        SACK_BYTES, False
    )
    assert fabric.local_rtt_ps - 16 * US == (FULL + SACK_BYTES) * (800 if cut_through else NIC), (
        "two switches less each way"
    )


@pytest.mark.parametrize(
    ("upper", "hops", "wire", "cut"),
    [
        (10**10, CROSSING, 800, 800),  # each switch begins with the frame: its time counts once
        (
            4 * 10**10,
            CROSSING,
            2 * 800,
            800 + 200,
        ),  # a T0 has all of it before a quicker link begins; the last one ends with the NIC's time
        (5 * 10**9, CROSSING, 1600 + 800, 1600),
        (10**10, LOCAL, 800, 800),
    ],
)
def test_where_switches_cut_through_a_frame_takes_the_time_of_the_links_that_wait_for_it(
    upper: int, hops: int, wire: int, cut: int
) -> None:
    line = DelayLine(FABRIC.with_(fabric_rate=upper, cut_through=True))
    assert line.transit(FULL, hops) == 10 * US + FULL * wire
    assert (
        line.before_cut(1000, dscp.TRIMMED_LASTHOP, hops) == 1000 * cut
        and line.before_cut(1000, dscp.TRIMMED, hops) == 800_000
    )


def test_nobody_waits_behind_a_frame_from_another_rack() -> None:
    kernel = Kernel(fabric=FABRIC.with_(hop_delay_ps=5 * US))
    crossing = [kernel.arrive(0), kernel.arrive(1000)]
    local = kernel.arrive(2000, hops=LOCAL)
    kernel.look(3000)
    assert run(kernel, 10**9).numbers() == [local, *crossing]


TWO = FABRIC.with_(t0_per_plane=2, sites=2, long_haul_rate=5 * 10**9, long_haul_delay_ps=MS)
FROM_FAR = 60


def test_data_and_its_sack_make_the_base_rtt_between_sites() -> None:
    line = DelayLine(TWO)
    assert line.transit(FULL, FROM_FAR) + line.transit(SACK_BYTES, FROM_FAR) == TWO.haul_rtt_ps
    assert (
        line.transit(FULL, CROSSING)
        == DelayLine(FABRIC).transit(FULL, CROSSING)
        == DelayLine(FABRIC).transit(FULL, FROM_FAR)
    )
    assert line.before_cut(1000, dscp.TRIMMED_LASTHOP, FROM_FAR) == 1000 * (NIC // 2 + UPPER + 1600)


def test_nobody_waits_behind_a_frame_from_the_other_site_and_those_keep_their_order() -> None:
    kernel = Kernel(fabric=TWO)
    far = [
        kernel.arrive(0, hops=FROM_FAR),
        kernel.arrive(1000, klass=dscp.CONTROL, length=154, hops=FROM_FAR),
    ]
    near = [kernel.arrive(3000, hops=LOCAL), kernel.arrive(2000)]
    last = kernel.arrive(4000, hops=FROM_FAR, length=154)
    kernel.look(5000)
    assert run(kernel, 2 * 10**9).numbers() == [*near, far[1], far[0], last]


@pytest.mark.parametrize("klass", [dscp.CONTROL, dscp.TRIMMED, dscp.TRIMMED_LASTHOP])
def test_small_high_frames_overtake_data_of_their_port_only_as_far_as_they_are_faster(
    klass: int,
) -> None:
    kernel = Kernel()
    data = kernel.arrive(0)
    high = kernel.arrive(1000, klass=klass, length=154)
    late = kernel.arrive(FULL * (NIC + UPPER), klass=klass, length=154)
    kernel.look(FULL * (NIC + UPPER))
    engine = run(kernel, 10**9)
    assert engine.numbers() == [high, data, late]
    assert [now for now, *_ in engine.got] == [
        FABRIC.delay_ps + t for t in (1000 + 154 * 2000, FULL * 2000, (FULL + 154) * 2000)
    ]


@pytest.mark.parametrize(
    ("klass", "hops", "whole", "short"),
    [
        (dscp.TRIMMED_LASTHOP, CROSSING, NIC // 2 + UPPER, NIC // 2),
        (dscp.TRIMMED, CROSSING, NIC // 2, NIC // 2 + UPPER),
        (dscp.TRIMMED_LASTHOP, LOCAL, NIC // 2, NIC // 2),
        (dscp.TRIMMED, LOCAL, NIC // 2, NIC // 2),
    ],
)
def test_a_trimmed_frame_was_whole_up_to_the_switch_that_cut_it(
    klass: int, hops: int, whole: int, short: int
) -> None:
    """Else a NACK would be back before the packet that it names could have been there."""
    kernel = Kernel()
    kernel.arrive(0, klass=klass, length=154, hops=hops, was=FULL)
    kernel.look(10)
    assert kernel.ring.line.next == FABRIC.delay_ps + FULL * whole + 154 * short


def test_a_peer_that_lies_about_what_was_trimmed_is_late_by_a_full_frame_at_most() -> None:
    kernel = Kernel()
    kernel.arrive(0, klass=dscp.TRIMMED, length=154, was=60_000)
    kernel.arrive(0, port=1, klass=dscp.TRIMMED, length=1000, was=0)
    kernel.look(10)
    assert kernel.ring.line.heads[5] == FABRIC.delay_ps + FULL * NIC // 2 + 154 * (NIC + UPPER)
    assert (
        kernel.ring.line.next
        == kernel.ring.line.heads[11]
        == FABRIC.delay_ps + 1000 * (NIC + UPPER)
    )


def test_control_does_not_wait_for_headers_that_were_data() -> None:
    kernel = Kernel()
    header = kernel.arrive(0, klass=dscp.TRIMMED_LASTHOP, length=154, was=FULL)
    sack = kernel.arrive(1000, klass=dscp.CONTROL, length=154)
    kernel.look(2000)
    assert run(kernel, 10**9).numbers() == [sack, header]


def test_a_small_data_frame_waits_for_the_large_one_before_it_but_not_for_another_ports() -> None:
    kernel = Kernel()
    large = kernel.arrive(0)
    small = kernel.arrive(1000, length=200)
    other = kernel.arrive(2000, port=1, length=200)
    kernel.look(3000)
    engine = run(kernel, 10**9)
    assert engine.numbers() == [other, large, small]
    due = FABRIC.delay_ps + FULL * 2000
    assert [now for now, *_ in engine.got] == [
        2000 + FABRIC.delay_ps + 200 * 2000,
        due,
        due + 200 * NIC // 2,
    ]


def test_frames_that_came_closer_than_they_fit_on_the_last_link_end_as_far_apart_as_there() -> None:
    """HTB lets a port that was idle send two at once, nearly; and a late one is not made up for by
    those after it."""
    kernel = Kernel()
    wire, first = FULL * NIC // 2, FABRIC.delay_ps + FULL * (NIC + UPPER)
    for at in (0, 100, wire + 5000, 4 * wire):
        kernel.arrive(at)
    kernel.arrive(4 * wire, port=1)
    kernel.look(4 * wire)
    assert [now - first for now, port, *_ in run(kernel, 10**9).got if port == 0] == [
        0,
        wire,
        2 * wire,
        4 * wire,
    ]
    assert kernel.ring.line.ends[3] == first + 4 * wire, "another port is another link"


frames = st.lists(
    st.tuples(
        st.integers(0, 3_000_000),  # since the one before
        st.integers(0, 1),
        st.sampled_from(
            [
                dscp.CONTROL,
                dscp.NO_TRIM,
                dscp.TRIMMABLE,
                dscp.TRIMMED,
                dscp.TRIMMED_LASTHOP,
                dscp.ROCE,
            ]
        ),
        st.integers(118, FULL),
        st.sampled_from([CROSSING, LOCAL]),
        st.integers(0, FULL),
    ),
    max_size=60,
)


@given(frames, st.integers(1, 64), st.integers(0, 1 << 30))
def test_nothing_early_nothing_lost_and_every_fifo_in_order(
    arriving: list[tuple[int, int, int, int, int, int]], most: int, seed: int
) -> None:
    """Looks at random times, then none but those asked for: what is due is handed over at once, and
    every slot goes back."""
    kernel = Kernel(blocks=20)
    engine: Any = Engine()
    rng = Random(seed)
    now = 0
    sent: dict[int, tuple[int, int, tuple[int, bool], int]] = {}
    lengths: dict[int, int] = {}
    for gap, port, klass, length, hops, was in arriving:
        at = now + gap
        number = kernel.arrive(at, port, klass, length, hops, was=was)
        lengths[number] = length
        which = 1 if klass == dscp.CONTROL else 2 if klass in CUT else 0
        line = kernel.ring.line
        cut = line.before_cut(was - length, klass, hops) if which == 2 else 0
        sent[number] = (at, port, (which, hops == LOCAL), line.transit(length, hops) + cut)
        now = at
        if rng.random() < 0.5:
            kernel.look(now)
            kernel.ring.hand_over(engine, now, most)
    kernel.look(now)
    engine.got += run(kernel, 10**9, most).got
    assert sorted(engine.numbers()) == sorted(sent)
    for port, which, local in itertools.product((0, 1), (0, 1, 2), (False, True)):
        order = [
            number for number in engine.numbers() if sent[number][1:3] == (port, (which, local))
        ]
        assert order == sorted(order)
    handed = {number: at for at, _, number, _ in engine.got}
    due: dict[tuple[int, tuple[int, bool]], int] = {}
    for number, (at, port, fifo, transit) in sent.items():
        due[port, fifo] = max(at + transit, due.get((port, fifo), 0) + lengths[number] * NIC // 2)
        assert due[port, fifo] <= handed[number]
        assert handed[number] <= max(now, due[port, fifo])
    assert not any(kernel.memory[k * BLOCK + j * SLOT] for k in range(20) for j in range(4))


def test_of_several_that_are_due_the_oldest_goes_first() -> None:
    kernel = Kernel()
    slow, fast = kernel.arrive(0), kernel.arrive(10, port=1, length=300)
    third = kernel.arrive(20, port=1, length=300)
    kernel.look(100)
    engine: Any = Engine()
    assert (
        kernel.ring.hand_over(engine, 10**9, 2) == 2
        and kernel.ring.first_due == 10 + FABRIC.delay_ps + 300 * 2000
    )
    assert kernel.ring.hand_over(engine, 10**9, 2) == 1
    assert engine.numbers() == [fast, third, slow] and [port for _, port, *_ in engine.got] == [
        1,
        1,
        0,
    ]


def test_a_full_ring_drops_in_the_kernel_and_goes_on_when_its_oldest_slot_is_back() -> None:
    kernel = Kernel(blocks=1)
    assert kernel.ring.slots == 4
    first = kernel.arrive(0)
    others = [kernel.arrive(k, klass=dscp.CONTROL, length=154) for k in (1, 2, 3)]
    assert kernel.arrive(4) == -1
    kernel.look(5)
    kernel.look(6)  # all round, and the slots are known: nothing is read twice
    assert kernel.ring.held == 4
    engine: Any = Engine()
    kernel.ring.hand_over(engine, FABRIC.delay_ps + 3 + 154 * 2000 + 2 * 154 * NIC // 2, 64)
    assert engine.numbers() == others and kernel.arrive(7) == -1, (
        "three slots are free, but not the next one"
    )
    kernel.ring.hand_over(engine, FABRIC.delay_ps + FULL * 2000, 64)
    again = kernel.arrive(FABRIC.delay_ps * 2)
    kernel.look(FABRIC.delay_ps * 2)
    kernel.ring.hand_over(engine, 10**9, 64)
    assert (
        engine.numbers() == [*others, first, again]
        and kernel.dropped == 2
        and kernel.ring.held == 0
    )


def test_while_frames_are_held_no_later_one_can_be_due_before_the_next_look() -> None:
    kernel = Kernel()
    kernel.arrive(0)
    kernel.look(100)
    look = kernel.ring.next_look()
    assert look == 100 + FABRIC.delay_ps + 102 * NIC < kernel.ring.line.next
    soonest = kernel.arrive(101, port=1, klass=dscp.CONTROL, length=102, hops=LOCAL)
    kernel.look(look)
    engine: Any = Engine()
    assert kernel.ring.hand_over(engine, look, 64) == 0 and kernel.ring.next_look() == look + 1
    assert kernel.ring.hand_over(engine, look + 1, 64) == 1 and engine.numbers() == [soonest]


def test_frames_of_other_interfaces_go_back_at_once_and_are_counted() -> None:
    kernel = Kernel()
    kernel.arrive(0, port=7)
    mine = kernel.arrive(1)
    kernel.look(10)
    assert (kernel.ring.not_ours, kernel.ring.held, kernel.memory[0]) == (1, 1, 0)
    assert run(kernel, 10**9).numbers() == [mine]


def test_a_frame_that_the_kernel_cut_keeps_what_there_is() -> None:
    kernel = Kernel()
    kernel.arrive(0, length=6000)
    kernel.look(10)
    assert [length for *_, length in run(kernel, 10**9).got] == [SLOT - 80]


@pytest.mark.parametrize(
    ("step", "arrival"),
    [(-3600 * 10**9, 1_000_007), (3600 * 10**9, 1_000)],
    ids=["back", "forward"],
)
def test_setting_the_real_time_clock_moves_a_frame_by_one_look_at_most(
    step: int, arrival: int
) -> None:
    """Between the look at 1 ns and the one at 1 us, which takes 7 ps, a frame comes at 0.5 us."""
    kernel = Kernel()
    kernel.look(1_000)
    kernel.arrive(500_000)
    kernel.step = step
    kernel.look(1_000_000, took=7)
    due = FABRIC.delay_ps + FULL * 2000
    assert kernel.ring.line.next == arrival + due, (
        "set back, it comes from the future; set forward, from before the last look"
    )
    kernel.arrive(2_000_000, port=1)
    kernel.look(2_000_500)
    assert kernel.ring.line.take() == 0, "slot 0"
    assert kernel.ring.line.next == 2_000_000 + due, "the next one is right again"


@pytest.mark.parametrize(("at", "arrival"), [(1_000_003, 1_000_003), (1_000_009, 1_000_007)])
def test_a_frame_that_comes_during_a_look_came_no_later_than_now(at: int, arrival: int) -> None:
    kernel = Kernel()
    kernel.arrive(at)
    kernel.look(1_000_000, took=7)
    assert kernel.ring.line.next == arrival + FABRIC.delay_ps + FULL * 2000


def test_without_delay_only_the_wire_is_left_and_next_to_nothing_on_fast_links() -> None:
    kernel = Kernel(fabric=FABRIC.with_(delay_ps=0))
    kernel.arrive(0, length=154, hops=LOCAL)
    kernel.look(10)
    assert kernel.ring.line.next == 154 * NIC
    fast = Kernel(fabric=FABRIC.with_(delay_ps=0, nic_rate=MAX_RATE, fabric_rate=MAX_RATE))
    fast.arrive(0)
    fast.look(20_000)
    engine: Any = Engine()
    assert fast.ring.hand_over(engine, 20_000, 64) == 1 and fast.ring.held == 0
