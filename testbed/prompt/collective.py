"""The prompt's ``collective`` and ``allreduce``: options, the run over all hosts, and one line of figures."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from agents.collectives.base import Collective
from agents.collectives.data import DTYPES
from agents.collectives.group import CollectiveError
from agents.collectives.registry import collectives
from agents.collectives.steer import CutOff, connect, wait_for_all
from agents.process.control import AgentError
from testbed.emulated.cluster import Cluster
from testbed.errors import UserError
from testbed.machine.slowness import patient
from topologies.theory import COLLECTIVES, bus_bandwidth, bus_factor, place_ranks

DEFAULTS = {"steps": "10", "bytes": str(1 << 20), "placement": "packed", "dtype": "int32", "qps": "1", "slices": "4"}
PATIENCE_S = 60
"""The longest time of a step; after it the collective is given up [ours]."""
_NUMBERS = ("steps", "bytes", "qps", "slices")


def kind_of(name: str) -> type[Collective]:
    """A collective by name. Raises :class:`UserError` naming all that there are."""
    kinds = collectives()
    if name not in kinds:
        raise UserError(f"no collective {name!r}: there are {', '.join(kinds)}")
    return kinds[name]


def options_of(command: str, words: list[str]) -> tuple[dict[str, str], tuple[int, int, int, int]]:
    """All options, and steps, bytes, qps and slices as numbers. Raises :class:`UserError`."""
    options = dict(DEFAULTS)
    for word in words:
        key, _, value = word.partition("=")
        if key not in options or not value:
            raise UserError(f"{command}: {word!r} is not one of {' '.join(f'{k}=' for k in options)}")
        options[key] = value
    try:
        steps, size, qps, slices = (int(options[k]) for k in _NUMBERS)
        if min(steps, size, qps, slices) < 1:
            raise ValueError
    except ValueError:
        raise UserError(f"{command}: steps, bytes, qps and slices are whole numbers above 0") from None
    return options, (steps, size, qps, slices)


def run(cluster: Cluster, console: Console, command: str, kind: type[Collective], words: list[str]) -> None:
    """Run a collective over all hosts of a living cluster and print its figures. Raises :class:`UserError`, also on Ctrl-C."""
    options, (steps, size, qps, slices) = options_of(command, words)
    hosts = place_ranks(cluster.fabric, options["placement"])
    n = len(hosts)
    agents = [cluster.agents[h] for h in hosts]
    if options["dtype"] in DTYPES:
        unit = kind.parts(n) * slices * DTYPES[options["dtype"]].itemsize
        size = -(-size // unit) * unit
    try:
        kind.check(n, slices, size, options["dtype"], steps, 1)
    except CollectiveError as error:
        raise UserError(f"{command}: {error}") from None
    connect(agents, hosts, kind.name, qps, slices)
    spans: dict[int, list[int]] = {}
    wrong = 0
    failure = ""
    ended = False
    cut_off, shown_line = CutOff(hosts), ""
    seed = int(time.time())
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(kind.name, total=steps * n)

        def on_note(rank: int, note: dict[str, Any]) -> None:
            nonlocal wrong, failure
            if note["event"] == "step":
                spans.setdefault(note["step"], []).append(note["end_ns"] - note["start_ns"])
                bar.advance(task)
            elif note["event"] == "done":
                wrong += note["wrong"]
            elif note["event"] == "cut-off":
                cut_off.hear(note)
            else:
                failure = f"rank {note['rank']} (h{hosts[note['rank']]}) lost rank {note['peer_rank']}: {note['reason']}"

        def check() -> None:
            nonlocal shown_line
            cluster.check()
            if cut_off.line != shown_line:
                shown_line = cut_off.line
                console.print(shown_line or "there is a path for every pair again", markup=False, highlight=False)

        try:
            for agent in agents:
                agent.call(
                    "start", collective=kind.name, message_bytes=size, dtype=options["dtype"], steps=steps, warmup=1, seed=seed
                )  # fmt: skip
            ended = wait_for_all(agents, on_note, check, (1 + steps) * patient(PATIENCE_S), cluster.clock)
        except KeyboardInterrupt:
            failure = "stopped"
        except AgentError as error:  # the others have begun
            failure = str(error)
    if failure or not ended:
        for agent in agents:
            agent.call("abort")
            agent.notifications()
        explanation = cut_off.line or ("" if failure else "`evs HOST` and `broken` may say why")
        failure = failure or f"{command}: no end within its time"
        raise UserError(f"{failure}: {explanation}" if explanation else failure)
    times = sorted(max(s) for s in spans.values())
    dilation = cluster.fabric.dilation
    middle, slowest = times[len(times) // 2] / dilation, times[-1] / dilation
    rate = size * 8e9 / middle
    summary = f"{steps} steps of {size} B over {n} ranks: median {middle / 1e3:.2f} µs, slowest {slowest / 1e3:.2f} µs, "
    if kind.name in COLLECTIVES:
        bus = rate * bus_factor(kind.name, n)
        ideal = bus_bandwidth(cluster.fabric.real, kind.name, hosts, [k for k, up in cluster.link_states().items() if not up])
        summary += f"bus bandwidth {bus / 8e9:.2f} GB/s ({100 * bus / ideal if ideal else 0:.1f} % of what the links that are up allow), "
    else:
        summary += f"{rate / 8e9:.2f} GB/s, "  # a user's own collective: theory has no figure for it
    right = "every sum right" if kind.name.endswith("allreduce") else "every element right"
    console.print(Text.assemble(summary, (f"{wrong} wrong elements", "red") if wrong else right))
