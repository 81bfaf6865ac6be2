"""``python -m tests.emulated.interop_host second|engine FABRIC HOST``: an endpoint on the ports of
a host, in whose namespace it runs.

It takes the orders of docs/how/conform.md, lines of JSON, so that the judge may play with it as
well.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from typing import Any

from agents.clock import WallClock
from testbed.conform.targets import MEMORY, answers, rows
from topologies import load_fabric
from topologies.clos import Fabric
from topologies.fabrics import usual_dilation


class OnSockets:
    """The second endpoint on raw sockets of its own."""

    def __init__(self, fabric: Fabric, host: int, clock: WallClock) -> None:
        from tests.second.target import endpoint

        self.endpoint = endpoint(fabric, host, os.getpid())
        self.clock = clock
        self.sockets = []
        for plane in range(fabric.planes):
            self.sockets.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
            self.sockets[-1].bind((f"h{host}-p{plane}", 3))
        for name in ("register", "create_qp", "post_recv"):
            setattr(self, name, getattr(self.endpoint, name))

    def connect_qp(self, qpn: int, remote: dict[str, Any]) -> None:
        self.endpoint.connect_qp(self.clock.now(), qpn, remote)

    def post_write(
        self, qpn: int, number: int, data: bytes, va: int, rkey: int, imm: int | None
    ) -> None:
        self.endpoint.post_write(qpn, number, data, va, rkey, imm)

    def port_state(self, plane: int, up: bool) -> None:
        self.endpoint.port_state(self.clock.now(), plane, up)

    def turn(self, orders: int) -> bool:
        """Send and receive until an order comes or some milliseconds have passed; whether one
        has."""
        now = self.clock.now()
        while (made := self.endpoint.transmit(now)) is not None:
            try:
                self.sockets[made[0]].send(made[1])
            except OSError:
                pass  # the port is down: lost, as on any wire
        deadline = self.endpoint.deadline()
        wait = 0.02 if deadline is None else self.clock.until(deadline, most=0.02)
        ready = select.select([*self.sockets, orders], [], [], wait)[0]
        for plane, port in enumerate(self.sockets):
            if port in ready:
                frame, address = port.recvfrom(1 << 16)
                if (
                    address[2] != socket.PACKET_OUTGOING
                    and frame[12:14] == b"\x86\xdd"
                    and frame[20] == 41
                ):
                    self.endpoint.receive(self.clock.now(), plane, frame)
        return orders in ready

    def completions(self) -> list[dict[str, Any]]:
        return answers(self.endpoint.completions())

    def violations(self) -> list[str]:
        return list(self.endpoint.violations)


class Ours:
    """The engine on the sockets that agents have."""

    def __init__(self, fabric: Fabric, host: int, clock: WallClock) -> None:
        from agents.nic.device import Device

        self.device = Device(fabric, host, clock)
        for name in ("register", "create_qp", "post_recv", "connect_qp"):
            setattr(self, name, getattr(self.device, name))

    def post_write(
        self, qpn: int, number: int, data: bytes, va: int, rkey: int, imm: int | None
    ) -> None:
        self.device.post_write(qpn, number, memoryview(data), va, rkey, -1 if imm is None else imm)

    def port_state(self, plane: int, up: bool) -> None:
        self.device.port_state(self.device.clock(), plane, up)

    def turn(self, orders: int) -> bool:
        return orders in self.device.turn(
            self.device.clock() + self.device.wall.patience(0.02), [orders]
        )

    def completions(self) -> list[dict[str, Any]]:
        return answers(rows(self.device.engine.completions()))

    def violations(self) -> list[str]:
        return [
            f"{name}: {n}"
            for name, n in self.device.counters().items()
            if n and name.startswith(("rx_bad", "rx_unexpected", "bad_"))
        ]


def main(kind: str, fabric_name: str, host: int) -> None:
    fabric = load_fabric(fabric_name)
    clock = WallClock(usual_dilation(fabric_name))
    end: Any = OnSockets(fabric, host, clock) if kind == "second" else Ours(fabric, host, clock)
    memory = bytearray(b"\xa5" * MEMORY)
    va, rkey = end.register(memory)[:2]
    qpn, text = 0, b""
    while True:
        if not end.turn(0):
            continue
        more = os.read(0, 1 << 20)
        if not more:
            return
        text += more
        *lines, text = text.split(b"\n")
        for line in lines:
            order = json.loads(line)
            op, answer = order.pop("op"), None
            if op == "create":
                made = end.create_qp(order.get("peer", fabric.host_count - 1))
                qpn = made["qpn"]
                answer = {**made, "va": va, "rkey": rkey, "length": MEMORY}
            elif op == "connect":
                end.connect_qp(qpn, order)
            elif op == "write":
                end.post_write(
                    qpn,
                    order["id"],
                    bytes(order["bytes"]),
                    order["va"],
                    order["rkey"],
                    order.get("imm"),
                )
            elif op == "recv":
                end.post_recv(qpn, order["id"])
            elif op == "port":
                end.port_state(order["plane"], order["up"])
            elif op == "memory":
                answer = memory[order["at"] : order["at"] + order["length"]].hex()
            else:
                answer = getattr(end, op)()
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
