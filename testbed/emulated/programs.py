"""Ranks as processes: a program on each host, with a socket to that host's agent and memory that it
is given.

These two descriptors are a program's only rights: it need not be root. It runs at low priority,
because the agents are the network. A program of RDMA verbs gets a library instead, which finds its
agent.
"""

from __future__ import annotations

import codecs
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agents.collectives.group import CollectiveError
from agents.collectives.steer import join
from agents.communicator import MEMORY, WORLD
from agents.process.control import AgentClient, AgentError
from agents.transport import Note
from testbed.emulated.fault_socket import VARIABLE
from testbed.emulated.verbs_words import (
    PYTHON,
    awaits_server,
    filled,
    listens,
    of_device,
    of_host,
    of_rank,
    preloading,
)
from testbed.errors import ClusterDied, UserError
from testbed.machine.sandbox import group_of
from testbed.machine.slowness import patient, remark
from testbed.streams import Cutter
from testbed.verbs.build import library
from testbed.world import Program

if TYPE_CHECKING:
    from testbed.emulated.cluster import Cluster

LOOK_S = 0.2
GRACE_S = 5.0
KILL_S = 2.0
PIECE = 1 << 16
PIECES = 64
LEFT = 2 * PIECES
SOON_S = 0.01
SERVER_S = 20.0


class EmulatedPrograms:
    def __init__(self, cluster: Cluster, program: Program, hosts: Sequence[int]) -> None:
        self.cluster = cluster
        self.hosts = list(hosts)
        self.agents = [cluster.agents[host] for host in hosts]
        self.processes: list[subprocess.Popen[bytes]] = []
        self.readers: list[threading.Thread] = []
        self.output: queue.Queue[tuple[int, bytes]] = queue.Queue(PIECES)
        self.decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in hosts]
        self.cutters = [Cutter() for _ in hosts]
        self.verbs = program.verbs
        try:
            if program.verbs:
                self._start_verbs(program)
            else:
                self._start_joined(program)
        except (AgentError, CollectiveError, OSError) as error:
            self.end()
            raise UserError(f"the program cannot be started: {error}") from None
        except BaseException:
            self.end()
            raise

    def _start_joined(self, program: Program) -> None:
        from testbed.emulated.cluster import environment

        command = [sys.executable, *program.command] if program.python else list(program.command)
        clients: list[AgentClient] = []
        try:
            clients = [AgentClient(agent.path) for agent in self.agents]
            memories = join(clients, self.hosts, WORLD, MEMORY, program.qps)
            for rank, (client, memory) in enumerate(zip(clients, memories, strict=True)):
                pid = self.agents[rank].call("hello")["pid"]
                shared = os.open(f"/proc/{pid}/fd/{memory}", os.O_RDWR | os.O_CLOEXEC)
                place = {
                    "rank": rank,
                    "hosts": self.hosts,
                    "socket": client.fileno(),
                    "memory": shared,
                    "clock": self.cluster.clock.to_dict(),
                }
                settings = {
                    "MRCBED_RANK": json.dumps(place),
                    "RANK": str(rank),
                    "WORLD_SIZE": str(len(self.hosts)),
                    "LOCAL_RANK": "0",
                }
                try:
                    self._start(
                        program,
                        rank,
                        command,
                        {**environment(), **settings},
                        (client.fileno(), shared),
                    )
                finally:
                    os.close(shared)
        finally:
            for client in clients:  # the ranks have their own copies
                client.close()

    def _start_verbs(self, program: Program) -> None:
        made = library()
        require_readable(made, program.user, "move the project where they can")
        self.cluster.management()
        command, *arguments = program.command
        words = [*preloading(made), *([PYTHON] if program.python else []), command]
        for rank, host in enumerate(self.hosts):
            if rank == 1 and awaits_server(arguments):
                self._await_server()
            settings = {
                **of_device(made),
                **os.environ,
                **of_host(host, self.cluster.clock.dilation),
                **of_rank(rank, self.hosts),
            }
            self._start(program, rank, [*words, *filled(arguments, rank, self.hosts)], settings)

    def _await_server(self) -> None:
        server, limit = self.processes[0], patient(SERVER_S)
        # of its shell: a program begins outside the namespace
        place = self.cluster.net.hosts[self.hosts[0]].pid
        until = time.monotonic() + limit
        while not listens(place) and not _over(server):
            if time.monotonic() > until:
                line = (
                    f"rank 0 (h{self.hosts[0]}) listens on no TCP port after {limit:.0f} "
                    f"s{remark()}: the others start now"
                )
                print(f"mrcbed: {line}", file=sys.stderr, flush=True)
                return
            self.cluster.check()
            time.sleep(SOON_S)

    def _start(
        self,
        program: Program,
        rank: int,
        command: list[str],
        settings: dict[str, str],
        descriptors: tuple[int, ...] = (),
    ) -> None:
        faults = {VARIABLE: program.faults} if program.faults else {}
        process = self.cluster.net.hosts[self.hosts[rank]].popen(
            ["nice", "-n", str(program.nice), *_as(program.user), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=descriptors,
            env={
                **settings,
                **faults,
                "OMP_NUM_THREADS": "1",
                "PYTHONUNBUFFERED": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )
        self.processes.append(process)
        reader = threading.Thread(target=self._read, args=(rank, process), daemon=True)
        reader.start()
        self.readers.append(reader)

    def _read(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        while data := os.read(process.stdout.fileno(), PIECE):
            self.output.put((rank, data))

    def _pass_on(self, on_line: Callable[[int, str], None]) -> int:
        pieces = self.output.qsize()
        for _ in range(pieces):
            rank, data = self.output.get()
            for line in self.cutters[rank].lines(self.decoders[rank].decode(data)):
                on_line(rank, line)
        return pieces

    def _pass_on_rest(self, on_line: Callable[[int, str], None]) -> None:
        left, until = LEFT, time.monotonic() + 1.0
        while (
            left > 0
            and time.monotonic() < until
            and any(reader.is_alive() for reader in self.readers)
        ):
            if passed := self._pass_on(on_line):
                left, until = left - passed, time.monotonic() + 1.0
            time.sleep(SOON_S)
        self._pass_on(on_line)
        for rank, cutter in enumerate(self.cutters):
            for line in cutter.end():
                on_line(rank, line)

    def run(
        self,
        on_line: Callable[[int, str], None],
        on_note: Callable[[int, Note], None],
        look: Callable[[], int | None],
    ) -> dict[int, str]:
        failed: dict[int, str] = {}
        ended: set[int] = set()
        give_up = float("inf")
        missing: int | None = None  # the first that was lost
        died: ClusterDied | None = None
        sooner: int | None = None
        soon, usual = (self.cluster.clock.patience(seconds) for seconds in (SOON_S, LOOK_S))
        passed = 0
        with self.cluster.clock.waiter(self.agents) as wait:
            while len(ended) < len(self.processes):
                if died is None:
                    wait(
                        soon if passed else usual if sooner is None else max(0, min(sooner, usual))
                    )
                    try:
                        sooner = look()
                        self.cluster.check()
                        for rank, agent in enumerate(self.agents):
                            for note in agent.notifications():
                                if note["event"] != "lost":
                                    on_note(rank, note)
                                elif (
                                    missing is None
                                    and (lost := self.hosts.index(note["host"])) in ended
                                ):
                                    give_up, missing = time.monotonic() + GRACE_S, lost
                    except ClusterDied as error:  # the others hear who is missing before all ends
                        died, give_up = error, time.monotonic() + GRACE_S
                        for rank, agent in enumerate(self.agents):
                            if agent.closed or f"h{self.hosts[rank]} " in f"{error} ":
                                self._lose(rank, str(error).partition(":")[0], {})
                else:
                    time.sleep(LOOK_S)
                passed = self._pass_on(on_line)
                for rank, process in enumerate(self.processes):
                    if rank not in ended and _over(process):
                        ended.add(rank)
                        steps = self._steps(rank)
                        gone = f"the agent of h{self.hosts[rank]} is gone"
                        reason = gone if steps is None else _ending(process.returncode)
                        if process.returncode:
                            failed.setdefault(rank, reason)
                            give_up, missing = (
                                min(give_up, time.monotonic() + GRACE_S),
                                rank if missing is None else missing,
                            )
                        self._lose(rank, reason, steps or {})
                if time.monotonic() > give_up and len(ended) < len(self.processes):
                    if missing is not None:
                        line = (
                            f"its program went on for {GRACE_S:g} s after rank {missing} "
                            f"(h{self.hosts[missing]}) was lost, and was ended"
                        )
                        failed |= dict.fromkeys(
                            sorted(set(range(len(self.processes))) - ended), line
                        )
                    self.end()
        self._pass_on_rest(on_line)
        if died is not None:
            raise died
        return failed

    def _steps(self, rank: int) -> dict[str, int] | None:
        with suppress(AgentError):
            steps: dict[str, int] = self.agents[rank].call("steps")
            return steps
        return None

    def _lose(self, rank: int, reason: str, steps: dict[str, int]) -> None:
        for other, agent in enumerate(self.agents):
            if other != rank and not self.verbs:
                with suppress(AgentError):
                    agent.call("lose", host=self.hosts[rank], reason=reason, steps=steps)

    def end(self) -> None:
        running = [process for process in self.processes if not _over(process)]
        for process in running:
            process.terminate()
        until = time.monotonic() + KILL_S
        while not all(map(_over, running)) and time.monotonic() < until:
            time.sleep(SOON_S)
        for process in running:
            if not _over(process):
                process.kill()
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
                _over(process)


def _over(process: subprocess.Popen[bytes]) -> bool:
    """End what an ended rank started in its session, while the number is still its own."""
    if (
        process.returncode is None
        and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    ):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.poll() is not None


def require_readable(file: Path, user: int | None, fix: str) -> None:
    if subprocess.run([*_as(user), "test", "-r", str(file)], check=False).returncode != 0:
        raise UserError(
            f"user {user}, who called sudo and runs the program, cannot read {file.parent}: {fix}"
        )


def _as(user: int | None) -> list[str]:
    if user is None or user == 0:
        return []
    return [
        "setpriv",
        f"--reuid={user}",
        f"--regid={group_of(user)}",
        "--clear-groups",
        "--inh-caps=-all",
        "--",
    ]


def _ending(status: int) -> str:
    if status < 0:
        return f"its program was ended by {signal.Signals(-status).name}"
    return f"its program ended with status {status}" if status else "its program has ended"
