"""A fluid fabric with everything on it as one object: the contract of :mod:`testbed.world`, without packets.

Made by scenarios.run.flow for ``mrcbed run --world fluid``, and by tests. Needs no root and touches nothing of the machine but the log
files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from agents.collectives.registry import FLOWS
from testbed.errors import UserError
from testbed.faults.injections import TakesFaults
from testbed.fluid.calibration import ROUNDS, Calibration, stored
from testbed.fluid.faults import FluidInjector
from testbed.fluid.flows import FlowsJob
from testbed.fluid.hosts import FluidAgent, FluidHost
from testbed.fluid.network import Network
from testbed.fluid.ring import RingJob
from testbed.fluid.senders import Senders
from testbed.fluid.traffic import Traffic
from testbed.world import FLUID, VirtualClock
from topologies.clos import Fabric
from topologies.structs import Refused

ELSEWHERE = "use --world simulated"


class FluidCluster(TakesFaults):
    """``calibration``: the stored one without."""

    name = FLUID
    controller_lost = False
    captures: tuple[Any, ...] = ()

    def __init__(self, fabric: Fabric, calibration: Calibration | None = None) -> None:
        self.fabric = fabric
        self.network = Network(fabric)
        self.clock = VirtualClock(self.network)
        self.agents: list[FluidAgent] = []
        self._calibration = calibration or stored()
        self._injector = FluidInjector(fabric, self.network)
        self._hosts: list[FluidHost] = []
        self._job: Traffic | None = None
        self._ready: dict[int, dict[str, Any]] = {}  # by rank: what it may begin with

    # --- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Nothing to do: the network exists from the beginning."""

    def stop(self) -> None:
        """Write and close the logs. Idempotent."""
        self.stop_agents()

    def start_agents(
        self, transport: str, options: dict[str, Any], log_dir: Path, seed: int, policy: str = "none", alone: bool = True
    ) -> None:  # fmt: skip
        """One host per host of the fabric. Raises :class:`UserError` for what this world does not have, and for bad options."""
        if transport != "mrc" or policy != "none":
            what = f"transport {transport!r}" if transport != "mrc" else f"controller {policy!r}"
            raise UserError(f"{what}: the fluid world has MRC alone, and no controller; {ELSEWHERE}")
        try:
            self.network.senders = Senders.of(self.fabric, options)
        except Refused as error:
            raise UserError(str(error)) from None
        log_dir.mkdir(parents=True, exist_ok=True)
        self._hosts = [FluidHost(number, log_dir / f"{name}.jsonl") for number, name in enumerate(self.fabric.hosts)]
        self.agents = [FluidAgent(host, self._begin) for host in self._hosts]

    def stop_agents(self) -> None:
        """End all agents; they flush their logs."""
        for host in self._hosts:
            host.close(self.network.time)
        self._hosts, self.agents, self._job, self._ready = [], [], None, {}

    def _begin(self, rank: int, request: dict[str, Any]) -> None:
        """A rank may begin; the last one sets all going."""
        if request["collective"] not in (*ROUNDS, FLOWS):
            raise UserError(f"{request['collective']}: the fluid world knows {', '.join(ROUNDS)} and flows; {ELSEWHERE}")
        self._ready[rank] = request
        if len(self._ready) == len(request["ranks"]):
            self._ready = {}
            hosts = [self._hosts[number] for number in request["ranks"]]
            kind = FlowsJob if request["collective"] == FLOWS else RingJob
            self._job = kind(self.network, hosts, request, self._calibration)
            self._job.begin()

    # --- what this world does not have -------------------------------------------------------------------------

    def _refuse(self, what: str) -> NoReturn:
        raise UserError(f"{what}: not in the fluid world; {ELSEWHERE}")

    def reroute(self, dead_links: Sequence[str]) -> None:
        """Nothing to do: MRC's paths are its senders' choice."""

    def deny(self, entry: str, reason: str = "", by: str = "") -> bool:
        self._refuse("a denylist")

    def allow(self, entry: str, by: str | None = None) -> bool:
        self._refuse("a denylist")

    def background(self, stream: Any, stem: Path) -> Any:
        self._refuse("background traffic")

    def programs(self, program: Any, hosts: Sequence[int]) -> Any:
        self._refuse("programs")

    def controller_journal(self, since_ns: int) -> list[dict[str, Any]]:
        """Empty: there is no controller."""
        return []

    # --- faults and counters -----------------------------------------------------------------------------------

    @property
    def injections(self) -> FluidInjector:
        return self._injector

    def counters(self) -> list[dict[str, Any]]:
        """Empty: no port counts packets."""
        return []

    def loads(self) -> NDArray[np.int64]:
        """Bytes that have left each port, as on the wire; nothing waits anywhere."""
        loads = np.zeros((len(self.fabric.ports), 5), dtype=np.int64)
        if self._job is None:
            return loads
        self._job.settle()
        tally, wire = self._job.tally, 1 / self.fabric.payload_share
        left: list[int] = []
        for link in self.fabric.links:
            if link.kind == "nic":
                at: tuple[int, ...] = (link.plane, self.fabric.host_number(link.a.node))
                ways = (tally.sent[at], tally.received[at])
            else:
                at = (link.plane, int(link.a.node.rpartition("-")[2]), int(link.b.node.rpartition("-")[2]))
                ways = (tally.up[at], tally.down[at])
            left += [round(float(way) * wire) for way in ways]
        loads[:, 0] = left
        return loads

    def processes(self) -> dict[str, int]:
        """Empty: there are no processes."""
        return {}

    def port_watch(self) -> None:
        """None: a model's ports need no watch."""

    def run_watch(self, interval_s: float) -> None:
        """A model is not disturbed by the machine."""

    def backlog(self, port: str) -> int:
        """Always 0: there are no queues. Raises KeyError for a port that is not there."""
        if not any(port == known.name for known in self.fabric.ports):
            raise KeyError(port)
        return 0

    def quiesce(self, timeout: float) -> bool:
        """Nothing is ever on its way."""
        return True

    def check(self) -> None:
        """Nothing can die."""
