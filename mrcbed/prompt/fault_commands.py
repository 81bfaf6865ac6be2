"""The prompt's ``break``, ``mend``, ``fault``, ``faults`` and ``heal``."""

from __future__ import annotations

import difflib
import re
from typing import Any

from rich.console import Console

from testbed import terminal
from testbed.emulated.cluster import Cluster
from testbed.emulated.prompt import words_of
from testbed.errors import UserError
from testbed.faults.kinds import FOR, KEYS, KINDS, read_words, resolve
from topologies.clos import Fabric
from topologies.units import NS

USAGE = (
    "fault KIND ON [key=value...], like fault loss h0-p1 probability=0.01 direction=up; fault "
    "alone lists the kinds"
)
TIMED = ("break", "mend", "fault", "heal")  # can be carried out at a time (mrcbed launch --at)


class FaultCommands:
    """Part of the prompt; needs its ``cluster``, ``fabric`` and ``console``."""

    cluster: Cluster
    fabric: Fabric
    console: Console

    @staticmethod
    def alone(fabric: Fabric, console: Console) -> FaultCommands:
        """Return commands that need a ``cluster`` before one is carried out."""
        commands = FaultCommands()
        commands.fabric, commands.console = fabric, console
        return commands

    def check(self, line: str) -> None:
        """Raise what is wrong with one of :data:`TIMED` as far as the fabric alone shows it."""
        match words_of(line):
            case ["fault", *words]:
                resolve(self.fabric, *read_words(words, USAGE), 0)
            case ["break" | "mend" as name, *words] if (name, words) != ("mend", ["all"]):
                self._named(name, words)

    def carry_out(self, line: str) -> None:
        """Carry out one of :data:`TIMED`; raise what is wrong with it."""
        name, _, rest = line.partition(" ")
        getattr(self, f"do_{name}")(rest)

    def do_break(self, line: str) -> None:
        """break LINK|SWITCH...: pull cables, like p0-t0-0:p0-t1-0, or take switches down

        A host's cable is named like h3:p1-t0-0.
        """
        self._set(line, False)

    def do_mend(self, line: str) -> None:
        """mend LINK|SWITCH...|all: repair them; all: repair everything and clear injected faults"""
        if line.strip() == "all":
            self.cluster.heal()
            return
        self._set(line, True)

    def _set(self, line: str, up: bool) -> None:
        for name in self._named("mend" if up else "break", words_of(line)):
            if name in self.fabric.switches:
                self.cluster.set_switch(name, up)
            else:
                self.cluster.set_link(name, up)

    def _named(self, command: str, words: list[str]) -> list[str]:
        """Return switches and cables. Raises :class:`UserError`, FabricError."""
        if not words:
            raise UserError(f"usage: {command} LINK or SWITCH, like p0-t0-0:p0-t1-2 or p0-t1-2")
        for word in words:
            if ":" not in word and word not in self.fabric.switches:
                near = difflib.get_close_matches(word, self.fabric.switches, n=3, cutoff=0.0)
                raise UserError(
                    f"fabric {self.fabric.name!r} has no switch {word!r}; near it: "
                    f"{', '.join(near)}"
                )
        return [self.fabric.link(word).name if ":" in word else word for word in words]

    def do_fault(self, line: str) -> None:
        """fault KIND ON [KEY=VALUE...]: inject a fault until heal; alone, list the kinds"""
        words = words_of(line)
        if not words:
            self.console.print(self._catalogue())
            return
        fault = self.cluster.strike(resolve(self.fabric, *read_words(words, USAGE), 0))
        links = fault.target.links
        concerned = (
            f": {', '.join(links[:6])}{f' and {len(links) - 6} more' if len(links) > 6 else ''}"
            if links
            else ""
        )
        number = f"fault {fault.number}" if KINDS[fault.target.kind].heals else "done"
        self.console.print(f"{number}: {fault.target.kind} {fault.target.on}{concerned}")

    def do_faults(self, line: str) -> None:
        """faults: show the injected faults with their numbers"""
        faults = self.cluster.faults()
        if not faults:
            self.console.print("no faults; `broken` shows what was taken down by hand")
            return
        now = self.cluster.clock.now()
        rows = []
        for fault in faults:
            target, kind = fault.target, KINDS[fault.target.kind]
            keys = " ".join(
                f"{name}={KEYS[name].show(value)}" for name, value in target.keys.items()
            )
            age = terminal.duration((now - fault.told_ps) / NS)
            rows.append(
                [str(fault.number), target.kind, target.on, keys, age, kind.just_now(fault)]
            )
        heads = ("number", "kind", "on", "with", "for", "just now")
        self.console.print(
            terminal.table(heads, rows, names=("kind", "on", "just now"), words=("with",))
        )

    def do_heal(self, line: str) -> None:
        """heal [NUMBER...]: clear faults; alone, clear all and mend what was broken"""
        words = line.split()
        if not words or words == ["all"]:
            self.cluster.heal()
            return
        for word in words:
            if not re.fullmatch("[0-9]{1,9}", word):
                raise UserError(f"heal: {word!r} is not a fault's number: `faults` shows them")
            self.cluster.clear(int(word))

    def complete_fault(self, text: str, line: str, _begin: int, end: int) -> list[str]:
        """Complete kinds, then what the kind may be on, then its keys. The shell's word is longer
        than ``text`` where it holds a hyphen or colon."""
        words = line[:end].split(" ")[1:]
        words = [word for word in words[:-1] if word] + words[-1:]
        if len(words) <= 1:
            choices = list(KINDS)
        elif words[0] not in KINDS:
            return []
        elif len(words) == 2:
            choices = self._places(KINDS[words[0]].on)
        else:
            used_keys = {word.partition("=")[0] for word in words[2:-1]}
            names = [key.name for key in KINDS[words[0]].keys] + [FOR] * KINDS[words[0]].heals
            choices = [f"{name}=" for name in names if name not in used_keys]
        word = words[-1] if words else ""
        return [choice[len(word) - len(text) :] for choice in choices if choice.startswith(word)]

    def complete_heal(self, text: str, *_: Any) -> list[str]:
        return [
            str(fault.number)
            for fault in self.cluster.faults()
            if str(fault.number).startswith(text)
        ]

    def _places(self, sort: str) -> list[str]:
        fabric = self.fabric
        names = {
            "link": list(fabric.links_by_name),
            "NIC port": [link.a.name for link in fabric.links if link.kind == "nic"],
            "host": list(fabric.hosts),
            "switch": list(fabric.switches),
            "plane": [f"p{plane}" for plane in range(fabric.planes)],
            "fabric": ["fabric"],
            "nics": ["nics"],
            "controller": ["controller"],
        }
        return [name for part in re.split(", | or ", sort) for name in names.get(part, [])]

    @staticmethod
    def _catalogue() -> terminal.Table:
        rows = [
            [
                name,
                kind.on,
                " ".join(f"{key.name}=" if key.required else f"[{key.name}=]" for key in kind.keys),
                kind.doc,
            ]
            for name, kind in KINDS.items()
        ]
        heads = ("kind", "on", "keys ([ ]: optional)", "what happens")
        return terminal.table(heads, rows, words=heads[1:])

    def help_fault(self) -> None:
        self.console.print(USAGE)
        for name, key in KEYS.items():
            self.console.print(f"  {name}: {key.doc}")
        self.console.print(
            f"  {FOR}: how long, in network time; default: until heal. For every kind but kill"
        )
        self.console.print(self._catalogue())
