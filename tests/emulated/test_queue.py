"""The switch's queue packet by packet: trimming, marking, classes and limits, at exactly known
backlogs.

A backlog is *declared* where a test needs one: the counted backlog has a term for what a dead link
swallowed, and a negative one there is a queue of that many bytes without a packet in it. What real
queues do is in test_queue_overload.py.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agents.packets import dscp
from testbed.dataplane import layout, loader
from testbed.dataplane.counters import totals
from testbed.dataplane.maps import BpfMap
from testbed.emulated import bringup
from testbed.emulated.cluster import Cluster
from tests.emulated import tc
from tests.emulated.frames import ETH_P_IPV6, Got, Wire, at_rest, ipv6, wires_of
from tests.emulated.ring import wait_until
from topologies import addressing, load_fabric
from topologies.addressing import ev, inner_address
from topologies.fabrics import DILATION

pytestmark = pytest.mark.sandbox
NIC, UPLINK, DOWN, LAST_HOP = "h0-p0", "p0-t0-0-u0", "p0-t1-0-d1", "p0-t0-1-d0"
"""Egress ports of the path from h0 to h2 on EV (plane 0, uplink 0), in order."""
CUT = 142
"""Ethernet 14, outer and inner IPv6 80, UDP 8, BTH 12, METH 4, TSETH 4, RETH 16, immediate 4."""
SMALLEST = 54
ECT1 = 1


@pytest.fixture(scope="module")
def fast() -> Iterator[Cluster]:
    """`tiny` at 1 Gb/s: its thresholds in bytes are the same, and thousands of frames take a
    second."""
    with Cluster(
        load_fabric("tiny").with_(nic_rate=10**13, fabric_rate=10**13, delay_ps=-1),
        dilation=DILATION,
        controller=False,
    ) as cluster:
        yield cluster


@pytest.fixture
def wires(fast: Cluster) -> Iterator[list[Wire]]:
    """Senders and receivers of all hosts; whatever a test did, the books balance after it."""
    with wires_of(fast) as made:
        yield made
    assert at_rest(fast)


def frame(
    size: int, dscp_class: int = dscp.TRIMMABLE, ecn: int = dscp.ECT0, seed: int = 0
) -> bytes:
    """A frame of ``size`` bytes from h0 to h2: MRC's headers as far as they fit, UDP checksum 0,
    then bytes of no pattern."""
    a, b = inner_address(0), inner_address(2)
    udp = struct.pack("!HHHH", 49152, 4791, max(8, size - 94), 0)
    noise = bytes((i * 167 + (i >> 8) * 59 + seed) & 0xFF for i in range(max(0, size - 102)))
    inner = ipv6(a, b, 17, udp + noise)[: size - 54]
    whole = bytearray(
        ipv6(
            a,
            addressing.path_address(load_fabric("tiny"), 0, 2, ev(0, 0)),
            41,
            inner,
            64,
            dscp_class,
        )
    )
    whole[1] |= ecn << 4
    return (
        addressing.ROUTER_MAC + addressing.HOST_MAC + struct.pack("!H", ETH_P_IPV6) + bytes(whole)
    )


def arrival(
    sent: bytes, dscp_class: int | None = None, ecn: int | None = None, *, cut: bool = False
) -> bytes:
    """What must reach h2 of ``sent``: three hops, and the named changes, nothing else."""
    out = bytearray(sent[:CUT] if cut else sent)
    word = struct.unpack_from("!H", out, 14)[0]
    if dscp_class is not None:
        word = word & 0xF03F | dscp_class << 6
    if ecn is not None:
        word = word & 0xFFCF | ecn << 4
    struct.pack_into("!H", out, 14, word)
    struct.pack_into("!H", out, 18, len(out) - 54)
    out[21] -= 3
    out[38:54] = out[38:42] + out[48:54] + bytes(6)
    return bytes(out)


def fields(got: bytes) -> tuple[int, int]:
    """(DSCP, ECN) of the outer header."""
    word = struct.unpack_from("!H", got, 14)[0]
    return word >> 6 & 0x3F, word >> 4 & 3


@contextmanager
def waiting(
    cluster: Cluster, declared: dict[str, int], traffic_class: int = layout.DATA
) -> Iterator[None]:
    """Ports count this many bytes more as waiting in a class."""
    numbers = {port.name: port.number for port in cluster.fabric.ports}
    flushed = cluster.net.counters._flushed
    words = {
        numbers[name] * len(layout.FLUSHED_WORDS) + traffic_class: size
        for name, size in declared.items()
    }
    for word, size in words.items():
        flushed[word] = (flushed[word] - size) & (1 << 64) - 1
    try:
        yield
    finally:
        for word, size in words.items():
            flushed[word] = (flushed[word] + size) & (1 << 64) - 1


@contextmanager
def described(cluster: Cluster, seed: int = 0, **changes: object) -> Iterator[None]:
    """The running fabric with other thresholds or switches."""
    loader.describe(cluster.fabric.with_(**changes), seed)
    try:
        yield
    finally:
        loader.describe(cluster.fabric)


def row(cluster: Cluster, port: str) -> dict[str, int]:
    return next(r for r in cluster.counters() if r["port"] == port)


def moved(cluster: Cluster, before: list[dict[str, int]]) -> dict[str, dict[str, int]]:
    """Counters of the queue that moved, by name and port."""
    names = (
        "marked",
        "trimmed",
        "drop_tail_packets",
        "drop_tail_bytes",
        "drop_high_packets",
        "drop_trim_failed",
    )
    out: dict[str, dict[str, int]] = {}
    for a, b in zip(before, cluster.counters(), strict=True):
        for name in names:
            if b[name] != a[name]:
                out.setdefault(name, {})[str(a["port"])] = b[name] - a[name]
    return out


def through(wires: list[Wire], frames: list[bytes], batch: int = 1) -> list[Got]:
    """Send h0 -> h2, a batch at a time, the next when all of one has arrived; what arrived, in
    order."""
    got: list[Got] = []
    for at in range(0, len(frames), batch):
        part = frames[at : at + batch]
        for one in part:
            wires[0].send(0, one)
        got += wires[2].receive(len(part))
    return got


def one(wires: list[Wire], sent: bytes) -> bytes | None:
    """Send one frame h0 -> h2; what arrived of it."""
    wires[0].send(0, sent)
    got = wires[2].receive(1)
    return got[0].frame if got else None


def lost(wires: list[Wire], sent: bytes) -> bool:
    """Send one frame h0 -> h2; whether it is dropped, and does not arrive. The caller looks for its
    cause in the counters."""

    def drops() -> int:
        return sum(
            count
            for name, count in totals(wires[0].cluster.counters()).items()
            if name.startswith("drop_")
        )

    before, got = drops(), []
    wires[0].send(0, sent)
    assert wait_until(
        lambda: got.extend(wires[2].receive(1, timeout=0)) or got or drops() > before
    ), "it has come to nothing"
    return not got


# --- trimming -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "becomes"),
    [(UPLINK, dscp.TRIMMED), (DOWN, dscp.TRIMMED), (LAST_HOP, dscp.TRIMMED_LASTHOP)],
)
def test_every_frame_size_is_trimmed_right(
    fast: Cluster, wires: list[Wire], port: str, becomes: int
) -> None:
    sizes = range(SMALLEST, bringup.link_mtu(fast.fabric) + 14 + 1)
    frames = [
        frame(size, (dscp.TRIMMABLE, dscp.TRIMMABLE_RETX)[size % 2], size % 4, seed=size)
        for size in sizes
    ]
    before, at = fast.counters(), row(fast, port)
    # Without marking, and few at a time: none meets a queue of its own making that would matter.
    with (
        described(fast, ecn=False),
        waiting(fast, {port: fast.fabric.trim_bytes(port == LAST_HOP)}),
    ):
        got = through(wires, frames, batch=8)
    assert len(got) == len(frames)
    for sent, arrived in zip(frames, got, strict=True):
        assert arrived.frame == arrival(sent, becomes, cut=True), f"{len(sent)} bytes"
        assert (
            struct.unpack_from("!H", arrived.frame, 18)[0]
            == len(arrived.frame) - 54
            == min(len(sent), CUT) - 54
        )
        # inner lengths name the original size, the UDP checksum stays 0
        assert arrived.frame[54:] == sent[54:CUT]
        assert fields(arrived.frame)[1] == fields(sent)[1]
    assert moved(fast, before) == {"trimmed": {port: len(frames)}}
    after = row(fast, port)
    # the size after trimming
    assert after["admitted_bytes"] - at["admitted_bytes"] == sum(min(size, CUT) for size in sizes)
    assert after["met_packets"] - at["met_packets"] == len(frames)


def test_trimmed_and_control_packets_take_the_high_class_all_others_the_data_class(
    fast: Cluster, wires: list[Wire]
) -> None:
    port = next(p.number for p in fast.fabric.ports if p.name == UPLINK)
    stats, base = fast.net.counters._stats, port * len(layout.STATS_WORDS)
    high, data = (
        base + layout.STATS_WORDS.index(f"admitted_packets_{c}") for c in ("high", "data")
    )
    above = fast.fabric.trim_bytes(False) + 10_000
    wanted = (
        ("TRIMMABLE", 0, (0, 1)),
        ("TRIMMABLE", above, (1, 0)),
        ("TRIMMABLE_RETX", above, (1, 0)),
        ("NO_TRIM", 0, (0, 1)),
        ("ROCE", 0, (0, 1)),
        ("CONTROL", 0, (1, 0)),
        ("TRIMMED", 0, (1, 0)),
        ("TRIMMED_LASTHOP", 0, (1, 0)),
        ("RETX_HIGH", above, (1, 0)),
    )
    with tc.Watch(fast, UPLINK) as watch:
        for name, queued, expected in wanted:
            counted, said = (stats[high], stats[data]), watch.read()
            with waiting(fast, {UPLINK: queued}):
                assert one(wires, frame(600, getattr(dscp, name))) is not None
            now = watch.read()
            assert (stats[high] - counted[0], stats[data] - counted[1]) == expected, name
            assert (
                tuple(now[q].packets - said[q].packets for q in (tc.HIGH, tc.DATA)) == expected
            ), name


@pytest.mark.parametrize("port", [UPLINK, LAST_HOP])
@pytest.mark.parametrize("size", [SMALLEST, CUT - 1, CUT, CUT + 1, 1500, 4242])
def test_the_trimming_threshold_is_exact(
    fast: Cluster, wires: list[Wire], port: str, size: int
) -> None:
    threshold, sent = fast.fabric.trim_bytes(port == LAST_HOP), frame(size, ecn=dscp.NOT_ECT)
    with waiting(fast, {port: threshold - size}):
        assert one(wires, sent) == arrival(sent)
    with waiting(fast, {port: threshold - size + 1}):
        assert one(wires, sent) == arrival(
            sent, dscp.TRIMMED_LASTHOP if port == LAST_HOP else dscp.TRIMMED, cut=True
        )


@pytest.mark.parametrize("port", [UPLINK, LAST_HOP])
def test_retransmissions_of_the_high_class_are_trimmed_by_its_own_queue(
    fast: Cluster, wires: list[Wire], port: str
) -> None:
    last = port == LAST_HOP
    threshold, sent = fast.fabric.trim_bytes(last), frame(4242, dscp.RETX_HIGH)
    with waiting(fast, {port: 2 * threshold}), waiting(fast, {port: threshold - 4242}, layout.HIGH):
        assert one(wires, sent) == arrival(sent)
    with waiting(fast, {port: threshold - 4242 + 1}, layout.HIGH):
        assert one(wires, sent) == arrival(
            sent, dscp.TRIMMED_LASTHOP if last else dscp.TRIMMED, cut=True
        )
    with described(fast, trimming=False), waiting(fast, {port: threshold - 4242 + 1}, layout.HIGH):
        assert one(wires, sent) == arrival(sent)


def test_thresholds_are_the_fabrics(fast: Cluster) -> None:
    fabric = fast.fabric
    assert fabric.trim_bytes(False) == fabric.plane_bdp
    assert fabric.trim_bytes(True) == pytest.approx(1.5 * fabric.plane_bdp, abs=1)
    assert fabric.ecn_bytes == (int(0.2 * fabric.plane_bdp), int(0.8 * fabric.plane_bdp))


def test_a_trimmed_packet_passes_later_full_queues_as_it_is(
    fast: Cluster, wires: list[Wire]
) -> None:
    full = dict.fromkeys((UPLINK, DOWN, LAST_HOP), fast.fabric.buffer_bytes)
    before = fast.counters()
    sent = frame(4242)
    with waiting(fast, full):
        assert one(wires, sent) == arrival(sent, dscp.TRIMMED, cut=True)
        for name in (dscp.TRIMMED, dscp.TRIMMED_LASTHOP, dscp.CONTROL):
            # nobody cuts or marks what is in the high class, whatever its length
            for size in (CUT, 4242):
                assert one(wires, frame(size, name)) == arrival(frame(size, name))
    assert moved(fast, before) == {"trimmed": {UPLINK: 1}}


@pytest.mark.parametrize("name", ["NO_TRIM", "ROCE"])
@pytest.mark.parametrize("port", [UPLINK, LAST_HOP])
def test_what_does_not_ask_for_trimming_is_dropped_at_the_buffers_end(
    fast: Cluster, wires: list[Wire], name: str, port: str
) -> None:
    sent, before = frame(3000, getattr(dscp, name), dscp.NOT_ECT), fast.counters()
    with waiting(fast, {port: fast.fabric.buffer_bytes - 3000}):
        assert one(wires, sent) == arrival(sent)
    with waiting(fast, {port: fast.fabric.buffer_bytes - 2999}):
        assert lost(wires, sent)
    assert moved(fast, before) == {"drop_tail_packets": {port: 1}, "drop_tail_bytes": {port: 3000}}


def test_without_trimming_the_buffer_drops_its_tail(fast: Cluster, wires: list[Wire]) -> None:
    sent, before = frame(3000, ecn=dscp.NOT_ECT), fast.counters()
    with described(fast, trimming=False):
        with waiting(fast, {UPLINK: fast.fabric.buffer_bytes - 3000}):
            assert one(wires, sent) == arrival(sent)
        with waiting(fast, {UPLINK: fast.fabric.buffer_bytes - 2999}):
            assert lost(wires, sent)
    assert moved(fast, before) == {
        "drop_tail_packets": {UPLINK: 1},
        "drop_tail_bytes": {UPLINK: 3000},
    }


def test_a_hosts_port_only_drops(fast: Cluster, wires: list[Wire]) -> None:
    before = fast.counters()
    for name in (dscp.TRIMMABLE, dscp.ROCE):
        sent = frame(3000, name)
        with waiting(fast, {NIC: fast.fabric.buffer_bytes - 3000}):
            assert one(wires, sent) == arrival(sent)
        with waiting(fast, {NIC: fast.fabric.buffer_bytes - 2999}):
            assert lost(wires, sent)
    assert moved(fast, before) == {"drop_tail_packets": {NIC: 2}, "drop_tail_bytes": {NIC: 6000}}


def test_the_high_class_drops_trimmed_packets_that_it_has_no_room_for(
    fast: Cluster, wires: list[Wire]
) -> None:
    room, sent, before = loader.high_limit(fast.fabric), frame(4242), fast.counters()
    with waiting(fast, {UPLINK: fast.fabric.plane_bdp}):
        with waiting(fast, {UPLINK: room - CUT}, layout.HIGH):
            assert one(wires, sent) == arrival(sent, dscp.TRIMMED, cut=True)
        with waiting(fast, {UPLINK: room - CUT + 1}, layout.HIGH):
            assert lost(wires, sent)
    expected = {
        "trimmed": 1,
        "drop_tail_packets": 1,
        "drop_tail_bytes": CUT,
        "drop_high_packets": 1,
    }
    assert moved(fast, before) == {name: {UPLINK: count} for name, count in expected.items()}
    assert row(fast, UPLINK)["backlog_high_peak_bytes"] == room


def test_a_frame_that_the_kernel_will_not_cut_is_a_counted_drop(
    fast: Cluster, wires: list[Wire]
) -> None:
    """Linux trims no skb into what it takes for headers before the transport's: here a chain of
    options 520 bytes long."""
    options = (
        bytes((17, 64))
        + bytes((1, 254))
        + bytes(254)
        + bytes((1, 254))
        + bytes(254)
        + bytes((1, 2, 0, 0))
    )
    udp = struct.pack("!HHHH", 49152, 4790, 8, 0)
    path = addressing.path_address(fast.fabric, 0, 2, ev(0, 0))
    packet = ipv6(inner_address(0), path, 60, options[:520] + udp + bytes(1000), 64, dscp.TRIMMABLE)
    sent, before = (
        addressing.ROUTER_MAC + addressing.HOST_MAC + b"\x86\xdd" + packet,
        fast.counters(),
    )
    table, key = (
        BpfMap(loader.PINS / "port_config"),
        struct.pack("=I", next(p.number for p in fast.fabric.ports if p.name == "p0-t0-0-d0")),
    )
    config = table.lookup(key)
    assert config and layout.CONFIG_WORDS[-1] == "source"
    # a T0 lets no host hide an inner header behind options: drop_spoofed
    table.update(key, config[:-4] + bytes(4))
    try:
        with waiting(fast, {UPLINK: fast.fabric.plane_bdp}):
            assert lost(wires, sent)
    finally:
        table.update(key, config)
    assert moved(fast, before) == {"drop_trim_failed": {UPLINK: 1}}


# --- marking --------------------------------------------------------------------------------------


def marks(
    fast: Cluster, wires: list[Wire], port: str, backlog: int, sent: bytes, count: int = 200
) -> int:
    """How many of ``count`` copies arrive CE-marked past a port where ``backlog`` bytes wait; the
    counters must say the same."""
    before = fast.counters()
    with waiting(fast, {port: backlog}):
        got = through(wires, [sent] * count)  # one at a time: what waits is what was declared
    seen = Counter(arrived.frame for arrived in got)
    assert set(seen) <= {arrival(sent), arrival(sent, ecn=dscp.CE)} and len(got) == count
    marked = seen[arrival(sent, ecn=dscp.CE)] if fields(sent)[1] != dscp.CE else 0
    assert moved(fast, before).get("marked", {}) == ({port: marked} if marked else {})
    return marked


@pytest.mark.parametrize("port", [UPLINK, DOWN])
def test_marking_rises_linearly_between_the_thresholds(
    fast: Cluster, wires: list[Wire], port: str
) -> None:
    low, high = fast.fabric.ecn_bytes
    small, count = frame(200, dscp.NO_TRIM), 400
    assert marks(fast, wires, port, low // 2, small) == 0
    assert marks(fast, wires, port, low, small) == 0
    assert marks(fast, wires, port, high, small) == 200
    assert marks(fast, wires, port, 2 * high, small) == 200
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        marked = marks(fast, wires, port, round(low + share * (high - low)), small, count)
        assert abs(marked - share * count) <= 4 * math.sqrt(share * (1 - share) * count), (
            f"{marked} of {count} at {share} of the ramp"
        )


def test_the_ramp_ends_at_its_highest_chance_and_above_it_every_packet_is_marked(
    fast: Cluster, wires: list[Wire]
) -> None:
    low, high = fast.fabric.ecn_bytes
    small = frame(200, dscp.NO_TRIM)
    with described(fast, ecn_pmax=0.2):
        assert [marks(fast, wires, UPLINK, at, small, 20) for at in (low, high)] == [0, 20]
        marked = marks(fast, wires, UPLINK, high - 1, small, 400)
    assert abs(marked - 80) <= 4 * math.sqrt(0.2 * 0.8 * 400)


def test_trimmable_packets_are_marked_while_they_are_not_trimmed(
    fast: Cluster, wires: list[Wire]
) -> None:
    for name in (dscp.TRIMMABLE, dscp.TRIMMABLE_RETX):
        for ecn in (dscp.ECT0, ECT1):
            assert (
                marks(fast, wires, UPLINK, fast.fabric.ecn_bytes[1], frame(200, name, ecn), 20)
                == 20
            )


@pytest.mark.parametrize("ecn", [dscp.NOT_ECT, dscp.CE])
def test_only_ect_packets_are_marked(fast: Cluster, wires: list[Wire], ecn: int) -> None:
    assert (
        marks(fast, wires, UPLINK, fast.fabric.ecn_bytes[1], frame(200, dscp.NO_TRIM, ecn), 20) == 0
    )


def test_the_last_hop_marks_the_baseline_and_mrc_only_if_told_to(
    fast: Cluster, wires: list[Wire]
) -> None:
    full, mrc_data, roce = (
        2 * fast.fabric.ecn_bytes[1],
        frame(200, dscp.NO_TRIM),
        frame(200, dscp.ROCE),
    )
    assert marks(fast, wires, LAST_HOP, full, mrc_data, 20) == 0
    assert marks(fast, wires, LAST_HOP, full, roce, 20) == 20
    with described(fast, last_hop_ecn=True):
        assert marks(fast, wires, LAST_HOP, full, mrc_data, 20) == 20
        assert marks(fast, wires, LAST_HOP, full, roce, 20) == 20
    with described(fast, ecn=False, last_hop_ecn=True):
        for port in (UPLINK, LAST_HOP):
            for sent in (mrc_data, roce):
                assert marks(fast, wires, port, full, sent, 20) == 0


def test_a_dropped_packet_is_not_counted_as_marked(fast: Cluster, wires: list[Wire]) -> None:
    before = fast.counters()
    with waiting(fast, {UPLINK: fast.fabric.buffer_bytes}):
        assert lost(wires, frame(200, dscp.NO_TRIM))
    assert moved(fast, before) == {
        "drop_tail_packets": {UPLINK: 1},
        "drop_tail_bytes": {UPLINK: 200},
    }


def test_the_ramps_draws_can_be_repeated(fast: Cluster, wires: list[Wire]) -> None:
    low, high = fast.fabric.ecn_bytes
    port = next(p.number for p in fast.fabric.ports if p.name == UPLINK)
    draws = port * len(layout.STATS_WORDS) + layout.STATS_WORDS.index("met_packets")
    seen = []
    for seed in (3, 3, 4):
        with described(fast, seed), waiting(fast, {UPLINK: (low + high) // 2}):
            fast.net.counters._stats[draws] = 1000
            got = through(wires, [frame(200, dscp.NO_TRIM)] * 64)
        seen.append([fields(arrived.frame)[1] == dscp.CE for arrived in got])
    assert len(seen[0]) == 64 and seen[0] == seen[1] != seen[2]


# --- what is counted ------------------------------------------------------------------------------


def test_the_mean_backlog_is_what_data_packets_found(fast: Cluster, wires: list[Wire]) -> None:
    before = row(fast, UPLINK)
    found = (0, 3000, 50_000, fast.fabric.buffer_bytes)  # let in, let in, trimmed, dropped
    for size, name in zip(
        found, (dscp.NO_TRIM, dscp.NO_TRIM, dscp.TRIMMABLE, dscp.NO_TRIM), strict=True
    ):
        with waiting(fast, {UPLINK: size}):
            assert lost(wires, frame(200, name)) == (size == found[-1])
    with waiting(fast, {UPLINK: 70_000}):
        assert one(wires, frame(200, dscp.CONTROL)) is not None  # no data packet
    after = row(fast, UPLINK)
    assert after["met_packets"] - before["met_packets"] == 4
    assert after["met_bytes"] - before["met_bytes"] == sum(found)
    assert after["backlog_mean_bytes"] == round(after["met_bytes"] / after["met_packets"])
    rows = fast.counters()
    assert totals(rows)["backlog_mean_bytes"] == round(
        sum(r["met_bytes"] for r in rows) / sum(r["met_packets"] for r in rows)
    )


def test_a_ports_backlog_by_name(fast: Cluster) -> None:
    assert fast.backlog(UPLINK) == 0
    with waiting(fast, {UPLINK: 12_345}):
        assert fast.backlog(UPLINK) == 12_345
        assert fast.backlog(DOWN) == 0
        with waiting(fast, {UPLINK: 99}, layout.HIGH):
            assert fast.backlog(UPLINK) == 12_345  # the data class alone
    with pytest.raises(KeyError):
        fast.backlog("p9-t0-0-u0")
