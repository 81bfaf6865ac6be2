"""The prompt's ``help``, from commands' docstrings: ``usage: what it does``, then details."""

from __future__ import annotations

import inspect

from rich.text import Text

from testbed import terminal
from testbed.emulated.prompt import Prompt as FabricPrompt
from testbed.errors import UserError

GROUPS = {
    "Look": ("status", "paths", "trace", "evs", "ports", "broken", "faults", "denied", "mapper"),
    "Break and mend": ("break", "mend", "fault", "heal", "deny", "allow"),
    "Send": ("allreduce", "collective", "perf", "ping", "iperf3", "pingall", "verbs"),
    "Mininet's own": (
        "nodes",
        "net",
        "links",
        "intfs",
        "dump",
        "link",
        "switch",
        "pingpair",
        "pingallfull",
        "pingpairfull",
        "iperf",
        "noecho",
        "xterm",
    ),
    "Around": ("help", "source", "time", "sh", "py", "px", "exit", "quit"),
}
MININET = {
    "nodes": "nodes: list all hosts and switches",
    "net": "net: show what each port is connected to",
    "links": "links: list every link, up or down",
    "intfs": "intfs: list the ports of every node",
    "dump": "dump: show Mininet's object of every node",
    "pingpair": "pingpair: ping between the first two hosts",
    "pingallfull": "pingallfull: like pingall, with round-trip times",
    "pingpairfull": "pingpairfull: like pingpair, with round-trip times",
    "noecho": "noecho NODE COMMAND...: run a program that echoes what is typed itself",
    "exit": "exit: end the prompt and the fabric; so does Ctrl-D",
    "quit": "quit: the same as exit",
}  # of commands that are Mininet's
PROGRAMS = (
    "NODE COMMAND... runs a program in a host or switch, like h0 ping h3. Ctrl-C ends a "
    "command. help COMMAND explains one."
)


def headline(doc: str) -> str:
    """``USAGE: summary``, the first paragraph, on one line."""
    return " ".join(doc.partition("\n\n")[0].split())


class HelpCommands(FabricPrompt):
    def do_help(self, line: str) -> None:
        """help [COMMAND]: list all commands, or explain one"""
        name = line.strip()
        if not name:
            self._overview()
        elif name in self.refused:
            raise UserError(self.refused[name])
        elif not hasattr(self, f"do_{name}"):
            raise self.unknown(name)
        elif hasattr(self, f"help_{name}"):
            getattr(self, f"help_{name}")()
        else:
            self.console.print(self._doc(name))

    def complete_help(self, word: str, *_: object) -> list[str]:
        return [name for names in GROUPS.values() for name in names if name.startswith(word)]

    def _doc(self, name: str) -> str:
        return MININET.get(name) or inspect.cleandoc(getattr(self, f"do_{name}").__doc__)

    def _overview(self) -> None:
        rows: list[list[terminal.Cell]] = []
        for title, names in GROUPS.items():
            rows.append([Text(title, "bold"), ""])
            for name in names:
                if name in self.refused:
                    continue
                usage, _, summary = headline(self._doc(name)).partition(": ")
                rows.append([f"  {usage}", summary])
        self.console.print(terminal.table(("", " "), rows, words=(" ",)))
        self.console.print(PROGRAMS)
