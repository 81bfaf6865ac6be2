"""Two sites in the simulated network: a frame's walk through all of its uSIDs, its time, and the
order of frames from near and far."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from agents.packets import dscp
from testbed.simulated.network import Network, Station
from topologies import addressing, load_fabric
from topologies.addressing import ev, inner_address, path_address, shift
from topologies.clos import Link
from topologies.paths import path_links
from topologies.units import MS

TWO = load_fabric("two-sites")


def frame(src: int, dst: int, value: int, size: int = 1000) -> bytes:
    """A data packet's headers, and zeros."""

    def ipv6(source: bytes, destination: bytes, following: int, payload: bytes, word: int) -> bytes:
        return (
            struct.pack("!IHBB", 6 << 28 | word << 20, len(payload), following, 64)
            + source
            + destination
            + payload
        )

    udp = struct.pack("!HHHH", 49152, 4791, size - 94, 0) + bytes(size - 102)
    inner = ipv6(inner_address(src), inner_address(dst), 17, udp, 0)
    outer = ipv6(
        inner_address(src), path_address(TWO, src, dst, value), 41, inner, dscp.TRIMMABLE << 2
    )
    return addressing.ROUTER_MAC + addressing.HOST_MAC + b"\x86\xdd" + outer


class Host(Station):
    def __init__(self, net: Network) -> None:
        self.net = net
        self.got: list[tuple[int, int, bytes]] = []

    def take(self, plane: int, frame: bytes) -> None:
        self.got.append((self.net.time, plane, frame))

    def port_state(self, plane: int, up: bool) -> None:
        pass


def net_with(*hosts: int) -> tuple[Network, list[Host]]:
    net = Network(TWO)
    stations = [Host(net) for _ in hosts]
    net.stations.update(zip(hosts, stations, strict=True))
    return net, stations


@pytest.mark.parametrize(("src", "dst"), [(0, 5), (5, 0), (3, 4)])
@pytest.mark.parametrize("value", [ev(0, 0), ev(0, 1), ev(1, 0), ev(1, 1)])
def test_a_frame_takes_its_five_cables_and_arrives_after_both_delays(
    src: int, dst: int, value: int
) -> None:
    net, (host,) = net_with(dst)
    seen: list[tuple[str, bytes]] = []

    def watched(name: str) -> Callable[[int, bytes], None]:
        return lambda _, data: seen.append((name, data[38:54]))

    net.taps.update((port.number, watched(port.name)) for port in TWO.ports)
    sent, begin = frame(src, dst, value), net.time
    net.send(src, value >> 16, sent)
    net.run(begin + 3 * MS)
    cables = path_links(TWO, src, dst, value)
    address = path_address(TWO, src, dst, value)
    assert [name for name, _ in seen] == [_leaving(cables, k, src) for k in range(5)]
    for _, outer in seen:  # before each switch one uSID fewer
        assert outer == address
        address = shift(address)
    # the slower long-haul cable, and the one after it; all other switches cut through
    wires = len(sent) * (160 + 80)
    ((at, plane, got),) = host.got
    assert (at - begin, plane, got[21]) == (
        wires + TWO.delay_ps + TWO.long_haul_delay_ps,
        value >> 16,
        60,
    )
    assert net.quiet()


def _leaving(cables: tuple[Link, ...], k: int, src: int) -> str:
    """The port by which the k-th cable of a path is entered."""
    at = f"h{src}"
    for link in cables[:k]:
        at = link.b.node if link.a.node == at else link.a.node
    return cables[k].a.name if cables[k].a.node == at else cables[k].b.name


def test_what_comes_from_near_does_not_wait_for_what_comes_from_far() -> None:
    net, (host,) = net_with(5)
    begin = net.time
    net.send(0, 0, frame(0, 5, 0, 4238))
    net.send(4, 0, frame(4, 5, 0, 4238))
    net.run(begin + TWO.long_haul_delay_ps // 2)
    net.send(7, 0, frame(7, 5, 0, 4238))
    net.run(begin + 3 * TWO.long_haul_delay_ps)
    sources = [addressing.host_of_inner(data[62:78]) for _, _, data in host.got]
    assert sources == [4, 7, 0] and [at for at, _, _ in host.got] == sorted(
        at for at, _, _ in host.got
    )


def test_a_cut_long_haul_cable_takes_what_is_on_it() -> None:
    net, (host,) = net_with(5)
    net.set_link(TWO.link("p0-t1-0:p0-t1-2"), False)
    net.send(0, 0, frame(0, 5, ev(0, 0)))
    net.send(0, 0, frame(0, 5, ev(0, 1)))
    net.run(net.time + 3 * TWO.long_haul_delay_ps)
    assert len(host.got) == 1 and {
        r["port"]: r["drop_link_down_packets"] for r in net.rows() if r["drop_link_down_packets"]
    } == {"p0-t1-0-s1": 1}
