"""Records a fabric that is up as a run is recorded, so that views can follow it, and carries out
their commands.

A measured run is never touched: it has its own journal and takes no commands.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from scenarios.run.port_log import PortLog
from testbed.errors import UserError
from testbed.faults.kinds import FaultError
from testbed.faults.targets import Injected
from testbed.view.read import BEGUN
from testbed.world import World
from topologies.clos import FabricError

TICK_S = 0.1  # between two looks, wall time [ours]


class Living:
    """``logs``: where the started agents of ``world`` write. ``commands``: from a view, or None."""

    def __init__(
        self, world: World, transport: str, seed: int, logs: Path, commands: socket.socket | None
    ) -> None:
        self.world, self.commands = world, commands
        self.states = world.link_states()
        self.unread = b""
        self.cut: dict[str, int] = {}  # cables that a view has cut, and the numbers of these faults
        self._known: dict[int, Injected] = {}
        now = world.clock.now()
        record: dict[str, Any] = {
            "world": world.name,
            "transport": transport,
            "kind": transport,
            "fabric": world.fabric.to_dict(),
            "ranks": list(range(world.fabric.host_count)),
            "window": [now, now],
            "seed": seed,
            "placement": "",
            "settings": {},
            "workload": "",
            "warmup_steps": 0,
            "paths": {},
        }
        self.ports = PortLog(world, logs / "ports.jsonl")
        self.journal_file = open(logs / "runner.jsonl", "w", encoding="utf-8", buffering=1)
        (logs / BEGUN).write_text(json.dumps(record), encoding="utf-8")
        if commands is not None:
            commands.setblocking(False)

    def close(self) -> None:
        self.ports.close()
        self.journal_file.close()

    def journal(self, t: int, name: str, kind: str, on: str, phase: str, links: list[str]) -> None:
        line = {
            "t": t,
            "kind": "fault",
            "name": name,
            "fault": kind,
            "on": on,
            "phase": phase,
            "links": links,
            "keys": {},
        }
        self.journal_file.write(json.dumps(line) + "\n")

    def tick(self) -> None:
        for line in self._lines():
            self._answer(self.carry_out(line))
        self._look()
        self.ports.tick(self.world.clock.now())

    # --- what has changed -------------------------------------------------------------------------

    def _look(self) -> None:
        faults = {fault.number: fault for fault in self.world.faults()}
        moved: set[str] = set()
        for event in self.world.fault_events():
            moved.update(event.links)
            known = faults.get(event.number) or self._known.get(event.number)
            if known is not None:  # else it began and ended between two looks
                name = f"{known.target.kind} {known.target.on} (fault {event.number})"
                self.journal(
                    event.t,
                    name,
                    known.target.kind,
                    known.target.on,
                    event.phase,
                    list(event.links),
                )
        self._known = {**self._known, **faults}
        now, states = self.world.clock.now(), self.world.link_states()
        for link, up in states.items():
            if self.states[link] != up and link not in moved:
                self._by_hand(now, link, up)
        self.states = states

    def _by_hand(self, t: int, link: str, up: bool) -> None:
        self.journal(t, f"{link} by hand", "link", link, "heal" if up else "begin", [link])

    # --- commands ---------------------------------------------------------------------------------

    def _lines(self) -> list[bytes]:
        if self.commands is None:
            return []
        with suppress(BlockingIOError, OSError):
            self.unread += self.commands.recv(4096)
        *lines, self.unread = self.unread.split(b"\n")
        return lines

    def _answer(self, answer: dict[str, Any]) -> None:
        assert self.commands is not None
        with suppress(OSError):
            self.commands.send(json.dumps(answer).encode() + b"\n")

    def carry_out(self, line: bytes) -> dict[str, Any]:
        """Cut or mend a cable; return the answer to the page: empty, or ``error``, one line."""
        try:
            wanted = json.loads(line)
            what, link = wanted["do"], wanted["link"]
            if what not in ("cut", "mend") or not isinstance(link, str):
                return {"error": "a view can cut or mend a cable"}
            if what == "cut" and link in self.cut:
                return {"error": "it is cut already"}
            if what == "cut":
                self.cut[link] = self.world.inject("link", link).number
            elif link in self.cut:
                self.world.clear(self.cut.pop(link))
        except (FabricError, FaultError, UserError) as error:
            return {"error": str(error)}
        except (ValueError, KeyError, TypeError):
            return {"error": "no command"}
        if what == "mend" and not self.world.link_states()[link]:
            return {"error": "another fault keeps it down: mend that where it was made"}
        return {}


class Ticking(threading.Thread):
    def __init__(self, living: Living) -> None:
        super().__init__(name="view", daemon=True)
        self.living, self.over = living, threading.Event()

    def run(self) -> None:
        while not self.over.wait(TICK_S):
            with suppress(UserError, OSError):  # the fabric is going
                self.living.tick()

    def end(self) -> None:
        self.over.set()
        self.join(5.0)
        self.living.close()
