"""Makes the command batches that create a fabric's interfaces, queues and routes.

In batches, 320 veth pairs with queues and filters come up in well under a second; one process per
command took minutes.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from agents.clock import WallClock
from testbed.dataplane import layout, loader
from testbed.emulated import netlink
from testbed.errors import UserError
from topologies import addressing
from topologies.clos import Fabric, Link, Port
from topologies.paths import path_evs
from topologies.units import BYTE, NS

MTU_ROOM = 64
"""Bytes of a link's MTU beyond a full data packet [ours]."""
BURST_S = 0.0005
BURST = 25 * NS
"""The time that a port may catch up after a late timer [ours; docs/why/fidelity.md]: HTB cannot
tell that from having had nothing to send. With a shorter time, late timers make full ports' queues
grow and mark. It is wall time, or network time where that is more."""
LEAST_BURST = 64  # `tc` rounds in ticks of 64 ns
DATA_QUEUE = 0x12
DATA_CLASS = 0x10002
LOSSLESS_LIMIT = 1 << 30
"""The queue is never full: under PFC room is kept where frames come in."""
AT_ONCE = 8
NO_MEMORY_S = 10.0
"""Seconds for which a batch retries lines that found the kernel out of memory [ours]."""
NO_MEMORY_PAUSE_S = 0.02
TX_QUEUE = 10_000


def link_mtu(fabric: Fabric) -> int:
    return fabric.frame_bytes - 14 + MTU_ROOM


def veth_lines(
    fabric: Fabric, namespaces: dict[str, str], links: Sequence[Link] | None = None
) -> list[str]:
    def end(port: Port, prefix: str) -> str:
        host = port.node in namespaces
        mac = (
            addressing.HOST_MAC if host else addressing.SWITCH_MAC + port.number.to_bytes(2, "big")
        )
        text = (
            f"{prefix} {port.name} index {layout.PORT_BASE + port.number} mtu {link_mtu(fabric)} "
            f"address {mac.hex(':')}"
        )
        text += f" txqueuelen {TX_QUEUE} numtxqueues 1 numrxqueues 1 gso_max_segs 1"
        return text + (f" netns {namespaces[port.node]}" if host else "")

    return [
        f"{end(link.b, 'link add name')} type veth {end(link.a, 'peer name')}"
        for link in links or fabric.links
    ]


def kernel_rate(rate: float, clock: WallClock) -> int:
    return max(1, round(rate / clock.dilation))


def class_lines(fabric: Fabric, clock: WallClock, verb: str, port: Port, rate: int) -> list[str]:
    slow, dev = kernel_rate(rate, clock), f"dev {port.name}"
    half = slow // 2

    def bucket(size: int) -> str:
        return f"burst {size} cburst {size} quantum {fabric.frame_bytes}"

    port_bucket, high_bucket = (
        bucket(burst_bytes(rate, clock)),
        bucket(layout.high_burst_bytes(rate)),
    )
    return [
        f"class {verb} {dev} parent 1: classid 1:f htb rate {slow}bit ceil {slow}bit {port_bucket}",
        (
            f"class {verb} {dev} parent 1:f classid 1:1 htb rate {half}bit ceil {half}bit prio 0 "
            f"{high_bucket}"
        ),
        (
            f"class {verb} {dev} parent 1:f classid 1:2 htb rate {slow - half}bit ceil {slow}bit "
            f"prio 1 {port_bucket}"
        ),
    ]


def burst_bytes(rate: int, clock: WallClock) -> int:
    """The bucket may be less than a frame: HTB lets one go while nothing is owed."""
    return max(LEAST_BURST, rate * max(clock.patience(BURST_S), BURST) // BYTE)


def queue_lines(fabric: Fabric, clock: WallClock, ports: Iterable[tuple[Port, int]]) -> list[str]:
    lines = []
    for port, rate in ports:
        dev = f"dev {port.name}"
        # HTB charges the length computed before clsact egress unless a size table makes it compute
        # again: hence `stab`.
        lines += [
            f"qdisc add {dev} root handle 1: stab overhead 0 linklayer ethernet htb default 2",
            *class_lines(fabric, clock, "add", port, rate),
            # The counted backlog drops first; these only must not be smaller. It also counts what
            # has left the queue and not arrived yet.
            (
                f"qdisc add {dev} parent 1:1 handle 11: bfifo limit "
                f"{loader.high_limit(fabric) + 65536}"
            ),
            *data_queue_lines(fabric, dev),
            f"qdisc add {dev} clsact",
            (
                f"filter add {dev} ingress prio 1 handle 1 bpf direct-action object-pinned "
                f"{loader.INGRESS}"
            ),
            (
                f"filter add {dev} egress prio 1 handle 1 bpf direct-action object-pinned "
                f"{loader.EGRESS}"
            ),
        ]
    return lines


def data_queue_lines(fabric: Fabric, dev: str) -> list[str]:
    """Make a data class's queue. Under PFC it is a token bucket, whose rate a pause takes down to
    next to nothing, and a class that refuses every frame: a refused frame makes the kernel look at
    the other classes (netlink.PauseSocket)."""
    parent = f"qdisc add {dev} parent 1:2 handle {DATA_QUEUE:x}:"
    if not fabric.pfc:
        return [f"{parent} bfifo limit {fabric.buffer_bytes + 65536}"]
    return [
        (
            f"{parent} tbf rate {8 * netlink.GOES_ON}bit burst {netlink.OPEN_BURST} limit "
            f"{LOSSLESS_LIMIT}"
        ),
        f"class add {dev} parent 1: classid 1:3 htb rate 8kbit quantum {fabric.frame_bytes}",
        f"qdisc add {dev} parent 1:3 handle 13: bfifo limit 1",
    ]


def spread(fabric: Fabric, src: int, dst: int) -> int:
    """Pairs are spread over planes, then uplinks; both directions take one path."""
    evs = path_evs(fabric, src, dst)
    low, high = sorted((src, dst))
    plane = (low + high) % fabric.planes
    uplinks = len(evs) // fabric.planes
    uplink = ((low + high) // fabric.planes + low) % uplinks
    return addressing.ev(plane, uplink)


def peer_route(fabric: Fabric, host: int, peer: int) -> str:
    value = spread(fabric, host, peer)
    segment = addressing.text(addressing.path_address(fabric, host, peer, value))
    port = f"h{host}-p{addressing.ev_fields(value)[0]}"
    target, inner = (addressing.text(addressing.inner_address(n)) for n in (peer, host))
    return (
        f"{target}/128 encap seg6 mode encap.red segs {segment} via {addressing.GATEWAY} dev "
        f"{port} src {inner}"
    )


def host_lines(fabric: Fabric, host: int) -> list[str]:
    inner = addressing.text(addressing.inner_address(host))
    gateway = f"via {addressing.GATEWAY}"
    lines = ["link set lo up", f"addr add {inner}/128 dev lo nodad"]
    for plane in range(fabric.planes):
        port = f"h{host}-p{plane}"
        own = addressing.text(
            addressing.outer_address((addressing.host_usid(fabric, plane, host),))
        )
        first = addressing.text(
            addressing.outer_address(
                (addressing.usid(plane, addressing.TIER_T0, fabric.t0_of(host)),)
            )
        )
        lines += [
            f"link set {port} up",
            (
                f"neigh add {addressing.GATEWAY} lladdr {addressing.ROUTER_MAC.hex(':')} nud "
                f"permanent dev {port}"
            ),
            f"route add {first}/48 {gateway} dev {port} src {inner}",
            f"route add {own}/48 encap seg6local action End.DT6 table 255 dev {port}",
        ]
    lines += [
        f"route add {peer_route(fabric, host, peer)}"
        for peer in range(fabric.host_count)
        if peer != host
    ]
    return [*lines, f"sr tunsrc set {inner}"]


SWITCH_SYSCTLS = {"net/ipv6/conf/default/disable_ipv6": "1", "net/ipv6/conf/all/disable_ipv6": "1"}
HOST_SYSCTLS = {
    # The kernel must send no frame of its own on a fabric port: no link-local address, so no DAD,
    # MLD or router solicitation.
    "net/ipv6/conf/default/addr_gen_mode": "1",
    "net/ipv6/conf/default/accept_ra": "0",
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv6/conf/default/router_solicitations": "0",
    "net/ipv6/conf/default/seg6_enabled": "1",
    "net/ipv6/conf/all/seg6_enabled": "1",
    "net/ipv6/conf/default/keep_addr_on_down": "1",
}


def run_batches(tool: str, batches: Iterable[tuple[Sequence[str], str]]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as workers:
        for done in [
            workers.submit(run_batch, tool, lines, namespace) for lines, namespace in batches
        ]:
            done.result()


def run_batch(tool: str, lines: Sequence[str], namespace: str) -> None:
    """Run `ip -batch` or `tc -batch` in the namespace at a path. Raises :class:`UserError` with the
    first line it refused.

    A line that finds the kernel out of memory is tried again, with those after it. Every SRv6 route
    takes memory of each core from a reserve that the kernel refills in the background; thousands of
    routes at once empty it.
    """
    if not lines:
        return
    program = shutil.which(
        tool, path="/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin"
    )
    if program is None:
        raise UserError(f"{tool} is missing: install it with apt-get install iproute2")
    rest, gives_up = list(lines), time.monotonic() + NO_MEMORY_S
    while True:
        done = subprocess.run(
            ["nsenter", f"--net={namespace}", "--", program, "-batch", "-"],
            input="\n".join(rest) + "\n", capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not done.returncode:
            return
        complaints = done.stderr.strip().splitlines() or ["no reason given"]
        number = next(
            (
                int(c.rsplit(":", 1)[1])
                for c in complaints
                if c.startswith("Command failed") and c.rsplit(":", 1)[1].isdigit()
            ),
            0,
        )
        known = 0 < number <= len(rest)
        if (
            not known
            or os.strerror(errno.ENOMEM) not in complaints[0]
            or time.monotonic() > gives_up
        ):
            line = f" at `{tool} {rest[number - 1]}`" if known else ""
            raise UserError(
                f"{tool} failed{line} ({complaints[0]}): see mrcbed doctor for what this kernel "
                "lacks"
            )
        del rest[: number - 1]
        time.sleep(NO_MEMORY_PAUSE_S)
