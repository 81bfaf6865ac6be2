"""The host process: the MRC (or baseline) endpoint of one host or several, on raw sockets, each steered over a Unix socket.

Started as ``python -m agents.process.host --config FILE``; it opens each host's sockets in that host's network namespace. One event loop,
no busy wait. Everything that needs root is opened first; then root is dropped for good and the process dies with its parent.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from agents.collectives.data import StepData
from agents.collectives.registry import collectives
from agents.nic.device import MAX_WAIT, make_device
from agents.nic.packet_io import drop_root
from agents.process.agent import Agent
from agents.process.control import AgentServer
from agents.transport import LONG_AGO, NEVER
from topologies.clos import Fabric, FabricError

PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29
HOUSEKEEPING = 100_000_000


CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread is in a network namespace, by its path; "": where it is. Raises OSError."""
    if not namespace:
        yield
        return
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(namespace)
        try:
            yield
        finally:
            _enter(f"/proc/self/fd/{own}")
    finally:
        os.close(own)


def _enter(namespace: str) -> None:
    fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _LIBC.setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    finally:
        os.close(fd)


class Host(Agent):
    """One agent: device, control channel, log file. ``place``: what its process's other agents do not share with it."""

    def __init__(self, config: dict[str, Any], place: dict[str, Any]) -> None:
        fabric = Fabric.from_dict(config["fabric"])
        self.file = open(place["log"], "ab", buffering=1 << 16)
        with inside(place.get("netns", "")):
            device = make_device(fabric, place["host"], config["transport"], config.get("options", {}), config.get("seed", 0))
        self.server = AgentServer(place["socket"])
        super().__init__(fabric, place["host"], device, self.file.write, self.server.notify, time.monotonic_ns)
        self.housekeeping_at = LONG_AGO
        self.due = LONG_AGO  # when its device has to work again
        self.armed = False  # whether a frame wakes the process

    def serve(self) -> None:
        """Answer requests."""
        for client, request in self.server.requests():
            self.server.answer(client, self.answer(request))

    def op_hello(self) -> dict[str, Any]:
        """Identify the host."""
        module = sys.modules[type(self.device.engine).__module__]
        return {"host": self.name, "pid": os.getpid(), "uid": os.geteuid(), "compiled": not str(module.__file__).endswith(".py")}

    def loop(self) -> None:
        """Run until told to stop."""
        while self.running:
            readers = self.device.turn(self.wake_at(time.monotonic_ns()), self.server.readers())
            if readers:
                self.serve()
            self.go_on()

    def go_on(self) -> None:
        """Do what follows from what the device has done."""
        self.advance()
        now = time.monotonic_ns()
        if now >= self.bin_end:
            self.record(now)
        if now >= self.housekeeping_at:
            self.housekeeping_at = now + HOUSEKEEPING
            self.device.housekeeping()
            self.file.flush()

    def close(self, cpu_ns: int) -> None:
        """Write all measurements to the log; ``cpu_ns``: its share of its process's CPU time."""
        self.write_final_log(cpu_ns)
        self.file.close()
        self.server.close()
        self.device.close()


class Wakers:
    """What ends the wait of several hosts: their frames, news of their links, requests."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.poll = select.epoll()
        self.acts: dict[int, tuple[Host, Callable[[], None] | None]] = {}  # by descriptor: whose it is, and what it asks for beside work
        self.clients: dict[int, list[tuple[Any, int]]] = {}  # by host number: its control sockets, and their descriptors
        for host in hosts:
            self._listen(host, host.device.io.receiver, None, 0)
            self._listen(host, host.device.io.links, host.device.read_links)
            self._follow(host)

    def _listen(self, host: Host, sock: Any, act: Callable[[], None] | None, events: int = select.EPOLLIN) -> int:
        fd: int = sock.fileno()
        self.acts[fd] = (host, act)
        self.poll.register(fd, events)
        return fd

    def _follow(self, host: Host) -> None:
        """Listen to the control sockets that it has now. The kernel forgets closed ones by itself, and a new one may have such a number."""
        now, before = host.server.readers(), self.clients.get(host.number, [])
        for sock, fd in before:
            if sock not in now:
                del self.acts[fd]
        known = [pair for pair in before if pair[0] in now]
        known += [(sock, self._listen(host, sock, host.serve)) for sock in now if sock not in [old for old, _ in known]]
        self.clients[host.number] = known

    def arm(self, host: Host) -> None:
        """The next frame ends the wait, once."""
        host.armed = True
        self.poll.modify(host.device.io.receiver, select.EPOLLIN | select.EPOLLONESHOT)

    def wait(self, ns: int) -> None:
        """Sleep for so long at most; whoever has something to do is due afterwards."""
        if ns > 0:
            select.select([self.poll], [], [], ns / 1e9)  # which knows microseconds
        for fd, _ in self.poll.poll(0):
            if fd not in self.acts:
                continue  # closed just now
            host, act = self.acts[fd]
            host.due = LONG_AGO
            if act is None:
                host.armed = False
                continue
            act()
            self._follow(host)


def share(hosts: Sequence[Host]) -> None:
    """Run several hosts in turns, each when it has something to do, until all were told to stop; then all of them end together."""
    wakers = Wakers(hosts)
    slept_from = LONG_AGO
    while any(host.running for host in hosts):
        now = time.monotonic_ns()
        wake = NEVER
        for host in hosts:
            if not host.running:
                continue
            if host.due <= now:
                host.device.woken(slept_from < host.due)  # else it was due before anybody slept, or something came
                host.go_on()
                host.due = host.device.work(host.wake_at(time.monotonic_ns()))
                if not host.armed and not host.device.io.ring.held:
                    wakers.arm(host)
            wake = min(wake, host.due)
        slept_from = time.monotonic_ns()
        wakers.wait(min(wake - slept_from, MAX_WAIT))


def main() -> int:
    """Entry point. Exit status 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(description="an mrcbed host process")
    parser.add_argument("--config", required=True, help="JSON file")
    args = parser.parse_args()
    os.closerange(3, 1024)  # mnexec leaves the namespaces that it entered open
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that steers us
    try:
        with open(args.config, encoding="utf-8") as file:
            config = json.load(file)
        hosts, user = [Host(config, place) for place in config["hosts"]], int(config["user"])
    except (OSError, ValueError, KeyError, FabricError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    # Modules imported on first use must be imported before root is dropped: the clone may be in a home that only root may read.
    zeros = np.zeros(4, np.float32)
    StepData(zeros, zeros, 1).wrong(0, zeros)
    collectives()
    drop_root(user, user)
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # dropping root clears it, so only now
    _LIBC.prctl(PR_SET_TIMERSLACK, 1000)
    if os.getppid() != parent:
        return 0

    def stop(*_: Any) -> None:
        for host in hosts:
            host.running = False

    signal.signal(signal.SIGTERM, stop)
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing in the loop makes cycles; a collection would pause it
    try:
        if len(hosts) == 1:
            hosts[0].loop()
        else:
            share(hosts)
    except Exception:  # a bug: it must not vanish with the process
        traceback.print_exc()
        return 70
    finally:
        for host in hosts:
            host.close(time.process_time_ns() // len(hosts))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
