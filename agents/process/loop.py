"""The loop of a host process: the agents of one host or several, each over its own sockets, in
turns. Compiled with the engines."""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypedDict

from agents.clock import WallClock
from agents.process.agent import Agent
from agents.process.control import AgentServer, Answer
from agents.transport import LONG_AGO, NEVER, Note
from agents.verbs.server import Server
from topologies.clos import Fabric

HOUSEKEEPING_S = 0.1
PROGRAM_REQUESTS = ("hello", "group", "join", "call", "send", "recv", "tell")
PROGRAM_LINE = 1 << 20
"""The longest request of a program, and the most that waits for a program [ours]."""


class Place(TypedDict):
    host: int
    netns: str
    log: str
    socket: str


class Host(Agent):
    def __init__(
        self,
        fabric: Fabric,
        number: int,
        device: Any,
        place: Place,
        clock: WallClock,
        listener: socket.socket | None = None,
    ) -> None:
        self.file = open(place["log"], "ab", buffering=1 << 16)
        self.server = AgentServer(place["socket"])
        super().__init__(fabric, number, device, self.file.write, self.server.notify, clock.now)
        self.wall = clock
        self.housekeeping = clock.patience(HOUSEKEEPING_S)
        self.housekeeping_at = LONG_AGO
        self.due = LONG_AGO  # when its device has to work again
        self.armed = False  # whether a frame wakes the process
        if listener is not None:
            self.verbs = Server(fabric, number, device, listener, clock.now, clock.dilation)

    def readers(self) -> list[socket.socket]:
        return (
            self.server.readers()
            if self.verbs is None
            else [*self.server.readers(), *self.verbs.readers()]
        )

    def serve(self, ready: Sequence[socket.socket]) -> None:
        """A client that has begun a program may ask for nothing else: its user need not be ours."""
        if self.verbs is not None:
            of_programs = self.verbs.readers()
            self.verbs.serve(ready)
            if all(sock in of_programs for sock in ready):
                return
        for client, request in self.server.requests():
            own = client is self.calls.owner
            if own and request.get("op") not in PROGRAM_REQUESTS:
                answer: Answer = {
                    "id": request.get("id", 0),
                    "error": f"{self.name}: a program may not ask for that",
                }
            else:
                self.asking = client
                answer = self.answer(request)
            self.server.answer(client, answer, wait=not own)
            if "lost" in answer:
                self.notify({"event": "lost", "host": answer["lost"]})
            if client is self.calls.owner:
                self.server.quiet.add(client)
                client.longest = PROGRAM_LINE

    def share_memory(self, size: int) -> tuple[Any, int]:
        """A process that has mapped a file is ended by SIGBUS when another makes it shorter."""
        fd = os.memfd_create("mrcbed-program", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(
            fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
        return mmap.mmap(fd, size), fd

    def notify_program(self, owner: Any, note: Note) -> None:
        self.server.answer(owner, note, wait=False)
        if note["event"] == "lost":
            self.notify(note)

    def op_hello(self) -> dict[str, str | int]:
        module = sys.modules[type(self.device.engine).__module__]
        return {
            "host": self.name,
            "pid": os.getpid(),
            "uid": os.geteuid(),
            "compiled": not str(module.__file__).endswith(".py"),
        }

    def loop(self) -> None:
        while self.running:
            readers = self.device.turn(self.wake_at(self.clock()), self.readers())
            if readers:
                self.serve(readers)
            self.go_on()

    def go_on(self) -> None:
        self.advance()
        now = self.clock()
        if now >= self.bin_end:
            self.record(now)
        if now >= self.housekeeping_at:
            self.housekeeping_at = now + self.housekeeping
            self.device.housekeeping()
            self.server.flush()
            self.file.flush()

    def end(self, cpu_ns: int) -> None:
        self.write_final_log(cpu_ns)
        self.file.close()

    def close(self) -> None:
        self.server.close()
        if self.verbs is not None:
            self.verbs.close()
        self.device.close()


class Wakers:
    def __init__(self, hosts: Sequence[Host]) -> None:
        self.poll = select.epoll()
        # by descriptor: whose it is, and what it asks for beside work
        self.acts: dict[int, tuple[Host, Callable[[], None] | None]] = {}
        # by host number: its control sockets, and their descriptors
        self.clients: dict[int, list[tuple[Any, int]]] = {}
        for host in hosts:
            self._listen(host, host.device.io.receiver, None, 0)
            self._listen(host, host.device.io.links, host.device.read_links)
            self._follow(host)

    def _listen(
        self, host: Host, sock: Any, act: Callable[[], None] | None, events: int = select.EPOLLIN
    ) -> int:
        fd: int = sock.fileno()
        self.acts[fd] = (host, act)
        self.poll.register(fd, events)
        return fd

    def _follow(self, host: Host) -> None:
        now, before = host.readers(), self.clients.get(host.number, [])
        for sock, fd in before:
            if sock not in now:
                del self.acts[fd]
        known = [pair for pair in before if pair[0] in now]
        known += [
            (sock, self._listen(host, sock, partial(host.serve, [sock])))
            for sock in now
            if sock not in [old for old, _ in known]
        ]
        self.clients[host.number] = known

    def arm(self, host: Host) -> None:
        host.armed = True
        self.poll.modify(host.device.io.receiver, select.EPOLLIN | select.EPOLLONESHOT)

    def wait(self, seconds: float) -> None:
        # which knows microseconds
        if seconds > 0.0 and not select.select([self.poll], [], [], seconds)[0]:
            return
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
    wakers, clock = Wakers(hosts), hosts[0].wall
    while any(host.running for host in hosts):
        now = clock.now()
        wake = NEVER
        for host in hosts:
            if not host.running:
                continue
            if host.due <= now:
                host.device.wakeups += 1
                host.go_on()
                host.due = host.device.work(host.wake_at(clock.now()))
                if not host.armed and not host.device.io.ring.held:
                    wakers.arm(host)
            wake = min(wake, host.due)
        wakers.wait(clock.until(wake))
