"""The prompt of ``mrcbed up --on``: the same commands, on a fabric of several machines.

Mininet's own commands that need a shell or an interface at hand are refused. A command for a host
runs on that host's machine, and prints when it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from mrcbed.prompt.cli import Prompt
from testbed.emulated.prompt import REFUSED, say
from testbed.emulated.trace import Hop
from testbed.errors import UserError
from testbed.machines.world import Machines
from topologies.addressing import inner_address, text

_ELSEWHERE = "{} needs interfaces and shells at hand, and several machines have them: "
PING_S = 2.0


class RemoteNode:
    waiting = False

    def __init__(self, name: str, address: str = "") -> None:
        self.name, self.address = name, address

    def defaultIntf(self) -> Any:
        return SimpleNamespace(updateIP=lambda: self.address)


class RemoteNet(dict[str, RemoteNode]):
    def __init__(self, world: Machines) -> None:
        fabric = world.fabric
        self.world = world
        self.hosts = [
            RemoteNode(name, text(inner_address(number)))
            for number, name in enumerate(fabric.hosts)
        ]
        self.switches = [RemoteNode(name) for name in fabric.switches]
        super().__init__({node.name: node for node in (*self.hosts, *self.switches)})

    switches_are = "eBPF programs"

    def pingAll(self, timeout: str = "") -> float:
        """Return the share lost, percent. Prints as Mininet does."""
        say("*** Ping: testing ping reachability\n")
        lost = sent = 0
        for src in range(len(self.hosts)):
            dsts = [dst for dst in range(len(self.hosts)) if dst != src]
            answers = self.world.ping(src, dsts, float(timeout or PING_S))
            names = [
                self.hosts[dst].name if well else "X"
                for dst, well in zip(dsts, answers, strict=True)
            ]
            say(f"{self.hosts[src].name} -> {' '.join(names)} \n")
            sent, lost = sent + len(dsts), lost + answers.count(False)
        share = 100.0 * lost / sent
        say(f"*** Results: {share:.0f}% dropped ({sent - lost}/{sent} received)\n")
        return share


class MachinesPrompt(Prompt):
    """Runs until ``exit``, end of input, SIGTERM, or a machine is gone."""

    refused: Mapping[str, str] = {
        **REFUSED,
        **{
            name: _ELSEWHERE.format(name) + "use `paths` and `ports`"
            for name in ("net", "links", "intfs", "dump")
        },
        **{
            name: _ELSEWHERE.format(name) + "use pingall"
            for name in ("pingpair", "pingallfull", "pingpairfull")
        },
        **{name: _ELSEWHERE.format(name) + "use HOST COMMAND" for name in ("xterm", "noecho")},
        "verbs": "verbs needs all hosts on one machine: use mrcbed up without --on",
        **{
            name: _ELSEWHERE.format(name) + "use h0 iperf3 -s -D, then h3 iperf3 -c ADDRESS"
            for name in ("iperf", "iperf3")
        },
    }

    def __init__(
        self, world: Machines, console: Console, transport: str = "mrc", **kwargs: Any
    ) -> None:
        self.world = world
        cluster = cast(Any, world)
        cluster.net = RemoteNet(world)
        super().__init__(cluster, console, transport, **kwargs)

    def default(self, line: str) -> None:
        """Run ``HOST COMMAND...`` there, host names in it replaced by addresses; anything else is
        no command."""
        name, arguments, _ = self.parseline(line)
        if name not in self.mn:
            raise self.unknown((line.split() or [""])[0])
        if name not in self.fabric.hosts:
            raise UserError(
                f"{name}: switches of several machines run no commands: see `ports {name}`"
            )
        if not arguments:
            raise UserError(f"{name}: say what to run there, like {name} ip -br link")
        if arguments.split()[0] == "verbs":
            raise UserError(self.refused["verbs"])
        say(
            self.world.command(
                self.fabric.host_number(name), self._with_addresses(arguments.split(" "))
            )
        )

    def _with_addresses(self, words: Sequence[str]) -> str:
        return " ".join(
            self.mn[word].defaultIntf().updateIP() or word if word in self.mn else word
            for word in words
        )

    def _trace(self, src: int, dst: int, value: int) -> list[Hop]:
        return self.world.trace(src, dst, value)

    def do_status(self, line: str) -> None:
        """status: show the fabric, its machines, and what is down"""
        super().do_status(line)
        for channel, part in zip(self.world.channels, self.world.parts, strict=True):
            hosts = (
                f"h{part.hosts[0]} to h{part.hosts[-1]}"
                if len(part.hosts) > 1
                else f"h{part.hosts[0]}"
            )
            self.console.print(
                f"{channel.name} ({channel.place.address}): {hosts}", markup=False, highlight=False
            )
        missing = sum(self.world.lost_on_trunk().values())
        self.console.print(f"lost between machines: {missing or 'nothing'}")
