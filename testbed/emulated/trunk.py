"""Makes the VXLAN device that carries frames to the other machines of a fabric, in the switches'
namespace."""

from __future__ import annotations

import ctypes
import fcntl
import json
import shutil
import socket
import struct
import subprocess
from dataclasses import dataclass

from testbed.dataplane import layout
from testbed.dataplane import trunk as dataplane
from testbed.emulated import bringup, netlink
from testbed.errors import UserError
from topologies.clos import Fabric
from topologies.parts import Part

NAME = "trunk"
UDP_PORT = 47908
"""VXLAN's own 4789 may be another program's [ours]."""
SOURCE_PORTS = (50000, 50001)
"""VXLAN never takes the last port, so there is one, and one order of frames between two
machines."""
OUTER_BYTES = 36
_MAC = "02:6d:72:63:62:74"
"""This device's MAC must be its own: it drops frames from its own address."""
_SIOCETHTOOL, _ETHTOOL_GGRO = 0x8946, 0x2B


@dataclass(frozen=True)
class Trunk:
    parts: tuple[Part, ...]
    machine: int
    addresses: tuple[str, ...]
    udp_port: int = UDP_PORT

    @property
    def part(self) -> Part:
        return self.parts[self.machine]


def needed_mtu(fabric: Fabric) -> int:
    return bringup.link_mtu(fabric) + 14 + OUTER_BYTES


def check_way(trunk: Trunk) -> None:
    fabric = trunk.part.fabric
    own = trunk.addresses[trunk.machine]
    for machine, address in enumerate(trunk.addresses):
        if machine == trunk.machine:
            continue
        device, source = _route(address)
        if source != own:
            raise UserError(
                f"frames to {address} would leave from {source}, not from {own}, by which the "
                "others know this machine: name it by an address that reaches them, with --on "
                f"HOST={source}"
            )
        mtu, needed = _mtu(address), needed_mtu(fabric)
        if mtu < needed:
            raise UserError(
                f"the way to {address} ({device}) carries {mtu} bytes, and fabric "
                f"{fabric.name!r} needs {needed}: raise its MTU, or set a smaller mtu in the "
                "fabric"
            )
        if _merges(device):
            raise UserError(
                f"{device}, the way to {address}, merges frames that it receives: ethtool -K "
                f"{device} gro off"
            )


def _route(address: str) -> tuple[str, str]:
    done = subprocess.run(
        ["ip", "-j", "-4", "route", "get", address], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UserError(
            f"there is no way to {address} ({done.stderr.strip()}): give an address that this "
            "machine reaches, --on HOST=ADDRESS"
        )
    way: dict[str, str] = json.loads(done.stdout)[0]
    return way["dev"], way.get("prefsrc", "")


def _mtu(address: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((address, UDP_PORT))  # sends nothing
        return int(sock.getsockopt(socket.IPPROTO_IP, 14))  # IP_MTU


def _merges(device: str) -> bool:
    value = ctypes.create_string_buffer(struct.pack("=II", _ETHTOOL_GGRO, 0), 8)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            fcntl.ioctl(
                sock, _SIOCETHTOOL, struct.pack("16sP16x", device.encode(), ctypes.addressof(value))
            )
        except OSError:
            return False  # a device without such a feature
    return bool(struct.unpack("=II", value.raw)[1])


def make(trunk: Trunk, switch_namespace: str, descriptor: int) -> None:
    check_way(trunk)
    low, high = SOURCE_PORTS
    add = [
        "ip",
        "link",
        "add",
        "name",
        NAME,
        "index",
        str(layout.TRUNK),
        "mtu",
        str(bringup.link_mtu(trunk.part.fabric)),
        "address",
        _MAC,
    ]
    add += ["netns", switch_namespace, "type", "vxlan", "external", "nolearning"]
    add += ["dstport", str(trunk.udp_port), "srcport", str(low), str(high)]
    if shutil.which("ip") is None:
        raise UserError("ip is missing: install it with apt-get install iproute2")
    done = subprocess.run(add, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(
            f"the kernel refused the trunk ({done.stderr.strip()}): it needs VXLAN (modprobe vxlan)"
        )
    dataplane.describe(trunk.parts, trunk.machine, trunk.addresses)
    netlink.offloads_off(descriptor, [NAME])
    program = f"bpf direct-action object-pinned {dataplane.PROGRAM}"
    tc = [
        f"qdisc add dev {NAME} clsact",
        f"filter add dev {NAME} ingress prio 1 handle 1 {program}",
    ]
    bringup.run_batch("tc", tc, switch_namespace)
    try:
        bringup.run_batch("ip", [f"link set {NAME} up"], switch_namespace)  # opens the UDP socket
    except UserError as error:
        if "in use" in str(error) or "exists" in str(error):
            raise UserError(
                f"UDP port {trunk.udp_port} is taken on this machine: end the run that has it"
            ) from None
        raise
