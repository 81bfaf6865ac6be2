"""Target ``prompt``: lines typed at the prompt of `mrcbed up`, on a simulated fabric behind
Mininet's objects without shells.

No line may end the prompt but ``exit`` and its like, none may be answered by an internal error, and
the fabric's agents stay alive unless the line kills one. Nothing is executed: ``sh`` and commands
for nodes are swallowed; ``py`` and ``px``, which may raise anything, raise what the line's length
chooses.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mininet.log import lg
from mininet.net import Mininet

from agents.collectives.steer import wait_for_all
from agents.process.control import AgentError
from mrcbed.prompt.cli import Prompt
from testbed import terminal
from testbed.emulated.trace import Hop
from testbed.errors import ClusterDied, UserError
from testbed.simulated.cluster import SimulatedCluster
from testbed.simulated.hosts import SimulatedAgent
from topologies import load_fabric
from topologies.addressing import inner_address, text
from topologies.units import US

MOST_WORK = 1 << 17
"""Bytes that a collective may move here in all its steps."""
RAISED = (
    KeyError,
    SystemExit,
    RecursionError,
    UserError,
    OSError,
    UnicodeError,
    MemoryError,
    AssertionError,
)
LEAVING = re.compile(r"\b(exit|quit|EOF)\b")


class Node:
    """What Mininet's prompt asks of a node; runs nothing."""

    waiting = False

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address, self.intfs = name, address, [name]

    def IP(self) -> str:
        return self.address

    def defaultIntf(self) -> Node:
        return self

    def updateIP(self) -> str:
        return self.address

    def intfNames(self) -> list[str]:
        return []

    def intfList(self) -> list[Any]:
        return []

    def sendCmd(self, command: str) -> None:
        assert "\n" not in command and "\0" not in command
        command.encode()

    def cmd(self, command: str) -> str:
        return (
            "1 packets transmitted, 1 received, 0% packet loss, time 0ms\n"
            "rtt min/avg/max/mdev = 0.1/0.1/0.1/0.1 ms"
        )


class Net(Mininet):
    """Mininet's own methods over nodes that are none."""

    switches_are = "simulated"
    come_twice = False

    def __init__(self, cluster: SimulatedCluster) -> None:
        fabric = cluster.fabric
        self.hosts = [
            Node(name, text(inner_address(number))) for number, name in enumerate(fabric.hosts)
        ]
        self.switches = [Node(name, "") for name in fabric.switches]
        self.controllers, self.links, self.terms = [], [], []
        self.nameToNode = {node.name: node for node in (*self.hosts, *self.switches)}
        self.namespaces = dict.fromkeys([*fabric.hosts, ""], -1)


class Agent(SimulatedAgent):
    """One that is not given more than a little to do."""

    def call(self, op: str, **args: Any) -> Any:
        if op == "start" and args["message_bytes"] * args["steps"] > MOST_WORK:
            raise AgentError("too much for this test")
        return super().call(op, **args)


class Typed(Prompt):
    """The prompt without what runs programs. ``raised``: whether ``py`` or ``px`` was asked for."""

    raised = False

    def waitForNode(self, node: Any) -> None:
        """It runs nothing."""

    def do_sh(self, line: str) -> None:
        """Swallowed."""

    def do_xterm(self, line: str, term: str = "xterm") -> None:
        """xterm: there is no display."""
        raise UserError("no display")

    def do_py(self, line: str) -> None:
        """py: raises."""
        self.raised = True
        raise RAISED[len(line) % len(RAISED)](line)

    do_px = do_py


def _hops(
    fabric: Any, namespaces: Any, src: int, dst: int, ev: int, come_twice: bool = False
) -> list[Hop]:
    return [Hop(0.0, f"h{src}-p0", f"h{src}", True, "::", 64)]


def _briefly(agents: Any, heard: Any, check: Callable[[], Any], timeout: int, clock: Any) -> bool:
    return wait_for_all(agents, heard, check, min(timeout, 100 * US), clock)


class PromptLines:
    """One execution: a new fabric, and the lines of the input typed one after the other, until one
    leaves."""

    max_len = 1 << 12
    words = tuple(
        word.encode()
        for word in (
            "break ",
            "mend ",
            "fault ",
            "heal ",
            "deny ",
            "allow ",
            "evs ",
            "paths ",
            "trace ",
            "ports ",
            "allreduce ",
            "collective ",
            "mapper on ",
            "ping ",
            "iperf3 ",
            "source ",
            "time ",
            "help ",
            "link ",
            "switch ",
            "py ",
            "h0 ",
            "h3",
            "p0-t0-0",
            "p0-t0-0:p0-t1-0",
            "[/red]",
            "[bold]",
            "steps=1",
            "bytes=64",
            "probability=",
            "\n",
            "\t",
            "'",
            '"',
            "\\",
            "$(",
            ";",
            "#",
            "!",
            "?",
            "\0",
            "\x1b[31m",
        )
    )

    def __init__(self) -> None:
        self.fabric = load_fabric("tiny")

    def one(self, data: bytes) -> None:
        """Raises AssertionError."""
        with ExitStack() as stack:
            here = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="prompt-")))
            cluster: Any = stack.enter_context(SimulatedCluster(self.fabric))
            cluster.start_agents("mrc", {}, here / "logs", seed=1)
            cluster.agents = [Agent(host) for host in cluster._hosts]
            cluster.net, cluster.rest_url, cluster.controller_alive = (
                Net(cluster),
                "http://127.0.0.1:1",
                True,
            )
            cluster.clock.dilation = 10_000.0  # as that of the fabric it stands for
            said = io.StringIO()
            (here / "empty").touch()
            (here / "again").write_text(
                f"status\nsource {here}/again\ntime source {here}/again\nhelp [/red]\n"
            )
            stdin = stack.enter_context(open(os.devnull))
            stack.callback(lg.handlers[0].setStream, lg.handlers[0].setStream(said))
            stack.enter_context(patch("mrcbed.prompt.cli.trace", _hops))
            stack.enter_context(patch("mrcbed.perf.measure.wait_for_all", _briefly))
            prompt = Typed(
                cluster, terminal.console(100, file=said), stdin=stdin, script=str(here / "empty")
            )
            for line in (
                data.decode("utf-8", "surrogateescape")
                .replace("AGAIN", str(here / "again"))
                .split("\n")
            ):
                if self._type(prompt, cluster, line, said):
                    return

    def _type(self, prompt: Typed, cluster: Any, line: str, said: io.StringIO) -> bool:
        """Whether that was the last line."""
        said.seek(0)
        said.truncate()
        prompt.raised = False
        line = prompt.precmd(line)
        try:
            leaves = prompt.onecmd(line)
        except BaseException as error:
            raise AssertionError(
                f"{line!r} ends the prompt: {type(error).__name__}: {error}"
            ) from error
        try:
            cluster.check()
        except ClusterDied:
            assert "kill" in line, line
            return True
        assert "Traceback" not in said.getvalue(), line
        assert prompt.raised or "internal error" not in said.getvalue(), (
            f"{line!r} is answered by {said.getvalue()}"
        )
        assert not leaves or LEAVING.search(line), f"{line!r} ends the prompt"
        return bool(leaves)

    def seeds(self) -> list[bytes]:
        """Everything that the prompt knows, done right; the lines that once ended it; sheer
        text."""
        right = (
            "status|paths h0 h3|trace h0 h3 1:1|break p0-t0-0:p0-t1-0|broken|allreduce steps=1 "
            "bytes=64|evs h0|evs|ports h0|mend all|"
        )
        right += (
            "fault loss h0-p1 probability=0.5|faults|heal 1|deny p0-t1-1 why|denied|allow "
            "p0-t1-1|mapper on|mapper|mapper off|pingall|"
        )
        right += (
            "ping h0 h3 -c 1|iperf3 h0 h3|h0 ping h3|link h0 p0-t0-0 down|switch p0-t1-0 "
            "stop|help|help fault|nodes|net|links|intfs|"
        )
        right += (
            "dump|collective all-gather steps=1 bytes=64 qps=2|time status|source "
            "AGAIN|pingpair|pingallfull|exit"
        )
        wrong = (
            "dpctl show|source /nosuch|break [/red]|source|source /dev/zero|source /|x "
            "h0|iperfudp|gterm h0|help [/red]|help dpctl|"
        )
        wrong += (
            "evs h0 [/red]|evs h9|deny [red] [/x]|allow [/red]|fault [/red]|fault loss [/]|heal "
            "²|heal 9999999999|ping h0|ping [/] h1|"
        )
        wrong += (
            "iperf3 [/red] h1|iperf3 h0 h1 -t ²|mapper on interval=nan|mapper on "
            "interval=inf|pingall ;exit|pingall nan|link [/red]|"
        )
        wrong += "switch [/red] stop|time|time time|h0|h0 exit|h0 echo 'a|h9 ls|!ls|?[/red]|"
        wrong += "trace h0 h3 ²|paths [/] h0|ports [/red]|py 1|px 12"
        nasty = (
            "\0|\x1b[31m|\udcff|'|\"|\\|$(exit)|;|\u202e|e\u0301|\U0001f4a3|:bomb:|[|]|[/]|[[]]|a\tb|%s "  # noqa: E501
            "%d %n|{}|"
        )
        nasty += "{0.__class__}|help " + "[" * 900
        return [
            lines.replace("|", "\n").encode("utf-8", "surrogateescape")
            for lines in (right, wrong, nasty)
        ]
