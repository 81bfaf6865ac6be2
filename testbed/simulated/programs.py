"""Ranks as threads in virtual time: a Python program on each simulated host, of which one runs at
any moment.

A rank runs until it waits or lets time pass; when all wait, the network goes on. Computing takes no
virtual time: programs declare theirs.
"""

from __future__ import annotations

import io
import math
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, TextIO

from agents.collectives.group import CollectiveError
from agents.collectives.steer import join
from agents.communicator import MEMORY, WORLD, CommunicatorError, give
from agents.process.control import AgentError
from agents.transport import NEVER, Note
from testbed.errors import UserError
from testbed.simulated.hosts import SimulatedAgent, SimulatedHost
from testbed.simulated.network import Network
from testbed.streams import Cutter
from testbed.world import PATIENCE, Program
from topologies.units import MS, S

LOOK_RTTS = 100
QUIET = 100 * MS
"""If nothing happens to any rank for so long, the ranks wait for each other [ours]."""


class _Ended(BaseException):
    """Ends the thread of a rank that is to end."""


class SimulatedLink:
    def __init__(self, programs: SimulatedPrograms, rank: int, agent: SimulatedAgent) -> None:
        self.programs, self.rank, self.agent = programs, rank, agent
        self.hosts = programs.hosts
        host = agent.host
        assert isinstance(host, SimulatedHost)
        memory = host.agent.calls.memory
        assert memory is not None
        self.memory = memory
        self.waiting: list[Note] = []
        self.wake = NEVER  # when it wants to go on, ps
        self.listening = False  # whether news let it go on
        self.turn = threading.Semaphore(0)
        self.over = False
        self.failure = ""

    def call(self, request: str, args: Mapping[str, object]) -> Any:
        return self.agent.call(request, **args)

    def notes(self, timeout: float | None) -> list[Note]:
        if not self.waiting and timeout != 0:
            network = self.programs.network
            self.wake = NEVER if timeout is None else network.time + math.ceil(timeout * S)
            self.listening = True
            self.programs.pause(self)
            self.listening = False
        notes, self.waiting = self.waiting, []
        return notes

    def compute(self, seconds: float) -> None:
        network = self.programs.network
        self.wake = network.time + int(seconds * S)
        self.programs.pause(self)

    def now(self) -> float:
        return float(self.programs.network.time) / S

    def fileno(self) -> int:
        raise AgentError("in virtual time there is no descriptor to wait for: use pause()")

    def patience(self, seconds: float) -> float:
        return seconds / PATIENCE

    @property
    def ready(self) -> bool:
        return not self.over and (
            (self.listening and bool(self.waiting)) or self.wake <= self.programs.network.time
        )


class SimulatedPrograms:
    """Raises :class:`UserError` unless it is a Python program that can be read."""

    def __init__(
        self,
        network: Network,
        agents: Sequence[SimulatedAgent],
        program: Program,
        hosts: Sequence[int],
    ) -> None:
        if not program.python:
            raise UserError(
                f"{program.command[0]}: in the simulated world ranks are threads, so the program "
                "is a Python file (.py)"
            )
        self.network, self.agents, self.program, self.hosts = (
            network,
            list(agents),
            program,
            list(hosts),
        )
        path = Path(program.command[0])
        try:
            self.code: CodeType = compile(path.read_bytes(), str(path), "exec")
        except (OSError, SyntaxError, ValueError) as error:
            raise UserError(f"{path}: {error}") from None
        try:
            join(self.agents, self.hosts, WORLD, MEMORY, program.qps)
        except (AgentError, CollectiveError) as error:
            raise UserError(f"the program cannot be started: {error}") from None
        self.main = threading.Semaphore(0)
        self.links = [SimulatedLink(self, rank, agent) for rank, agent in enumerate(self.agents)]
        self.threads: list[threading.Thread] = []
        self.ending = False
        # called by whichever thread runs
        self.on_line: Callable[[int, str], None] = lambda rank, line: None
        self.cutters = [Cutter() for _ in hosts]

    # --- in the ranks' threads --------------------------------------------------------------------

    def pause(self, link: SimulatedLink) -> None:
        self.main.release()
        link.turn.acquire()
        link.wake = NEVER
        if self.ending:
            raise _Ended

    def _thread(self, link: SimulatedLink) -> None:
        link.turn.acquire()
        if not self.ending:
            give(link)
            try:
                path = self.program.command[0]
                main = {"__name__": "__main__", "__file__": path, "__builtins__": __builtins__}
                exec(self.code, main)  # noqa: S102 it is the user's own program, run as the user
            except _Ended:
                pass
            except SystemExit as leave:
                if leave.code:
                    link.failure = f"its program ended with status {leave.code}"
            except CommunicatorError as error:
                link.failure = f"its program ended with {error}"
                self.print(link, "", end=True)
                self.print(link, f"CommunicatorError: {error}\n")
            except BaseException as error:
                link.failure = f"its program ended with {type(error).__name__}: {error}"
                self.print(link, "", end=True)
                self.print(link, traceback.format_exc())
        self.print(link, "", end=True)
        link.over = True
        self.main.release()

    def print(self, link: SimulatedLink, text: str, end: bool = False) -> None:
        """Text is passed on at once: a rank may pause within a line. ``end``: with its last
        line."""
        cutter = self.cutters[link.rank]
        for line in cutter.lines(text) + (cutter.end() if end else []):
            self.on_line(link.rank, line)

    # --- outside ----------------------------------------------------------------------------------

    def run(
        self,
        on_line: Callable[[int, str], None],
        on_note: Callable[[int, Note], None],
        look: Callable[[], int | None],
    ) -> dict[int, str]:
        self.threads = [
            threading.Thread(target=self._thread, args=(link,), daemon=True) for link in self.links
        ]
        self.on_line = on_line
        printed, argv, path = sys.stdout, sys.argv, sys.path
        sys.stdout = _Lines(self, printed)
        sys.argv = list(self.program.command)
        sys.path = [os.path.dirname(os.path.abspath(self.program.command[0])), *sys.path]
        failed: dict[int, str] = {}
        told: set[int] = set()
        self.running: SimulatedLink | None = None
        reach, self.network.reach = self.network.reach, 1  # a rank hears from its own agent at once
        try:
            for link, thread in zip(self.links, self.threads, strict=True):
                link.wake = self.network.time
                thread.start()
            quiet_since = self.network.time
            while not all(link.over for link in self.links):
                moved = False
                for link in self.links:
                    if link.ready:
                        moved = True
                        self.running = link
                        link.turn.release()
                        self.main.acquire()
                        self.running = None
                    if link.over and link.rank not in told:
                        told.add(link.rank)
                        if link.failure:
                            failed[link.rank] = link.failure
                        self._lose(link)
                self._hear(on_note)
                if moved or any(link.ready for link in self.links):
                    quiet_since = self.network.time
                    continue
                sooner = look()
                wake = min((link.wake for link in self.links if not link.over), default=NEVER)
                most = (
                    LOOK_RTTS * self.network.fabric.base_rtt_ps
                    if sooner is None
                    else max(1, sooner)
                )
                self.network.run(min(wake, self.network.time + most))
                if wake < NEVER:
                    quiet_since = self.network.time
                self._hear(on_note)
                if self.network.time - quiet_since > QUIET:
                    waiting = ", ".join(str(link.rank) for link in self.links if not link.over)
                    raise UserError(
                        f"ranks {waiting} wait for what no rank does: every rank makes the same "
                        "calls in the same order"
                    )
        finally:
            self.end()
            self.network.reach = reach
            sys.stdout, sys.argv, sys.path = printed, argv, path
        return failed

    def _hear(self, on_note: Callable[[int, Note], None]) -> None:
        for rank, agent in enumerate(self.agents):
            for note in agent.notifications():
                if note["event"] in ("over", "lost"):
                    self.links[rank].waiting.append(note)
                else:
                    on_note(rank, note)

    def _lose(self, link: SimulatedLink) -> None:
        steps = link.agent.call("steps")
        for other in self.links:
            if other is not link:
                other.agent.call(
                    "lose",
                    host=self.hosts[link.rank],
                    reason=link.failure or "its program has ended",
                    steps=steps,
                )

    def end(self) -> None:
        self.ending = True
        for link, thread in zip(self.links, self.threads, strict=False):
            if thread.is_alive():
                link.turn.release()
                thread.join(5.0)


class _Lines(io.TextIOBase):
    """Standard output while ranks run: whole lines, with the rank that printed them. Others print
    as before."""

    def __init__(self, programs: SimulatedPrograms, printed: TextIO) -> None:
        self.programs, self.printed = programs, printed

    def write(self, text: str) -> int:
        link = self.programs.running
        if link is None:
            return self.printed.write(text)
        self.programs.print(link, text)
        return len(text)

    def flush(self) -> None:
        self.printed.flush()
