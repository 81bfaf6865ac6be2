"""Packets for the kernel's sockets are held as long as their path takes, and keep their order."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from agents.kernel.delay import Delay
from agents.transport import NEVER
from topologies import load_fabric
from topologies.addressing import inner_address, plane_address

DEMO = load_fabric("demo")
HOST = 5
T = 10**12


Ends = tuple[Delay, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A delay, and the other end of what it reads and writes: datagrams, as a TUN has."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in (ours, theirs):
        end.setblocking(False)
    delay = Delay(DEMO, HOST, os.dup(ours.fileno()))
    yield delay, theirs
    delay.close()
    ours.close()
    theirs.close()


def on_the_way_ns(length: int, links: int) -> float:
    """Of a packet of ``length`` bytes, with the outer header and Ethernet's."""
    return DEMO.delay_ns + links * (length + 54) * 8e9 / DEMO.nic_rate


def packet(src: int, length: int, plane: int = -1) -> bytes:
    """An IPv6 packet of ``length`` bytes from a host to :data:`HOST`, between their addresses of a plane or their own."""
    source, own = (inner_address(host) if plane < 0 else plane_address(plane, host) for host in (src, HOST))
    return bytes(8) + source + own + bytes(length - 40)


def arrivals(end: socket.socket) -> list[bytes]:
    got = []
    while True:
        try:
            got.append(end.recv(1 << 16))
        except BlockingIOError:
            return got


@pytest.mark.parametrize("src, plane", [(0, -1), (6, -1), (0, 2), (6, 3)])
def test_a_packet_is_held_for_what_its_path_takes(ends: Ends, src: int, plane: int) -> None:
    delay, far = ends
    sent = packet(src, 4140, plane)
    far.send(sent)
    delay.take(T)
    due = T + on_the_way_ns(4140, 2 if src == 6 else 4)
    assert delay.due == pytest.approx(due, abs=2)
    delay.release(delay.due - 1)
    assert arrivals(far) == []
    delay.release(delay.due)
    assert arrivals(far) == [sent] and delay.due == NEVER and delay.held == 1


def test_a_short_packet_overtakes_no_long_one_of_its_pair_and_waits_for_nobody_elses(ends: Ends) -> None:
    delay, far = ends
    long, short, other = packet(0, 4140), packet(0, 60), packet(1, 60)
    for one in (long, short, other):
        delay.put(T, one)
    delay.release(T + on_the_way_ns(4140, 4) + 2)
    assert arrivals(far) == [other, long, short]


def test_what_the_kernel_refuses_is_counted(ends: Ends) -> None:
    delay, far = ends
    delay.put(T, packet(0, 60))
    far.close()
    delay.release(T + 10**12)
    assert delay.refused == 1 and delay.due == NEVER
