"""Steers a collective on many agents from outside: connects them, starts, hears the end. Used by the runner and the prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from agents.clock import Clock
from agents.collectives.flows import FlowTable
from agents.collectives.group import SetUp
from agents.transport import Note

CHECK_S = 0.3
MOST_NAMED = 8
"""The most entries of the denylist that a line names."""


class Agent(Protocol):
    """The methods of agents.process.control.AgentClient that this module uses."""

    def call(self, op: str, **args: Any) -> Any: ...
    def fileno(self) -> int: ...
    def notifications(self) -> list[Note]: ...


class CutOff:
    """The hosts that the denylist leaves without a path to one of their receivers, as their agents report it. ``hosts`` in rank order. This
    is no failure, because an entry may be removed again. But nothing arrives until then, and people must learn why."""

    def __init__(self, hosts: Sequence[int]) -> None:
        self._hosts = hosts
        self._peers: dict[int, list[int]] = {}  # by rank
        self._entries: list[str] = []

    def hear(self, note: Note) -> None:
        self._peers[int(note["rank"])] = list(note["peers"])
        self._entries = list(note["entries"])

    @property
    def line(self) -> str:
        """Return one line for people; empty if every host has a path to every peer."""
        pairs = [(self._hosts[rank], peer) for rank, peers in sorted(self._peers.items()) for peer in peers]
        if not pairs:
            return ""
        src, dst = pairs[0]
        more = f" and of {len(pairs) - 1} other pairs" if len(pairs) > 1 else ""
        entries = ", ".join(self._entries[:MOST_NAMED]) + (", ..." if len(self._entries) > MOST_NAMED else "")
        return f"every path from h{src} to h{dst}{more} is denied: take entries off the denylist ({entries})"


def connect(
    agents: Sequence[Agent], hosts: list[int], collective: str, qps: int = 1, slices: int = 4, flows: list[FlowTable] | None = None
) -> None:
    """Make and connect the queue pairs that a collective needs, or ``flows`` (with ``collective`` = "flows"). ``agents`` in rank order,
    ``hosts`` their host numbers. Existing queue pairs are kept if they exist on all agents."""

    def set_up() -> list[SetUp]:
        extra = {"flows": flows} if flows else {}
        return [a.call("setup", collective=collective, ranks=hosts, rank=i, qps=qps, slices=slices, **extra) for i, a in enumerate(agents)]

    answers = set_up()
    if all(m["connected"] for m in answers):
        return
    if any(m["connected"] for m in answers):
        for agent in agents:
            agent.call("abort")
        answers = set_up()
    for i, agent in enumerate(agents):
        agent.call("connect", remotes={peer: answers[int(peer)]["qps"][str(i)] for peer in answers[i]["qps"]})


def wait_for_all(
    agents: Sequence[Agent], on_note: Callable[[int, Note], None], check: Callable[[], int | None], timeout: int, clock: Clock
) -> bool:
    """Pass every notification to ``on_note(rank, note)`` until each rank is done (True). Returns False if a rank failed, an agent hung up,
    or ``timeout`` has passed. ``check`` is called every 0.3 s of a machine and after notifications; it may raise, and return after what
    time it is to be called again."""
    done: set[int] = set()
    end, often = clock.now() + timeout, clock.patience(CHECK_S)
    with clock.waiter(agents) as wait:
        while len(done) < len(agents) and clock.now() < end:
            sooner = check()
            for rank in wait(often if sooner is None else max(0, min(sooner, often))):
                agent = agents[rank]
                for note in agent.notifications():
                    on_note(rank, note)
                    if note["event"] == "failed":
                        return False
                    if note["event"] == "done":
                        done.add(rank)
                if getattr(agent, "closed", False) and rank not in done:
                    clock.sleep(clock.patience(0.2))  # until the kernel has reported its end
                    check()
                    return False
    return len(done) == len(agents)


def join(agents: Sequence[Agent], hosts: list[int], group: str, memory: int, qps: int = 1, slices: int = 4) -> list[int]:
    """Give each agent a program's memory, and connect all of them as one group; ``agents`` in rank order. The memories' descriptors in the
    agents' processes. Raises what they raise."""
    descriptors = [int(agent.call("program", size=memory)["fd"]) for agent in agents]
    answers = [agent.call("group", group=group, ranks=hosts, rank=rank, qps=qps, slices=slices)["qps"] for rank, agent in enumerate(agents)]
    for rank, agent in enumerate(agents):
        agent.call("join", group=group, remotes={peer: answers[int(peer)][str(rank)] for peer in answers[rank]})
    return descriptors
