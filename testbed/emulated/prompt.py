"""Mininet's prompt on our fabric, to which `mrcbed up` adds its commands.

Unlike Mininet's, it ends only by `exit` and SIGTERM, and a command that fails is one line of
answer. Only a terminal's keys go to the program that runs in a node, never lines from a pipe or
file.
"""

from __future__ import annotations

import difflib
import os
import re
import select
import shlex
import shutil
import sys
import time
import traceback
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import mininet.cli
from mininet.cli import CLI
from mininet.log import lg, output
from mininet.util import quietRun
from rich.console import Console

from agents.process.control import AgentError
from testbed import terminal
from testbed.errors import ClusterDied, UserError, first_line, internal
from testbed.machine import sandbox
from testbed.streams import printable, take_input, verbatim
from topologies import FabricError

REFUSED = {
    "dpctl": (
        "the switches have no dpctl: see `paths` and `ports`; with --switch ovs, `status` names "
        "the socket for ovs-vsctl"
    ),
    "gterm": "gterm does not work from here: use xterm HOST",
    "iperfudp": "iperfudp is Mininet's old one: use iperf3 HOST HOST -u -b RATE",
    "x": "x does not work from here: use xterm HOST",
}
MAX_LINE = 1 << 16
"""Characters of a typed line [ours]."""
MAX_COMMAND = 4000
"""Bytes of a command for a node: a terminal line holds 4,095 (N_TTY_BUF_SIZE of the kernel), and a
host's shell reads from one."""
_LEAVES_THE_SHELL = re.compile(r"\b(exit|logout|exec)\b")


def say(text: str) -> None:
    output(text)


def words_of(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UserError(f"{line}: {str(error).lower()}") from None


class Prompt(CLI):
    """Runs until ``exit``, end of input or SIGTERM."""

    identchars = CLI.identchars + "-"
    refused: Mapping[str, str] = REFUSED

    def __init__(
        self, net: Any, console: Console | None = None, stdin: TextIO | None = None, **kwargs: Any
    ) -> None:
        self.console = console or terminal.console()
        self._reading: tuple[Path, ...] = ()
        self.failed = 0  # lines that were answered with what is wrong
        lines = stdin or (sys.stdin if os.isatty(0) else take_input())
        self.keys = lines.isatty()  # and not a script: somebody sits there
        self.use_rawinput = self.keys  # else input() would read from /dev/null
        super().__init__(net, stdin=lines, **kwargs)

    def onecmd(self, line: str) -> Any:
        """What goes wrong is one line of answer. Returns whether the prompt ends."""
        try:
            return self.run_command(line)
        except ClusterDied:
            return True  # the caller asks the cluster again, and reports it
        except (UserError, FabricError, AgentError) as error:
            self._answer(str(error))
        except SystemExit:
            if self.console.quiet:  # rich found the pipe closed: nobody reads the answers
                return True
            self._answer("only `exit` leaves the prompt")
        except Exception as error:
            if os.environ.get("MRCBED_DEBUG"):
                traceback.print_exc()
            self._answer(internal(error))
        return None

    def _answer(self, error: str) -> None:
        self.failed += 1
        self.console.print(printable(error, line=True), style="red", soft_wrap=True)

    def run_command(self, line: str) -> Any:
        _check_text(line)
        command = self.parseline(line)[0]
        if command in self.refused:
            raise UserError(self.refused[command])
        return super().onecmd(line)

    def emptyline(self) -> None:
        """Do nothing for an empty line: cmd.Cmd would repeat the last command."""

    @property
    def status(self) -> int:
        """Return 1 if a line from a pipe or file was refused or failed. Who types has read the
        answer."""
        return 1 if self.failed and not self.keys else 0

    def postcmd(self, stop: Any, line: str) -> Any:
        return bool(stop) or sandbox.stop_requested()

    def cmdloop(self, intro: Any = None) -> Any:
        try:
            return super().cmdloop(intro)
        except KeyboardInterrupt:
            if sandbox.stop_requested():
                return None  # leaves run() as `exit` does
            raise

    def get_names(self) -> list[str]:
        return [
            name for name in super().get_names() if name.removeprefix("do_") not in self.refused
        ]

    # --- programs ---------------------------------------------------------------------------------

    def default(self, line: str) -> None:
        """Run ``NODE COMMAND...`` there, with host names replaced by addresses."""
        name, arguments, _ = self.parseline(line)
        if name not in self.mn:
            raise self.unknown((line.split() or [""])[0])
        if not arguments:
            raise UserError(f"{name}: say what to run there, like {name} ip -br link")
        node = self.mn[name]
        command = " ".join(
            self.mn[word].defaultIntf().updateIP() or word if word in self.mn else word
            for word in arguments.split(" ")
        )
        if name in [host.name for host in self.mn.hosts] or not self.keys:
            # A host's shell stays between commands: it must neither wait for the end of a quotation
            # nor leave.
            evaluated = f"eval {shlex.quote(command)}"
            command = f"({evaluated})" if _LEAVES_THE_SHELL.search(command) else evaluated
            # a program that waited for keys would wait for ever
            command += "" if self.keys else " </dev/null"
        if len(command.encode()) > MAX_COMMAND:
            raise UserError(
                f"{name}: the command has more than {MAX_COMMAND:,} bytes: put it into a script, "
                "and run that"
            )
        node.sendCmd(command)
        self.waitForNode(node)

    def waitForNode(self, node: Any) -> None:
        """Print the program's output as it is. A terminal's keys go to it; Ctrl-C interrupts it."""
        shown = verbatim(lg.handlers[0].stream)  # where Mininet prints
        ready = select.poll()
        ready.register(node.stdout, select.POLLIN)
        if self.keys:
            ready.register(self.stdin, select.POLLIN)
            quietRun("stty -icanon min 1")  # each key at once
        while node.waiting:
            try:
                for descriptor, _ in ready.poll():
                    if self.keys and descriptor == self.stdin.fileno():
                        node.write(os.read(descriptor, 1024).decode(errors="replace"))
                    else:
                        shown.write(node.monitor())
                        shown.flush()
            except KeyboardInterrupt:
                node.sendInt()

    def unknown(self, word: str) -> UserError:
        near = difflib.get_close_matches(word[:40], [*self.completenames(""), *self.mn], n=2)
        return UserError(
            f"no command {word[:40]!r}: "
            f"{'did you mean ' + ' or '.join(near) + '? ' if near else ''}`help` lists all"
        )

    def do_sh(self, line: str) -> None:
        """sh COMMAND...: run a command on the machine, in the mounts of this run"""
        try:
            super().do_sh(line)
        except OSError as error:
            raise UserError(f"sh: {error.strerror}") from None

    def do_py(self, line: str) -> None:
        """py EXPRESSION: evaluate Python; net and every node are names"""
        result = self._python(eval, line)
        if result:
            say(f"{result if isinstance(result, str) else repr(result)}\n")

    def do_px(self, line: str) -> None:
        """px STATEMENT: run a Python statement"""
        self._python(exec, line)

    def _python(self, way: Callable[..., Any], line: str) -> Any:
        try:
            return way(line, vars(mininet.cli), self.getLocals())
        except (UserError, FabricError, AgentError):
            raise
        except Exception as error:
            raise UserError(f"{type(error).__name__}: {first_line(error)}") from None

    def do_xterm(self, line: str, term: str = "xterm") -> None:
        """xterm NODE...: open a terminal window in a node"""
        names = words_of(line)
        if not names:
            raise UserError("usage: xterm NODE...")
        for name in names:
            if name not in self.mn:
                raise UserError(f"xterm: there is no node {name!r}: `nodes` lists all")
        if shutil.which(term) is None or not os.environ.get("DISPLAY"):
            raise UserError(
                "xterm needs the program xterm and a DISPLAY (sudo -E keeps it): without them, "
                "use HOST COMMAND"
            )
        super().do_xterm(shlex.join(names), term)

    def do_pingall(self, line: str) -> None:
        """pingall [SECONDS]: ping between all hosts, waiting so long for each answer"""
        try:
            seconds = f"{float(line):.3f}" if line else ""
            if seconds and not 0.001 <= float(seconds) <= 3600:
                raise ValueError
        except ValueError:
            raise UserError(f"pingall: {line!r} is no time in seconds, like 0.5") from None
        super().do_pingall(seconds)

    # --- lines from elsewhere ---------------------------------------------------------------------

    def do_source(self, line: str) -> bool:
        """source FILE: run commands from a file, a line each; # begins a comment"""
        names = words_of(line)
        if len(names) != 1:
            raise UserError("usage: source FILE")
        path = Path(names[0])
        try:
            path = path.resolve(strict=True)
            if not path.is_file():
                raise UserError(
                    f"source: {path} is no plain file: name one that holds commands, a line each"
                )
            text = path.read_text(encoding="utf-8-sig", errors="replace")
        except (OSError, RuntimeError) as error:  # RuntimeError: symbolic links in a loop
            reason = getattr(error, "strerror", None) or "links in a loop"
            raise UserError(
                f"source: {names[0]}: {reason}: name a file that holds commands, a line each"
            ) from None
        if path in self._reading:
            raise UserError(f"source: {path} is being read already, and may not read itself")
        self._reading = (*self._reading, path)
        try:
            return any(
                self.postcmd(self.onecmd(self.precmd(command.rstrip("\r"))), command)
                for command in text.split("\n")
            )
        finally:
            self._reading = self._reading[:-1]

    def do_time(self, line: str) -> Any:
        """time COMMAND...: measure how long a command takes"""
        if not line or line.split()[0] == "time":
            raise UserError("usage: time COMMAND...")
        started = time.monotonic()
        stop = self.onecmd(line)
        self.console.print(f"took {time.monotonic() - started:.3f} s")
        return stop


def _check_text(line: str) -> None:
    if len(line) > MAX_LINE:
        raise UserError(
            f"a line of {len(line):,} characters: at most {MAX_LINE:,} can be read; `source "
            "FILE` reads many lines"
        )
    for char in line:
        if char != "\t" and unicodedata.category(char) in ("Cc", "Cs"):
            raise UserError(
                f"the line holds the control character U+{ord(char):04X}: type it again without"
            )
