"""The kernel's own routing in the hosts while a kernel transport runs (docs/why/tcp.md): flows
spread over all paths for TCP, an address per plane for MPTCP.

**TCP.** A route to each peer has one next hop per path, on which the flow's hash chooses
(`fib_multipath_hash_policy` 1). The kernel maps the hash to next hops by weight, in their order; a
dead one's share goes to the living one before it. So only the flows that were on it move: resilient
ECMP. The order is uplink by uplink, and within that plane by plane: a lost plane's shares then go
to as many others.

**MPTCP.** Each plane has an address, with a route of the same kind. Whoever connects opens one
subflow to each; the same attempt in the other direction meets a port that nobody listens on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from agents import tun
from agents.clock import WallClock
from agents.kernel.options import MPTCP, MPTCP_PLANES, TUN
from testbed.dataplane import layout
from testbed.emulated import netlink
from testbed.emulated.bringup import link_mtu, peer_route, run_batch, run_batches
from testbed.errors import UserError
from topologies import addressing
from topologies.clos import Fabric
from topologies.paths import path_evs, path_links
from topologies.units import US

SYSCTLS = {
    "net/ipv6/fib_multipath_hash_policy": "1",
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv4/tcp_rmem": "4096 131072 6291456",
    "net/ipv4/tcp_wmem": "4096 16384 4194304",
}
"""Metrics of one run's connections must not start the next one's. The buffers are Linux's defaults:
a namespace inherits the machine's."""
MPTCP_SYSCTLS = {
    "net/ipv4/tcp_rmem": "4096 8388608 8388608",
    "net/ipv4/tcp_wmem": "4096 16384 2097152",
}
"""A receiver's buffer holds whatever a sender may have under way, headers included [ours].
Otherwise data that wait for a dead plane's bytes fill it, and the connection stands still for ever
(docs/why/tcp.md; seen on 6.18)."""
RTO_MIN = 16 * US
"""The kernel's smallest RTO of 200 ms at a dilation of 12,500, by route and the same at every
dilation [ours]."""
SEED = "net/ipv4/fib_multipath_hash_seed"
"""Sets the hash's key, in Linux 6.10 or later. Older kernels draw it at boot, so no run can be
repeated path by path."""


def shares(evs: Iterable[int], dead: Collection[int]) -> list[tuple[int, int]]:
    """Return (EV, weight) of the living paths in the order of the next hops; of all if none lives,
    so that frames are lost in the fault."""
    ordered = sorted(evs, key=lambda value: tuple(reversed(addressing.ev_fields(value))))
    if all(value in dead for value in ordered):
        return [(value, 1) for value in ordered]
    weights: list[list[int]] = []
    early = 0  # dead paths before the first living one, which gets their shares
    for value in ordered:
        if value not in dead:
            weights.append([value, 1])
        elif weights:
            weights[-1][1] += 1
        else:
            early += 1
    weights[0][1] += early
    return [(value, weight) for value, weight in weights]


def dead_evs(fabric: Fabric, src: int, dst: int, dead_links: Collection[str]) -> set[int]:
    if not dead_links:
        return set()
    return {
        value
        for value in path_evs(fabric, src, dst)
        if any(link.name in dead_links for link in path_links(fabric, src, dst, value))
    }


def route(
    fabric: Fabric,
    src: int,
    dst: int,
    evs: list[tuple[int, int]],
    plane: int,
    congestion: str,
    clock: WallClock,
) -> str:
    """Make a `route replace` line over (EV, weight); ``plane`` -1 is between the hosts' own
    addresses.

    Congestion control by route needs no privilege of the sender, and holds for accepted connections
    too. The MTU repeats the link's: a connection whose route was replaced asks the old route's
    interface once more, by then the kernel's black hole with an MTU of 68. Without an MTU here,
    thousands of segments of 8 bytes go out (seen on 6.18).
    """
    address = (
        addressing.inner_address
        if plane < 0
        else lambda host: addressing.plane_address(plane, host)
    )
    hops = []
    for value, weight in evs:
        segment = addressing.text(addressing.path_address(fabric, src, dst, value))
        port = f"h{src}-p{addressing.ev_fields(value)[0]}"
        hops.append(
            f"nexthop encap seg6 mode encap.red segs {segment} via {addressing.GATEWAY} dev "
            f"{port} weight {weight}"
        )
    target, own = addressing.text(address(dst)), addressing.text(address(src))
    rto_min = f"{max(1, round(clock.wall_s(RTO_MIN) * 1e3))}ms"
    return (
        f"route replace {target}/128 src {own} mtu {link_mtu(fabric)} rto_min {rto_min} congctl "
        f"{congestion} {' '.join(hops)}"
    )


def routes(
    fabric: Fabric,
    host: int,
    kind: str,
    congestion: str,
    clock: WallClock,
    dead_links: Collection[str] = (),
) -> list[str]:
    lines = []
    for peer in range(fabric.host_count):
        if peer == host:
            continue
        evs, dead = path_evs(fabric, host, peer), dead_evs(fabric, host, peer, dead_links)
        if kind != MPTCP:
            lines.append(route(fabric, host, peer, shares(evs, dead), -1, congestion, clock))
            continue
        for plane in range(fabric.planes):
            plane_evs = [value for value in evs if addressing.ev_fields(value)[0] == plane]
            lines.append(
                route(fabric, host, peer, shares(plane_evs, dead), plane, congestion, clock)
            )
    return lines


def begin_lines(fabric: Fabric, host: int, kind: str) -> list[str]:
    if kind != MPTCP:
        return []
    own = [addressing.text(addressing.plane_address(plane, host)) for plane in range(fabric.planes)]
    lines = [f"addr add {address}/128 dev lo nodad" for address in own]
    # Twice the subflows needed: attempts of the peer's, which fail, hold a place for as long as
    # they last.
    lines += [f"mptcp limits set subflows {MPTCP_PLANES} add_addr_accepted {MPTCP_PLANES}"]
    return lines + [
        f"mptcp endpoint add {address} id {plane + 1} signal" for plane, address in enumerate(own)
    ]


def end_lines(fabric: Fabric, host: int, kind: str) -> list[str]:
    peers = [peer for peer in range(fabric.host_count) if peer != host]
    if kind != MPTCP:
        return [f"route replace {peer_route(fabric, host, peer)}" for peer in peers]
    lines = ["mptcp endpoint flush", "mptcp limits set subflows 2 add_addr_accepted 0"]
    for plane in range(fabric.planes):
        lines += [
            f"route del {addressing.text(addressing.plane_address(plane, peer))}/128"
            for peer in peers
        ]
        lines.append(
            f"addr del {addressing.text(addressing.plane_address(plane, host))}/128 dev lo"
        )
    return lines


class KernelPaths:
    def __init__(
        self,
        fabric: Fabric,
        clock: WallClock,
        namespaces: Mapping[str, int],
        path_of: Callable[[str], str],
        kind: str,
        congestion: str,
        seed: int,
    ) -> None:
        self.fabric, self.clock, self.namespaces, self.path_of = fabric, clock, namespaces, path_of
        self.kind, self.congestion, self.seed = kind, congestion, seed
        self.lines: dict[str, list[str]] = {}  # host -> its routes as they are
        self.before: dict[str, dict[str, str]] = {}  # host -> its sysctls before
        self.delays = tun.available()

    def install(self) -> None:
        """Everything is restored before a UserError."""
        try:
            for number, name in enumerate(self.fabric.hosts):
                sysctls = {
                    **SYSCTLS,
                    SEED: str(self.seed & 0x7FFFFFFF or 1),
                    **(MPTCP_SYSCTLS if self.kind == MPTCP else {}),
                }
                before = self.before[name] = netlink.read_sysctls(self.namespaces[name], sysctls)
                netlink.write_sysctls(
                    self.namespaces[name],
                    {path: value for path, value in sysctls.items() if path in before},
                )
                self.lines[name] = []
                lines = begin_lines(self.fabric, number, self.kind)
                if self.delays:
                    netlink.in_namespace(
                        self.namespaces[name], lambda: tun.make(TUN, layout.DELAY_TUN)
                    )
                    lines.append(
                        f"link set {TUN} addrgenmode none mtu {link_mtu(self.fabric)} txqueuelen "
                        "10000 up"
                    )
                run_batch("ip", lines, self.path_of(name))
            self.reroute(())
        except BaseException:
            self.remove(strict=False)
            raise

    def reroute(self, dead_links: Collection[str]) -> int:
        new: dict[str, list[str]] = {}
        for number, name in enumerate(self.fabric.hosts):
            host_routes = routes(
                self.fabric, number, self.kind, self.congestion, self.clock, dead_links
            )
            installed = set(self.lines[name])
            if changed := [line for line in host_routes if line not in installed]:
                new[name] = changed
            self.lines[name] = host_routes
        run_batches("ip", ((lines, self.path_of(name)) for name, lines in new.items()))
        return len(new)

    def remove(self, strict: bool = True) -> None:
        for number, name in enumerate(self.fabric.hosts):
            if name not in self.lines:
                continue
            lines = end_lines(self.fabric, number, self.kind) + (
                [f"tuntap del dev {TUN} mode tun"] if self.delays else []
            )
            for batch in [lines] if strict else [[line] for line in lines]:
                try:
                    run_batch("ip", batch, self.path_of(name))
                except UserError:
                    if strict:
                        raise
            netlink.write_sysctls(self.namespaces[name], self.before.pop(name))
        self.lines = {}
