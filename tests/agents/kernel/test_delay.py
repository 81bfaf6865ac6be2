"""Packets for the kernel's sockets are held as long as their path takes, keep their order, and lose
their outer header."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from agents.kernel.delay import Delay
from agents.transport import NEVER
from topologies import load_fabric
from topologies.addressing import host_usid, inner_address, outer_address
from topologies.units import BYTE, NS

DEMO = load_fabric("demo")
HOST = 5
T = 10**12
ONE_SWITCH, THREE = 63, 61
"""Hop limits."""


Ends = tuple[Delay, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A delay, and the other end of what it reads and writes: datagrams, as a TUN has."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in (ours, theirs):
        end.setblocking(False)
    delay = Delay(DEMO, os.dup(ours.fileno()))
    yield delay, theirs
    delay.close()
    ours.close()
    theirs.close()


def on_the_way_ps(length: int, links: int) -> float:
    """Of a packet of ``length`` bytes, with the outer header and Ethernet's. Its time counts once:
    switches cut through."""
    return (DEMO.local_delay_ps if links == 2 else DEMO.delay_ps) + (
        length + 54
    ) * BYTE / DEMO.nic_rate


def inner(src: int, length: int) -> bytes:
    """An IPv6 packet of ``length`` bytes from a host to :data:`HOST`."""
    return b"\x60" + bytes(7) + inner_address(src) + inner_address(HOST) + bytes(length - 40)


def outer(packet: bytes, hops: int, plane: int = 0) -> bytes:
    """As it reaches the host's port, without Ethernet's header."""
    target = outer_address((host_usid(DEMO, plane, HOST),))
    return (
        b"\x60"
        + bytes(3)
        + len(packet).to_bytes(2, "big")
        + bytes((41, hops))
        + bytes(16)
        + target
        + packet
    )


def arrivals(end: socket.socket) -> list[bytes]:
    got = []
    while True:
        try:
            got.append(end.recv(1 << 16))
        except BlockingIOError:
            return got


@pytest.mark.parametrize("hops, links", [(ONE_SWITCH, 2), (THREE, 4)])
def test_a_packet_is_held_for_what_its_path_takes(ends: Ends, hops: int, links: int) -> None:
    delay, far = ends
    sent = inner(0, 4140)
    far.send(outer(sent, hops))
    delay.take(lambda: T)
    assert delay.due == pytest.approx(T + on_the_way_ps(4140, links), abs=2)
    delay.release(delay.due - 1)
    assert arrivals(far) == []
    delay.release(delay.due)
    assert arrivals(far) == [sent] and delay.due == NEVER and delay.held == 1


def test_a_packet_that_comes_while_others_are_read_is_not_early(ends: Ends) -> None:
    delay, far = ends
    late = T + 1000 * NS
    sent = [inner(0, 4140), inner(1, 60)]

    def clock() -> int:
        """Read after the first packet: the second one comes now."""
        if delay.held == 0:
            far.send(outer(sent[1], THREE, plane=1))
            return T
        return late

    far.send(outer(sent[0], THREE))
    delay.take(clock)
    assert delay.held == 2
    delay.release(late + DEMO.delay_ps - 1)
    assert arrivals(far) == sent[:1], "the short one is due sooner after it came"
    delay.release(late + round(on_the_way_ps(60, 4)) + 2)
    assert arrivals(far) == sent[1:]


def test_a_short_packet_overtakes_no_long_one_of_its_port_and_waits_for_no_other_ports(
    ends: Ends,
) -> None:
    delay, far = ends
    long, short, other = inner(0, 4140), inner(0, 60), inner(1, 60)
    for packet, plane in ((long, 1), (short, 1), (other, 2)):
        delay.put(T, outer(packet, THREE, plane))
    delay.release(T + 2 * DEMO.base_rtt_ps)
    assert arrivals(far) == [other, long, short]


def test_places_are_used_again(ends: Ends) -> None:
    delay, far = ends
    packets = [inner(number % 8, 60 + number) for number in range(50)]
    for number, packet in enumerate(packets):
        delay.put(T + number * 1000, outer(packet, ONE_SWITCH))
        if number % 3 == 2:
            delay.release(delay.due)
    delay.release(T + 2 * DEMO.base_rtt_ps)
    assert arrivals(far) == packets


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        bytes(200),
        outer(inner(0, 60), THREE)[:80],
        outer(inner(0, 60), THREE, plane=9),
        b"\x60"
        + bytes(5)
        + b"\x3a\xff"
        + bytes(16)
        + bytes.fromhex("ff02")
        + bytes(13)
        + b"\x02"
        + bytes(100),
    ],
    ids=["empty", "zeros", "no inner packet", "a plane that is not there", "a router solicitation"],
)
def test_what_did_not_come_through_the_fabric_goes_no_further(ends: Ends, packet: bytes) -> None:
    delay, _ = ends
    delay.put(T, packet)
    assert delay.due == NEVER and delay.held == 0


def test_what_the_kernel_refuses_is_counted(ends: Ends) -> None:
    delay, far = ends
    delay.put(T, outer(inner(0, 60), THREE))
    far.close()
    delay.release(T + 10**12)
    assert delay.refused == 1 and delay.due == NEVER
