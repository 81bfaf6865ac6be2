"""Cables of an emulated fabric, as Mininet links and interfaces. They touch nothing: bringup.py
creates the veth pairs in one batch."""

from __future__ import annotations

from typing import Any

from mininet.link import Intf, Link

from topologies.clos import Link as Cable
from topologies.clos import Port


def _stay(*_args: Any) -> None:
    """Move nothing: interfaces are born in their namespace."""


class FabricIntf(Intf):
    def __init__(
        self, name: str, node: Any, fabric_port: Port, ifindex: int, **params: Any
    ) -> None:
        self.fabric_port = fabric_port
        self.ifindex = ifindex
        super().__init__(name, node=node, port=params.get("port"), moveIntfFn=_stay)
        self.ip = getattr(node, "address", None)
        self.prefixLen = 128 if self.ip else None

    def config(self, **_params: Any) -> dict[str, str]:
        return {}

    def ifconfig(self, *args: Any) -> str:
        if args in (("up",), ("down",)):
            return str(self.cmd("ip", "link", "set", self.name, args[0]))
        return str(self.cmd("ip", "addr", "show", "dev", self.name))

    def isUp(self, setUp: bool = False) -> bool:
        if setUp:
            return not self.ifconfig("up")
        return "UP" in str(self.cmd("ip", "link", "show", "dev", self.name)).partition(">")[
            0
        ].partition("<")[2].split(",")

    def updateIP(self) -> Any:
        return self.ip

    def updateMAC(self) -> Any:
        return self.mac

    def updateAddr(self) -> tuple[Any, Any]:
        return self.ip, self.mac

    def status(self) -> str:
        return (
            "OK"
            if self.name in str(self.cmd("ip", "-o", "link", "show", "dev", self.name))
            else "MISSING"
        )


class FabricLink(Link):
    def __init__(
        self,
        node1: Any,
        node2: Any,
        cable: Cable,
        intfs: tuple[FabricIntf, FabricIntf],
        net: Any,
        **_params: Any,
    ) -> None:
        self.cable = cable
        self.net = net
        self.fast = True
        self.intf1, self.intf2 = intfs
        self.intf1.link = self.intf2.link = self

    def delete(self) -> None:
        """Do nothing: cables go with the fabric, all at once."""

    def stop(self) -> None:
        """Do nothing, as :meth:`delete`."""

    def status(self) -> str:
        return "(up)" if self.net.faults.link_states()[self.cable.name] else "(down)"
