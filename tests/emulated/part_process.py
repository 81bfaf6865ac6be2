"""A part of a fabric on one machine of tests/emulated/machines.py, with packet sockets: ``python -m
tests.emulated.part_process PLACE``.

Carries out JSON lines from standard input, one answer each: ``send`` a frame, ``receive`` frames,
tell ``counters`` and what the ``trunk`` carried. Ends with its input.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from testbed.dataplane.trunk import TrunkCounters
from testbed.emulated.cluster import Cluster
from testbed.emulated.trunk import Trunk
from testbed.machine import sandbox
from tests.emulated.command import ROOT
from tests.emulated.frames import Wire
from tests.emulated.machines import Machine
from topologies import load_fabric
from topologies.fabrics import DILATION
from topologies.parts import divide


def main(place: str) -> int:
    given = json.loads(place)
    fabric = load_fabric(given["fabric"]).with_(**given["settings"])
    trunk = Trunk(
        divide(fabric, len(given["addresses"])), given["machine"], tuple(given["addresses"])
    )
    with Cluster(fabric, dilation=DILATION, controller=False, trunk=trunk) as cluster:
        wires = {host: Wire(cluster, host) for host in cluster.part.hosts}
        counters = TrunkCounters()
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            answer: Any = None
            match order.pop("op"):
                case "send":
                    wire = wires[order["host"]]
                    answer = [
                        wire.send(order["plane"], bytes.fromhex(frame)) for frame in order["frames"]
                    ]
                case "receive":
                    got = wires[order["host"]].receive(
                        order["count"], timeout=order["timeout"], linger=0.05
                    )
                    answer = [[g.port, g.frame.hex()] for g in got]
                case "counters":
                    answer = cluster.counters()
                case "quiesce":
                    answer = cluster.quiesce(cluster.clock.patience(10.0))
                case "trunk":
                    answer = {
                        "carried": counters.carried(range(len(fabric.ports))),
                        "strays": counters.strays,
                    }
            print(json.dumps(answer), flush=True)
        for wire in wires.values():
            wire.close()
    return 0


class PartProcess:
    """The same from outside."""

    def __init__(
        self, machine: Machine, addresses: list[str], fabric: str = "tiny", **settings: Any
    ) -> None:
        place = {
            "fabric": fabric,
            "machine": machine.number,
            "addresses": addresses,
            "settings": settings,
        }
        self.process = subprocess.Popen(
            [
                *machine.prefix,
                sys.executable,
                "-m",
                "tests.emulated.part_process",
                json.dumps(place),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, op: str, **keys: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"op": op, **keys}) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


if __name__ == "__main__":
    sys.exit(sandbox.run(lambda: main(*sys.argv[1:])))
