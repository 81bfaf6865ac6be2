"""Mininet's prompt on our fabric. `mrcbed up` adds its commands to this class.

Two things differ from Mininet's own: node names may hold a hyphen, and SIGTERM ends it (Mininet's takes it for Ctrl-C and goes on).
"""

from __future__ import annotations

from typing import Any

from mininet.cli import CLI

from testbed import sandbox


class Prompt(CLI):
    identchars = CLI.identchars + "-"

    def postcmd(self, stop: Any, line: str) -> Any:
        return bool(stop) or sandbox.stop_requested()

    def cmdloop(self, intro: Any = None) -> Any:
        try:
            return super().cmdloop(intro)
        except KeyboardInterrupt:
            if sandbox.stop_requested():
                return None  # leaves run() as `exit` does
            raise
