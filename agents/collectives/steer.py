"""Steers a collective on many agents from outside: connects them, starts, hears the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from agents.clock import Clock
from agents.collectives.flows import FlowTable, parse, share
from agents.collectives.group import SetUp
from agents.transport import Note

CHECK_S = 0.3
MOST_NAMED = 8


class Agent(Protocol):
    def call(self, op: str, **args: Any) -> Any: ...
    def fileno(self) -> int: ...
    def notifications(self) -> list[Note]: ...


class CutOff:
    """Hosts that the denylist cuts off from receivers: nothing arrives until an entry is removed,
    and people must learn why."""

    def __init__(self, hosts: Sequence[int]) -> None:
        self._hosts = hosts
        self._peers: dict[int, list[int]] = {}  # by rank
        self._entries: list[str] = []

    def hear(self, note: Note) -> None:
        self._peers[int(note["rank"])] = list(note["peers"])
        self._entries = list(note["entries"])

    @property
    def line(self) -> str:
        pairs = [
            (self._hosts[rank], peer)
            for rank, peers in sorted(self._peers.items())
            for peer in peers
        ]
        if not pairs:
            return ""
        src, dst = pairs[0]
        more = f" and of {len(pairs) - 1} other pairs" if len(pairs) > 1 else ""
        entries = ", ".join(self._entries[:MOST_NAMED]) + (
            ", ..." if len(self._entries) > MOST_NAMED else ""
        )
        return (
            f"every path from h{src} to h{dst}{more} is denied: take entries off the denylist "
            f"({entries})"
        )


def connect(
    agents: Sequence[Agent],
    hosts: list[int],
    collective: str,
    qps: int = 1,
    slices: int = 4,
    flows: list[FlowTable] | None = None,
) -> None:
    """``agents`` in rank order, ``hosts`` their host numbers. Queue pairs that exist on all agents
    are kept."""

    def set_up() -> list[SetUp]:
        request: dict[str, object] = {
            "collective": collective,
            "ranks": hosts,
            "qps": qps,
            "slices": slices,
        }
        return [
            a.call("setup", rank=i, **request, **({"flows": own[i]} if own else {}))
            for i, a in enumerate(agents)
        ]

    own = (
        [[asdict(flow) for flow in part] for part in share(parse(flows, len(hosts)), len(hosts))]
        if flows
        else []
    )
    answers = set_up()
    if all(m["connected"] for m in answers):
        return
    if any(m["connected"] for m in answers):
        for agent in agents:
            agent.call("abort")
        answers = set_up()
    for i, agent in enumerate(agents):
        agent.call(
            "connect",
            remotes={peer: answers[int(peer)]["qps"][str(i)] for peer in answers[i]["qps"]},
        )


def wait_for_all(
    agents: Sequence[Agent],
    on_note: Callable[[int, Note], None],
    check: Callable[[], int | None],
    timeout: int,
    clock: Clock,
) -> bool:
    """Pass notifications to ``on_note(rank, note)`` until each rank is done (True). Returns False
    if a rank failed, an agent hung up, or ``timeout`` has passed. ``check`` is called every 0.3 s
    of real time; it may raise, and return when to call it again."""
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


def join(
    agents: Sequence[Agent],
    hosts: list[int],
    group: str,
    memory: int,
    qps: int = 1,
    slices: int = 4,
) -> list[int]:
    """Returns the memories' descriptors in the agents' processes."""
    descriptors = [int(agent.call("program", size=memory)["fd"]) for agent in agents]
    answers = [
        agent.call("group", group=group, ranks=hosts, rank=rank, qps=qps, slices=slices)["qps"]
        for rank, agent in enumerate(agents)
    ]
    for rank, agent in enumerate(agents):
        agent.call(
            "join",
            group=group,
            remotes={peer: answers[int(peer)][str(rank)] for peer in answers[rank]},
        )
    return descriptors
