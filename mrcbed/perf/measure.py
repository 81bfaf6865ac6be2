"""Runs a collective or a flow on a living cluster and returns the times of its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agents.collectives.flows import FlowTable
from agents.collectives.registry import FLOWS
from agents.collectives.steer import CutOff, connect, wait_for_all
from agents.process.control import AgentError
from agents.transport import Note
from testbed.errors import UserError
from testbed.machine.slowness import patient
from testbed.reconvergence import Reconvergence
from testbed.world import World

PATIENCE_S = 60  # of a machine's step, after which the collective is given up [ours]


class Failed(UserError):
    """``lost``: because of what the text says; else its time was over. ``figures``: what ``perf``
    measured before."""

    status = 1

    def __init__(self, text: str, lost: bool, figures: dict[str, object] | None = None) -> None:
        super().__init__(text)
        self.lost, self.figures = lost, figures


class Stopped(Failed):
    status = 130


@dataclass
class Measured:
    """``spans``: of every step, by rank. ``flows``: each flow's note at its end."""

    spans: dict[int, dict[int, int]] = field(default_factory=dict)
    flows: list[Note] = field(default_factory=list)
    wrong: int = 0


def measure(
    world: World,
    hosts: Sequence[int],
    start: dict[str, object],
    steps: int,
    network: Reconvergence | None,
    on_step: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda line: None,
) -> Measured:
    """Start what is connected (``start``: arguments of the agents' request) on ``hosts``, in rank
    order, and wait for its end.

    ``network``: what re-routes meanwhile. ``on_step`` is called for each step of each rank, ``say``
    with lines for people. Raises
    :class:`Failed`.
    """
    agents = [world.agents[host] for host in hosts]
    measured = Measured()
    failure, ended, kind = "", False, Failed
    cut_off, shown = CutOff(hosts), ""

    def on_note(rank: int, note: Note) -> None:
        nonlocal failure
        if note["event"] == "step":
            measured.spans.setdefault(note["step"], {})[rank] = note["end_ps"] - note["start_ps"]
            on_step()
        elif note["event"] == "flow":
            measured.flows.append(note)
        elif note["event"] == "done":
            measured.wrong += note["wrong"]
        elif note["event"] == "cut-off":
            cut_off.hear(note)
        elif note["event"] == "failed":
            failure = (
                f"rank {note['rank']} (h{hosts[note['rank']]}) lost rank {note['peer_rank']}: "
                f"{note['reason']}"
            )

    def check() -> int | None:
        nonlocal shown
        world.check()
        if cut_off.line != shown:
            shown = cut_off.line
            say(shown or "there is a path for every pair again")
        return None if network is None else network.look()

    try:
        for agent in agents:
            agent.call("start", **start)
        ended = wait_for_all(
            agents, on_note, check, world.clock.patience(steps * patient(PATIENCE_S)), world.clock
        )
    except KeyboardInterrupt:
        failure, kind = "stopped", Stopped
    except AgentError as error:  # the others have begun
        failure = str(error)
    if failure or not ended:
        for agent in agents:
            agent.call("abort")
            agent.notifications()
        reason = failure or "no end within its time"
        raise kind(f"{reason}: {cut_off.line}" if cut_off.line else reason, bool(failure))
    return measured


@dataclass(frozen=True)
class Steps:
    """``size`` as nccl-tests has it; ``warmup`` steps come before ``steps``."""

    kind: str
    size: int
    dtype: str
    steps: int
    warmup: int
    seed: int
    qps: int = 1
    slices: int = 4


def collective_times(
    world: World,
    hosts: Sequence[int],
    work: Steps,
    network: Reconvergence | None,
    on_step: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda line: None,
) -> Measured:
    connect([world.agents[host] for host in hosts], list(hosts), work.kind, work.qps, work.slices)
    start = {
        "collective": work.kind,
        "message_bytes": work.size,
        "dtype": work.dtype,
        "steps": work.steps,
        "warmup": work.warmup,
    }
    measured = measure(
        world, hosts, {**start, "seed": work.seed}, work.steps + work.warmup, network, on_step, say
    )
    measured.spans = {step: spans for step, spans in measured.spans.items() if step >= work.warmup}
    return measured


def flow_times(
    world: World,
    hosts: Sequence[int],
    size: int,
    messages: int,
    outstanding: int,
    seed: int,
    network: Reconvergence | None,
    qps: int = 1,
) -> Measured:
    """Send from the first host to the second, ``outstanding`` WRITEs at once."""
    flows: list[FlowTable] = [{"name": "perf", "src": 0, "dst": 1, "messages": messages}]
    connect([world.agents[host] for host in hosts], list(hosts), FLOWS, qps, 1, flows)
    start = {
        "collective": FLOWS,
        "message_bytes": size,
        "flows": flows,
        "outstanding": outstanding,
        "seed": seed,
    }
    return measure(world, hosts, start, messages, network)
