"""The simulated switch's queue packet by packet, at exactly known backlogs: the cases of
tests/emulated/test_queue.py without a kernel."""

from __future__ import annotations

import math
import struct

import pytest

from agents.packets import dscp
from testbed.dataplane.counters import books
from testbed.simulated.network import Network, Station
from testbed.simulated.port import SimPort, draw
from topologies import addressing, load_fabric
from topologies.addressing import ev, inner_address
from topologies.units import US

TINY = load_fabric("tiny")
NIC, UPLINK, DOWN, LAST_HOP = "h0-p0", "p0-t0-0-u0", "p0-t1-0-d1", "p0-t0-1-d0"
"""Egress ports of the path from h0 to h2 on EV (plane 0, uplink 0), in order."""
CUT = 142
SMALLEST = 54


def frame(
    size: int,
    dscp_class: int = dscp.TRIMMABLE,
    ecn: int = dscp.ECT0,
    hop_limit: int = 64,
    src: int = 0,
) -> bytes:
    """A frame of ``size`` bytes from a host of the first T0 to h2: MRC's headers as far as they
    fit, then bytes of no pattern."""
    udp = struct.pack("!HHHH", 49152, 4791, max(8, size - 94), 0)
    noise = bytes((i * 167 + (i >> 8) * 59) & 0xFF for i in range(max(0, size - 102)))

    def ipv6(dst: bytes, next_header: int, payload: bytes, word: int) -> bytes:
        return (
            struct.pack("!IHBB", 6 << 28 | word << 20, len(payload), next_header, hop_limit)
            + inner_address(src)
            + dst
            + payload
        )

    inner = ipv6(inner_address(2), 17, udp + noise, 0)[: size - 54]
    outer = ipv6(addressing.path_address(TINY, 0, 2, ev(0, 0)), 41, inner, dscp_class << 2 | ecn)
    return addressing.ROUTER_MAC + addressing.HOST_MAC + b"\x86\xdd" + outer


def arrival(
    sent: bytes, dscp_class: int | None = None, ecn: int | None = None, *, cut: bool = False
) -> bytes:
    """What must reach h2 of ``sent``: three hops, and the named changes, nothing else."""
    out = bytearray(sent[:CUT] if cut else sent)
    word = struct.unpack_from("!H", out, 14)[0]
    word = word & 0xF03F | dscp_class << 6 if dscp_class is not None else word
    word = word & 0xFFCF | ecn << 4 if ecn is not None else word
    struct.pack_into("!H", out, 14, word)
    struct.pack_into("!H", out, 18, len(out) - 54)
    out[21] -= 3
    out[38:54] = out[38:42] + out[48:54] + bytes(6)
    return bytes(out)


class Bench(Station):
    """A fabric, and what reaches h2."""

    def __init__(self, seed: int = 0, **changes: object) -> None:
        self.net = Network(TINY)
        self.net.describe(TINY.with_(**changes), seed)
        self.net.stations[2] = self
        self.got: list[tuple[int, bytes]] = []
        self.names = {port.name: port.number for port in TINY.ports}

    def take(self, plane: int, made: bytes) -> None:
        self.got.append((self.net.time, bytes(made)))

    def port_state(self, plane: int, up: bool) -> None:
        pass

    def port(self, name: str) -> SimPort:
        return self.net.ports[self.names[name]]

    def one(self, sent: bytes, **declared: int) -> bytes | None:
        """Send one frame past queues in which so many bytes count as waiting; what arrived of it.
        Keys: port names with _ for -."""
        self.got = []
        ports = [
            (self.port(name.replace("_", "-").removesuffix("-high")), name.endswith("_high"), n)
            for name, n in declared.items()
        ]
        for port, high, n in ports:
            port.waiting, port.waiting_high = (port.waiting, n) if high else (n, port.waiting_high)
        self.net.send(0, 0, sent)
        self.net.run(self.net.time + 100 * US)
        for port, high, n in ports:
            assert n == (port.waiting_high if high else port.waiting)
            port.waiting, port.waiting_high = (port.waiting, 0) if high else (0, port.waiting_high)
        assert self.net.quiet() and books(self.net.rows()) == []
        assert len(self.got) < 2
        return self.got[0][1] if self.got else None

    def row(self, name: str) -> dict[str, int]:
        return next(r for r in self.net.rows() if r["port"] == name)

    def moved(self) -> dict[str, dict[str, int]]:
        names = (
            "marked",
            "trimmed",
            "drop_tail_packets",
            "drop_tail_bytes",
            "drop_high_packets",
            "drop_trim_failed",
        )
        out: dict[str, dict[str, int]] = {}
        for row in self.net.rows():
            for name in names:
                if row[name]:
                    out.setdefault(name, {})[row["port"]] = row[name]
        return out


def key(port: str, high: bool = False) -> str:
    return port.replace("-", "_") + ("_high" if high else "")


@pytest.mark.parametrize(
    ("port", "becomes"),
    [(UPLINK, dscp.TRIMMED), (DOWN, dscp.TRIMMED), (LAST_HOP, dscp.TRIMMED_LASTHOP)],
)
def test_every_frame_size_is_trimmed_right(port: str, becomes: int) -> None:
    bench, sizes = Bench(ecn=False), range(SMALLEST, 4243, 7)
    for size in sizes:
        sent = frame(size, (dscp.TRIMMABLE, dscp.TRIMMABLE_RETX)[size % 2], size % 4)
        assert bench.one(sent, **{key(port): TINY.trim_bytes(port == LAST_HOP)}) == arrival(
            sent, becomes, cut=True
        ), f"{size} bytes"
    assert bench.moved() == {"trimmed": {port: len(sizes)}}
    # the size after trimming
    assert bench.row(port)["admitted_bytes"] == sum(min(size, CUT) for size in sizes)
    assert bench.row(port)["met_packets"] == len(sizes)


@pytest.mark.parametrize("port", [UPLINK, LAST_HOP])
@pytest.mark.parametrize("size", [SMALLEST, CUT - 1, CUT, CUT + 1, 1500, 4242])
def test_the_trimming_threshold_is_exact(port: str, size: int) -> None:
    bench, threshold, sent = (
        Bench(),
        TINY.trim_bytes(port == LAST_HOP),
        frame(size, ecn=dscp.NOT_ECT),
    )
    assert bench.one(sent, **{key(port): threshold - size}) == arrival(sent)
    becomes = dscp.TRIMMED_LASTHOP if port == LAST_HOP else dscp.TRIMMED
    assert bench.one(sent, **{key(port): threshold - size + 1}) == arrival(sent, becomes, cut=True)


@pytest.mark.parametrize("port", [UPLINK, LAST_HOP])
def test_retransmissions_of_the_high_class_are_trimmed_by_its_own_queue(port: str) -> None:
    bench, last = Bench(), port == LAST_HOP
    threshold, sent = TINY.trim_bytes(last), frame(4242, dscp.RETX_HIGH)
    assert bench.one(sent, **{key(port): 2 * threshold}) == arrival(sent)
    assert bench.one(sent, **{key(port, True): threshold - 4242}) == arrival(sent)
    assert bench.one(sent, **{key(port, True): threshold - 4242 + 1}) == arrival(
        sent, dscp.TRIMMED_LASTHOP if last else dscp.TRIMMED, cut=True
    )
    assert Bench(trimming=False).one(sent, **{key(port, True): threshold - 4242 + 1}) == arrival(
        sent
    )


def test_a_trimmed_packet_passes_later_full_queues_as_it_is() -> None:
    bench, full, sent = (
        Bench(),
        {key(port): TINY.buffer_bytes for port in (UPLINK, DOWN, LAST_HOP)},
        frame(4242),
    )
    assert bench.one(sent, **full) == arrival(sent, dscp.TRIMMED, cut=True)
    for name in (dscp.TRIMMED, dscp.TRIMMED_LASTHOP, dscp.CONTROL):
        for size in (CUT, 4242):
            assert bench.one(frame(size, name), **full) == arrival(frame(size, name))
    assert bench.moved() == {"trimmed": {UPLINK: 1}}


@pytest.mark.parametrize("name", ["NO_TRIM", "ROCE"])
@pytest.mark.parametrize("port", [UPLINK, LAST_HOP, NIC])
def test_what_does_not_ask_for_trimming_is_dropped_at_the_buffers_end(name: str, port: str) -> None:
    bench, sent = Bench(), frame(3000, getattr(dscp, name), dscp.NOT_ECT)
    assert bench.one(sent, **{key(port): TINY.buffer_bytes - 3000}) == arrival(sent)
    assert bench.one(sent, **{key(port): TINY.buffer_bytes - 2999}) is None
    assert bench.moved() == {"drop_tail_packets": {port: 1}, "drop_tail_bytes": {port: 3000}}


def test_without_trimming_and_on_a_hosts_port_the_tail_is_dropped() -> None:
    sent = frame(3000, ecn=dscp.NOT_ECT)
    for bench, port in ((Bench(trimming=False), UPLINK), (Bench(), NIC)):
        assert bench.one(sent, **{key(port): TINY.buffer_bytes - 3000}) == arrival(sent)
        assert bench.one(sent, **{key(port): TINY.buffer_bytes - 2999}) is None
        assert bench.moved() == {"drop_tail_packets": {port: 1}, "drop_tail_bytes": {port: 3000}}


def test_the_high_class_drops_trimmed_packets_that_it_has_no_room_for() -> None:
    bench, sent, room = Bench(), frame(4242), TINY.buffer_bytes // 4
    assert bench.one(
        sent, **{key(UPLINK): TINY.plane_bdp, key(UPLINK, True): room - CUT}
    ) == arrival(sent, dscp.TRIMMED, cut=True)
    assert (
        bench.one(sent, **{key(UPLINK): TINY.plane_bdp, key(UPLINK, True): room - CUT + 1}) is None
    )
    expected = {
        "trimmed": 1,
        "drop_tail_packets": 1,
        "drop_tail_bytes": CUT,
        "drop_high_packets": 1,
    }
    assert bench.moved() == {name: {UPLINK: count} for name, count in expected.items()}
    assert bench.row(UPLINK)["backlog_high_peak_bytes"] == room


def marks(bench: Bench, port: str, backlog: int, sent: bytes, count: int = 200) -> int:
    """How many of ``count`` copies arrive CE-marked."""
    seen = [bench.one(sent, **{key(port): backlog}) for _ in range(count)]
    assert set(seen) <= {arrival(sent), arrival(sent, ecn=dscp.CE)}
    return (
        sum(got == arrival(sent, ecn=dscp.CE) for got in seen)
        if sent[15] >> 4 & 3 != dscp.CE
        else 0
    )


@pytest.mark.parametrize("port", [UPLINK, DOWN])
def test_marking_rises_linearly_between_the_thresholds(port: str) -> None:
    (low, high), small, bench = TINY.ecn_bytes, frame(200, dscp.NO_TRIM), Bench()
    assert [marks(bench, port, at, small, 20) for at in (low // 2, low, high, 2 * high)] == [
        0,
        0,
        20,
        20,
    ]
    for share in (0.1, 0.5, 0.9):
        marked = marks(bench, port, round(low + share * (high - low)), small, 400)
        assert abs(marked - share * 400) <= 4 * math.sqrt(share * (1 - share) * 400), (
            f"{marked} at {share} of the ramp"
        )


def test_the_ramp_ends_at_its_highest_chance_and_above_it_every_packet_is_marked() -> None:
    (low, high), small, bench = TINY.ecn_bytes, frame(200, dscp.NO_TRIM), Bench(ecn_pmax=0.2)
    assert [marks(bench, UPLINK, at, small, 20) for at in (low, high)] == [0, 20]
    marked = marks(bench, UPLINK, high - 1, small, 400)
    assert abs(marked - 80) <= 4 * math.sqrt(0.2 * 0.8 * 400)


@pytest.mark.parametrize(
    ("ecn", "marked"), [(dscp.NOT_ECT, 0), (1, 20), (dscp.ECT0, 20), (dscp.CE, 0)]
)
def test_only_ect_packets_are_marked(ecn: int, marked: int) -> None:
    assert marks(Bench(), UPLINK, TINY.ecn_bytes[1], frame(200, dscp.NO_TRIM, ecn), 20) == marked


def test_the_last_hop_marks_the_baseline_and_mrc_only_if_told_to() -> None:
    full, data, roce = 2 * TINY.ecn_bytes[1], frame(200, dscp.NO_TRIM), frame(200, dscp.ROCE)
    assert [marks(Bench(), LAST_HOP, full, sent, 20) for sent in (data, roce)] == [0, 20]
    assert [marks(Bench(last_hop_ecn=True), LAST_HOP, full, sent, 20) for sent in (data, roce)] == [
        20,
        20,
    ]
    assert [
        marks(Bench(ecn=False, last_hop_ecn=True), LAST_HOP, full, sent, 20)
        for sent in (data, roce)
    ] == [0, 0]


def test_the_ramps_draws_follow_the_seed() -> None:
    low, high = TINY.ecn_bytes

    def seen(seed: int) -> list[bool]:
        bench, sent = Bench(seed), frame(200, dscp.NO_TRIM)
        return [
            bench.one(sent, **{key(UPLINK): (low + high) // 2}) == arrival(sent, ecn=dscp.CE)
            for _ in range(64)
        ]

    assert seen(3) == seen(3) != seen(4)


def test_a_draw_is_that_of_the_ebpf_program() -> None:
    """Computed with fabric.bpf.c's draw() compiled as C."""
    assert [draw(3, 7, n) for n in (0, 1, 1000)] == [3673997261, 1226960360, 3763523081]
    assert draw(0xFFFFFFFF, 4095, (1 << 64) - 1) == 1837118477


def test_the_mean_backlog_is_what_data_packets_found() -> None:
    bench, found = Bench(), (0, 3000, 50_000, TINY.buffer_bytes)  # let in, let in, trimmed, dropped
    for size, name in zip(
        found, (dscp.NO_TRIM, dscp.NO_TRIM, dscp.TRIMMABLE, dscp.NO_TRIM), strict=True
    ):
        assert (bench.one(frame(200, name), **{key(UPLINK): size}) is None) == (size == found[-1])
    # no data packet
    assert bench.one(frame(200, dscp.CONTROL), **{key(UPLINK): 70_000}) is not None
    row = bench.row(UPLINK)
    assert (row["met_packets"], row["met_bytes"]) == (4, sum(found))
    assert row["backlog_mean_bytes"] == round(sum(found) / 4)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ((38, 0x00), "drop_not_mine"),
        ((43, 0x7F), "drop_not_mine"),
        ((12, 0x08), "drop_not_mine"),
        ((45, 0x7F), "drop_no_route"),
    ],
)
def test_a_switch_drops_what_it_cannot_forward_and_says_why(
    change: tuple[int, int], cause: str
) -> None:
    bench, sent = Bench(), bytearray(frame(200))
    sent[change[0]] = change[1]
    assert bench.one(bytes(sent)) is None
    assert bench.row("p0-t0-0-d0")[cause] == 1


@pytest.mark.parametrize(
    ("at", "values"),
    [
        (77, (2,)),
        (77, (3,)),
        (62, (0xFE,)),
        (70, (1,)),
        (73, (1,)),
        (20, (0,)),
        (20, (43,)),
        (20, (44,)),
        (20, (51,)),
        (20, (60,)),
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
    at: int, values: tuple[int, ...]
) -> None:
    """And nowhere else is it asked: the same frame passes where a T1 sends it."""
    bench, sent = Bench(), bytearray(frame(200))
    sent[at : at + len(values)] = bytes(values)
    assert bench.one(bytes(sent)) is None
    assert {
        row["port"]: row["drop_spoofed"] for row in bench.net.rows() if row["drop_spoofed"]
    } == {"p0-t0-0-d0": 1}
    bench.port("p0-t0-0-d0").source = 0
    assert bench.one(bytes(sent)) is not None


@pytest.mark.parametrize(
    ("at", "value"),
    [(75, 2), (67, 0x0B), (20, 17), (20, 59)],
    ids=["on a plane", "background", "no inner", "nothing"],
)
def test_a_host_may_use_every_address_of_its_own(at: int, value: int) -> None:
    """Its one on each plane, where MPTCP runs; background traffic's; and what names no inner
    source."""
    bench, sent = Bench(), bytearray(frame(200))
    sent[at] = value
    assert bench.one(bytes(sent)) is not None


@pytest.mark.parametrize(("hops", "cause"), [(64, ""), (5, ""), (2, "drop_hop_limit")])
def test_a_switch_that_comes_twice_in_a_row_processes_twice(hops: int, cause: str) -> None:
    bench = Bench()
    sent, plain = bytearray(frame(200, hop_limit=hops)), bench.one(frame(200, hop_limit=hops))
    sent[44:54] = sent[42:52]
    got = bench.one(bytes(sent))
    if cause:
        assert got is None is plain and bench.row("p0-t0-0-d0")[cause] == 1
    else:
        assert got is not None and plain is not None
        assert got[21] == hops - 4 and got[:21] + got[22:] == plain[:21] + plain[22:]


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_hop_limit_ends_a_frame(hops: int) -> None:
    bench = Bench()
    assert bench.one(frame(200, hop_limit=hops)) is None
    assert [row["port"] for row in bench.net.rows() if row["drop_hop_limit"]] == [
        ("p0-t0-0-d0", "p0-t1-0-d0", "p0-t0-1-u0")[hops - 1]
    ]
    assert bench.one(frame(200, hop_limit=4)) is not None
