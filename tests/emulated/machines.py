"""Machines for tests: network namespaces with a wire between each of them and all others, and a
time of their own.

A command on one sees its own clocks, which began 1,000 s earlier on the next, and none of the
others' interfaces.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.emulated.netlink import new_namespace

EARLIER_S = 1000
"""How much longer each machine has been up than the one before."""
MTU = 9000
SOURCE = Path(__file__).with_name("wire.bpf.c")


@dataclass(frozen=True)
class Machine:
    number: int
    name: str
    address: str
    namespace: str  # a path

    @property
    def prefix(self) -> list[str]:
        """What a command begins with that runs on this machine."""
        offset = str(EARLIER_S * self.number)
        own_time = [
            "unshare",
            "--time",
            "--monotonic",
            offset,
            "--boottime",
            offset,
            "--fork",
            "--kill-child=KILL",
        ]
        return ["nsenter", f"--net={self.namespace}", *(own_time if self.number else [])]

    def run(self, *command: str) -> None:
        subprocess.run(["nsenter", f"--net={self.namespace}", *command], check=True)

    @contextmanager
    def wire(self, does: str) -> Iterator[None]:
        """Meanwhile the wire to it does something to all frames: ``lose`` them, ``lose_some``,
        ``lose_many``, or ``mark`` what is capable of ECN, as a busy router does."""
        self.run("tc", "qdisc", "add", "dev", "wire", "clsact")
        with tempfile.TemporaryDirectory() as scratch:
            clang = [
                "clang",
                "-O2",
                "-target",
                "bpf",
                *(f"-I{path}" for path in sorted(Path("/usr/include").glob("*-linux-gnu"))),
            ]
            subprocess.run([*clang, "-c", str(SOURCE), "-o", f"{scratch}/wire.o"], check=True)
            add = ["tc", "filter", "add", "dev", "wire", "ingress", "bpf", "direct-action"]
            self.run(*add, "obj", f"{scratch}/wire.o", "sec", f"wire/{does}")
        try:
            yield
        finally:
            self.run("tc", "qdisc", "del", "dev", "wire", "clsact")


def reach(command: str = f"{sys.executable} -m mrcbed tools machine") -> str:
    """For --reach: a machine's name is the number of its namespace's descriptor, and its clock is
    so many hundred seconds ahead."""
    own_time = "unshare --time --monotonic {host}00 --boottime {host}00 --fork --kill-child=KILL"
    return f"nsenter --net=/proc/{os.getpid()}/fd/{{host}} {own_time} {command}"


def on(places: Sequence[Machine]) -> str:
    """For --on."""
    return ",".join(f"{place.name}={place.address}" for place in places)


@contextmanager
def machines(count: int = 2, mtu: int = MTU) -> Iterator[list[Machine]]:
    """So many, on one bridge."""
    bridge = new_namespace()
    spaces = [new_namespace() for _ in range(count)]
    paths = [f"/proc/{os.getpid()}/fd/{fd}" for fd in (bridge, *spaces)]
    try:
        lines = ["link add name bridge type bridge", f"link set bridge mtu {mtu} up"]
        for number in range(count):
            lines += [
                (
                    f"link add name to{number} mtu {mtu} type veth peer name wire mtu {mtu} "
                    f"netns {paths[number + 1]}"
                ),
                f"link set to{number} master bridge up",
            ]
        subprocess.run(
            ["nsenter", f"--net={paths[0]}", "ip", "-batch", "-"],
            input="\n".join(lines),
            text=True,
            check=True,
        )
        for number in range(count):
            own = [
                "link set lo up",
                f"addr add 10.9.0.{number + 1}/24 dev wire",
                "link set wire up",
            ]
            subprocess.run(
                ["nsenter", f"--net={paths[number + 1]}", "ip", "-batch", "-"],
                input="\n".join(own),
                text=True,
                check=True,
            )
        yield [
            Machine(number, str(spaces[number]), f"10.9.0.{number + 1}", paths[number + 1])
            for number in range(count)
        ]
    finally:
        for fd in (bridge, *spaces):
            os.close(fd)
