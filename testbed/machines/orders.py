"""The orders of a coordinator to a machine: one method each, called between looks at the machine's
own part."""

from __future__ import annotations

import inspect
import math
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict, cast, get_type_hints

import msgspec

from agents.process.control import AgentClient
from testbed.dataplane.trunk import TrunkCounters
from testbed.emulated import trace
from testbed.emulated.cluster import Cluster
from testbed.errors import UserError
from testbed.faults.targets import FaultEvent, Injected, Target
from testbed.machine import sandbox
from testbed.machines.channel_coding import Wire
from testbed.world import RunWatch
from topologies.addressing import inner_address, text

WatchFactory = Callable[[Cluster, int], RunWatch]
COMMAND_S = 60.0


PortRow = TypedDict("PortRow", {"port": str})  # noqa: UP013 and whatever was counted
Trunk = TypedDict("Trunk", {"carried": dict[int, list[int]], "strays": int})  # noqa: UP013
Struck = TypedDict("Struck", {"number": int, "told_ps": int, "due_ps": int | None, "down": bool})  # noqa: UP013
Watched = TypedDict(  # noqa: UP013
    "Watched",
    {"samples": list[tuple[int, float]], "delay_max_ns": int, "result": Mapping[str, object]},
)


class Orders:
    def __init__(self, cluster: Cluster, wire: Wire, watches: WatchFactory) -> None:
        self.cluster, self._wire, self._watches = cluster, wire, watches
        self._watch: RunWatch | None = None
        self._logs: Path | None = None
        self._trunk: TrunkCounters | None = None
        self._sight: trace.Sight | None = None
        self._names: Mapping[str, Callable[..., Any]] = {
            name.removeprefix("op_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("op_")
        }

    def carry_out(self, name: str, keys: Mapping[str, object]) -> Any:
        if name not in self._names:
            raise UserError(
                f"there is no order {name[:40]!r}: install the same version on all machines"
            )
        method = self._names[name]
        kinds = get_type_hints(method)
        try:
            inspect.signature(method).bind(**keys)
            keys = {
                key: msgspec.convert(value, kinds[key], str_keys=True)
                for key, value in keys.items()
            }
        except (TypeError, msgspec.ValidationError) as error:
            raise UserError(
                f"order {name!r}: {error}: install the same version on all machines"
            ) from None
        return method(**keys)

    # --- agents -----------------------------------------------------------------------------------

    @property
    def agents(self) -> dict[int, AgentClient]:
        return dict(zip(self.cluster.part.hosts, self.cluster.agents, strict=False))

    def op_start_agents(
        self, transport: str, options: dict[str, object], seed: int, alone: bool
    ) -> None:
        self._logs = Path(tempfile.mkdtemp(prefix="logs-", dir=sandbox.RUN_DIR))
        self.cluster.start_agents(transport, options, self._logs, seed, "none", alone)

    def op_stop_agents(self) -> None:
        self.cluster.stop_agents()
        self.send_logs()

    def send_logs(self) -> None:
        directory, self._logs = self._logs, None
        for path in sorted(directory.glob("*.jsonl")) if directory is not None else ():
            self._wire.send_file(path)
            path.unlink()

    def op_agent(self, host: int, call: str, args: dict[str, object]) -> Any:
        if host not in self.agents:
            raise UserError(f"h{host} has no agent here: start_agents comes first")
        return self.agents[host].call(call, **args)

    # --- counters ---------------------------------------------------------------------------------

    def op_counters(self) -> list[PortRow]:
        return cast(list[PortRow], self.cluster.counters())

    def op_trunk(self) -> Trunk:
        self._trunk = self._trunk or TrunkCounters()
        return {
            "carried": self._trunk.carried(port.number for port in self.cluster.fabric.ports),
            "strays": self._trunk.strays,
        }

    def op_loads(self) -> dict[int, list[int]]:
        loads = self.cluster.loads().tolist()
        return {port.number: loads[port.number] for port in self.cluster.part.ports}

    def op_quiesce(self, most_ps: int) -> bool:
        return self.cluster.quiesce(most_ps)

    # --- faults -----------------------------------------------------------------------------------

    def op_strike(self, target: Target) -> Struck:
        return _plain(self.cluster.strike(target))

    def op_clear(self, number: int) -> int:
        return self.cluster.clear(number)

    def op_faults(self) -> list[Struck]:
        return [_plain(fault) for fault in self.cluster.faults()]

    def op_fault_events(self) -> list[FaultEvent]:
        return [cast(FaultEvent, asdict(event)) for event in self.cluster.fault_events()]

    def op_set_link(self, name: str, up: bool) -> int:
        return self.cluster.set_link(name, up)

    def op_set_switch(self, name: str, up: bool) -> int:
        return self.cluster.set_switch(name, up)

    def op_heal(self) -> None:
        self.cluster.heal()

    def op_link_states(self) -> dict[str, bool]:
        own = {link.name for link in self.cluster.part.links}
        return {name: up for name, up in self.cluster.link_states().items() if name in own}

    def op_reroute(self, dead_links: list[str]) -> None:
        self.cluster.reroute(dead_links)

    # --- the watch over a run ---------------------------------------------------------------------

    def op_watch_start(self, interval_ps: int) -> None:
        self._watch = self._watches(self.cluster, interval_ps)
        self._watch.start()

    def op_watch_mark(self) -> None:
        if self._watch is not None:
            self._watch.mark()

    def op_watch_stop(self) -> Watched:
        watch, self._watch = self._watch, None
        if watch is None:
            raise UserError("nothing is watched: watch_start comes first")
        watch.stop()
        return {
            "samples": watch.samples,
            "delay_max_ns": watch.delay_max_ns,
            "result": watch.result(),
        }

    # --- the prompt -------------------------------------------------------------------------------

    def op_ping(self, src: int, dsts: list[int], seconds: float, again: bool = False) -> list[bool]:
        patience = ["-i", "0.2", "-w", str(math.ceil(seconds))] if again else ["-W", f"{seconds:g}"]
        pings = [
            self.cluster.net[f"h{src}"].popen(
                ["ping", "-6", "-n", "-c", "1", *patience, text(inner_address(dst))],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for dst in dsts
        ]  # fmt: skip
        return [ping.wait() == 0 for ping in pings]

    def op_command(self, host: int, line: str) -> str:
        process = self.cluster.net[f"h{host}"].popen(
            ["timeout", f"{COMMAND_S:g}", "sh", "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return str(process.communicate()[0].decode(errors="replace"))

    def op_trace_open(self, dst: int) -> None:
        self.op_trace_close()
        net = self.cluster.net
        self._sight = trace.Sight(self.cluster.fabric, net.namespaces, dst)

    def op_trace_send(self, host: int, port: str, frame: str) -> tuple[int, bool]:
        """Return (this machine's clock then, ns; whether the kernel took the frame)."""
        at = time.monotonic_ns()
        return at, trace.send(self.cluster.net.namespaces[f"h{host}"], port, bytes.fromhex(frame))

    def op_trace_follow(self, mark: str, wall_started_ns: int, seconds: float) -> list[trace.Hop]:
        if self._sight is None:
            raise UserError("nobody looks: trace_open comes first")
        return [
            cast(trace.Hop, asdict(hop))
            for hop in self._sight.follow(bytes.fromhex(mark), wall_started_ns, seconds)
        ]

    def op_trace_close(self) -> None:
        if self._sight is not None:
            self._sight.close()
            self._sight = None


def _plain(fault: Injected) -> Struck:
    return {
        "number": fault.number,
        "told_ps": fault.told_ps,
        "due_ps": fault.due_ps,
        "down": fault.down,
    }
