"""The management network: ``eth0`` in every host, all on one bridge in the switches' namespace. It
carries IPv4 alone, without rate or fault, apart from the fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.emulated import bringup, netlink
from testbed.errors import UserError
from topologies.addressing import management_address

if TYPE_CHECKING:
    from testbed.emulated.fabric import FabricNet

NAME = "eth0"
BRIDGE = "management"
MTU = 1500
HOST_SYSCTLS = {f"net/ipv6/conf/{NAME}/disable_ipv6": "1", f"net/ipv4/conf/{NAME}/forwarding": "0"}


def bridge_lines() -> list[str]:
    return [
        f"link add name {BRIDGE} mtu {MTU} type bridge stp_state 0 mcast_snooping 0",
        f"link set {BRIDGE} up",
    ]


def cable_lines(pids: dict[str, int]) -> list[str]:
    """Make lines to run in the switches' namespace. ``pids``: host -> a process in its namespace.
    The kernel numbers the interfaces from the lowest on, far below the fabric's ports."""
    lines = []
    for host, pid in pids.items():
        lines += [
            (
                f"link add name {host}-{NAME} mtu {MTU} type veth peer name {NAME} mtu {MTU} "
                f"netns {pid}"
            ),
            f"link set {host}-{NAME} master {BRIDGE} up",
        ]
    return lines


def host_lines(number: int) -> list[str]:
    return [f"addr add {management_address(number)}/16 dev {NAME}", f"link set {NAME} up"]


def bring_up(net: FabricNet) -> None:
    try:
        bringup.run_batch("ip", bridge_lines(), net.path_of(""))
    except UserError as error:
        reason = str(error).partition(": see mrcbed doctor")[0]
        raise UserError(
            "the management network needs a bridge, which this kernel does not give us: "
            f"modprobe bridge ({reason})"
        ) from None
    bringup.run_batch(
        "ip", cable_lines({host.name: host.pid for host in net.hosts}), net.path_of("")
    )
    for host in net.hosts:
        netlink.write_sysctls(net.namespaces[host.name], HOST_SYSCTLS)
    bringup.run_batches(
        "ip", ((host_lines(host.number), net.path_of(host.name)) for host in net.hosts)
    )
