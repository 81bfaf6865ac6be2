"""A host of the fluid world: its log, and the answers that a run asks of its agent. Nothing runs on it; the job moves all hosts at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.process.control import AgentError

QPN = 16
"""Queue pair number of every host's one queue pair with data, as the engine numbers its first [ours]."""


class FluidHost:
    """``counters``: packets sent, received, lost on dead paths, sent again, as the model counts them."""

    def __init__(self, number: int, log: Path) -> None:
        self.number = number
        self.notes: list[dict[str, Any]] = []
        self.counters = {"tx_packets": 0, "rx_packets": 0, "lost_on_dead_paths": 0, "retransmitted": 0}
        self.psn = 0
        self._file = open(log, "w", encoding="utf-8", buffering=1 << 16)

    def write(self, t: int, kind: str, **fields: Any) -> None:
        """Write one line to the log."""
        self._file.write(json.dumps({"t": t, "kind": kind, "host": self.number, **fields}, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        """Whoever follows the run sees it."""
        self._file.flush()

    def close(self, now: int) -> None:
        """Write the counters and close the log."""
        self.write(now, "counters", **self.counters)
        self._file.close()


class FluidAgent:
    """Steers a host as agents.process.control.AgentClient steers a process. ``start``: called when its rank may begin."""

    closed = False

    def __init__(self, host: FluidHost, start: Callable[[int, dict[str, Any]], None]) -> None:
        self.host = host
        self._start = start
        self._setup: dict[str, Any] = {}

    def fileno(self) -> int:
        """Nothing to select on: the network reports new messages."""
        return -1

    def call(self, op: str, **args: Any) -> Any:
        """Perform one operation. Raises :class:`AgentError` for what this world does not have."""
        if op == "setup":
            self._setup = args
            return {"qps": {}, "connected": True}  # there is nothing that peers would have to learn of each other
        if op == "start":
            self._start(int(self._setup["rank"]), {**self._setup, **args})
        elif op == "counters":
            return dict(self.host.counters)
        elif op == "paths":
            return []
        elif op not in ("prepare", "quiesce", "stop"):
            raise AgentError(f"h{self.host.number}: the fluid world has no {op!r}")
        return None

    def notifications(self) -> list[dict[str, Any]]:
        """The host's notifications since the last call."""
        notes, self.host.notes = self.host.notes, []
        return notes
