"""The host process: one MRC (or baseline) endpoint on raw sockets, steered over a Unix socket.

Started in a host's network namespace as ``python -m agents.host --config FILE``. One event loop, no busy wait. Everything that needs
root is opened first; then root is dropped for good and the process dies with its parent.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

import numpy as np

from agents.collectives.base import Collective
from agents.collectives.data import StepData
from agents.collectives.flows import Flow, Flows, parse, wanted
from agents.collectives.group import CollectiveError, Group
from agents.collectives.registry import FLOWS, collectives, find
from agents.control import AgentServer
from agents.device import make_device
from agents.flow_log import FlowLog
from agents.packet_io import drop_root
from agents.transport import Completion
from topologies.clos import Fabric, FabricError

PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29
BIN_RTTS = 2
"""Width of a goodput bin, in base RTTs."""
HOUSEKEEPING = 100_000_000


class Host:
    """One agent: device, control channel, log, and the collective it runs."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.fabric = Fabric.from_dict(config["fabric"])
        self.number = config["host"]
        self.name = f"h{self.number}"
        self.log = open(config["log"], "ab", buffering=1 << 16)
        self.device = make_device(self.fabric, self.number, config["transport"], config.get("options", {}), config.get("seed", 0))
        # Whatever is imported on first use must be in before root is dropped: the clone may lie in a home that only root may read.
        zeros = np.zeros(4, np.float32)
        StepData(zeros, zeros, 1).wrong(0, zeros)
        collectives()
        self.server = AgentServer(config["socket"])
        self.groups: list[Group] = []  # all that are connected and sound; the last one is in use
        self.slices = 1
        self.flows: list[Flow] = []
        self.job: Collective | Flows | None = None
        self.prepared: tuple[tuple[Any, ...], Collective] | None = None
        self.flow_log: FlowLog | None = None
        self.accounted: dict[int, int] = {}  # payload bytes by QPN that earlier flows account for
        self.pending: list[Completion] = []  # what peers sent before we began
        self.running = True
        self.bin_ns = max(BIN_RTTS * self.fabric.base_rtt_ns, 20_000_000)
        self.bin_end = 0
        planes = self.fabric.planes
        self.last_tx = [0] * planes
        self.last_rx = [0] * planes
        self.housekeeping_at = 0
        self.denied: list[str] = []
        self.reports = False  # whether the mapper's counts go to whoever steers us

    # --- log -------------------------------------------------------------------------------------------------

    def write(self, t: int, kind: str, fields: dict[str, Any]) -> None:
        """One line of the log."""
        self.log.write(json.dumps({"t": t, "kind": kind, "host": self.number, **fields}, separators=(",", ":")).encode() + b"\n")

    def record(self, now: int) -> None:
        """Move what happened to the log."""
        for t, kind, fields in self.device.events():
            self.write(t, kind, fields)
        if now >= self.bin_end:
            tx, rx = self.device.engine.goodput()
            if tx != self.last_tx or rx != self.last_rx:
                self.write(
                    self.bin_end - self.bin_ns if self.bin_end else now,
                    "goodput",
                    {
                        "bin_ns": self.bin_ns,
                        "tx": [a - b for a, b in zip(tx, self.last_tx, strict=True)],
                        "rx": [a - b for a, b in zip(rx, self.last_rx, strict=True)],
                    },
                )
                self.last_tx, self.last_rx = list(tx), list(rx)
            if self.flow_log is not None:
                self.flow_log.bin(self.bin_end - self.bin_ns if self.bin_end else now, self.bin_ns)
            # Bins are aligned to the clock that all agents share, so that they add up across hosts.
            self.bin_end = (now // self.bin_ns + 1) * self.bin_ns

    # --- control ---------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer what was asked."""
        for client, request in self.server.requests():
            op = str(request.pop("op", ""))
            number = request.pop("id", 0)
            handler = getattr(self, f"op_{op}", None)
            try:
                if handler is None:
                    raise CollectiveError(f"agent {self.name} knows no request {op!r}")
                self.server.answer(client, {"id": number, "ok": handler(**request)})
            except (CollectiveError, ValueError, KeyError, TypeError) as error:
                self.server.answer(client, {"id": number, "error": f"{self.name}: {op}: {error}"})

    def op_hello(self) -> dict[str, Any]:
        """Who is there."""
        module = sys.modules[type(self.device.engine).__module__]
        return {"host": self.name, "pid": os.getpid(), "uid": os.geteuid(), "compiled": not str(module.__file__).endswith(".py")}

    def op_setup(
        self, collective: str, ranks: list[int], rank: int, qps: int = 1, slices: int = 4, flows: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """Make the queue pairs that a collective or the flows need, or take those that stand: then ``connected`` is true."""
        if self.job is not None:
            raise CollectiveError("a collective is running")
        self.slices = slices
        if collective == FLOWS:
            self.flows = parse(flows, len(ranks))
            needed = wanted(self.flows, rank)
        else:
            needed = find(collective).wanted(len(ranks), rank)
        self._end_flow_log()
        self.accounted = dict(self.device.engine.placed())  # what comes from now on is the next flows', even before they are started here
        before = self.groups[-1] if self.groups else None
        self.groups = [g for g in self.groups if g.connected]
        group = next((g for g in self.groups if g.is_for(ranks, rank, needed, qps)), None)
        standing = group is not None
        if group is None:
            group = Group(self.device, ranks, rank, needed, qps)
        else:
            self.groups.remove(group)
        self.groups.append(group)
        if group is not before:
            self.pending = []  # of other queue pairs
        return {"qps": group.local, "connected": standing}

    def op_connect(self, remotes: dict[str, list[dict[str, Any]]]) -> None:
        """Connect them."""
        if not self.groups:
            raise CollectiveError("setup comes before connect")
        self.groups[-1].connect(remotes)

    def op_prepare(
        self, collective: str, message_bytes: int, dtype: str = "int32", steps: int = 1, warmup: int = 0, seed: int = 0
    ) -> None:  # fmt: skip
        """Draw inputs and expected results for the :meth:`op_start` that follows with the same arguments: hundreds of milliseconds in which
        this agent answers nobody. Whoever steers several agents has all of them do it before any begins.
        """
        if not self.groups or self.job is not None:
            raise CollectiveError("prepare comes after setup and connect, before start")
        arguments = (collective, message_bytes, dtype, steps, warmup, seed)
        self.prepared = (arguments, find(collective)(self.groups[-1], self.slices, message_bytes, dtype, steps, warmup, seed))

    def op_start(
        self, collective: str, message_bytes: int, dtype: str = "int32", steps: int = 1, warmup: int = 0, seed: int = 0,
        flows: list[dict[str, Any]] | None = None, outstanding: int = 4, at: int | None = None,
    ) -> None:  # fmt: skip
        """Begin; results come as notifications. ``flows``, ``outstanding`` and ``at`` (monotonic ns, now without) are for flows only."""
        if not self.groups:
            raise CollectiveError("setup and connect come before start")
        if self.job is not None:
            raise CollectiveError("a collective is running already")
        group = self.groups[-1]
        job: Collective | Flows
        flow_log = None
        if collective == FLOWS:
            job = Flows(group, parse(flows, group.n) if flows else self.flows, message_bytes, outstanding, seed, at)
            flow_log = FlowLog(self.device.engine, job, self.write, self.accounted)
        else:
            ready, self.prepared = self.prepared, None
            if ready is not None and ready[0] == (collective, message_bytes, dtype, steps, warmup, seed) and ready[1].group is group:
                job = ready[1]
            else:
                job = find(collective)(group, self.slices, message_bytes, dtype, steps, warmup, seed)
        self._end_flow_log()
        self.flow_log = flow_log
        self.job = job
        job.begin()
        pending, self.pending = self.pending, []
        job.completed(pending)

    def op_abort(self) -> None:
        """Forget the collective and all queue pairs; the next set-up makes new ones, the old ones run dry."""
        self.job = None
        self.prepared = None
        self._end_flow_log()
        self.groups = []
        self.pending = []

    def _end_flow_log(self) -> None:
        """What the last flows did in the bin that is not over yet belongs to the log, too."""
        if self.flow_log is not None:
            self.flow_log.bin(self.bin_end - self.bin_ns, self.bin_ns)
            self.accounted = dict(self.device.engine.placed())
        self.flow_log = None

    def op_counters(self) -> dict[str, int]:
        """Counters so far."""
        return self.device.counters()

    def op_paths(self) -> list[dict[str, Any]]:
        """Every queue pair's EVs."""
        return self.device.engine.paths()

    def op_reroute(self, dead_links: list[str]) -> None:
        """The network has converged around these links."""
        self.device.engine.reroute(time.monotonic_ns(), dead_links)

    def op_mapper_start(self, seed: int, options: dict[str, Any] | None = None, report: bool = True) -> None:
        """Begin to probe (docs/clustermapper.md). ``report``: counts go to whoever steers us, as notifications."""
        self.reports = report
        self.device.start_mapper(options or {}, seed)

    def op_mapper_stop(self) -> None:
        """Send no more probes."""
        self.device.stop_mapper()

    def op_mapper(self) -> dict[str, Any]:
        """What the probes found so far; empty if none were sent."""
        return {} if self.device.mapper is None else dict(self.device.mapper.table())

    def op_deny(self, entries: list[str]) -> int:
        """The complete denylist (topologies/denylist.py), which replaces the one before; monotonic ns at which it took effect."""
        now = time.monotonic_ns()
        self.device.engine.deny(now, entries)
        self.denied = list(entries)
        self.write(now, "deny", {"entries": entries})
        return now

    def op_denied(self) -> list[str]:
        """The denylist in force."""
        return self.denied

    def op_hint(self, links: list[str]) -> int:
        """The complete list of links that somebody else knows to be down; monotonic ns at which the engine knew."""
        now = time.monotonic_ns()
        self.device.engine.hint(now, links)
        self.write(now, "hint", {"links": links})
        return now

    def op_stop(self) -> dict[str, int]:
        """Flush the log and end."""
        self.running = False
        return self.device.counters()

    # --- the loop --------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Give the collective what completed; tell what it did."""
        if self.reports:
            for note in self.device.mapper_reports():
                self.server.notify(note)
        made = self.device.engine.completions()
        if made:
            made = self.groups[-1].take(made) if self.groups else []
        job = self.job
        if job is None:
            self.pending.extend(made)  # a peer began before us
            return
        if made:
            job.completed(made)
        job.idle()
        for t, kind, fields in job.logged:
            self.write(t, kind, fields)
        job.logged.clear()
        for note in job.told:
            self.server.notify(note)
        job.told.clear()
        if job.warm:
            job.warm = False
            self.device.forget_lag()  # what start-up cost is not the run's
        if job.failure is not None:
            said = {"rank": job.group.rank, **job.failure}
            self.write(time.monotonic_ns(), "failed", said)
            self.server.notify({"event": "failed", **said})
            self.job = None
        elif job.finished:
            self.server.notify(job.done())
            self.pending.extend(job.leftover)
            self.job = None

    def wake_at(self, now: int) -> int:
        """When the loop has to look again at the latest, ns."""
        due = max(now, self.bin_end)
        return due if self.job is None else min(due, self.job.deadline())

    def loop(self) -> None:
        """Until told to stop."""
        while self.running:
            now = time.monotonic_ns()
            ready = self.device.turn(self.wake_at(now), self.server.readers())
            if ready:
                self.serve()
            self.advance()
            now = time.monotonic_ns()
            if now >= self.bin_end:
                self.record(now)
            if now >= self.housekeeping_at:
                self.housekeeping_at = now + HOUSEKEEPING
                self.device.housekeeping()
                self.log.flush()

    def close(self) -> None:
        """Everything measured goes to the log."""
        now = time.monotonic_ns()
        self.record(self.bin_end or now)  # the bin that is not over yet, under its own time
        self.write(now, "counters", self.device.counters())
        self.write(now, "loop", {**self.device.lag(), "cpu_ns": time.process_time_ns()})
        self.log.close()
        self.server.close()
        self.device.close()


def main() -> int:
    """Entry point. Exit status 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(description="an mrcbed host process")
    parser.add_argument("--config", required=True, help="JSON file")
    args = parser.parse_args()
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever steers us
    try:
        with open(args.config, encoding="utf-8") as file:
            config = json.load(file)
        host = Host(config)
    except (OSError, ValueError, KeyError, FabricError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    drop_root(config.get("uid", 65534), config.get("gid", 65534))
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # dropping root clears it, so only now
    libc.prctl(PR_SET_TIMERSLACK, 1000)
    if os.getppid() != parent:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: setattr(host, "running", False))
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing in the loop makes cycles; a collection would pause it
    try:
        host.loop()
    except Exception:  # a bug: it must not vanish with the process
        traceback.print_exc()
        return 70
    finally:
        host.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
