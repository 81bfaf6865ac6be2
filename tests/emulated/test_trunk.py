"""One fabric on two machines, cut inside its T1s: frames cross unchanged, and what the wire between
them loses has its name."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator

import pytest

from testbed.dataplane import layout
from testbed.dataplane.counters import books
from testbed.dataplane.trunk import lost
from testbed.emulated.bringup import link_mtu
from testbed.emulated.trunk import UDP_PORT, needed_mtu
from tests.emulated.frames import mrc
from tests.emulated.machines import Machine, machines
from tests.emulated.part_process import PartProcess
from tests.emulated.ring import wait_until
from topologies import addressing, load_fabric
from topologies.addressing import ev, ev_fields
from topologies.paths import path_evs, path_nodes

pytestmark = pytest.mark.sandbox
TINY = load_fabric("tiny")
HEADERS = len(mrc(0, 1, bytes(16)))
LONGEST = link_mtu(TINY) + 14
ADDRESSES = ["10.9.0.1", "10.9.0.2"]
SENT, RECEIVED = (layout.TRUNK_WORDS.index(word) for word in ("sent_packets", "received_packets"))


class Pair:
    """Two machines with the two halves of ``tiny``: hosts 0 and 1, hosts 2 and 3."""

    def __init__(self, places: list[Machine]) -> None:
        self.places = places
        self.parts = [PartProcess(place, ADDRESSES) for place in places]
        assert [part.answer() for part in self.parts] == ["ready", "ready"]

    def part_of(self, host: int) -> PartProcess:
        return self.parts[TINY.t0_of(host)]

    def carried(self) -> list[dict[int, list[int]]]:
        return [
            {int(port): words for port, words in part.ask("trunk")["carried"].items()}
            for part in self.parts
        ]

    def counters(self) -> list[dict[str, int | str]]:
        """Of all ports, at rest, with what the trunk lost."""
        assert all(part.ask("quiesce") for part in self.parts)
        missing = {TINY.ports[port].name: packets for port, packets in lost(self.carried()).items()}
        return [
            {**row, "drop_trunk": missing.get(row["port"], 0)}
            for part in self.parts
            for row in part.ask("counters")
        ]

    def close(self) -> None:
        for part in self.parts:
            part.close()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with machines(mtu=needed_mtu(TINY)) as places:
        two = Pair(places)
        yield two
        two.close()


def test_frames_of_every_path_arrive_unchanged_over_the_trunk(pair: Pair) -> None:
    for src in range(4):
        for dst in range(4):
            for value in path_evs(TINY, src, dst) if src != dst else ():
                plane = ev_fields(value)[0]
                body = f"{src} {dst} {value}".encode().ljust(LONGEST - HEADERS, b".")
                frame = mrc(src, dst, addressing.path_address(TINY, src, dst, value), body)
                assert len(frame) == LONGEST
                assert pair.part_of(src).ask(
                    "send", host=src, plane=plane, frames=[frame.hex()]
                ) == [True]
                ((port, got),) = pair.part_of(dst).ask("receive", host=dst, count=1, timeout=10)
                arrived, hops = bytes.fromhex(got), len(path_nodes(TINY, src, dst, value)) - 2
                assert port == f"h{dst}-p{plane}" and arrived[21] == frame[21] - hops
                assert (
                    arrived[:21] + arrived[22:38] + arrived[54:]
                    == frame[:21] + frame[22:38] + frame[54:]
                )
    assert books(pair.counters()) == []  # type: ignore[arg-type]
    assert lost(pair.carried()) == {}
    crossing = 2 * 2 * 2 * len(path_evs(TINY, 0, 2))  # two hosts on each side, both ways
    assert [sum(words[SENT] for words in one.values()) for one in pair.carried()] == [
        crossing // 2
    ] * 2
    assert [part.ask("trunk")["strays"] for part in pair.parts] == [0, 0]


def cross(pair: Pair, count: int, ecn: int = 0) -> list[str]:
    """``count`` frames from h0 to h2 over plane 0's second T1, numbered; what arrived."""
    path = addressing.path_address(TINY, 0, 2, ev(0, 1))
    frames = [mrc(0, 2, path, number.to_bytes(4, "big")) for number in range(count)]
    frames = [frame[:15] + bytes([frame[15] & 0xCF | ecn << 4]) + frame[16:] for frame in frames]
    assert (
        pair.parts[0].ask("send", host=0, plane=0, frames=[frame.hex() for frame in frames])
        == [True] * count
    )
    assert pair.parts[0].ask("quiesce")
    return [frame for _, frame in pair.parts[1].ask("receive", host=2, count=count, timeout=0.5)]


def test_a_packet_that_the_wire_loses_has_a_name_and_its_port(pair: Pair) -> None:
    before = {row["port"]: row["drop_trunk"] for row in pair.counters()}
    with pair.places[1].wire("lose"):
        assert cross(pair, 3) == []
    after = pair.counters()
    changed = {
        row["port"]: row["drop_trunk"] - before[row["port"]]
        for row in after
        if row["drop_trunk"] != before[row["port"]]
    }  # type: ignore[operator]
    assert changed == {"p0-t1-1-d1": 3}
    assert books(after) == []  # type: ignore[arg-type]


def test_frames_keep_their_order(pair: Pair) -> None:
    numbers = [int(frame[-8:], 16) for frame in cross(pair, 200)]
    assert numbers == list(range(200))


@pytest.mark.parametrize("ecn", [0, 1, 2, 3])
def test_marks_of_the_network_beneath_are_not_the_fabrics(pair: Pair, ecn: int) -> None:
    """What is capable of ECN carries that outside too, where a router may mark it."""
    with pair.places[1].wire("mark"):
        (frame,) = cross(pair, 1, ecn)
    assert bytes.fromhex(frame)[15] >> 4 & 3 == ecn
    remarked = sum(
        words[layout.TRUNK_WORDS.index("remarked")] for words in pair.carried()[1].values()
    )
    assert remarked >= (ecn != 0)


def test_what_no_peer_sent_goes_nowhere(pair: Pair) -> None:
    """A frame in VXLAN from an address that is no machine's, and one for a port that lies
    elsewhere."""
    before, rows = pair.parts[1].ask("trunk")["strays"], pair.counters()
    inner = mrc(0, 2, addressing.path_address(TINY, 0, 2, ev(0, 1)))
    there = next(port.number for port in TINY.ports if port.name == "p0-t1-1-d1")
    here = next(port.number for port in TINY.ports if port.name == "p0-t1-1-d0")
    pair.places[0].run("ip", "addr", "add", "10.9.0.77/24", "dev", "wire")
    for source, port in (("10.9.0.77", there), ("10.9.0.1", here), ("10.9.0.1", 60000)):
        vxlan = struct.pack("!BxxxI", 8, port << 8) + inner
        program = (
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
            f"s.bind(('{source}', 0)); "
        )
        program += f"s.sendto(bytes.fromhex('{vxlan.hex()}'), ('10.9.0.2', {UDP_PORT}))"
        pair.places[0].run(sys.executable, "-c", program)
    assert wait_until(lambda: pair.parts[1].ask("trunk")["strays"] - before == 3)
    assert pair.counters() == rows
