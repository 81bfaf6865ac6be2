"""The eBPF programs on real interfaces: forwarding, every named drop, the queue, and counters that
add up."""

from __future__ import annotations

import ipaddress
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from agents.packets import dscp
from testbed.dataplane import layout, loader
from testbed.dataplane.counters import books, totals
from testbed.dataplane.maps import BpfMap
from testbed.emulated.cluster import Cluster
from tests.emulated.frames import OTHERHOST, Wire, arrived, at_rest, change, ipv6, mrc, wires_of
from tests.emulated.ring import PATIENCE_S, quiet, wait_until
from topologies import addressing
from topologies.addressing import ev

pytestmark = pytest.mark.sandbox
FULL = bytes(4096 + 28)
HEAD = addressing.ROUTER_MAC + addressing.HOST_MAC


@pytest.fixture
def wires(tiny: Cluster) -> Iterator[list[Wire]]:
    with wires_of(tiny) as made:
        yield made


@pytest.fixture
def slow_wires(slow: Cluster) -> Iterator[list[Wire]]:
    slow.heal()
    with wires_of(slow) as made:
        yield made
    assert at_rest(slow)


def path(cluster: Cluster, src: int, dst: int, value: int) -> bytes:
    return addressing.path_address(cluster.fabric, src, dst, value)


def send_at_once(wire: Wire, frames: list[bytes]) -> tuple[list[bool], int]:
    """What the kernel took of them, and how many can have left through a port of 1 Mb/s while this
    process sent."""
    begun = time.monotonic()
    taken = [wire.send(0, frame) for frame in frames]
    return taken, int((time.monotonic() - begun) * 1_000_000 / 8 / len(frames[-1]))


def test_layouts_match_the_kernels(tiny: Cluster) -> None:
    expected = (
        ("port_config", layout.CONFIG_WORDS, 4),
        ("port_stats", layout.STATS_WORDS, 8),
        ("port_flushed", layout.FLUSHED_WORDS, 8),
        ("port_background", layout.BACKGROUND_WORDS, 8),
        ("port_held", layout.HELD_WORDS, 8),
        ("port_pause", layout.PAUSE_WORDS, 8),
        ("trunk_stats", layout.TRUNK_WORDS, 8),
    )
    for name, words, size in expected:
        held = BpfMap(loader.PINS / name)
        assert (held.value_size, held.max_entries) == (len(words) * size, layout.MAX_PORTS), name


def test_a_switch_shifts_and_counts_hops_and_touches_nothing_else(
    tiny: Cluster, wires: list[Wire]
) -> None:
    sent = mrc(
        0,
        2,
        path(tiny, 0, 2, ev(1, 1)),
        b"payload that no switch may touch",
        dscp_class=dscp.TRIMMABLE,
    )
    assert wires[0].send(1, sent)
    (got,) = wires[2].receive(1, linger=0.05)
    assert got.port == "h2-p1"
    assert got.kind == OTHERHOST  # so the kernel's own stack leaves it alone
    assert got.frame[38:54] == addressing.outer_address((addressing.host_usid(tiny.fabric, 1, 2),))
    assert got.frame[21] == sent[21] - 3
    assert got.frame[:21] + got.frame[22:38] + got.frame[54:] == sent[:21] + sent[22:38] + sent[54:]


def test_the_kernel_never_answers_mrc_but_answers_others(tiny: Cluster, wires: list[Wire]) -> None:
    wires[0].send(0, mrc(0, 2, path(tiny, 0, 2, ev(0, 0))))
    assert len(wires[2].receive(1)) == 1
    assert at_rest(tiny) and wires[0].receive(1, timeout=0.1) == []
    wires[0].send(0, mrc(0, 2, path(tiny, 0, 2, ev(0, 0)), udp_port=4790))
    (answer,) = wires[0].receive(1)
    assert answer.frame[14 + 40 + 6] == 58  # ICMPv6: nobody listens on that port


@pytest.mark.parametrize(
    ("counter", "at"),
    [
        ("drop_not_mine", "p0-t0-0-d0"),
        ("drop_no_route", "p0-t0-0-d0"),
        ("drop_hop_limit", "p0-t1-0-d0"),
        ("drop_spoofed", "p0-t0-0-d0"),
    ],
)
def test_every_drop_has_a_name_and_a_place(
    tiny: Cluster, wires: list[Wire], counter: str, at: str
) -> None:
    good = path(tiny, 0, 2, ev(0, 0))
    frame = {
        "drop_not_mine": mrc(0, 2, addressing.shift(good)),
        "drop_no_route": mrc(0, 2, good[:6] + b"\x0b\xff" + good[8:]),
        "drop_hop_limit": mrc(0, 2, good, hop_limit=2),
        "drop_spoofed": mrc(1, 2, good),
    }[counter]
    before = tiny.counters()
    assert wires[0].send(0, frame)
    assert arrived(wires[2]) == []
    assert change(before, tiny.counters(), counter) == {at: 1}


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (77, 2),
        (77, 3),
        (62, 0xFE),
        (70, 1),
        (73, 1),
        (20, 0),
        (20, 43),
        (20, 44),
        (20, 51),
        (20, 60),
    ],
    ids=[
        "h1's",
        "h2's",
        "another net's",
        "72 bits on",
        "96 bits on",
        "hop-by-hop",
        "routing",
        "fragment",
        "authentication",
        "destination",
    ],
)
def test_a_t0_drops_what_comes_by_a_hosts_port_in_anothers_name(
    tiny: Cluster, wires: list[Wire], at: int, value: int
) -> None:
    """As tests/simulated/test_queue.py has it of the simulated switch: every bit of the inner
    source, and inner headers that hide."""
    before, good = tiny.counters(), mrc(0, 2, path(tiny, 0, 2, ev(0, 0)))
    assert wires[0].send(0, good[:at] + bytes([value]) + good[at + 1 :])
    assert arrived(wires[2]) == []
    assert change(before, tiny.counters(), "drop_spoofed") == {"p0-t0-0-d0": 1}
    assert books(tiny.counters()) == []


@pytest.mark.parametrize(
    ("at", "value"),
    [(75, 2), (67, 0x0B), (20, 17), (20, 59)],
    ids=["on a plane", "background", "no inner", "nothing"],
)
def test_a_host_may_use_every_address_of_its_own(
    tiny: Cluster, wires: list[Wire], at: int, value: int
) -> None:
    good = mrc(0, 2, path(tiny, 0, 2, ev(0, 0)))
    assert wires[0].send(0, good[:at] + bytes([value]) + good[at + 1 :])
    assert len(wires[2].receive(1)) == 1


@pytest.mark.parametrize(
    "frame",
    [
        HEAD + b"\x08\x00" + bytes(46),
        HEAD + b"\x86\xdd",
        HEAD + b"\x86\xdd\x60" + bytes(20),
        HEAD
        + b"\x86\xdd"
        + ipv6(addressing.inner_address(0), addressing.BLOCK + bytes(12), 59, b""),
    ],
    ids=["ipv4", "bare ethernet", "truncated ipv6", "block without usid"],
)
def test_strange_frames_are_counted_drops(tiny: Cluster, wires: list[Wire], frame: bytes) -> None:
    before = tiny.counters()
    assert wires[0].send(0, frame)
    assert at_rest(tiny)
    assert change(before, tiny.counters(), "drop_not_mine") == {"p0-t0-0-d0": 1}


def from_source(source: str) -> Callable[[bytes], bytes]:
    return lambda frame: frame[:22] + ipaddress.ip_address(source).packed + frame[38:]


@pytest.mark.parametrize(
    "spoil",
    [
        *(
            lambda frame, n=n: frame[:14] + bytes([n << 4 | frame[14] & 15]) + frame[15:]
            for n in (0, 4, 5, 7, 15)
        ),
        *(
            from_source(source)
            for source in ("::", "::1", "ff02::1", "ff0e::5", "fe80::1", "febf::1")
        ),
        lambda frame: frame[:-1],
        lambda frame: frame[:54],
    ],
    ids=[
        "version 0",
        "version 4",
        "version 5",
        "version 7",
        "version 15",
        "from ::",
        "from ::1",
        "from ff02::1",
        "from ff0e::5",
        "from fe80::1",
        "from febf::1",
        "one byte short",
        "nothing after the header",
    ],
)
def test_what_a_router_must_not_forward_is_dropped_by_name(
    tiny: Cluster, wires: list[Wire], spoil: Callable[[bytes], bytes]
) -> None:
    """As the kernel's ipv6_rcv and ip6_forward: whoever it is for."""
    before = tiny.counters()
    assert wires[0].send(0, spoil(mrc(0, 2, path(tiny, 0, 2, ev(0, 0)), bytes(100))))
    assert quiet(tiny)
    assert change(before, tiny.counters(), "drop_malformed") == {"p0-t0-0-d0": 1}
    assert books(tiny.counters()) == []


def test_what_looks_strange_and_is_sound_passes(tiny: Cluster, wires: list[Wire]) -> None:
    good = mrc(0, 2, path(tiny, 0, 2, ev(0, 0)))
    sound = [
        good + b"padding",
        *(from_source(source)(good) for source in ("::2", "1::", "fe00::1", "fec0::1")),
    ]
    for frame in sound:
        assert wires[0].send(0, frame)
    got = [g.frame for g in wires[2].receive(len(sound), linger=0.05)]
    assert [frame[22:38] + frame[54:] for frame in got] == [
        frame[22:38] + frame[54:] for frame in sound
    ]


@pytest.mark.parametrize(
    ("times", "hop_limit", "cause"),
    [
        (2, 64, ""),
        (3, 64, ""),
        (2, 5, ""),
        (2, 2, "drop_hop_limit"),
        (3, 3, "drop_hop_limit"),
        (6, 64, "drop_no_route"),
    ],
)
def test_its_own_usid_again_is_processed_again(
    tiny: Cluster, wires: list[Wire], times: int, hop_limit: int, cause: str
) -> None:
    """RFC 9800, section 4.1.1: what the shift addresses to this switch again goes through the same
    steps, hop limit included."""
    good = path(tiny, 0, 2, ev(0, 0))
    address = (good[:4] + good[4:6] * times + good[6:])[:16]
    before = tiny.counters()
    sent = mrc(0, 2, address, bytes(100), hop_limit=hop_limit)
    assert wires[0].send(0, sent)
    got = wires[2].receive(1, timeout=0.1 if cause else PATIENCE_S, linger=0.05)
    assert quiet(tiny) and books(tiny.counters()) == []
    if cause:
        assert got == [] and change(before, tiny.counters(), cause) == {"p0-t0-0-d0": 1}
    else:
        assert [g.frame[21] for g in got] == [hop_limit - 2 - times]
        assert got[0].frame[38:54] == addressing.outer_address(
            (addressing.host_usid(tiny.fabric, 0, 2),)
        )


def test_a_dead_switch_takes_its_cables_along(tiny: Cluster, wires: list[Wire]) -> None:
    tiny.set_switch("p0-t1-0", False)
    before = tiny.counters()
    for _ in range(3):
        wires[0].send(0, mrc(0, 2, path(tiny, 0, 2, ev(0, 0))))
    wires[0].send(0, mrc(0, 2, path(tiny, 0, 2, ev(0, 1))))
    assert [g.port for g in arrived(wires[2])] == ["h2-p0"]
    assert change(before, tiny.counters(), "drop_link_down_packets") == {"p0-t0-0-u0": 3}
    tiny.set_switch("p0-t1-0", True)
    wires[0].send(0, mrc(0, 2, path(tiny, 0, 2, ev(0, 0))))
    assert len(wires[2].receive(1)) == 1
    assert books(tiny.counters()) == []


def test_the_buffer_is_exact_and_drops_at_its_tail(slow: Cluster, slow_wires: list[Wire]) -> None:
    frame = mrc(0, 2, path(slow, 0, 2, ev(0, 0)), FULL)
    before = slow.counters()
    taken, left = send_at_once(slow_wires[0], [frame] * 60)
    row = next(r for r in slow.counters() if r["port"] == "h0-p0")
    assert (
        slow.fabric.buffer_bytes - len(frame)
        < row["backlog_peak_bytes"]
        <= slow.fabric.buffer_bytes
    )
    first_loss = taken.index(False)
    # one may leave at once
    assert 0 <= first_loss - slow.fabric.buffer_bytes // len(frame) <= 1 + left
    lost = taken.count(False)
    assert change(before, slow.counters(), "drop_tail_packets") == {"h0-p0": lost}
    assert change(before, slow.counters(), "drop_tail_bytes") == {"h0-p0": lost * len(frame)}
    assert len(arrived(slow_wires[2])) == 60 - lost


@pytest.mark.quiet
def test_the_rate_is_the_links(slow: Cluster, slow_wires: list[Wire]) -> None:
    frame = mrc(0, 2, path(slow, 0, 2, ev(0, 0)), FULL)
    send_at_once(slow_wires[0], [frame] * 25)
    got = slow_wires[2].receive(25)
    seconds = got[-1].at - got[0].at
    assert len(got) == 25
    assert 24 * len(frame) * 8 / seconds == pytest.approx(1_000_000, rel=0.05)


@pytest.mark.quiet
def test_control_overtakes_a_full_queue_and_takes_at_most_half(
    slow: Cluster, slow_wires: list[Wire]
) -> None:
    where = path(slow, 0, 2, ev(0, 0))
    data, control = mrc(0, 2, where, FULL), mrc(0, 2, where, bytes(400), dscp_class=dscp.CONTROL)
    taken, left = send_at_once(slow_wires[0], [data] * 20 + [control] * 50)
    assert all(taken)
    got = slow_wires[2].receive(70)
    high = [g.at for g in got if len(g.frame) == len(control)]
    assert len(got) == 70
    # those already on their way
    assert sum(len(g.frame) == len(data) for g in got if g.at < high[0]) <= 4 + left
    rate = (len(high) - 1) * len(control) * 8 / (high[-1] - high[0])
    assert rate == pytest.approx(500_000, rel=0.1)


def test_the_high_class_has_a_finite_buffer_of_its_own(
    slow: Cluster, slow_wires: list[Wire]
) -> None:
    control = mrc(0, 2, path(slow, 0, 2, ev(0, 0)), bytes(900), dscp_class=dscp.CONTROL)
    taken, left = send_at_once(slow_wires[0], [control] * 100)
    fit = loader.high_limit(slow.fabric) // len(control)
    assert fit <= taken.index(False) <= fit + 3 + left
    assert len(arrived(slow_wires[2])) == taken.count(True)


@pytest.mark.parametrize("link", ["h0:p0-t0-0", "p0-t0-0:p0-t1-0"])
@pytest.mark.parametrize("by_hand", [False, True])
def test_what_a_pulled_cable_swallows_is_in_the_books(
    slow: Cluster, slow_wires: list[Wire], link: str, by_hand: bool
) -> None:
    frame = mrc(0, 2, path(slow, 0, 2, ev(0, 0)), FULL)
    before = totals(slow.counters())
    for _ in range(20):
        slow_wires[0].send(0, frame)
    time.sleep(0.1)
    cable = slow.fabric.link(link)
    if by_hand:
        slow.net[cable.b.node].cmd(f"ip link set {cable.b.name} down")
        assert wait_until(lambda: not slow.link_states()[link])
    else:
        slow.set_link(link, False)
    for _ in range(5):
        slow_wires[0].send(0, frame)
    assert not slow.link_states()[link]
    came = len(arrived(slow_wires[2]))  # a dead cable holds no packets: everything comes to rest
    after = totals(slow.counters())
    lost = sum(after[c] - before[c] for c in ("flushed_packets", "drop_link_down_packets"))
    assert came + lost == 25
    assert lost >= 5 and after["flushed_packets"] >= before["flushed_packets"]
    if by_hand:
        slow.net[cable.b.node].cmd(f"ip link set {cable.b.name} up")
        assert wait_until(lambda: slow.link_states()[link])
    else:
        slow.set_link(link, True)
    assert slow_wires[0].send(0, frame)
    assert len(slow_wires[2].receive(1)) == 1


def test_flapping_loses_nothing_without_a_cause(tiny: Cluster, wires: list[Wire]) -> None:
    frame = mrc(0, 2, path(tiny, 0, 2, ev(0, 0)), bytes(200))
    before = totals(tiny.counters())
    sent = refused = 0
    for _ in range(30):
        tiny.set_link("p0-t0-0:p0-t1-0", False)
        tiny.set_link("h0:p0-t0-0", False)
        for up in (False, True):
            if up:
                tiny.set_link("h0:p0-t0-0", True)
                tiny.set_link("p0-t0-0:p0-t1-0", True)
            for _ in range(5):
                sent += 1
                refused += not wires[0].send(0, frame)
        assert quiet(tiny)
    got = len(arrived(wires[2]))
    after = totals(tiny.counters())
    lost = sum(
        after[c] - before[c]
        for c in ("flushed_packets", "drop_link_down_packets", "drop_tail_packets")
    )
    assert (got, lost, refused) == (sent // 2, sent // 2, sent // 2)


def test_counters_agree_with_the_kernels_own(tiny: Cluster, wires: list[Wire]) -> None:
    frame = mrc(0, 2, path(tiny, 0, 2, ev(0, 1)), bytes(100))
    for _ in range(50):
        wires[0].send(0, frame)
    assert len(wires[2].receive(50)) == 50
    row = next(r for r in tiny.counters() if r["port"] == "p0-t0-0-u1")
    command = [
        "nsenter",
        f"--net={tiny.net.switch_namespace}",
        "ip",
        "-s",
        "link",
        "show",
        "p0-t0-0-u1",
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [int(v) for v in text[5].split()[:2]] == [row["admitted_bytes"], row["admitted_packets"]]
